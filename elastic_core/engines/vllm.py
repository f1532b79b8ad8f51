"""vLLM's AsyncLLM as an engine: token ids in, token ids out.

Exactly the request's stop ids end a completion, and every request has its own seed. On a CPU a seeded request draws
the same tokens alone or in any batch. On a GPU near ties can fall differently with the batch: not promised there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Any

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.parameters import EngineParameters, engine_environment
from elastic_core.markers import Markers, load_markers
from elastic_core.network import HOST
from elastic_core.seeds import request_seed
from elastic_core.strategies.base import Completion, Finish, Generate, Sampling


class VllmEngine:
    """One AsyncLLM in this process; vLLM itself runs its engine core in a child.

    Start it inside the event loop that will use it, from a main module guarded by `if __name__ == "__main__":`, as
    vLLM spawns its children.

    Raises:
        ValueError: when vLLM refuses the checkpoint or the settings.
    """

    def __init__(self, model: str, parameters: EngineParameters) -> None:
        os.environ.update(engine_environment(parameters.device))
        os.environ.setdefault("VLLM_HOST_IP", HOST)  # All processes of an engine are on this machine.
        from vllm.v1.engine.async_llm import AsyncLLM

        self._markers = _native_markers(model)
        self._llm = AsyncLLM.from_engine_args(_engine_arguments(model, parameters, self._markers))
        self._numbers = itertools.count()
        self.parameters = parameters
        self.max_model_len: int = self._llm.model_config.max_model_len

    async def generate(
        self, request: Generate, seed: int, on_tokens: Callable[[list[int]], None] | None = None
    ) -> Completion:
        """See `Engine`. A prefix that fills the context gives an empty completion, finish LENGTH.

        Args:
            on_tokens: called with new tokens as they come, for whoever watches; together they are the completion's.
        """
        from vllm.inputs import TokensPrompt
        from vllm.v1.engine.exceptions import EngineDeadError

        room = self.max_model_len - len(request.prefix)
        max_tokens = room if request.max_tokens is None else min(room, request.max_tokens)
        if max_tokens <= 0:
            return Completion((), Finish.LENGTH, () if request.sampling.logprobs else None)
        native = None
        if request.think_budget is not None:
            native = _native_budget(request.prefix, request.think_budget, self._markers)
        tokens: list[int] = []
        logprobs: list[float] = []
        finish: str | None = None
        try:
            async for result in self._llm.generate(
                TokensPrompt(prompt_token_ids=list(request.prefix)),
                _sampling_parameters(
                    request, max_tokens, request_seed(seed, request), native, streamed=on_tokens is not None
                ),
                str(next(self._numbers)),
            ):
                output = result.outputs[0]
                tokens += output.token_ids
                if request.sampling.logprobs:
                    steps = zip(output.token_ids, output.logprobs, strict=True)
                    logprobs += [step[token].logprob for token, step in steps]
                finish = output.finish_reason
                if on_tokens is not None:
                    on_tokens(list(output.token_ids))
        except EngineDeadError as error:
            raise EngineLost("the vLLM engine died; its log says why") from error
        except Exception as error:
            raise RequestFailed(f"vLLM refused or lost a request: {type(error).__name__}: {error}") from error
        if finish not in ("stop", "length"):
            raise RequestFailed(f"vLLM ended a request with {finish or 'no output'}")
        return Completion(
            tuple(tokens),
            Finish.STOP if finish == "stop" else Finish.LENGTH,
            tuple(logprobs) if request.sampling.logprobs else None,
        )

    async def warm_up(self) -> None:
        """Fill one batch, so that kernels are ready before anything is timed or waits for an answer."""
        length = min(32, self.max_model_len // 2)
        # Distinct prompts: with equal ones the prefix cache would leave the prefill kernels cold.
        requests = (
            Generate((1, *(2 + (i >> bit & 1) for bit in range(12))), length, (), Sampling())
            for i in range(self.parameters.max_num_seqs)
        )
        await asyncio.gather(*(self.generate(request, seed) for seed, request in enumerate(requests)))

    def shutdown(self) -> None:
        """Stop the engine and its child processes."""
        self._llm.shutdown()


def _native_markers(model: str) -> Markers | str:
    """Markers of the checkpoint, or why the engine cannot close thoughts itself. It serves every other request then."""
    try:
        return load_markers(model)[1]
    except (OSError, ValueError) as error:
        return f"the checkpoint has no markers: {error}"


def _native_budget(prefix: tuple[int, ...], think_budget: int, markers: Markers | str) -> int:
    """Tokens until vLLM closes the thought, as it counts them: from the last think-start of the prompt on, so that
    what the chat template writes after it comes on top.

    Raises:
        RequestFailed: when the engine cannot close thoughts, or none is open at the prefix's end, where vLLM would
            not begin to count.
    """
    if isinstance(markers, str):
        raise RequestFailed(f"this engine cannot close thoughts itself; use separate, or mend this: {markers}")
    for num_tokens, token in enumerate(reversed(prefix)):
        if token == markers.think_start:
            return think_budget + num_tokens
        if token == markers.think_end:
            break
    raise RequestFailed("a native thinking budget needs a prompt that opens the thought; use separate")


def _engine_arguments(model: str, parameters: EngineParameters, markers: Markers | str) -> Any:
    from vllm import AsyncEngineArgs

    arguments: dict[str, Any] = {
        **parameters.arguments(model),
        "model": model,
        "skip_tokenizer_init": True,
        # The checkpoint's own sampling defaults and end-of-text ids must not leak into requests.
        "generation_config": "vllm",
        "disable_log_stats": True,
    }
    if isinstance(markers, Markers):
        arguments["reasoning_config"] = _reasoning_config(markers)
    return AsyncEngineArgs(**arguments)


def _reasoning_config(markers: Markers) -> Any:
    from vllm.config import ReasoningConfig

    config = ReasoningConfig()
    # Its public fields are strings, for a tokenizer that this engine runs without. Requests without a budget pay
    # nothing for it. Those with one have their phase scanned at every step: for cross-checks, not for long thoughts.
    config._reasoning_start_token_ids = [markers.think_start]
    config._reasoning_end_token_ids = [markers.think_end]
    config._natural_reasoning_end_token_ids = [markers.think_end]
    return config


def _sampling_parameters(
    request: Generate, max_tokens: int, seed: int, think_budget: int | None, *, streamed: bool
) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        seed=seed,
        max_tokens=max_tokens,
        stop_token_ids=list(request.stop),
        ignore_eos=True,
        logprobs=0 if request.sampling.logprobs else None,
        detokenize=False,
        # Each output holds what is new since the one before: the only one holds everything.
        output_kind=RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY,
        thinking_token_budget=think_budget,
    )
