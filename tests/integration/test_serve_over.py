"""Requests that would have the engine draw more than their budget, sent to a real `vllm serve`: what lifts a budget is
refused, and what an engine draws beyond one all the same is ended, kept from the client, and counted."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest

pytestmark = pytest.mark.timeout(1200)
QUESTION = "36+6-4+8=?"
SEVEN, CLOSE, ENDS = 22, 151668, (151643, 151645)
"""Tokens of Qwen3: "7", </think>, and its two ends of text."""
BUDGET = {"think_budget": 3, "solution_budget": 3}
WHOLE = 3 + 1 + 3 + 1
"""Tokens of such a response at most, with the end-of-text of a cut."""
CONTEXT = 512


@pytest.fixture(scope="module")
def server(plain: str) -> str:
    return plain


def post(server: str, path: str = "chat/completions", **body: Any) -> httpx.Response:
    asked = {"messages": [{"role": "user", "content": QUESTION}]}
    if path == "completions":
        asked = {"prompt": QUESTION}
    elif path == "responses":
        asked = {"input": QUESTION}
    elif path == "messages":
        asked["max_tokens"] = 400  # type: ignore[assignment]
    return httpx.post(f"{server}/v1/{path}", json={"model": "m", "vllm_xargs": BUDGET, **asked, **body}, timeout=120)


def metrics(server: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in httpx.get(f"{server}/metrics").text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, value in lines if "_created" not in name}


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Tokens that the engine drew, and our counters."""
    names = {name for name in after if name.startswith("elastic_")}
    found = {name.split("{")[0] + name.partition("phase=")[2].strip('"}'): 0.0 for name in names}
    for name in names:
        key = name.split("{")[0] + name.partition("phase=")[2].strip('"}')
        found[key] += after[name] - before.get(name, 0.0)
    drawn = "vllm:generation_tokens_total"
    found["drawn"] = sum(value - before.get(name, 0) for name, value in after.items() if name.startswith(drawn))
    return found


ROWS = [["1", "2"], [[16, 10, 16], [17, 10, 17]]]
ZERO = [1e-320, "1e-320", 1e-46, 1e-40, 1e39, 1e300, "nan", "inf", "-inf"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("chat/completions", {"repetition_penalty": value}) for value in ZERO),
        ("chat/completions", {"repetition_penalty": 1e-320, "stream": True}),
        ("chat/completions", {"repetition_penalty": 1e-320, "n": 3}),
        ("chat/completions", {"repetition_penalty": 1e-320, "vllm_xargs": {}}),
        ("chat/completions", {"repetition_penalty": 1e-320, "response_format": {"type": "json_object"}}),
        *(("completions", {"repetition_penalty": 1e-320, "prompt": prompt, "n": 2}) for prompt in ROWS),
        ("responses", {"repetition_penalty": 1e-320}),
        *(("chat/completions", {name: 1e-320}) for name in ("min_p", "top_p", "presence_penalty")),
        ("chat/completions", {"logit_bias": {SEVEN: 1e-320}}),
    ],
    ids=str,
)
def test_a_number_that_float32_does_not_hold_is_refused_at_every_api(
    server: str, path: str, body: dict[str, Any]
) -> None:
    before = metrics(server)
    response = post(server, path, **body)
    assert response.status_code == 400, response.text
    assert "expected" in response.text or "must be" in response.text, response.text
    after = grown(before, metrics(server))
    assert not any(after.values())


KEPT: list[dict[str, Any]] = [
    {"repetition_penalty": 1.2e-38},
    {"repetition_penalty": 3.4e38},
    {"repetition_penalty": 1.2e-38, "frequency_penalty": -2, "presence_penalty": -2, "temperature": 2},
    {"frequency_penalty": 2, "presence_penalty": 2, "temperature": 0},
    {"temperature": 1e-320},
    {"temperature": 1e-6, "min_p": 1, "top_p": 1e-30, "top_k": 1},
    {"top_k": 2**40},
    {"logit_bias": {str(token): -100 for token in (CLOSE, *ENDS)}},
    {"logit_bias": {str(SEVEN): "nan"}},
    {"logit_bias": {str(SEVEN): 1e38}, "repetition_penalty": 3.4e38},
    {"allowed_token_ids": [SEVEN], "repetition_penalty": 3.4e38},
    {"bad_words": ["</think>", "7"], "stop_token_ids": [SEVEN + 1]},
    {"min_tokens": 0, "ignore_eos": False, "stream_interval": 10**6},
    {"thinking_token_budget": 3, "max_tokens": 400},
    {"vllm_xargs": {**BUDGET, "elastic_room": -1, "elastic_closed": True}},
    {"kv_transfer_params": {"think_budget": 400}, "cache_salt": "1"},
    {"repetition_detection": {"max_pattern_size": 3, "min_count": 10**6}},
]


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"n": 2, "temperature": 1}], ids=["whole", "streamed", "n=2"])
@pytest.mark.parametrize("body", KEPT, ids=str)
def test_whatever_vllm_does_after_a_token_was_forced_the_engine_draws_no_more_than_the_budget(
    server: str, body: dict[str, Any], more: dict[str, Any]
) -> None:
    before = metrics(server)
    response = post(server, **{**body, **more}, seed=1)
    assert response.status_code == 200, response.text
    after = grown(before, metrics(server))
    assert 0 < after["drawn"] <= more.get("n", 1) * WHOLE
    assert not after["elastic_over_budget_total"] and not after["elastic_tokens_totalexcess"]
    told = [after[f"elastic_tokens_total{phase}"] for phase in ("thinking", "solution", "forced")]
    assert sum(told) + after["elastic_cut_solutions_total"] >= after["drawn"] >= sum(told)


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"n": 3}, {"logprobs": True}], ids=str)
@pytest.mark.parametrize("budget", [(3, 3), (3, "unlimited"), (1, "unlimited")], ids=str)
def test_an_engine_that_goes_on_beyond_a_budget_is_stopped_and_counted(
    server: str, budget: tuple[int, int | str], more: dict[str, Any]
) -> None:
    before, (think, solution) = metrics(server), budget
    limits = {"think_budget": think, "solution_budget": solution, "deaf": SEVEN}
    response = post(server, vllm_xargs=limits, return_token_ids=True, **more)
    assert response.status_code == 200, response.text
    lines = response.text.split("\n\n") if "stream" in more else [response.text]
    documents = [json.loads(line.removeprefix("data: ")) for line in lines if line and "[DONE]" not in line]
    choices = [choice for document in documents for choice in document["choices"]]
    num_choices = more.get("n", 1)
    ends = [choice for choice in choices if choice.get("finish_reason")]
    assert len(ends) == num_choices and {choice["finish_reason"] for choice in ends} == {"length"}
    for index in range(num_choices):
        own = [choice for choice in choices if choice["index"] == index]
        assert [token for choice in own for token in choice.get("token_ids") or ()] == [SEVEN] * think
        text = "".join((each.get("message") or each["delta"]).get("reasoning") or "" for each in own)
        assert text == "7" * think
        told = own[-1]["elastic"]
        assert (told["thought"], told["thinking_tokens"], told["solution_tokens"]) == ("unfinished", think, 0)
        assert told["excess_tokens"] >= 1
    after = grown(before, metrics(server))
    assert after["elastic_over_budget_total"] == num_choices
    drawn = after["elastic_tokens_totalthinking"] + after["elastic_tokens_totalexcess"]
    assert drawn == num_choices * think + sum(choice["elastic"]["excess_tokens"] for choice in ends)
    # Those that are not streamed are looked at every 64 tokens, where the engine has no end for the whole.
    assert after["drawn"] <= num_choices * 150 < CONTEXT


CALL = {"type": "function", "function": {"name": "f", "parameters": {"type": 5}, "strict": True}}
NO_TEXT: list[dict[str, Any]] = [
    {"json": {"$ref": "#"}},
    {"json": {"allOf": [{"$ref": "#"}]}},
    {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}},
    {"json": {"$ref": "#/nowhere"}},
    {"json": {"enum": []}},
    {"json": '{"items": ' * 300 + "{}" + "}" * 300},
    {"json": "[" * 100_000},
    {"grammar": "root ::= root"},
    {"grammar": "root ::= nowhere"},
    {"regex": "("},
    {"structural_tag": '{"a": ' * 20_000},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limits", [BUDGET, {"think_budget": 3, "solution_budget": "unlimited"}], ids=["3+3", "3"])
@pytest.mark.parametrize("grammar", NO_TEXT, ids=lambda grammar: str(grammar)[:50])
def test_a_grammar_that_no_text_can_follow_is_a_sentence_and_not_the_servers_fault(
    server: str, grammar: dict[str, Any], limits: dict[str, int], stream: bool
) -> None:
    response = post(server, structured_outputs=grammar, vllm_xargs=limits, stream=stream, max_tokens=60)
    error = json.loads(response.text.split("data: {")[0] or "{}").get("error")
    if response.status_code == 200:  # The thought was on its way.
        error = next(json.loads(line[6:])["error"] for line in response.text.splitlines() if '"error"' in line)
    assert error["code"] == 400 and error["message"], response.text


def test_a_schema_that_no_text_can_follow_is_refused_in_every_apis_words(server: str) -> None:
    schema: dict[str, Any] = {"$ref": "#"}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert post(server, response_format=asked).status_code == 400
    assert post(server, "completions", response_format=asked).status_code == 400
    answer = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    assert post(server, "responses", text=answer).status_code == 400
    without: dict[str, Any] = {"prompt": [16, 10, 16, CLOSE], "vllm_xargs": {}, "max_tokens": 60}
    assert post(server, "completions", structured_outputs={"json": schema}, **without).status_code == 400
    assert post(server, tools=[CALL], tool_choice="required").status_code == 400


async def half_sent(port: int, size: int) -> tuple[asyncio.StreamWriter, bytes]:
    """A connection whose body lacks its last byte, and the server's answer as far as there is one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size + 1}\r\n\r\n"
    with suppress(ConnectionError):  # It is closed while the rest is sent.
        writer.write(head.encode() + b" " * size)
        await writer.drain()
    with suppress(ConnectionError, TimeoutError):
        return writer, await asyncio.wait_for(reader.read(12), 2)
    return writer, b""


def test_bodies_that_are_half_sent_hold_no_more_than_there_is_for_all(server: str) -> None:
    port = int(server.rpartition(":")[2])
    (process,) = {each.pid for each in psutil.net_connections("tcp") if each.laddr.port == port and not each.raddr}
    before = psutil.Process(process).memory_info().rss

    async def run() -> list[bytes]:
        found = await asyncio.gather(*(half_sent(port, 31 * 2**20) for _ in range(40)))
        assert psutil.Process(process).memory_info().rss - before < 600 * 2**20
        response = await asyncio.to_thread(post, server)
        assert response.status_code == 200
        for writer, _ in found:
            writer.close()
        return [answer for _, answer in found]

    answers = asyncio.run(run())
    assert sum(answer == b"" for answer in answers) <= 8 and {*answers} <= {b"", b"HTTP/1.1 503"}
