"""Requests as the engine gets them, and responses as the client gets them, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.budgets.processor import Progress
from elastic_core.serving.middleware import Budgets, Reply, Tally
from elastic_core.serving.requests import VARIABLE, Plan, Refused, ServeConfiguration, parse, plan
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.trajectory import ThinkFinish
from tests.scripted import ScriptedEngine
from tests.unit.test_serving_law import END, EOS, MARKERS, MARKS, OTHER_EOS, PROMPT, START, WORD, budgets

LEVELS = {"low": Budget(8, 4), "high": Budget(64, 16)}
FREE = ServeConfiguration(MARKS, None, LEVELS)
DEFAULT = ServeConfiguration(MARKS, Budget(16, 8), {})


def test_a_level_becomes_its_budget() -> None:
    planned = plan("chat", {"model": "m", "reasoning_effort": "low"}, FREE)
    assert planned.level == "low"
    assert planned.body == {
        "model": "m",
        "vllm_xargs": {"think_budget": 8, "solution_budget": 4, "elastic_room": 13},
        "stop_token_ids": [EOS, OTHER_EOS],
        "return_token_ids": True,
    }


def test_a_request_that_says_nothing_gets_the_default_and_without_one_none() -> None:
    assert plan("chat", {}, DEFAULT).budget == Budget(16, 8)
    assert plan("chat", {}, DEFAULT).level == "default"
    planned = plan("chat", {"max_tokens": 5}, FREE)
    assert planned.level == "none"
    assert planned.body == {"max_tokens": 5, "return_token_ids": True}


def test_a_client_can_go_without_the_default() -> None:
    asked = {"vllm_xargs": {"think_budget": "unlimited", "solution_budget": "unlimited", "mine": 1}}
    planned = plan("completions", asked, DEFAULT)
    assert (planned.level, planned.budget) == ("explicit", Budget(None, None))
    assert planned.body["vllm_xargs"] == {"mine": 1}


def test_the_clients_request_is_not_changed() -> None:
    body = {"vllm_xargs": {"think_budget": 3}, "stop_token_ids": [9]}
    assert plan("chat", body, FREE).body != body
    assert body == {"vllm_xargs": {"think_budget": 3}, "stop_token_ids": [9]}


@pytest.mark.parametrize(
    ("kind", "body", "most", "room"),
    [
        ("completions", {"max_tokens": 5}, {"max_tokens": 5}, 5),
        ("completions", {"max_tokens": 500}, {"max_tokens": 500}, 25),
        ("completions", {}, {"max_tokens": 25}, 25),
        ("completions", {"max_tokens": 500, "vllm_xargs": {"think_budget": "unlimited"}}, {"max_tokens": 500}, 10),
        ("chat", {"vllm_xargs": {"think_budget": "unlimited"}}, {}, 10),
        ("completions", {"max_tokens": 5.0}, {"max_tokens": 5}, 5),
        ("chat", {"max_tokens": "5"}, {"max_tokens": 5}, 5),
        ("chat", {}, {}, 25),
        ("chat", {"max_tokens": 7, "max_completion_tokens": 5}, {"max_tokens": 7, "max_completion_tokens": 5}, 5),
    ],
)
def test_a_limit_of_the_clients_own_holds_beside_the_budget(
    kind: Any, body: dict[str, Any], most: dict[str, Any], room: int
) -> None:
    found = plan(kind, body, DEFAULT).body
    assert {key: value for key, value in found.items() if key.startswith("max_")} == most
    assert found["vllm_xargs"]["elastic_room"] == room


@pytest.mark.parametrize(
    ("kind", "body", "config", "sentence"),
    [
        ("chat", {"vllm_xargs": {"think_budget": -1}}, FREE, "think_budget is -1"),
        ("chat", {"vllm_xargs": {"solution_budget": 0}}, FREE, "from 1 to"),
        ("chat", {"vllm_xargs": {"think_budget": 2.0**64}}, FREE, "from 0 to"),
        ("chat", {"vllm_xargs": "abc"}, FREE, "vllm_xargs is 'abc'"),
        ("chat", {"max_tokens": 20.5}, FREE, "max_tokens is 20.5"),
        ("chat", {"max_completion_tokens": 2.0**64}, FREE, "max_completion_tokens"),
        ("chat", {"include_reasoning": "maybe"}, FREE, "include_reasoning is 'maybe'"),
        ("chat", {"reasoning_effort": "hihg"}, FREE, "'hihg'.*\"high\".* low, high"),
        ("chat", {"reasoning_effort": "none"}, FREE, "'none'.* low, high"),
        ("chat", {"reasoning_effort": 3}, FREE, "3.* low, high"),
        ("chat", {"reasoning_effort": "low"}, DEFAULT, "'low'"),
        ("chat", {"reasoning_effort": "low", "vllm_xargs": {"think_budget": 1}}, FREE, "think_budget"),
        ("completions", {"vllm_xargs": {"think_budget": 3}}, FREE, r"max_tokens .*3\+unlimited"),
        ("completions", {"echo": True}, DEFAULT, r"echo .*16\+8"),
        ("chat", {"use_beam_search": "on"}, DEFAULT, r"use_beam_search .*16\+8"),
        ("chat", {str(i): i for i in range(1001)}, FREE, "1000"),
    ],
)
def test_a_budget_that_cannot_be_had_is_refused(
    kind: Any, body: dict[str, Any], config: ServeConfiguration, sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence):
        plan(kind, body, config)


@pytest.mark.parametrize(
    ("request_body", "sentence"),
    [
        (b'{"max_tokens": 900, "z": NaN}', "line 1, column 26"),
        (b'{"z": -Infinity}', "JSON"),
        (b'{"user": "\\ud800"}', "surrogate"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "UTF-8"),
        (b"", "empty"),
        (b'{"z": ' + 2000 * b"[" + 2000 * b"]" + b"}", "depth"),
        (b"[1]", "list"),
        (b"null", "null"),
    ],
)
def test_what_json_does_not_know_is_refused(request_body: bytes, sentence: str) -> None:
    """vLLM's parser takes most of it."""
    with pytest.raises(Refused, match=sentence):
        parse(request_body)
    assert plan("chat", parse(b'{"z": ' + 250 * b"[" + 250 * b"]" + b"}"), FREE).dump()
    with pytest.raises(Refused, match=" 250 "):
        plan("chat", parse(b'{"z": ' + 300 * b"[" + 300 * b"]" + b"}"), FREE).dump()


@pytest.mark.parametrize("no", [False, 0, 0.0, "0", "false", "False", "no", "off", "n", "f"])
def test_flags_are_read_as_vllm_reads_them(no: object) -> None:
    planned = plan("chat", {"include_reasoning": no, "return_token_ids": no, "use_beam_search": no}, DEFAULT)
    assert planned.body["include_reasoning"] is planned.body["return_token_ids"] is True
    assert (planned.shows_reasoning, planned.shows_ids) == (False, False)


@pytest.mark.parametrize(("kind", "counted"), [("chat", True), ("completions", False)])
def test_the_echo_of_a_prompt_is_counted_where_it_is_told_apart(kind: Any, counted: bool) -> None:
    lifted = {"think_budget": "unlimited", "solution_budget": "unlimited"}
    assert plan(kind, {"echo": "yes", "vllm_xargs": lifted}, DEFAULT).counted is counted


@pytest.mark.parametrize("asked", [None, {}, {"think_budget": None}, {"think_budget": None, "solution_budget": None}])
def test_a_budget_that_is_null_is_not_given(asked: object) -> None:
    planned = plan("chat", {"vllm_xargs": asked}, DEFAULT)
    assert (planned.level, planned.budget) == ("default", Budget(16, 8))
    assert planned.body["vllm_xargs"] == {"think_budget": 16, "solution_budget": 8, "elastic_room": 25}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"think_budget": 2}, "think_budget"),
        ({"solution_budget": 2}, "solution_budget"),
        ({"solutoin_budgt": 2}, "solutoin_budgt"),
        ({"vllm_xargs": {"think_bugdet": 2}}, "vllm_xargs.think_bugdet"),
        ({"vllm_xargs": {"thinking_budget": 2}}, "vllm_xargs.thinking_budget"),
        ({"vllm_xarg": {"think_budget": 2}}, "vllm_xarg.think_budget"),
        ({"extra_body": {"vllm_xargs": {"think_budget": 2}}}, "extra_body.vllm_xargs.think_budget"),
        *(
            ({name: 2}, name)
            for name in ("thinking_token_budget", "thinking_budget", "thinkingBudget", "thinking_budget_tokens")
        ),
        *(({name: 2}, name) for name in ("reasoning_budget", "budget_tokens", "max_thinking_tokens")),
        ({"thinking": {"type": "enabled", "budget_tokens": 2}}, "thinking"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"reasoning": {"max_tokens": 2}}, "reasoning"),
        ({"reasoning_efort": "low"}, "reasoning_efort"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"enable_thinking": False}, "enable_thinking"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"reasoning_effort": "low"}}, "chat_template_kwargs.reasoning_effort"),
        ({"custom_params": {"thinking_budget": 2}}, "custom_params.thinking_budget"),
        ({"nvext": {"max_thinking_tokens": 2}}, "nvext.max_thinking_tokens"),
        (
            {"extra_body": {"google": {"thinking_config": {"thinking_budget": 2}}}},
            "extra_body.google.thinking_config",
        ),
    ],
)
@pytest.mark.parametrize("config", [FREE, DEFAULT], ids=["free", "default"])
def test_a_budget_under_another_name_is_refused(body: dict[str, Any], path: str, config: ServeConfiguration) -> None:
    with pytest.raises(Refused, match=f'^{path} .*"think_budget" and "solution_budget" in "vllm_xargs"'):
        plan("chat", body, config)


def test_other_fields_pass() -> None:
    """Those of OpenAI, of other servers and of extensions, and what asks for no limit."""
    names = """messages model store metadata modalities prediction service_tier verbosity safety_identifier
        prompt_cache_key best_of suffix reasoning_format separate_reasoning stream_reasoning include_thoughts
        reasoning_history top_a transforms provider usage options keep_alive max_output_tokens num_predict
        cache_prompt resolution solution"""
    body = {name: {"effort": 1} for name in names.split()} | {
        "enable_thinking": True,
        "reasoning": None,
        "chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": False},
        "x" * 3000: 1,
    }
    assert plan("chat", body, FREE).body == body | {"return_token_ids": True}


def test_what_a_server_offers_survives_its_environment() -> None:
    for config in (FREE, DEFAULT, ServeConfiguration(MARKS, Budget(None, 4), {})):
        assert ServeConfiguration.load(config.dump()) == config


def engine_output(stream: list[int], budget: Budget) -> list[int]:
    """Tokens that an engine with the processor writes, a cut's own included."""
    drawn, progress, output = iter(stream), Progress(budget, MARKS), []
    while len(output) < 60:
        forced, _ = progress.look(output)
        output.append(next(drawn, WORD) if forced is None else forced)
        if output[-1] in MARKS.end_of_text:
            break
    return output


@given(st.lists(st.sampled_from([START, END, EOS, WORD, WORD]), max_size=40), budgets)
def test_tokens_are_counted_as_separate_counts_them(stream: list[int], budget: Budget) -> None:
    drawn = iter(stream)
    engine = ScriptedEngine(lambda prefix, seed: next(drawn, WORD), context=60 + len(PROMPT))
    rollout = STRATEGIES["separate"].decode(PROMPT, budget, MARKERS, Sampling())
    expected = asyncio.run(drive(rollout, {"policy": engine}, seed=0))
    tally = Tally(budget, MARKS, None)
    output = engine_output(stream, budget)
    assert tally.add(output) == tally.length
    tally.finish = "stop" if output[-1] in MARKS.end_of_text else "length"
    if expected.think_finish is ThinkFinish.END_OF_TEXT:
        assert (tally.thought, tally.thinking) == ("end_of_text", expected.think_tokens + 1)
    elif tally.solution_start is not None:
        assert tally.thought == expected.think_finish
        found = (tally.thinking, tally.solution, tally.forced)
        assert found == (expected.think_tokens, expected.solution_tokens, expected.forced_tokens)
        if budget.solution is not None:
            assert tally.is_cut == (expected.solution_finish == "length" and tally.solution == budget.solution)


@given(st.lists(st.sampled_from([END, WORD, WORD, WORD]), max_size=20), budgets, st.integers(1, 5))
def test_a_stream_says_what_the_whole_response_says(stream: list[int], budget: Budget, size: int) -> None:
    """In chunks of any size: the same counts, and nothing of the token that cut the solution."""
    output = engine_output(stream, budget)
    finish = "stop" if output[-1] in MARKS.end_of_text else "length"
    planned = Plan({}, budget, "explicit", shows_ids=True)
    whole = Reply(planned, MARKS)
    lists = {"tokens": list(output), "text_offset": list(output), "other": None}
    choice = {"index": 0, "token_ids": output, "finish_reason": finish, "stop_reason": None, "logprobs": lists}
    usage = {"prompt_tokens": 2, "completion_tokens": len(output), "total_tokens": 2 + len(output)}
    whole.whole({"choices": [choice], "usage": usage, "prompt_token_ids": list(PROMPT)})
    tally = whole.tallies[0]
    assert len(choice["token_ids"]) == len(lists["tokens"]) == len(lists["text_offset"]) == tally.length
    assert (choice["elastic"]["budget"], choice["elastic"]["level"]) == (str(budget), "explicit")
    assert usage["completion_tokens"] == tally.thinking + tally.solution == usage["total_tokens"] - 2
    if tally.cut:
        assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
    streamed, ids = Reply(planned, MARKS), []
    for start in range(0, len(output), size):
        last = start + size >= len(output)
        chunk = {"index": 0, "token_ids": output[start : start + size], "finish_reason": finish if last else None}
        assert streamed.event(
            {"choices": [chunk], "prompt_token_ids": list(PROMPT)} if not start else {"choices": [chunk]}
        )
        ids += chunk["token_ids"]
    assert ids == choice["token_ids"]
    assert (chunk["elastic"], chunk["finish_reason"]) == (choice["elastic"], choice["finish_reason"])


def test_ids_and_chunks_that_nobody_asked_for_are_not_sent() -> None:
    reply = Reply(Plan({}, Budget(None, None), "none"), MARKS)
    first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [WORD]}
    assert reply.event(first)
    assert "prompt_token_ids" not in first
    assert not reply.event({"choices": [{"index": 0, "delta": {}, "token_ids": [END], "finish_reason": None}]})
    told = {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [WORD], "finish_reason": None}]}
    assert reply.event(told)
    assert "token_ids" not in told["choices"][0]
    assert reply.tallies[0].solution == 1


def test_a_thought_that_nobody_asked_for_is_not_sent() -> None:
    reply = Reply(Plan({}, Budget(None, None), "none", shows_reasoning=False), MARKS)
    hidden = {"index": 0, "delta": {"reasoning": "hm"}, "token_ids": [WORD], "logprobs": {"content": [{}]}}
    assert not reply.event({"choices": [hidden]})
    message = {"reasoning": "hm", "content": "4"}
    reply.whole({"choices": [{"index": 0, "message": message, "token_ids": [END, WORD], "finish_reason": "stop"}]})
    assert message == {"content": "4"}


class App:
    """An ASGI application that answers with given messages, and remembers what it was asked."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages, self.asked = messages, None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked = orjson.loads((await receive())["body"])
        for message in self.messages:
            await send(message)


def call(app: App, path: str, body: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes, list[bytes]]:
    """Status, body, and the body's pieces."""
    monkeypatch.setenv(VARIABLE, DEFAULT.dump())
    sent: list[dict[str, Any]] = []
    encoded = orjson.dumps(body)
    pieces = [encoded[:3], encoded[3:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-length", str(len(encoded)).encode())]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(Budgets(app)(scope, receive, send))
    bodies = [message["body"] for message in sent[1:]]
    return sent[0]["status"], b"".join(bodies), bodies


def start(kind: bytes, status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}


def body(text: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


def test_events_that_are_torn_apart_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'data: {"choices":[{"index":0,"text":"a","token_ids":[4],"finish_reason":null}]}\n\n'
    app = App(start(b"text/event-stream"), *(body(event[i : i + 1], True) for i in range(len(event))), body(b""))
    status, text, _ = call(app, "/v1/completions", {"prompt": "x"}, monkeypatch)
    assert (status, text) == (200, b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n')
    assert app.asked is not None
    assert app.asked["vllm_xargs"]["think_budget"] == 16


def test_a_stream_that_begins_with_an_error_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = b'{"error":{"message":"too long","code":400}}'
    app = App(start(b"text/event-stream"), body(b"data: " + error + b"\n\n", True), body(b"data: [DONE]\n\n"))
    assert call(app, "/v1/completions", {"stream": True}, monkeypatch)[:2] == (400, error)


def test_errors_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(start(b"application/json", 401), body(b"{}"))
    assert call(app, "/v1/chat/completions", {}, monkeypatch)[:2] == (401, b"{}")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/inference/v1/generate", "/invocations"])
def test_no_path_generates_without_a_budget(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    assert call(app, path, {}, monkeypatch)[0] == 404 and app.asked is None
