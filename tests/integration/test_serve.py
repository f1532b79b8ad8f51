"""`elastic serve` with the miniature, through the `openai` client package: every budget kept, every token counted."""

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
from collections import Counter, defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from scipy.stats import chi2_contingency

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.endpoint import EndpointParameters, parse_address
from elastic_core.engines.http import http_pool
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.miniature.problems import generate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.seeds import request_seed
from elastic_core.serving.middleware import MOST_BYTES
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling
from elastic_core.system.retry import wait_until
from elastic_core.trajectory import ThinkFinish, Trajectory
from flows.runtime.endpoints import find_endpoints
from tests.elastic_command import elastic_here
from tests.exactness import broken_rules
from tests.served import BASE, BUDGETS, KEY, NAME, Shared, streams
from tests.swept import NUM_PROBLEMS, NUM_SAMPLES, Swept, grid, sweep

TOKENIZER, MARKERS = load_markers(BASE)
PROBLEMS = generate("hard", 96, seed=5, split="tune")
QUESTION = [{"role": "user", "content": PROBLEMS[0].question}]
UNLIMITED = {"think_budget": "unlimited", "solution_budget": "unlimited"}
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Origin": "https://page.example"}


@pytest.fixture
def server(shared: Shared) -> str:
    return shared.address


@pytest.fixture
def client(server: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server}/v1", api_key=KEY, max_retries=0)


@dataclass
class Seen:
    """A response as a client has it, streamed or not."""

    ids: list[int] = field(default_factory=list)
    reasoning: str = ""
    content: str = ""
    finish: str | None = None
    elastic: dict[str, Any] = field(default_factory=dict)
    usage: Any = None

    def keeps(self, budget: Budget) -> None:
        """By the ids alone, and what is told of them."""
        closed = MARKERS.close[0] in self.ids
        start = self.ids.index(MARKERS.close[0]) + 1 if closed else len(self.ids)
        think, solution = budget.think or 0, budget.solution or 0
        forced = start == think + 1 and closed
        assert start - forced <= think
        assert len(self.ids) - start <= solution
        assert (self.elastic["forced_tokens"], self.elastic["thinking_tokens"]) == (forced, start - forced)
        assert self.elastic["solution_tokens"] == len(self.ids) - start
        ended = bool(self.ids) and self.ids[-1] in MARKERS.end_of_text
        if closed:
            assert self.elastic["thought"] == ("forced" if forced else "closed")
            assert self.finish == ("stop" if ended else "length")
            assert ended or len(self.ids) - start == solution
        else:
            assert self.elastic["thought"] == "end_of_text"
            assert ended


async def chat(
    client: openai.AsyncOpenAI, stream: bool, question: str = PROBLEMS[0].question, **arguments: Any
) -> Seen:
    extra = {"return_token_ids": True, **arguments.pop("extra_body", {})}
    options: Any = {
        "model": NAME,
        "messages": [{"role": "user", "content": question}],
        "extra_body": extra,
        **arguments,
    }
    seen = Seen()
    if not stream:
        response = await client.chat.completions.create(**options)
        (choice,) = response.choices
        seen.ids, seen.usage = choice.token_ids, response.usage  # type: ignore[attr-defined]
        seen.reasoning, seen.content = choice.message.reasoning or "", choice.message.content or ""  # type: ignore
        seen.finish, seen.elastic = choice.finish_reason, choice.elastic  # type: ignore[attr-defined]
        return seen
    async for chunk in await client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    ):
        seen.usage = chunk.usage or seen.usage
        for choice in chunk.choices:
            seen.ids += getattr(choice, "token_ids", None) or []
            seen.reasoning += getattr(choice.delta, "reasoning", None) or ""
            seen.content += choice.delta.content or ""
            if choice.finish_reason:
                assert not seen.finish
                seen.finish, seen.elastic = choice.finish_reason, choice.elastic
    return seen


def gathered(server: str, requests: list[Any]) -> list[Any]:
    """What functions of a client return, all at once."""

    async def run() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{server}/v1", api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*(request(client) for request in requests))

    return asyncio.run(run())


@pytest.mark.parametrize("level", [level for level in BUDGETS if level != "high"])
def test_a_streaming_chat_at_each_level(client: openai.OpenAI, level: Any) -> None:
    think, solution = BUDGETS[level]
    stream = client.chat.completions.create(
        model=NAME,
        messages=QUESTION,  # type: ignore[arg-type]
        reasoning_effort=level,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    (end,) = [choice for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    usage = chunks[-1].usage
    assert usage and usage.completion_tokens_details
    assert 0 < usage.completion_tokens_details.reasoning_tokens <= think
    assert usage.completion_tokens - usage.completion_tokens_details.reasoning_tokens <= solution
    told = end.model_extra["elastic"]  # type: ignore[index]
    assert told["thinking_tokens"] == usage.completion_tokens_details.reasoning_tokens
    assert told["thought"] in ("forced", "closed")
    assert (told["budget"], told["level"]) == (f"{think}+{solution}", level)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text
    for end_of_text in MARKERS.end_of_text:
        assert TOKENIZER.decode([end_of_text]) not in text
    assert not any((choice.model_extra or {}).get("token_ids") for chunk in chunks for choice in chunk.choices)


def test_many_requests_at_once_keep_each_its_own_budget(server: str) -> None:
    draw = random.Random(0)
    budgets = [Budget(draw.choice([0, 1, 2, 7, 40]), draw.choice([1, 2, 9, 30])) for _ in range(64)]
    requests = [
        lambda client, i=i, budget=budget: chat(
            client,
            i % 2 == 0,
            PROBLEMS[i].question,
            seed=i,
            temperature=1.0,
            extra_body={"vllm_xargs": {"think_budget": budget.think, "solution_budget": budget.solution}},
        )
        for i, budget in enumerate(budgets)
    ]
    for seen, budget in zip(gathered(server, requests), budgets, strict=True):
        seen.keeps(budget)
        details = seen.usage.completion_tokens_details
        assert seen.usage.completion_tokens == len(seen.ids) - details.forced_tokens
        assert details.reasoning_tokens == seen.elastic["thinking_tokens"]
        assert seen.usage.total_tokens == seen.usage.prompt_tokens + seen.usage.completion_tokens


def test_every_choice_of_a_request_keeps_the_budget(client: openai.OpenAI) -> None:
    response = client.chat.completions.create(
        model=NAME,
        messages=QUESTION,  # type: ignore[arg-type]
        n=5,
        seed=3,
        temperature=1.0,
        extra_body={"return_token_ids": True},
    )
    assert len(response.choices) == 5
    for choice in response.choices:
        told = choice.model_extra or {}
        Seen(told["token_ids"], finish=choice.finish_reason, elastic=told["elastic"]).keeps(Budget(16, 8))


def test_a_stream_and_a_whole_response_are_the_same(server: str) -> None:
    whole, streamed = gathered(server, [lambda client, s=s: chat(client, s, temperature=0) for s in (False, True)])
    assert (whole.ids, whole.reasoning, whole.content) == (streamed.ids, streamed.reasoning, streamed.content)
    assert (whole.finish, whole.elastic, whole.usage) == (streamed.finish, streamed.elastic, streamed.usage)


def test_a_thought_that_the_prompt_has_closed_leaves_the_solution(client: openai.OpenAI) -> None:
    prompt = [*chat_prompt(TOKENIZER, PROBLEMS[0].question), MARKERS.close[0]]
    response = client.completions.create(model=NAME, prompt=prompt, temperature=0)
    (choice,) = response.choices
    told = choice.model_extra["elastic"]  # type: ignore[index]
    assert told["thought"] == "not_applicable"
    assert (told["thinking_tokens"], told["forced_tokens"]) == (0, 0)
    assert 0 < told["solution_tokens"] <= 8


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_responses_keep_a_budget_and_are_told_of_it(client: openai.OpenAI, stream: bool) -> None:
    arguments: Any = {"model": NAME, "input": PROBLEMS[0].question, "reasoning": {"effort": "low"}, "temperature": 0}
    found: Any = client.responses.create(**arguments, stream=stream)
    deltas: Counter[str] = Counter()
    if stream:
        events = list(found)
        for event in events:
            deltas[event.type] += getattr(event, "delta", "") != ""
        found = events[-1].response
    told, usage = found.model_extra["elastic"], found.usage
    assert (told["budget"], told["level"]) == ("16+8", "low")
    assert 0 < usage.output_tokens_details.reasoning_tokens == told["thinking_tokens"] <= 16
    assert 0 < told["solution_tokens"] <= 8 and usage.output_tokens == told["thinking_tokens"] + told["solution_tokens"]
    thought, answer = found.output
    assert (thought.type, answer.type) == ("reasoning", "message")
    assert len(TOKENIZER.encode(thought.content[0].text)) <= 16
    is_cut = told["solution_tokens"] == 8
    assert found.status == ("incomplete" if is_cut else "completed")
    assert not stream or (deltas["response.reasoning_text.delta"] and deltas["response.output_text.delta"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_messages_keep_a_budget_and_are_told_of_it(server: str, stream: bool) -> None:
    thinking = {"type": "enabled", "budget_tokens": 12}
    body = {"model": NAME, "messages": QUESTION, "max_tokens": 400, "thinking": thinking, "temperature": 0}
    response = post(server, json.dumps({**body, "stream": stream}).encode(), "/v1/messages")
    assert response.status_code == 200, response.text
    if stream:
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        events = [json.loads(line.removeprefix("data: ")) for line in lines]
        (end,) = [event for event in events if event["type"] == "message_delta"]
        blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
        told, usage, reason = end["elastic"], end["usage"], end["delta"]["stop_reason"]
    else:
        document = response.json()
        blocks = [block["type"] for block in document["content"]]
        told, usage, reason = document["elastic"], document["usage"], document["stop_reason"]
    assert blocks == ["thinking", "text"]
    assert (told["budget"], told["level"]) == ("12+8", "explicit")
    assert 0 < told["thinking_tokens"] <= 12 and 0 < told["solution_tokens"] <= 8
    assert usage["output_tokens"] == told["thinking_tokens"] + told["solution_tokens"]
    assert reason == ("max_tokens" if told["solution_tokens"] == 8 else "end_turn")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("solution", [1, 5, 20])
def test_structured_output_begins_after_the_thought_and_ends_at_s(server: str, solution: int, stream: bool) -> None:
    """Nothing is forced that the grammar would reject, so what is written up to s is what it allows."""
    limits = {"think_budget": 9, "solution_budget": solution}
    arguments: Any = {"vllm_xargs": limits, "structured_outputs": {"regex": "7{12}"}, "return_token_ids": True}
    (seen,) = gathered(server, [lambda client: chat(client, stream, temperature=1.0, seed=3, extra_body=arguments)])
    told = seen.elastic
    assert 0 < told["thinking_tokens"] <= 9 and told["thought"] in ("forced", "closed")
    assert (told["solution_tokens"], seen.content) == (min(solution, 13), "7" * min(solution, 12))
    assert seen.finish == ("stop" if solution > 12 else "length")
    start = told["thinking_tokens"] + told["forced_tokens"]
    assert len(seen.ids) == start + told["solution_tokens"]
    assert seen.usage.completion_tokens == told["thinking_tokens"] + told["solution_tokens"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_tool_call_counts_as_solution_and_one_that_is_cut_is_no_call(server: str, stream: bool) -> None:
    number = {"type": "integer", "minimum": 10, "maximum": 99}
    parameters = {"type": "object", "properties": {"a": number}, "required": ["a"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "add", "parameters": parameters, "strict": True}}]

    def ask(solution: int) -> tuple[str, str, Seen]:
        """Name and arguments of the calls, and what else was told."""
        limits = {"think_budget": 8, "solution_budget": solution}
        # A grammar for JSON lets the miniature write newlines without end.
        no_newlines = {TOKENIZER.encode("\n")[0]: -100}
        body = chat_body(
            tools=tools, tool_choice="required", vllm_xargs=limits, logit_bias=no_newlines, stream=stream, seed=1
        )
        response = post(server, body)
        lines = response.text.splitlines()
        documents = [json.loads(line.removeprefix("data: ")) for line in lines if line.endswith("}")]
        choices = [choice for document in documents for choice in document["choices"]]
        calls = [
            call["function"]
            for choice in choices
            for call in (choice.get("message") or choice["delta"]).get("tool_calls") or ()
        ]
        name, written = ("".join(call.get(key) or "" for call in calls) for key in ("name", "arguments"))
        return name, written, Seen(finish=choices[-1]["finish_reason"], elastic=choices[-1]["elastic"])

    name, written, whole = ask(120)
    assert (name, whole.finish) == ("add", "tool_calls")
    assert 10 <= json.loads(written)["a"] <= 99
    length = whole.elastic["solution_tokens"]
    _, half, cut = ask(length - 16)
    assert (cut.finish, cut.elastic["solution_tokens"]) == ("length", length - 16)
    assert not half.endswith("}")


def test_log_probabilities_are_those_of_the_response(client: openai.OpenAI) -> None:
    arguments: Any = {"model": NAME, "messages": QUESTION, "temperature": 0, "logprobs": True, "top_logprobs": 1}
    (choice,) = client.chat.completions.create(
        **arguments, extra_body={"return_token_ids": True, "vllm_xargs": {"think_budget": 5, "solution_budget": 3}}
    ).choices
    assert choice.logprobs and choice.logprobs.content
    assert choice.finish_reason == "length"
    assert len(choice.logprobs.content) == len(choice.model_extra["token_ids"]) == 5 + 1 + 3  # type: ignore[index]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"vllm_xargs": {"think_budget": -3}}, "think_budget is -3; expected a whole number of tokens from 0 to"),
        ({"vllm_xargs": {"solution_budget": 2.5}}, "solution_budget is 2.5; expected a whole number of tokens"),
        ({"vllm_xargs": {"think_budget": 500}}, r"500\+8 does not fit the context: it takes 509 tokens"),
        ({"reasoning_effort": "hihg"}, "expected none, minimal, low, medium, high"),
        ({"thinking_budget": "many"}, "thinking_budget"),
        ({"min_tokens": 4}, "min_tokens is 4 together with a budget"),
        ({"ignore_eos": True}, "ignore_eos together with a budget"),
        ({"thought_limit": 4}, "thought_limit"),
        ({"use_beam_search": "yes"}, "use_beam_search together with the budget .*lift the budget with"),
        ({"vllm_xargs": "abc"}, "vllm_xargs is 'abc'; expected an object"),
    ],
)
def test_what_cannot_be_had_is_refused_with_a_sentence(
    client: openai.OpenAI, arguments: dict[str, Any], sentence: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence):
        client.chat.completions.create(
            model=NAME,
            messages=QUESTION,  # type: ignore[arg-type]
            extra_body=arguments,
            stream=stream,
        )


def post(server: str, body: bytes, path: str = "/v1/chat/completions") -> httpx.Response:
    return httpx.post(f"{server}{path}", content=body, headers=HEADERS, timeout=600)


def chat_body(**arguments: Any) -> bytes:
    return json.dumps({"model": NAME, "messages": QUESTION, "return_token_ids": True, **arguments}).encode()


@pytest.mark.parametrize(
    "body",
    [
        chat_body(z=math.nan, max_tokens=400),
        chat_body(z=math.inf),
        chat_body(user="\ud800"),
        b"\xef\xbb\xbf" + chat_body(),
        chat_body().decode().encode("utf-16"),
        chat_body().replace(b"{", b'{"z": ' + 300 * b"[" + 300 * b"]" + b",", 1),
    ],
    ids=["NaN", "infinity", "surrogate", "byte order mark", "UTF-16", "nested"],
)
def test_what_cannot_be_parsed_is_refused_with_a_sentence_that_a_page_can_read(server: str, body: bytes) -> None:
    before = metrics(server)
    response = post(server, body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("the request is ")
    assert response.headers["access-control-allow-origin"]
    assert metrics(server) == before


def test_a_streams_refusal_can_be_read_by_a_page(server: str) -> None:
    response = post(server, chat_body(stream=True, min_tokens=4))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("min_tokens is 4 together with a budget; drop it, or lift")
    assert response.headers["access-control-allow-origin"]


ELSEWHERE: list[dict[str, Any]] = [
    {"include_reasoning": 0},
    {"include_reasoning": "no", "stream": "yes", "stream_options": {"include_usage": "on"}},
    {"include_reasoning": "false", "return_token_ids": "true", "n": "3"},
    {"echo": True, "max_tokens": "400"},
    {"max_tokens": 20.0},
    {"logit_bias": {MARKERS.close[0]: -100, **dict.fromkeys(MARKERS.end_of_text, -100)}},
    {"allowed_token_ids": [i for i in range(len(TOKENIZER)) if i not in (MARKERS.close[0], *MARKERS.end_of_text)]},
    {"bad_words": ["</think>"], "repetition_penalty": 3.0, "stop_token_ids": ["7"]},
    {"vllm_xargs": {"elastic_room": 1, "think_budget": None, "solution_budget": None}},
    {"kv_transfer_params": {"think_budget": 400}, "max_completion_tokens": 400.0},
]


@pytest.mark.parametrize("arguments", ELSEWHERE, ids=lambda arguments: " ".join(arguments))
def test_nothing_else_in_a_request_lifts_its_budget_or_hides_its_tokens(server: str, arguments: dict[str, Any]) -> None:
    before = metrics(server)
    response = post(server, chat_body(**arguments, temperature=1.0, seed=1))
    assert response.status_code == 200, response.text
    events = [
        event.removeprefix("data: ") for event in response.text.split("\n\n") if event not in ("", "data: [DONE]")
    ]
    documents = [json.loads(event) for event in events]
    ids: defaultdict[int, list[int]] = defaultdict(list)
    told: dict[int, dict[str, Any]] = {}
    for choice in (choice for document in documents for choice in document["choices"]):
        ids[choice["index"]] += choice.get("token_ids") or []
        told |= {choice["index"]: choice["elastic"]} if "elastic" in choice else {}
        message = choice.get("message") or choice["delta"]
        assert "include_reasoning" not in arguments or not message.get("reasoning")
    assert len(ids) == int(arguments.get("n", 1))
    for index, tokens in ids.items():
        start = tokens.index(MARKERS.close[0]) + 1 if MARKERS.close[0] in tokens else len(tokens)
        forced = told[index]["forced_tokens"]
        assert start - forced <= 16
        assert len(tokens) - start <= 8
        # vLLM hides a thought's ids with it.
        length = told[index]["thinking_tokens"] + forced + told[index]["solution_tokens"]
        assert length == len(tokens) or "include_reasoning" in arguments
        # A limit of the response's own leaves the solution its 8 tokens.
        kept = "11+8" if arguments.get("max_tokens") == 20 else "16+8"
        assert (told[index]["budget"], told[index]["level"]) == (kept, "default")
    sampled = sum(each["thinking_tokens"] + each["solution_tokens"] for each in told.values())
    assert sampled == documents[-1]["usage"]["completion_tokens"] > 0
    grown = {name: value - before.get(name, 0) for name, value in metrics(server).items()}
    phases = [grown[f'elastic_tokens_total{{level="default",phase="{phase}"}}'] for phase in ("thinking", "solution")]
    assert sum(phases) == sampled


def connected(server: str, length: int, key: str = KEY, path: str = "/v1/chat/completions") -> socket.socket:
    """A connection on which the head of a request was sent, and nothing of its body."""
    host, _, port = server.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=600)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
    return connection


def test_a_wrong_key_is_told_before_the_body_is_read(server: str) -> None:
    with connected(server, 100_000_000, key="wrong") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_a_body_has_an_end(server: str, path: str) -> None:
    with connected(server, 2 * MOST_BYTES, path=path) as connection:
        connection.sendall(bytes(MOST_BYTES + 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_is_counted_apart_and_leaves_no_traceback(shared: Shared) -> None:
    server, log = shared.address, shared.log
    secret, said = "the client's own words", log.read_text().count("Traceback")
    before = metrics(server)
    # Up to the context's end, which takes the engine a minute: however late a poll looks, the client leaves before.
    body = chat_body(messages=[{"role": "user", "content": secret}], vllm_xargs=UNLIMITED, ignore_eos=True, n=2048)
    generated = tokens_generated(server)
    with connected(server, len(body)) as connection:
        connection.sendall(body)
        assert wait_until(lambda: tokens_generated(server) > generated, 600, every=0.1)
    with connected(server, len(body)) as connection:
        connection.sendall(body[:-1])
    abandoned = 'elastic_abandoned_requests_total{level="explicit"}'
    assert wait_until(lambda: metrics(server).get(abandoned, 0) == before.get(abandoned, 0) + 1, 600)
    answered = 'elastic_requests_total{level="explicit"}'
    assert metrics(server).get(answered) == before.get(answered)
    assert log.read_text().count("Traceback") == said
    assert secret not in log.read_text()


def tokens_generated(server: str) -> float:
    """By the engine, since it started."""
    lines = httpx.get(f"{server}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total{"))


def test_what_generates_without_budgets_is_closed(server: str) -> None:
    response = post(server, b"{}", "/inference/v1/generate")
    assert response.status_code == 404
    assert "no budgets are kept at /inference/v1/generate" in response.json()["error"]["message"]


OPEN = {
    "/docs",
    "/health",
    "/kv_event_sources",
    "/load",
    "/metrics",
    "/openapi.json",
    "/ping",
    "/redoc",
    "/tokenize",
    "/detokenize",
    "/version",
}


def test_without_the_key_nothing_is_open_but_what_the_documentation_names(server: str) -> None:
    def status(method: str, path: str) -> int:
        return httpx.request(method, server + path, json={} if method == "post" else None).status_code

    paths = httpx.get(f"{server}/openapi.json").json()["paths"]
    answers = {path: {status(method, path) for method in methods} for path, methods in paths.items()}
    answers |= {path: {status("get", path)} for path in ("/docs", "/redoc", "/openapi.json")}
    assert {path for path, found in answers.items() if found - {401, 404}} == OPEN
    documented = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    assert all(f"`{path}`" in documented for path in OPEN)


def metrics(server: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in httpx.get(f"{server}/metrics").text.splitlines()]
    return {name: float(value) for name, value in lines if name.startswith("elastic_") and "_created" not in name}


def test_counters_say_what_responses_said(server: str) -> None:
    before = metrics(server)
    requests = [
        lambda client, i=i: chat(client, i % 2 == 0, seed=i, temperature=1.0, reasoning_effort="low") for i in range(8)
    ]
    seen = gathered(server, requests)
    grown = {name: value - before.get(name, 0) for name, value in metrics(server).items()}
    level = 'level="low"'
    assert grown[f"elastic_requests_total{{{level}}}"] == 8
    assert grown[f"elastic_forced_thoughts_total{{{level}}}"] == sum(s.elastic["thought"] == "forced" for s in seen)
    assert grown[f"elastic_cut_solutions_total{{{level}}}"] == sum(s.finish == "length" for s in seen)
    for phase in ("thinking", "solution", "forced"):
        expected = sum(s.elastic[f"{phase}_tokens"] for s in seen)
        assert grown[f'elastic_tokens_total{{{level},phase="{phase}"}}'] == expected


class ServedEngine:
    """The same server without budgets as an engine: token ids in, token ids out."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    async def generate(self, request: Generate, seed: int) -> Completion:
        room = 512 - len(request.prefix)
        response = await self._client.completions.create(
            model=NAME,
            prompt=list(request.prefix),
            max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            seed=request_seed(seed, request),
            extra_body={
                "stop_token_ids": list(request.stop),
                "ignore_eos": True,
                "return_token_ids": True,
                "vllm_xargs": UNLIMITED,
            },
        )
        (choice,) = response.choices
        tokens = tuple(choice.token_ids)  # type: ignore[attr-defined]
        return Completion(tokens, Finish.STOP if choice.finish_reason == "stop" else Finish.LENGTH)


def served_and_separate(server: str, sampling: Sampling, budget: Budget, count: int) -> list[tuple[Seen, Trajectory]]:
    """Both ways to spend a budget on the same problems and seeds."""

    async def served(client: openai.AsyncOpenAI, i: int) -> Seen:
        question = PROBLEMS[i % len(PROBLEMS)].question
        seed = request_seed(i, Generate(chat_prompt(TOKENIZER, question), None, (), sampling))
        limits = {"think_budget": budget.think, "solution_budget": budget.solution}
        return await chat(
            client,
            False,
            question,
            temperature=sampling.temperature,
            top_p=1.0,
            seed=seed,
            # The server has a goal, and would shorten thoughts where other work slows it.
            extra_body={"vllm_xargs": limits, "elastic": {"fixed": True}},
        )

    def separate(client: openai.AsyncOpenAI, i: int) -> Coroutine[Any, Any, Trajectory]:
        prompt = chat_prompt(TOKENIZER, PROBLEMS[i % len(PROBLEMS)].question)
        rollout = STRATEGIES["separate"].decode(prompt, budget, MARKERS, sampling)
        return drive(rollout, {"policy": ServedEngine(client)}, i)

    both = [lambda client, i=i, way=way: way(client, i) for way in (served, separate) for i in range(count)]
    results = gathered(server, both)
    return list(zip(results[:count], results[count:], strict=True))


def test_a_sweep_of_it_is_the_sweep_of_an_engine_of_ours(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever budget the server would give a request that names none."""
    monkeypatch.setenv("ELASTIC_API_KEY_BASE", KEY)
    strategies = ("vanilla", "budget_forcing", "separate", "separate_native")

    async def local() -> Swept:
        engine = VllmEngine(str(BASE), EngineParameters(max_model_len=512, max_num_seqs=64), keeps_budgets=True)
        try:
            return await sweep(engine, tmp_path / "local", strategies)
        finally:
            engine.shutdown()

    places = {"base": (parse_address(f"{server}/v1#{NAME}"),)}
    found = find_endpoints(places, {"base": str(BASE)}, EndpointParameters(), tmp_path)

    async def served() -> Swept:
        async with http_pool(found, keeps_budgets=True) as (replica,):
            return await sweep(replica["base"], tmp_path / "served", strategies)

    there, here = asyncio.run(served()), asyncio.run(local())
    assert here.rows.height == len(grid(strategies)) * NUM_PROBLEMS * NUM_SAMPLES
    assert broken_rules(here.rows) == {}
    assert there.rows.equals(here.rows)


def test_a_question_in_the_terminal_is_answered_by_a_server(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ELASTIC_API_KEY_MODEL", KEY)
    address = f"{server}/v1#{NAME}"
    answered = elastic_here("ask", "36+6=?", "--model", address, "--budget", "16+24", runs=tmp_path)
    assert answered.returncode == 0, answered.stdout
    assert "tokens: " in answered.stdout and " of 16" in answered.stdout


@pytest.mark.slow
@pytest.mark.parametrize("budget", [Budget(0, 8), Budget(16, 8), Budget(160, 24)], ids=str)
def test_greedy_responses_are_those_of_separate(server: str, budget: Budget) -> None:
    pairs = served_and_separate(server, Sampling(temperature=0.0), budget, len(PROBLEMS))
    same = sum(tuple(seen.ids) == trajectory.response_ids for seen, trajectory in pairs)
    # A solution's first token comes from a prefill there and from a decoding step here, so near ties may differ.
    assert same >= 0.95 * len(pairs)


@pytest.mark.slow
def test_drawn_thoughts_are_those_of_separate_and_solutions_are_as_long(server: str) -> None:
    budget = Budget(100, 12)
    pairs = served_and_separate(server, Sampling(temperature=1.0), budget, 3 * len(PROBLEMS))
    for seen, trajectory in pairs:
        assert seen.elastic["thought"] == trajectory.think_finish
        if trajectory.think_finish is not ThinkFinish.END_OF_TEXT:
            assert tuple(seen.ids[: trajectory.solution_start]) == trajectory.response_ids[: trajectory.solution_start]
    kept = [pair for pair in pairs if pair[1].think_finish is not ThinkFinish.END_OF_TEXT]
    assert len(kept) > 0.9 * len(pairs)
    assert {trajectory.think_finish for _, trajectory in kept} == {ThinkFinish.CLOSED, ThinkFinish.FORCED}
    lengths = [
        Counter(seen.elastic["solution_tokens"] for seen, _ in kept),
        Counter(t.solution_tokens for _, t in kept),
    ]
    common = [length for length in range(1, 13) if sum(count[length] for count in lengths) >= 10]
    counts = [[count[length] for length in common] for count in lengths]
    rest = [count.total() - sum(row) for count, row in zip(lengths, counts, strict=True)]
    table = [[*row, other] for row, other in zip(counts, rest, strict=True)] if any(rest) else counts
    assert chi2_contingency(table).pvalue > 1e-3


def test_responses_under_way_when_it_is_told_to_end_are_whole_and_then_it_ends(shared: Shared) -> None:
    family = shared.process.children(recursive=True)
    assert family
    for text in streams(shared.address, shared.process.terminate, key=KEY, model=NAME, max_tokens=100):
        assert '"finish_reason":"length"' in text and "[DONE]" in text
    assert shared.process.wait(600) == 0
    assert not psutil.wait_procs(family, timeout=600)[1]
