"""A model behind a server as an engine: token ids in, token ids out, over the completions API of vLLM and SGLang.

A request carries all that a draw depends on, and so nothing of the server's own defaults: exactly the request's stop
ids end a completion, and every request has its own seed, as with an engine of ours. What the server says is checked:
who ends a completion elsewhere, or returns no ids, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from elastic_core.budget import UNLIMITED, Budget
from elastic_core.engines.base import RequestFailed
from elastic_core.engines.budgets.processor import SOLUTION, THINK
from elastic_core.engines.chat import ChatEngine
from elastic_core.engines.endpoint import CHAT, Address, Endpoint, Served
from elastic_core.engines.http_server import HttpServer, look
from elastic_core.engines.latency import Latency, measure_latency
from elastic_core.errors import UserError
from elastic_core.models.special_tokens import Markers, load_markers
from elastic_core.seeds import request_seed
from elastic_core.serving.responses import KEY
from elastic_core.strategies.base import Completion, Finish, Generate, Sampling

_PROBE_TOKENS = 256
_PROBE_WORDS = 64
"""Tokens of a text that both tokenizers encode at the start, at most, and pieces of the vocabulary that it has."""


class HttpEngine:
    """A model on one server."""

    def __init__(self, server: HttpServer, model: str, context: int) -> None:
        self._server = server
        self._model = model
        self.max_model_len = context

    async def generate(
        self, request: Generate, seed: int, on_tokens: Callable[[list[int]], None] | None = None
    ) -> Completion:
        """See `Engine`. A prefix that fills the context gives an empty completion, finish LENGTH.

        Args:
            on_tokens: as of `VllmEngine.generate`.
        """
        room = self.max_model_len - len(request.prefix)
        max_tokens = room if request.max_tokens is None else min(room, request.max_tokens)
        if max_tokens <= 0:
            return Completion((), Finish.LENGTH, () if request.sampling.logprobs else None)
        body = completion_request(self._model, request, max_tokens, request_seed(seed, request))
        if on_tokens is None:
            return read_completion(await self._server.post("/completions", body), request)
        whole: dict[str, Any] = {"token_ids": []}
        async for answer in self._server.stream("/completions", body):
            for choice in answer.get("choices", ()):
                new = choice.get("token_ids") or []
                whole |= {name: value for name, value in choice.items() if value is not None and name != "token_ids"}
                whole["token_ids"] += new
                on_tokens(new)
        return read_completion({"choices": [whole]}, request)

    async def latency(self, prompts: Sequence[Sequence[int]]) -> Latency:
        """See `measure_latency`; the way to the server is in the figures. Nothing else may be asked meanwhile."""
        return await measure_latency(self, prompts, self.max_model_len)


def completion_request(model: str, request: Generate, max_tokens: int, seed: int) -> dict[str, Any]:
    """The body of a request. It names every setting that a server may have a default of its own for, as vLLM takes
    those of the checkpoint's generation_config.json."""
    return {
        "model": model,
        "prompt": list(request.prefix),
        "max_tokens": max_tokens,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": seed,
        "stop_token_ids": list(request.stop),
        # A budget's solution ends at end-of-text, which is among the stop ids.
        "ignore_eos": request.budget is None,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "return_token_ids": True,
        **({"logprobs": 0} if request.sampling.logprobs else {}),
        **_budget(request.budget or Budget(None, None)),
    }


def _budget(budget: Budget) -> dict[str, Any]:
    """What `elastic serve` keeps. A request without one says so too, as the server may have a default; other servers
    take no notice."""
    limits = {THINK: budget.think, SOLUTION: budget.solution}
    return {"vllm_xargs": {name: UNLIMITED if limit is None else limit for name, limit in limits.items()}}


def read_completion(answer: Mapping[str, Any], request: Generate) -> Completion:
    """What a server answered.

    Raises:
        RequestFailed: when there are no ids in it, or it ended where nobody asked it to.
    """
    try:
        (choice,) = answer["choices"]
        tokens, finish = tuple(choice["token_ids"]), choice["finish_reason"]
        logprobs = tuple(choice["logprobs"]["token_logprobs"]) if request.sampling.logprobs else None
    except (KeyError, TypeError, ValueError):
        raise RequestFailed("the server returned no token ids, which vLLM and SGLang do for return_token_ids") from None
    stop = choice.get("stop_reason", choice.get("matched_stop"))
    if finish == "stop" and stop in request.stop and tokens[-1:] != (stop,):
        tokens += (stop,)  # Some servers take it off.
    if request.budget is not None and KEY not in choice:
        raise RequestFailed("the server keeps no budgets; start it with `elastic serve`, or use separate")
    if finish == "length" or (finish == "stop" and tokens and tokens[-1] in request.stop):
        return Completion(tokens, Finish(finish), logprobs)
    raise RequestFailed(
        f"the server ended a completion with {finish} at {tokens[-1] if tokens else 'nothing'}, which is none of the "
        "stop ids of the request; start it without stop ids of its own (vLLM: --generation-config vllm)"
    )


@asynccontextmanager
async def http_pool(
    endpoints: Mapping[str, Endpoint], *, keeps_budgets: bool = False
) -> AsyncIterator[list[dict[str, Any]]]:
    """Replicas of endpoints, each checked first: an `HttpEngine` of every one by name, or a `ChatEngine`. Where there
    are fewer of one than of another they take turns.

    Args:
        keeps_budgets: whether each must keep budgets, as `elastic serve` does.

    Raises:
        UserError: when a server is another one than before, does not serve the model's tokenizer, or keeps no budgets.
        ServerLost: when one does not answer.
    """
    async with AsyncExitStack() as stack:
        opened: dict[str, list[HttpEngine | ChatEngine]] = {}
        for name, endpoint in endpoints.items():
            servers = [await stack.enter_async_context(_server(endpoint, each)) for each in endpoint.addresses]
            # A failed check is raised after the others have ended.
            checked = await asyncio.gather(
                *(_checked(endpoint, *each, keeps_budgets) for each in zip(servers, endpoint.addresses, strict=True)),
                return_exceptions=True,
            )
            for each in checked:
                if isinstance(each, BaseException):
                    raise each
            opened[name] = [each for each in checked if not isinstance(each, BaseException)]
        count = max(map(len, opened.values()))
        yield [{name: engines[i % len(engines)] for name, engines in opened.items()} for i in range(count)]


def _server(endpoint: Endpoint, address: Address) -> HttpServer:
    return HttpServer(endpoint.name, address, endpoint.parameters)


async def _checked(
    endpoint: Endpoint, server: HttpServer, address: Address, keeps_budgets: bool
) -> HttpEngine | ChatEngine:
    served = await look(server, address.model)
    if served != endpoint.served:
        raise UserError(
            f"{address} is {_facts(served)}, and {endpoint.addresses[0]} was {_facts(endpoint.served)}; the rows of "
            f"sweep.checkpoints.{endpoint.name} must be made by one: run the same command again if it was changed, or "
            "take this replica out"
        )
    if address.chat:
        return ChatEngine(server, address.model)
    assert endpoint.tokenizer is not None, "only chat is asked without"
    await check_tokenizer(server, address, str(endpoint.tokenizer), served.context)
    assert served.context is not None, "look refuses it"
    engine = HttpEngine(server, address.model, served.context)
    if keeps_budgets:
        await _check_budgets(engine, address, load_markers(endpoint.tokenizer)[1])
    return engine


async def _check_budgets(engine: HttpEngine, address: Address, markers: Markers) -> None:
    """Raise UserError when the server keeps no budgets."""
    prompt = (markers.think_start,)
    try:
        await engine.generate(Generate(prompt, 3, markers.end_of_text, Sampling(), budget=Budget(1, 1)), seed=0)
    except RequestFailed as error:
        raise UserError(f"separate_native at {address}: {error}") from None


def _facts(served: Served) -> str:
    return f"{served} and a context of {served.context} tokens"


async def check_tokenizer(server: HttpServer, address: Address, tokenizer: str, context: int | None) -> None:
    """A text made of pieces of the whole vocabulary, and of a chat, must be the same ids there and here; and ids must
    be taken as they are, and come back.

    Raises:
        UserError: when they are not, or the server returns none.
    """
    local, markers = load_markers(tokenizer, thinks=False)
    step = max(1, len(local) // _PROBE_WORDS)
    words = [local.decode([i]) for i in range(0, len(local), step)]
    text = local.decode(list(markers.end_of_text)) + "<think>36+6=?\n</think> \\boxed{42}"
    limit = min(_PROBE_TOKENS, (context or _PROBE_TOKENS) // 2)
    for word in words:
        if len(local.encode(text + word, add_special_tokens=False)) > limit:
            break
        text += word
    ids = local.encode(text, add_special_tokens=False)
    asked = {"model": address.model, "max_tokens": 1, "add_special_tokens": False, "return_token_ids": True}
    setting = f"the tokenizer {tokenizer}"
    for prompt in (text, ids):
        try:
            (choice,) = (await server.post("/completions", {**asked, "prompt": prompt}))["choices"]
            found, drawn = choice["prompt_token_ids"], choice["token_ids"]
        except RequestFailed as error:
            raise UserError(f"{address} refused a prompt of {setting}: {error}") from None
        except (KeyError, TypeError, ValueError):
            found = drawn = None
        if not isinstance(found, list) or not isinstance(drawn, list):
            raise UserError(
                f"{address} returns no token ids, which every strategy but a few works on; expected vLLM, or a recent "
                f"SGLang, or another server's chat API: {CHAT}{address}"
            )
        if found != ids:
            at = next(
                (i for i, (a, b) in enumerate(zip(found, ids, strict=False)) if a != b), min(len(found), len(ids))
            )
            raise UserError(
                f"{address} does not have {setting}: token {at} of a text is {found[at : at + 1]} there and "
                f"{ids[at : at + 1]} here; name the tokenizer of the model that it serves"
            )
