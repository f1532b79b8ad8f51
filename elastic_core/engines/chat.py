"""A model behind a chat API that neither takes nor returns token ids: text in, text out, and usage for the counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_core.engines.base import RequestFailed
from elastic_core.engines.http_server import HttpServer
from elastic_core.strategies.base import Finish
from elastic_core.strategies.chat import ChatRequest, Reply

_THINK_START, _THINK_END = "<think>", "</think>"
_SEED_BITS = 0x7FFFFFFF


class ChatEngine:
    """A model on one server."""

    def __init__(self, server: HttpServer, model: str) -> None:
        self._server = server
        self._model = model

    async def generate(self, request: ChatRequest, seed: int) -> Reply:
        """As `Engine.generate`. Whether the server draws by the seed is its own business."""
        return read_reply(await self._server.post("/chat/completions", chat_body(self._model, request, seed)), request)


def chat_body(model: str, request: ChatRequest, seed: int) -> dict[str, Any]:
    """The body of a request."""
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
    """What a server answered. A thought that it leaves in the text is taken apart at its think-end.

    Raises:
        RequestFailed: when there is no message or no usage in it, it was withheld, or longer than requested.
    """
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
    if _THINK_END in text:
        thought, _, text = text.partition(_THINK_END)
        thinking += thought.removeprefix(_THINK_START)
    elif text.startswith(_THINK_START):
        thinking, text = thinking + text.removeprefix(_THINK_START), ""
    told = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or None
    return Reply(thinking, text or None, prompt_tokens, sampled, told, Finish(finish))
