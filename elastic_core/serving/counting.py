"""Tokens of responses, counted where vLLM's engine hands them out: the same for every API that is in front of it.

Here too ends what a logits processor cannot end: a solution under a grammar, which would reject a forced end-of-text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.budgets.parameters import CLOSED, DROP_ONE, ROOM, SOLUTION, THINK
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import Markers
from elastic_core.serving.requests import UNLIMITED_BUDGET, Plan
from elastic_core.serving.ruled import Response, refused

Generate = Callable[..., AsyncGenerator[Any, None]]  # `generate` of vLLM's engine.
CURRENT: ContextVar[Count] = ContextVar("elastic_count")  # Of the HTTP request that is being answered.


def watch(engine: Any) -> None:
    """Have what `engine.generate` of a vLLM server yields counted, once for each engine."""
    generate = engine.generate
    if getattr(generate, "is_counted", False):
        return

    @wraps(generate)
    def counted(prompt: Any, sampling_params: Any, request_id: str, **options: Any) -> AsyncGenerator[Any, None]:
        count, options = CURRENT.get(None), {**options, "request_id": request_id}
        if count is None or count.plan is None or not count.plan.counted:
            return generate(prompt, sampling_params, **options)
        return count.follow(engine, generate, prompt, sampling_params, options)

    counted.is_counted = True  # type: ignore[attr-defined]
    engine.generate = counted


@dataclass
class Tally:
    """Tokens of one choice, counted as in a trajectory of `separate`: sampled ones of the thinking, with the model's
    own think-end, and of the solution; a think-end that was forced; and all of these. `solution_start` is None while
    the thought is open; `cut` is whether the solution was ended after s tokens; `rule` what its stop rule did."""

    budget: Budget
    marks: Marks
    solution_start: int | None
    thinking: int = 0
    solution: int = 0
    forced: int = 0
    length: int = 0
    cut: bool = False
    finish: str | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)
    _last: int | None = None
    _thought: list[int] = field(default_factory=list)
    _closing: int = 0

    def add(self, tokens: Sequence[int]) -> int:
        """Count new tokens. Returns how many of them belong to the response: all but a cut's end-of-text."""
        for i, token in enumerate(tokens):
            if self.solution_start is None and self.length == self.budget.think:
                self._closing = len(self.marks.closing(self._thought))
                self.solution_start = None if self._closing else self.length
            if self.solution_start is None:
                self._think(token)
            elif self.length - self.solution_start == self.budget.solution:
                self.cut = True
                return i
            else:
                self.solution += 1
            self.length += 1
            self._last = token
        return len(tokens)

    def _think(self, token: int) -> None:
        """Count a token before the solution: one that the model chose, or one of those that close the thought at t."""
        if self._closing:
            self.forced += 1
            if self.forced == self._closing:
                self.solution_start = self.length + 1
            return
        self._thought.append(token)
        self.thinking += 1
        if token in self.marks.stop:
            self.solution_start = self.marks.end(self._thought, self.length)

    @property
    def thought(self) -> str:
        """How the thought ended: closed by the model, forced at t, end_of_text where the model ended its response
        inside, not_applicable where the prompt had closed it, unfinished where something else ended the response."""
        if self.solution_start is not None:
            own = not self.forced or self.marks.rest_of_end(self._thought)
            return "not_applicable" if not self.solution_start else "closed" if own else "forced"
        ended = self.finish == "stop" and self._last in self.marks.end_of_text
        return "end_of_text" if ended else "unfinished"

    @property
    def is_cut(self) -> bool:
        """Whether the solution filled its budget and did not end there by itself."""
        return self.cut or (self.finish == "length" and self.solution == self.budget.solution)


class Count:
    """The tokens of one HTTP request, whose budget is set on what the engine gets: `tallies` by the index of a choice,
    as OpenAI's APIs number them. `load` is what the client is told of the server's load.

    Args:
        plan: None until the request has been read.
    """

    def __init__(self, markers: Markers, tokenizer: Any, plan: Plan | None = None) -> None:
        self.tallies: dict[int, Tally] = {}
        self.plan = plan
        self.load: Mapping[str, Any] = {}
        self._markers, self._marks, self._tokenizer = markers, Marks.of(markers), tokenizer
        self._num_choices = 0

    def follow(
        self, engine: Any, generate: Generate, prompt: Any, sampling: Any, options: Any
    ) -> AsyncGenerator[Any, None]:
        """What the engine yields for one prompt, counted. It is called for a request's prompts in their order."""
        first, kind = self._num_choices, sampling.output_kind.name
        self._num_choices += sampling.n
        budget = self._plan.budget
        if budget == UNLIMITED_BUDGET:
            return self._counted(generate(prompt, sampling, **options), first, kind)
        limits = {
            key: limit for key, limit in ((THINK, budget.think), (SOLUTION, budget.solution)) if limit is not None
        }
        ids = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None
        closed = None if ids is None else self._marks.is_closed(ids)
        if self._plan.rule is not None and ids is not None and not closed:
            return self._ruled(engine, generate, list(ids), sampling, options, first)
        grammar = sampling.structured_outputs is not None and budget.solution is not None
        if grammar:
            self._check_grammar(engine, sampling)
            del limits[SOLUTION]
            if "reasoning_ended" in options:  # vLLM says yes where the thought is hidden.
                options = {**options, "reasoning_ended": closed}
        sampling.extra_args = {**(sampling.extra_args or {}), **limits, ROOM: self._plan.room, CLOSED: closed}
        # Every id that ends a response; a checkpoint's may not be among those that vLLM knows.
        sampling.update_from_generation_config({"eos_token_id": list(self._marks.end_of_text)})
        if not grammar:
            return self._counted(generate(prompt, sampling, **options), first, kind)
        if kind == "FINAL_ONLY":
            sampling.output_kind = type(sampling.output_kind).CUMULATIVE
        return self._ended(generate(prompt, sampling, **options), first, kind)

    def told(self, index: int = 0) -> dict[str, Any]:
        """What a client is told of a choice."""
        tally = self.tallies.get(index) or Tally(self._plan.budget, self._marks, None)
        return {
            "budget": str(self._plan.budget),
            "level": self._plan.level,
            "thought": tally.thought,
            "thinking_tokens": tally.thinking,
            "solution_tokens": tally.solution,
            "forced_tokens": tally.forced,
            **self.load,
            **tally.rule,
        }

    @property
    def _plan(self) -> Plan:
        if self.plan is None:
            raise RuntimeError("the request has not been read")
        return self.plan

    def _check_grammar(self, engine: Any, sampling: Any) -> None:
        """A grammar that began with the thought would reject the forced end of it."""
        config = engine.vllm_config.structured_outputs_config
        if not config.reasoning_parser or config.enable_in_reasoning:
            raise _refusal(
                "structured output together with a budget needs a grammar that begins after the thought; start the "
                f"server with --reasoning-parser and without enable_in_reasoning, or {DROP_ONE}"
            )
        if sampling.n > 1:
            raise _refusal(f"n is {sampling.n} with structured output and a budget; ask {sampling.n} times")

    async def _ruled(
        self, engine: Any, generate: Generate, prompt: list[int], sampling: Any, options: Any, index: int
    ) -> AsyncGenerator[Any, None]:
        """A response whose thought a stop rule ends."""
        assert self._plan.rule is not None
        if name := refused(sampling):
            raise _refusal(f"{name} together with the level {self._plan.level}, whose stop rule probes; leave it out")
        budget, context = self._plan.budget, engine.model_config.max_model_len
        if len(prompt) + self._plan.room > context:
            raise _refusal(
                f"the budget {budget} does not fit the context: it takes {self._plan.room} tokens after the prompt, "
                f"which leaves {context - len(prompt)}; ask for a smaller one"
            )
        response = Response(self._plan.rule, budget, self._markers, self._tokenizer, context)
        try:
            async with aclosing(response.outputs(generate, prompt, sampling, options)) as outputs:
                async for output in outputs:
                    if output.finished:  # Counted before the client is told.
                        self.tallies[index] = self._tally(response, output.outputs[0].finish_reason)
                    yield output
        finally:
            self.tallies.setdefault(index, self._tally(response, None))

    def _tally(self, response: Response, finish: str | None) -> Tally:
        """The counts of a response under a rule, whole or left by its client."""
        done, budget = response.trajectory, self._plan.budget
        told: dict[str, Any] = {"rule": response.rule.name, "probe_tokens": response.probe_tokens}
        told["wasted_tokens"] = response.wasted_tokens
        if done is None:
            return Tally(budget, self._marks, None, len(response.tokens), length=len(response.tokens), rule=told)
        told |= {"thought": str(done.think_finish), "probes": len(done.probes), "stopped": done.stopped}
        told["stopped_at"] = done.think_tokens if done.stopped else None
        counts = done.think_tokens, done.solution_tokens, done.forced_tokens, len(done.response_ids)
        return Tally(budget, self._marks, done.solution_start, *counts, finish=finish, rule=told)

    async def _counted(self, outputs: AsyncGenerator[Any, None], first: int, kind: str) -> AsyncGenerator[Any, None]:
        async with aclosing(outputs):  # The engine stops when the client has left.
            async for output in outputs:
                for completion in output.outputs:
                    self._add(first + completion.index, output, completion, kind)
                yield output

    async def _ended(self, outputs: Any, first: int, kind: str) -> AsyncGenerator[Any, None]:
        """Of one choice under a grammar, ended after s tokens of its solution."""
        text, ids = "", list[int]()  # What was yielded.
        async for output in outputs:
            (completion,) = output.outputs
            tally, over = self._add(first, output, completion, "CUMULATIVE" if kind == "FINAL_ONLY" else kind)
            full = tally.solution_start is not None and tally.solution == self._plan.budget.solution
            if full and completion.finish_reason is None:
                tally.finish = completion.finish_reason = "length"
                output.finished = True
            ids = ids + list(completion.token_ids) if kind == "DELTA" else list(completion.token_ids)
            if over:  # The text is of tokens that are not the response's as well.
                whole = self._tokenizer.decode(ids, skip_special_tokens=True)
                completion.text = whole[len(text) :] if kind == "DELTA" else whole
            text += completion.text
            if output.finished:
                await outputs.aclose()  # The engine stops.
                yield output
                return
            if kind != "FINAL_ONLY":
                yield output

    def _add(self, index: int, output: Any, completion: Any, kind: str) -> tuple[Tally, bool]:
        """Count what is new in a completion, and leave in it what belongs to the response. Returns the choice's tally,
        and whether something was taken out."""
        tally = self.tallies.get(index)
        if tally is None:
            closed = self._marks.is_closed(output.prompt_token_ids or ())
            tally = self.tallies[index] = Tally(self._plan.budget, self._marks, 0 if closed else None)
        tokens = completion.token_ids
        before = tally.length if kind == "CUMULATIVE" else 0
        kept = before + tally.add(tokens[before:])
        over = kept < len(tokens)
        if over:
            completion.token_ids = tokens[:kept]
            if completion.logprobs is not None:
                completion.logprobs = completion.logprobs[:kept]
        if completion.finish_reason is not None:
            if tally.cut:
                completion.finish_reason, completion.stop_reason = "length", None
            tally.finish = completion.finish_reason
        return tally, over


def _refusal(sentence: str) -> ValueError:
    """What vLLM answers with status 400."""
    from vllm.exceptions import VLLMValidationError

    refusal: ValueError = VLLMValidationError(sentence)
    return refusal
