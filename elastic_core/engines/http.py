"""Models behind servers as engines. `HttpEngine` sends and receives token ids, over the completions API of vLLM and
SGLang; `ChatEngine` sends and receives text, over a chat API, with the server's usage for the counts.

A request of token ids states everything that a draw depends on, and leaves nothing to the server's defaults: only its
stop ids end a completion, and it has a seed. A server that ends one elsewhere, or returns no ids, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from elastic_core.budget import UNLIMITED, Budget
from elastic_core.engines.base import OnTokens, RequestFailed, closed_at, empty_completion, room_for
from elastic_core.engines.budgets.parameters import KEY, SOLUTION, THINK
from elastic_core.engines.endpoint import CHAT, Endpoint
from elastic_core.engines.http_server import HttpServer, look
from elastic_core.errors import UserError
from elastic_core.models.families import split_thought
from elastic_core.models.special_tokens import load_markers
from elastic_core.seeds import request_seed
from elastic_core.strategies.base import Completion, Finish, Generate, Sampling
from elastic_core.strategies.chat import ChatRequest, Reply

_SEED_BITS = 0x7FFFFFFF
_PROBE_TOKENS = 256
_PROBE_WORDS = 64
"""Tokens of a text that both tokenizers encode at the start, at most, and pieces of the vocabulary that it has."""


class HttpEngine:
    """A model on one server, by token ids."""

    def __init__(self, server: HttpServer, model: str, context: int) -> None:
        self._server = server
        self._model = model
        self.max_model_len = context

    async def generate(self, request: Generate, seed: int, on_tokens: OnTokens | None = None) -> Completion:
        max_tokens = room_for(request, self.max_model_len)
        if not max_tokens:
            return empty_completion(request)
        body = completion_request(self._model, request, max_tokens, request_seed(seed, request))
        if request.near:
            return read_places(await self._server.post("/completions", body), request)
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


def completion_request(model: str, request: Generate, max_tokens: int, seed: int) -> dict[str, Any]:
    """The body of a request. It names every setting for which a server may have a default: vLLM takes them from the
    checkpoint's generation_config.json."""
    budget = request.budget or Budget(None, None)
    limits = {THINK: budget.think, SOLUTION: budget.solution}
    return {
        "model": model,
        "prompt": list(request.prefix),
        "max_tokens": 1 if request.near else max_tokens,
        **({"prompt_logprobs": request.near} if request.near else {}),
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
        # For `elastic serve`, which has a default for a request that names no budget. Other servers ignore it.
        "vllm_xargs": {name: UNLIMITED if limit is None else limit for name, limit in limits.items()},
    }


def read_completion(answer: Mapping[str, Any], request: Generate) -> Completion:
    """A completion from a server's answer. Raises RequestFailed when it has no ids, or did not end at a stop id."""
    try:
        (choice,) = answer["choices"]
        tokens, finish = tuple(choice["token_ids"]), choice["finish_reason"]
        logprobs = tuple(choice["logprobs"]["token_logprobs"]) if request.sampling.logprobs else None
    except (KeyError, TypeError, ValueError):
        raise RequestFailed("the server returned no token ids, which vLLM and SGLang do for return_token_ids") from None
    stop = choice.get("stop_reason", choice.get("matched_stop"))
    if finish == "stop" and stop in request.stop and tokens[-1:] != (stop,):
        tokens += (stop,)  # Some servers remove it.
    if request.budget is not None and KEY not in choice:
        raise RequestFailed("the server keeps no budgets; start it with `elastic serve`, or use separate")
    if finish == "length" or (finish == "stop" and tokens and tokens[-1] in request.stop):
        return Completion(tokens, Finish(finish), logprobs)
    raise RequestFailed(
        f"the server ended a completion with {finish} at {tokens[-1] if tokens else 'nothing'}, which is none of the "
        "stop ids of the request; start it without stop ids of its own (vLLM: --generation-config vllm)"
    )


def read_places(answer: Mapping[str, Any], request: Generate) -> Completion:
    """The completion of a request for a place `near` which a thought may be closed (`closed_at`). Raises RequestFailed
    when the server gives no ranks."""
    try:
        (choice,) = answer["choices"]
        places = [
            place and {int(token): each["rank"] for token, each in place.items()} for place in choice["prompt_logprobs"]
        ]
        return closed_at(request, places)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RequestFailed("the server ranks no tokens of a prompt, as vLLM does for prompt_logprobs") from None


class ChatEngine:
    """A model on one server, by text."""

    def __init__(self, server: HttpServer, model: str) -> None:
        self._server = server
        self._model = model

    async def generate(self, request: ChatRequest, seed: int) -> Reply:
        """See `Engine.generate`; a server may ignore the seed."""
        return read_reply(await self._server.post("/chat/completions", chat_body(self._model, request, seed)), request)


def chat_body(model: str, request: ChatRequest, seed: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": request.question}],
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "seed": seed & _SEED_BITS,
        **({} if request.max_tokens is None else {"max_completion_tokens": request.max_tokens}),
        **({} if request.effort is None else {"reasoning_effort": request.effort}),
    }


def read_reply(answer: Mapping[str, Any], request: ChatRequest) -> Reply:
    """A reply from a server's answer. A thought inside the text is split off. Raises RequestFailed when it
    has no message or no usage, was withheld, or is longer than requested."""
    try:
        choice, usage = answer["choices"][0], answer["usage"]
        message, finish = choice["message"], choice["finish_reason"]
        prompt_tokens, sampled = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise RequestFailed("the server's answer has no message, or no usage to count tokens by") from None
    if finish not in ("stop", "length"):
        raise RequestFailed(f"the server ended a response with {finish}")
    if request.max_tokens is not None and sampled > request.max_tokens:
        raise RequestFailed(
            f"the server took {sampled} tokens of max_completion_tokens = {request.max_tokens}: no budget is kept"
        )
    thinking, text = message.get("reasoning") or message.get("reasoning_content") or "", message.get("content") or ""
    thought, text = split_thought(text)
    thinking += thought
    think_tokens = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or None
    return Reply(thinking, text or None, prompt_tokens, sampled, think_tokens, Finish(finish))


@asynccontextmanager
async def http_pool(
    endpoints: Mapping[str, Endpoint], *, keeps_budgets: bool = False
) -> AsyncIterator[list[dict[str, Any]]]:
    """Replicas of endpoints, each checked first: engines by name. An endpoint with fewer servers than another one gives
    each to several replicas. With `keeps_budgets` each must keep budgets, as `elastic serve` does.

    Raises:
        UserError: when a server has changed, does not serve the model's tokenizer, or keeps no budgets.
        ServerLost: when one does not answer.
    """
    async with AsyncExitStack() as stack:
        opened: dict[str, list[HttpEngine | ChatEngine]] = {}
        for name, endpoint in endpoints.items():
            servers = [HttpServer(name, address, endpoint.parameters) for address in endpoint.addresses]
            for server in servers:
                await stack.enter_async_context(server)
            # A failed check is raised after the others have ended.
            checked = await asyncio.gather(
                *(_checked(endpoint, server, keeps_budgets) for server in servers), return_exceptions=True
            )
            for each in checked:
                if isinstance(each, BaseException):
                    raise each
                opened.setdefault(name, []).append(each)
        count = max(map(len, opened.values()))
        yield [{name: engines[i % len(engines)] for name, engines in opened.items()} for i in range(count)]


async def _checked(endpoint: Endpoint, server: HttpServer, keeps_budgets: bool) -> HttpEngine | ChatEngine:
    address = server.address
    served = await look(server, address.model)
    if served != endpoint.served:
        found, expected = (f"{each} and a context of {each.context} tokens" for each in (served, endpoint.served))
        raise UserError(
            f"{address} is {found}, and {endpoint.addresses[0]} was {expected}; the rows of "
            f"sweep.checkpoints.{endpoint.name} must be made by one: run the same command again if it was changed, or "
            "take this replica out"
        )
    if address.chat:
        return ChatEngine(server, address.model)
    assert endpoint.tokenizer is not None  # Only a chat API may lack it.
    await check_tokenizer(server, str(endpoint.tokenizer), endpoint.context)
    engine = HttpEngine(server, address.model, endpoint.context)
    if keeps_budgets:
        _, markers = load_markers(endpoint.tokenizer)
        request = Generate(markers.think_start, 3, markers.end_of_text, Sampling(), budget=Budget(1, 1))
        try:
            await engine.generate(request, seed=0)
        except RequestFailed as error:
            raise UserError(f"separate_native at {address}: {error}") from None
    return engine


async def check_tokenizer(server: HttpServer, tokenizer: str, context: int) -> None:
    """Compare the ids of a text, made of a chat and of pieces of the vocabulary, on the server and here; and send
    these ids as a prompt. Raises UserError when they differ, or the server returns none."""
    address = server.address
    local, markers = load_markers(tokenizer, thinks=False)
    step = max(1, len(local) // _PROBE_WORDS)
    text = local.decode(list(markers.end_of_text)) + "<think>36+6=?\n</think> \\boxed{42}"
    limit = min(_PROBE_TOKENS, context // 2)
    for word in [local.decode([i]) for i in range(0, len(local), step)]:
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
            same = [a == b for a, b in zip(found, ids, strict=False)]
            at = same.index(False) if False in same else len(same)
            raise UserError(
                f"{address} does not have {setting}: token {at} of a text is {found[at : at + 1]} there and "
                f"{ids[at : at + 1]} here; name the tokenizer of the model that it serves"
            )
