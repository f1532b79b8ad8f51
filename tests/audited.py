"""A chat server on this machine without a model, which keeps a thinking budget, or breaks one promise: what `elastic
audit` has to find. A token is a word, or one character that is none. Thoughts depend on the question and the seed."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.loopback import Handler, served

MODEL = "scripted"
FIELD = "thinking_token_budget"
OPEN, END = "<think>", "</think>"
_TOKEN = re.compile(r"</?think>|\w+|\s|[^\w\s]")
_WORDS = re.findall(r"\w+", "so then we take the sum of both and see it is wrong a sign was lost")


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text)


@dataclass
class Vocabulary:
    """Ids of tokens, in the order in which they came."""

    known: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def encode(self, tokens: list[str]) -> list[int]:
        with self.lock:
            return [self.known.setdefault(token, len(self.known)) for token in tokens]


@dataclass
class Scripted:
    """A server, with one `fault` by its name or none; `shows_ids` is whether responses have token ids, `tokenizes`
    whether there is a /tokenize, `splits` whether it tells thoughts apart, and `loses_ids` whether events without text
    are lost, as on the way through a proxy."""

    fault: str = ""
    shows_ids: bool = True
    tokenizes: bool = True
    splits: bool = True
    loses_ids: bool = False
    reads: str = FIELD
    seed: int = 0
    refusal: str = "reasoning_budget is not a field"
    url: str = ""
    requests: int = 0
    vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def choice(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        """One choice: message, ids, finish, and how many tokens it and its thought have."""
        seed = (body.get("seed", 0), self.requests if self.fault == "seed" else 0)
        draw = random.Random(f"{self.seed} {body['messages'][-1]['content']} {seed} {index}")
        budget, most = body.get(self.reads), body["max_tokens"]
        if self.fault == "ignored" or (self.fault == "second choice" and index) or budget is None:
            budget = 10**9
        if self.fault == "streams" and body["stream"]:
            budget += 7
        if self.fault == "sometimes" and self.requests % 5 == 0:
            budget = 10**9
        if self.fault == "over by one":
            budget += 1
        if self.fault == "history" and any(OPEN in str(each["content"]) for each in body["messages"]):
            budget = 0
        thought = [draw.choice(_WORDS) for _ in range(draw.randrange(120, 400))]
        thought = [] if "say nothing" in body["messages"][-1]["content"] else thought
        thought = [each for word in thought for each in (word, " ")]
        is_cut = len(thought) > budget
        thought = thought[:budget]
        if is_cut and self.fault == "ends the line":
            thought += ["so", "\n"]
        if is_cut and self.fault == "closing phrase":
            thought += tokens_of("\nTime is up, so I answer now.")
        answer = tokens_of(self.answer(body, draw, is_cut))
        if stops := [at for at, word in enumerate(answer) if word in body.get("stop", ())]:
            answer = answer if self.fault == "stop" else answer[: stops[0]]
        sampled = [*thought, *([] if self.fault == "thinks nothing" else [END]), *answer]
        finish = "length" if len(sampled) > most else "tool_calls" if "tools" in body else "stop"
        sampled = sampled[:most]
        answer = sampled[len(thought) + 1 :]
        thinking = 0 if self.fault == "thinks nothing" else min(len(thought), most)
        text = "".join(answer)
        message: dict[str, Any] = {
            "role": "assistant",
            "reasoning": "".join(sampled[: len(thought)]),
            "content": text,
        }
        if not self.splits:
            message |= {"reasoning": None, "content": "".join(sampled)}
        if "tools" in body and text:
            message |= {"content": None, "tool_calls": [{"function": {"name": "answer", "arguments": text}}]}
        if self.fault == "finish" and finish == "length":
            finish = "stop"
        found = {"index": index, "message": message, "finish_reason": finish, "thinking": thinking, "sampled": sampled}
        if body.get("logprobs") and self.fault != "logprobs":
            found["logprobs"] = {"content": [{"token": each, "logprob": -0.5} for each in sampled]}
        if self.shows_ids and body.get("return_token_ids"):
            found["token_ids"] = self.vocabulary.encode(sampled)
        return found

    def answer(self, body: dict[str, Any], draw: random.Random, is_cut: bool) -> str:
        if "response_format" in body and self.fault == "schema":
            return '{"answer": "many"}'
        if "tools" in body and self.fault == "tool call":
            return '{"answer": '
        if "tools" in body and not body["tools"][0].get("function", body["tools"][0]).get("strict"):
            return "-2"  # As vLLM's: any JSON.
        if "tools" in body or "response_format" in body:
            return f'{{"answer": {draw.randrange(100)}}}'
        if is_cut and self.fault == "empty":
            return ""
        if is_cut and self.fault == "leak":
            return f"{draw.choice(_WORDS)} and so on {END} It is {draw.randrange(100)}."
        return f"It is the sum of {draw.randrange(100)}, which we see."

    def respond(self, body: dict[str, Any]) -> dict[str, Any]:
        self.requests += 1
        choices = [self.choice(body, index) for index in range(body.get("n", 1))]
        thinking = sum(each.pop("thinking") for each in choices)
        sampled = sum(len(each.pop("sampled")) for each in choices)
        details = {"reasoning_tokens": thinking // 2 if self.fault == "usage" else thinking}
        usage = {"prompt_tokens": 9, "completion_tokens": sampled, "completion_tokens_details": details}
        if self.fault == "no reasoning_tokens":
            del usage["completion_tokens_details"]
        return {"choices": choices, "usage": usage}


class _Handler(Handler):
    site: Scripted

    def do_GET(self) -> None:
        found = {"/v1/models": {"data": [{"id": MODEL, "owned_by": "scripted"}]}, "/version": {"version": "1.0"}}
        self.answer(200 if self.path in found else 404, found.get(self.path, {"error": {"message": "not found"}}))

    def do_POST(self) -> None:
        scripted = self.site
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize" and not body["prompt"].isascii():
            return self.answer(400, {"error": {"message": "no such character"}})
        if self.path == "/tokenize" and scripted.tokenizes:
            return self.answer(200, {"tokens": scripted.vocabulary.encode(tokens_of(body["prompt"]))})
        if self.path == "/v1/messages":
            return self._message(body)
        if self.path != "/v1/chat/completions":
            return self.answer(404, {"error": {"message": "not found"}})
        if "reasoning_budget" in body:
            return self.answer(400, {"error": {"message": scripted.refusal}})
        found = scripted.respond({"stream": False, **body})
        return self._stream(found) if body.get("stream") else self.answer(200, found)

    def _message(self, body: dict[str, Any]) -> None:
        """As Anthropic's API, whole or as a stream."""
        asked = {
            **body,
            FIELD: (body.get("thinking") or {}).get("budget_tokens"),
            "stop": body.get("stop_sequences", ()),
        }
        asked |= {"response_format": {}} if "output_config" in body and "format" in body["output_config"] else {}
        found = self.site.respond({"stream": False, **asked})
        choice = found["choices"][0]
        blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": choice["message"]["reasoning"]}]
        if text := choice["message"]["content"]:
            blocks.append({"type": "text", "text": text})
        for call in choice["message"].get("tool_calls", ()):
            blocks.append({"type": "tool_use", "name": "answer", "input": json.loads(call["function"]["arguments"])})
        told = {"stop_reason": "max_tokens" if choice["finish_reason"] == "length" else "end_turn"}
        usage = {"output_tokens": found["usage"]["completion_tokens"]}
        if not body.get("stream"):
            return self.answer(200, {"type": "message", "content": blocks, "usage": usage, **told})
        deltas = [{"type": f"{each['type']}_delta", **each} for each in blocks]
        return self._events(
            [
                {"type": "message_start", "message": {"usage": {"output_tokens": 0}}},
                *({"type": "content_block_delta", "index": i, "delta": each} for i, each in enumerate(deltas)),
                {"type": "message_delta", "delta": told, "usage": usage},
            ]
        )

    def _stream(self, found: dict[str, Any]) -> None:
        events: list[dict[str, Any]] = []
        for choice in found["choices"]:
            message, index = choice["message"], choice["index"]
            for key in ("reasoning", "content"):
                events += [{"delta": {key: each}, "index": index} for each in tokens_of(message.get(key) or "")]
            calls = [{"index": 0, **each} for each in message.get("tool_calls", ())]
            last = {key: choice[key] for key in ("finish_reason", "token_ids", "logprobs") if key in choice}
            if self.site.loses_ids and "token_ids" in last:
                last["token_ids"] = [each for each in last["token_ids"] if each != self.site.vocabulary.known[END]]
            events.append({"delta": {"tool_calls": calls}, "index": index, **last})
        self._events([*({"choices": [each]} for each in events), {"choices": [], "usage": found["usage"]}])

    def _events(self, events: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


@contextmanager
def listening(scripted: Scripted) -> Iterator[Scripted]:
    """Serve it on loopback, at any free port."""
    with served(_Handler, scripted) as url:
        scripted.url = f"{url}/v1"
        yield scripted
