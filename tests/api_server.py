"""An API server on this machine that draws from no model, with the faults of real ones: it says no, says nothing, says
later, hangs up, and goes away. What it draws depends on prompt and seed alone, as with a real one."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.loopback import Handler, served

MODEL = "drawn"
CONTEXT = 512


@dataclass(frozen=True)
class Fault:
    """What a request gets in the place of its answer. Status 0 hangs up."""

    status: int
    retry_after: float | None = None
    message: str = "not now"
    seconds: float = 0.0
    """Before anything is said."""


@dataclass
class ApiServer:
    """What is served, and what came.

    Attributes:
        tokenizer: encodes texts; from transformers.
        faults: what the next requests for something drawn get.
        key: that every request must have; None for none.
        drawn: bodies of the requests that were answered.
        arrivals: when each request for something drawn came, by the monotonic clock.
        away_after: how many requests are answered before every connection is hung up on; None for no end.
        at_once: most requests that were under way together.
    """

    tokenizer: Any
    faults: list[Fault] = field(default_factory=list)
    key: str | None = None
    version: str = "1.2.3"
    seconds: float = 0.0
    away_after: int | None = None
    drawn: list[dict[str, Any]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    at_once: int = 0
    url: str = ""
    _under_way: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"{self.url}#{MODEL}"

    def described(self, path: str) -> dict[str, Any] | None:
        """Of what is there to GET."""
        card = {"id": MODEL, "owned_by": "vllm", "root": "/models/drawn", "max_model_len": CONTEXT}
        return {"/v1/models": {"data": [card]}, "/version": {"version": self.version}}.get(path)

    def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        """As the completions API of vLLM."""
        prompt = body["prompt"]
        ids = self.tokenizer.encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else prompt
        tokens, stops, finish = list(ids), set(body.get("stop_token_ids", ())), "length"
        for _ in range(body["max_tokens"]):
            tokens.append(self._next(tokens, body.get("seed", 0)))
            if tokens[-1] in stops:
                finish = "stop"
                break
        drawn = tokens[len(ids) :]
        stop = drawn[-1] if finish == "stop" else None
        choice = {"token_ids": drawn, "prompt_token_ids": ids, "finish_reason": finish, "stop_reason": stop}
        return {"choices": [choice]}

    def talk(self, body: dict[str, Any]) -> dict[str, Any]:
        """As a chat API that tells thinking apart: as many words as the effort has letters, and an answer."""
        limit = body.get("max_completion_tokens", CONTEXT)
        thought, answer = ["hm"] * len(body.get("reasoning_effort", "")), ["\\boxed{42}", "."]
        words = [*thought, *answer][:limit]
        content = " ".join(words[len(thought) :])
        message = {"role": "assistant", "content": content or None, "reasoning": " ".join(words[: len(thought)])}
        details = {"reasoning_tokens": min(limit, len(thought))}
        usage = {"prompt_tokens": 9, "completion_tokens": len(words), "completion_tokens_details": details}
        finish = "length" if limit < len(thought) + len(answer) else "stop"
        return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}

    def _next(self, prefix: Sequence[int], seed: int) -> int:
        digest = hashlib.blake2b(f"{seed}/{list(prefix)}".encode(), digest_size=4).digest()
        return int.from_bytes(digest) % len(self.tokenizer)

    @property
    def is_away(self) -> bool:
        return self.away_after is not None and len(self.drawn) >= self.away_after

    @contextmanager
    def under_way(self) -> Iterator[Fault | None]:
        """A request, and the fault that it meets."""
        with self._lock:
            self.arrivals.append(time.monotonic())
            self._under_way += 1
            self.at_once = max(self.at_once, self._under_way)
            fault = Fault(0) if self.is_away else self.faults.pop(0) if self.faults else None
        try:
            yield fault
        finally:
            with self._lock:
                self._under_way -= 1


class _Handler(Handler):
    site: ApiServer

    def do_GET(self) -> None:
        if self.site.is_away:
            self.close_connection = True
            return
        if self.path.startswith("/v1/") and self._refused():
            return
        found = self.site.described(self.path)
        self.answer(404 if found is None else 200, found or {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        api = self.site
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refused():
            return None
        with api.under_way() as fault:
            if fault is None:
                time.sleep(api.seconds)
                found = api.talk(body) if "messages" in body else api.draw(body)
                api.drawn.append(body)
                return self.answer(200, found)
            time.sleep(fault.seconds)
            if fault.status == 0:
                self.close_connection = True
                return None
            after = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            return self.answer(fault.status, {"error": {"message": fault.message}}, after)

    def _refused(self) -> bool:
        """Whether the key was wrong, which is then said."""
        given, key = self.headers.get("Authorization"), self.site.key
        if key is None or given == f"Bearer {key}":
            return False
        self.answer(401, {"error": {"message": f"no such key: {given}"}})
        return True


@contextmanager
def listening(api: ApiServer, port: int = 0) -> Iterator[ApiServer]:
    """Serve it on loopback, at any free port or this one."""
    with served(_Handler, api, port) as url:
        api.url = f"{url}/v1"
        yield api
