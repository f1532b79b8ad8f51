"""A response under a stop rule, as vLLM's engine would hand it out: the strategy's coroutine draws it in several
requests to the engine, and the client sees one.

The thought goes on during a probe; tokens that the rule cuts are never shown. When the client leaves, or the rule ends
the thought, every request under way is aborted before the response ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.base import drive, empty_completion, room_for
from elastic_core.engines.vllm import drawn
from elastic_core.models.special_tokens import Markers
from elastic_core.rewards import answer_reader
from elastic_core.seeds import request_seed
from elastic_core.strategies import STRATEGIES
from elastic_core.strategies.base import Completion, Generate, Sampling
from elastic_core.trajectory import SolutionFinish, Trajectory

_KEPT = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "allowed_token_ids",
)  # fmt: skip
"""What of a client's sampling parameters shapes the distribution; each request of the rule has it."""

Draw = Callable[..., AsyncGenerator[Any, None]]  # `generate` of vLLM's engine.


@dataclass(frozen=True)
class Rule:
    """A level's stop rule by its strategy's name, and the kind of answer in probes (`elastic_core.rewards`)."""

    name: str
    reads: str = "math"


def refused(sampling: Any) -> str | None:
    """The setting that a response in several requests cannot have; None without one."""
    named = {
        "n": sampling.n > 1,
        "logprobs": sampling.logprobs is not None,
        "prompt_logprobs": sampling.prompt_logprobs is not None,
        "stop": bool(sampling.stop),
        "structured output": sampling.structured_outputs is not None,
    }
    return next((name for name, given in named.items() if given), None)


@dataclass
class Response:
    """One response under way. `shown` are its tokens up to the request that is being answered, and `coming` that
    request's; `probe_tokens` are those of probes, and `wasted_tokens` of the thought after the rung where it ended."""

    rule: Rule
    budget: Budget
    markers: Markers
    tokenizer: Any
    max_model_len: int
    shown: list[int] = field(default_factory=list)
    coming: list[int] = field(default_factory=list)
    probe_tokens: int = 0
    wasted_tokens: int = 0
    trajectory: Trajectory | None = None

    async def outputs(
        self, generate: Draw, prompt: list[int], sampling: Any, options: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs, of the kind that the client's parameters ask for."""
        engine = _Requests(self, generate, prompt, sampling, options)
        strategy = STRATEGIES[self.rule.name].reading(answer_reader(self.tokenizer, self.markers, self.rule.reads))
        rollout = strategy.decode(tuple(prompt), self.budget, self.markers, Sampling())
        work = asyncio.create_task(drive(rollout, {"policy": engine}, sampling.seed or 0))
        writer = _Writer(self.tokenizer, sampling, prompt, options["request_id"])
        try:
            while not work.done():
                fresh = asyncio.create_task(engine.fresh.wait())
                try:
                    await asyncio.wait({work, fresh}, return_when=asyncio.FIRST_COMPLETED)
                finally:  # The client may leave.
                    fresh.cancel()
                engine.fresh.clear()
                if not work.done() and (output := writer.more(self._safe())):
                    yield output
            await engine.end()
            self.trajectory = work.result()
            self.shown, self.coming = list(self.trajectory.response_ids), []
            ended = self.trajectory.solution_finish is SolutionFinish.STOP
            yield writer.last(self.shown, "stop" if ended else "length", self.markers.end_of_text)
        finally:
            work.cancel()
            await engine.end()
            with suppress(asyncio.CancelledError, Exception):
                await work

    def _safe(self) -> list[int]:
        """Tokens to show while the response is drawn: an end-of-text may be taken back."""
        found = self.tokens
        return found[:-1] if found and found[-1] in self.markers.end_of_text else found

    @property
    def tokens(self) -> list[int]:
        """Tokens of the response so far."""
        return self.shown + self.coming


@dataclass
class _Ahead:
    """A request begun during a probe; its tokens go to `drawn`, and are shown once the strategy asks for it."""

    request: Generate
    drawn: list[int]
    task: asyncio.Task[Completion]

    async def cancel(self) -> None:
        """Cancel, and wait until the engine has stopped."""
        self.task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self.task


class _Requests:
    """The engine of a rule's coroutine. A request that the strategy announced with a probe begins with it."""

    def __init__(
        self, response: Response, generate: Draw, prompt: list[int], sampling: Any, options: dict[str, Any]
    ) -> None:
        self.fresh = asyncio.Event()
        self._response, self._generate, self._prompt, self._sampling = response, generate, prompt, sampling
        self._id = options["request_id"]
        self._options = {name: value for name, value in options.items() if name in ("lora_request", "priority")}
        self._ahead: _Ahead | None = None
        self._number = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`."""
        if request.aside:
            if request.meanwhile is not None:
                drawn_ahead = list[int]()
                task = asyncio.create_task(self._draw(request.meanwhile, seed, drawn_ahead))
                self._ahead = _Ahead(request.meanwhile, drawn_ahead, task)
            completion = await self._draw(request, seed, [])
            self._response.probe_tokens += len(completion.tokens)
            return completion
        before = list(request.prefix[len(self._prompt) :])
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.request == request:
            # Its tokens so far are shown now, the others as they come.
            self._response.shown, self._response.coming = before, ahead.drawn
            self.fresh.set()
            try:
                return await asyncio.shield(ahead.task)
            finally:
                await ahead.cancel()
        self._response.shown, self._response.coming = before, []
        return await self._draw(request, seed, self._response.coming)

    async def end(self) -> None:
        """Abort the request ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await ahead.cancel()
            self._response.wasted_tokens += len(ahead.drawn)

    async def _draw(self, request: Generate, seed: int, into: list[int]) -> Completion:
        from vllm.inputs import TokensPrompt

        max_tokens = room_for(request, self._response.max_model_len)
        if not max_tokens:
            return empty_completion(request)
        self._number += 1
        prompt = TokensPrompt(prompt_token_ids=list(request.prefix))
        parameters = self._parameters(request, max_tokens)
        outputs = self._generate(prompt, parameters, request_id=f"{self._id}-{self._number}", **self._options)

        def show(tokens: list[int]) -> None:
            into.extend(tokens)
            self.fresh.set()

        async with aclosing(outputs):  # The engine stops.
            return await drawn(request, outputs, show)

    def _parameters(self, request: Generate, max_tokens: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        seed = self._sampling.seed
        return SamplingParams(
            **{name: getattr(self._sampling, name) for name in _KEPT},
            seed=None if seed is None else request_seed(seed, request),
            max_tokens=max_tokens,
            stop_token_ids=list(request.stop),
            ignore_eos=True,  # It is among the stop ids where it ends a request.
            logprobs=0 if request.sampling.logprobs else None,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )


class _Writer:
    """Writes tokens as vLLM's outputs, with their text."""

    def __init__(self, tokenizer: Any, sampling: Any, prompt: list[int], request_id: str) -> None:
        from tokenizers.decoders import DecodeStream

        self._is_whole = sampling.output_kind.name == "FINAL_ONLY"
        self._tokenizer, self._prompt, self._id = tokenizer.backend_tokenizer, prompt, request_id
        self._stream = DecodeStream(skip_special_tokens=sampling.skip_special_tokens)
        self._written = 0

    def more(self, tokens: list[int]) -> Any | None:
        """The new tokens; None without any, or where the client does not stream."""
        if self._is_whole or len(tokens) <= self._written:
            return None
        return self._output(tokens, tokens, None)

    def last(self, tokens: list[int], finish: str, end_of_text: tuple[int, ...]) -> Any:
        # The token that ends a response has no text.
        spoken = tokens[:-1] if finish == "stop" and tokens[-1:] and tokens[-1] in end_of_text else tokens
        return self._output(tokens, spoken, finish)

    def _output(self, tokens: list[int], spoken: list[int], finish: str | None) -> Any:
        from vllm.outputs import CompletionOutput, RequestOutput

        steps = (self._stream.step(self._tokenizer, token) for token in spoken[self._written :])
        text, new = "".join(step for step in steps if step), tokens[self._written :]
        self._written = len(tokens)
        output = CompletionOutput(
            index=0,
            text=text,
            token_ids=new,
            cumulative_logprob=None,
            logprobs=None,
            finish_reason=finish,
        )
        return RequestOutput(self._id, None, self._prompt, None, [output], finish is not None)
