"""vLLM's AsyncLLM as an engine: token ids in, token ids out.

Exactly the request's stop ids end a completion, and every request has a seed. On a CPU a seeded request draws
the same tokens alone or in any batch. On a GPU near ties can fall differently with the batch: not promised there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from typing import Any

from elastic_core.engines.base import EngineLost, OnTokens, RequestFailed, closed_at, empty_completion, room_for
from elastic_core.engines.budgets.parameters import (
    CLOSED,
    SOLUTION,
    THINK,
    additional_config,
    closing_arguments,
    installed_runner,
)
from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError, nearest
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import load_markers
from elastic_core.seeds import request_seed
from elastic_core.strategies.base import Completion, Finish, Generate, Sampling
from elastic_core.system.network import HOST


class VllmEngine:
    """One AsyncLLM in this process; vLLM itself runs its engine core in a child.

    Start it inside the event loop that will use it or in a thread (`asyncio.to_thread`), from a main module guarded by
    `if __name__ == "__main__":`, as vLLM spawns its children.

    Args:
        keeps_budgets: whether it takes requests with a budget. It then runs a logits processor at every step.

    Raises:
        ValueError: when vLLM refuses the checkpoint or the settings.
        UserError: when budgets are not kept with this version of vLLM.
    """

    def __init__(self, model: str, parameters: EngineParameters, *, keeps_budgets: bool = False) -> None:
        os.environ.update(parameters.environment)
        budgets: dict[str, Any] = {}
        self._marks = Marks.of(load_markers(model)[1]) if keeps_budgets else None
        if self._marks is not None:
            chosen = installed_runner(parameters.device)
            os.environ.update(chosen.environment)
            budgets = {"logits_processors": [chosen.processor], "additional_config": additional_config(self._marks)}
        os.environ.setdefault("VLLM_HOST_IP", HOST)  # All processes of an engine are on this machine.
        from vllm.v1.engine.async_llm import AsyncLLM

        self._llm = AsyncLLM.from_engine_args(_engine_arguments(model, parameters, budgets))
        self._numbers = itertools.count()
        self.parameters = parameters
        self.max_model_len: int = self._llm.model_config.max_model_len

    async def generate(self, request: Generate, seed: int, on_tokens: OnTokens | None = None) -> Completion:
        """See `Engine`. A prefix that fills the context gives an empty completion, finish LENGTH. `on_tokens` is called
        with new tokens as they come; together they are the completion's."""
        from vllm.inputs import TokensPrompt
        from vllm.v1.engine.exceptions import EngineDeadError

        max_tokens = room_for(request, self.max_model_len)
        if not max_tokens:
            return empty_completion(request)
        if request.budget is not None:
            if self._marks is None:
                raise RequestFailed("this engine was started without budgets; use separate")
            if self._marks.is_closed(request.prefix):
                raise RequestFailed(
                    "the prompt has closed its thought, which an engine that keeps budgets takes for the "
                    "model's; use separate"
                )
        streamed = on_tokens is not None and not request.near
        parameters = _sampling_parameters(request, max_tokens, request_seed(seed, request), streamed=streamed)
        prompt = TokensPrompt(prompt_token_ids=list(request.prefix))
        outputs = self._llm.generate(prompt, parameters, str(next(self._numbers)))
        try:
            if request.near:
                (output,) = [each async for each in outputs]
                places = [
                    place and {token: each.rank for token, each in place.items()} for place in output.prompt_logprobs
                ]
                return closed_at(request, places)
            return await drawn(request, outputs, on_tokens)
        except RequestFailed:
            raise
        except EngineDeadError as error:
            raise EngineLost("the vLLM engine died; its log says why") from error
        except Exception as error:
            raise RequestFailed(f"vLLM refused or lost a request: {type(error).__name__}: {error}") from error

    async def warm_up(self) -> None:
        """Fill one batch, so that kernels are ready before anything is timed or waits for an answer."""
        length = min(32, self.max_model_len // 2)
        # Distinct prompts, as the prefix cache would leave the prefill kernels cold with equal ones.
        requests = (
            Generate((1, *(2 + (i >> bit & 1) for bit in range(12))), length, (), Sampling())
            for i in range(self.parameters.max_num_seqs)
        )
        await asyncio.gather(*(self.generate(request, seed) for seed, request in enumerate(requests)))

    def shutdown(self) -> None:
        self._llm.shutdown()
        self._llm.shutdown = lambda: None  # Its __del__ calls it again, at exit when vLLM's modules are gone.


async def drawn(request: Generate, outputs: AsyncIterator[Any], on_tokens: OnTokens | None = None) -> Completion:
    """The completion that vLLM's outputs of a request make, each of which holds the tokens since the one before.
    `on_tokens` is called with new tokens as they come. Raises RequestFailed when vLLM ended the request otherwise than
    at a stop id or the limit."""
    tokens: list[int] = []
    logprobs: list[float] = []
    finish: str | None = None
    async for output in outputs:
        (part,) = output.outputs
        tokens += part.token_ids
        if request.sampling.logprobs:
            steps = zip(part.token_ids, part.logprobs, strict=True)
            logprobs += [step[token].logprob for token, step in steps]
        finish = part.finish_reason
        if on_tokens is not None:
            on_tokens(list(part.token_ids))
    if finish not in ("stop", "length"):
        raise RequestFailed(f"vLLM ended a request with {finish or 'no output'}")
    return Completion(tuple(tokens), Finish(finish), tuple(logprobs) if request.sampling.logprobs else None)


def require_arguments(given: Mapping[str, Any]) -> None:
    """Raises UserError for a name that is none of vLLM's engine arguments. It imports vLLM, which takes seconds."""
    from vllm import AsyncEngineArgs

    known = [field.name for field in fields(AsyncEngineArgs)]
    for name in given:
        if name not in known:
            raise UserError(f"engine.vllm.{name}: vLLM has no such engine argument{nearest(name, known)}")


def _engine_arguments(model: str, parameters: EngineParameters, budgets: dict[str, Any]) -> Any:
    from vllm import AsyncEngineArgs

    return AsyncEngineArgs(
        **{"use_tqdm_on_load": False, **parameters.arguments(model)},
        **budgets,
        model=model,
        skip_tokenizer_init=True,
        # The checkpoint's sampling defaults and end-of-text ids must not leak into requests.
        generation_config="vllm",
        disable_log_stats=True,
    )


def _sampling_parameters(request: Generate, max_tokens: int, seed: int, *, streamed: bool) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    budget, closing = request.budget, closing_arguments(request.marks) if request.marks else {}
    return SamplingParams(
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        seed=seed,
        max_tokens=1 if request.near else max_tokens,
        prompt_logprobs=request.near or None,
        stop_token_ids=list(request.stop),
        # A budget's solution ends at end-of-text, which is among the stop ids.
        ignore_eos=budget is None,
        extra_args=budget and {THINK: budget.think, SOLUTION: budget.solution, CLOSED: False, **closing},
        logprobs=0 if request.sampling.logprobs else None,
        detokenize=False,
        # Each output holds the tokens since the one before: the only one holds everything.
        output_kind=RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY,
    )
