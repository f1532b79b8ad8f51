"""A level whose thought a stop rule ends, through a real server: one stream, the strategy's own response, counts of its
probes, and nothing left when the client leaves."""

from __future__ import annotations

import asyncio
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.endpoint import EndpointParameters, parse_address
from elastic_core.engines.http import http_pool
from elastic_core.miniature.problems import generate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.rewards import answer_reader
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.trajectory import Trajectory
from flows.runtime.endpoints import find_endpoints
from tests.served import BASE, KEY, NAME, RULE, RULE_SOLUTION, Shared

TOKENIZER, MARKERS = load_markers(BASE)
PROBLEMS = [problem.question for problem in (*generate("easy", 4, 5, "tune"), *generate("hard", 4, 5, "tune"))]
SOLUTION, HEADERS = RULE_SOLUTION, {"Authorization": f"Bearer {KEY}"}
GREEDY: dict[str, Any] = {"temperature": 0, "reasoning_effort": "high"}


@pytest.fixture(scope="module")
def server(shared: Shared) -> str:
    return shared.address


@pytest.fixture(scope="module")
def drawn(server: str, tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    """What the strategy itself draws with the server's engine, greedily."""
    places = {"base": (parse_address(f"{server}/v1#{NAME}"),)}

    async def draw() -> list[Trajectory]:
        strategy = STRATEGIES[RULE].reading(answer_reader(TOKENIZER, MARKERS, "math"))
        rollouts = [
            strategy.decode(chat_prompt(TOKENIZER, each), Budget(None, SOLUTION), MARKERS, Sampling(temperature=0))
            for each in PROBLEMS
        ]
        async with http_pool(found) as (replica,):
            return await asyncio.gather(*(drive(rollout, {"policy": replica["base"]}, 0) for rollout in rollouts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTIC_API_KEY_BASE", KEY)
        found = find_endpoints(places, {"base": str(BASE)}, EndpointParameters(), tmp_path_factory.mktemp("endpoints"))
        return asyncio.run(draw())


def post(server: str, path: str = "chat/completions", **body: Any) -> Any:
    return httpx.post(f"{server}/v1/{path}", json={"model": NAME, **body}, headers=HEADERS, timeout=600)


def asked(server: str, question: str, **body: Any) -> dict[str, Any]:
    answer = post(server, messages=[{"role": "user", "content": question}], **{**GREEDY, **body})
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json()
    return document


def at_once(server: str) -> list[dict[str, Any]]:
    """The responses to all problems."""
    with ThreadPoolExecutor(len(PROBLEMS)) as pool:
        return list(pool.map(partial(asked, server), PROBLEMS))


def test_a_level_with_a_rule_gives_what_its_strategy_draws(server: str, drawn: list[Trajectory]) -> None:
    stopped = 0
    for document, want in zip(at_once(server), drawn, strict=True):
        choice, usage = document["choices"][0], document["usage"]
        told = choice["elastic"]
        assert (told["level"], told["rule"], told["thought"]) == ("high", RULE, str(want.think_finish))
        assert (told["asked"], told["why"], told["price"]) == (told["budget"], "asked", 0)
        assert (told["stopped"], told["probes"]) == (want.stopped, len(want.probes))
        assert told["stopped_at"] == (want.think_tokens if want.stopped else None)
        counts = want.think_tokens, want.solution_tokens, want.forced_tokens
        assert tuple(told[f"{name}_tokens"] for name in ("thinking", "solution", "forced")) == counts
        assert usage["completion_tokens"] == want.think_tokens + want.solution_tokens
        assert usage["completion_tokens_details"]["probe_tokens"] == told["probe_tokens"]
        ids = list(want.response_ids[want.solution_start :])
        assert choice["message"]["content"] == TOKENIZER.decode([i for i in ids if i not in MARKERS.end_of_text])
        stopped += want.stopped is not None
    assert 0 < stopped < len(PROBLEMS)


def test_a_stream_is_one_and_shows_nothing_that_the_rule_cuts(server: str, drawn: list[Trajectory]) -> None:
    def streamed(question: str) -> str:
        body = {"messages": [{"role": "user", "content": question}], "stream": True, **GREEDY}
        text: str = post(server, **body, stream_options={"include_usage": True}).text
        return text

    with ThreadPoolExecutor(len(PROBLEMS)) as pool:
        texts_of_all = list(pool.map(streamed, PROBLEMS))
    for text, document, want in zip(texts_of_all, at_once(server), drawn, strict=True):
        lines = text.split("data: ")[1:]
        assert lines[-1].strip() == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        texts = ["".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content")]
        whole = document["choices"][0]["message"]
        assert texts == [whole["reasoning"], whole["content"]]
        ends = [choice for chunk in chunks for choice in chunk["choices"] if choice.get("finish_reason")]
        (end,) = ends
        assert end["elastic"]["thinking_tokens"] == want.think_tokens
        assert chunks[-1]["usage"]["completion_tokens"] == want.think_tokens + want.solution_tokens


@pytest.mark.parametrize("path", ["responses", "messages"])
def test_other_apis_have_it_too(server: str, drawn: list[Trajectory], path: str) -> None:
    question = {"role": "user", "content": PROBLEMS[0]}
    given = {"responses": {"input": [question], "reasoning": {"effort": "high"}}, "messages": {"messages": [question]}}
    more = {"max_tokens": 400, "output_config": {"effort": "high"}} if path == "messages" else {}
    answer = post(server, path, temperature=0, **given[path], **more)
    assert answer.is_success, answer.text
    told = answer.json()["elastic"]
    assert (told["rule"], told["thinking_tokens"], told["probes"]) == (
        RULE,
        drawn[0].think_tokens,
        len(drawn[0].probes),
    )


def test_max_tokens_bounds_the_thought(server: str) -> None:
    told = asked(server, PROBLEMS[-1], max_tokens=SOLUTION + 21)["choices"][0]["elastic"]
    assert told["budget"] == f"20+{SOLUTION}" and told["thinking_tokens"] <= 20


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("stop", "x"),
        ("response_format", {"type": "json_object"}),
        ("repetition_penalty", 1e-320),
    ],
)
def test_what_a_response_in_several_requests_cannot_have_is_refused(server: str, field: str, value: object) -> None:
    messages = [{"role": "user", "content": PROBLEMS[0]}]
    answer = post(server, messages=messages, **{**GREEDY, "temperature": 1, field: value})
    assert answer.status_code == 400
    sentence = "expected 0, or a size" if field == "repetition_penalty" else "whose stop rule probes; leave it out"
    assert sentence in answer.json()["error"]["message"]


def running_requests(server: str) -> float:
    metrics = httpx.get(f"{server}/metrics", timeout=600).text.splitlines()
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.rpartition(" ")[2]) for line in metrics if line.startswith(names))


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_probe_outlives_its_request_and_no_budget_is_exceeded(server: str, count: int) -> None:
    """A third of the clients leave after a while of their own."""
    draw = random.Random(count)

    async def one(client: httpx.AsyncClient, room: asyncio.Semaphore) -> dict[str, Any] | None:
        body = {
            "model": NAME,
            "messages": [{"role": "user", "content": draw.choice(PROBLEMS)}],
            "temperature": 0.8,
            "reasoning_effort": "high",
            "seed": draw.randrange(2**31),
            "stream": draw.random() < 0.5,
            "max_tokens": SOLUTION + 1 + draw.randrange(1, 200),
        }
        leaves = draw.random() / 2 if draw.random() < 1 / 3 else None
        async with room:
            try:
                async with asyncio.timeout(leaves):
                    answer = await client.post("/v1/chat/completions", json=body)
            except TimeoutError:
                return None
        assert answer.is_success, answer.text
        text = answer.text
        events = text.split("data: ")[1:-1] if body["stream"] else [text]
        choices = [choice for event in events for choice in json.loads(event)["choices"] if choice.get("elastic")]
        told: dict[str, Any] = choices[0]["elastic"]
        limit = body["max_tokens"] - SOLUTION - 1
        assert told["thinking_tokens"] <= limit and told["solution_tokens"] <= SOLUTION, told
        assert told["stopped_at"] is None or told["stopped_at"] % 16 == 0
        return told

    async def all_of_them() -> list[dict[str, Any] | None]:
        room = asyncio.Semaphore(64)
        async with httpx.AsyncClient(base_url=server, headers=HEADERS, timeout=600) as client:
            return await asyncio.gather(*(one(client, room) for _ in range(count)))

    found = asyncio.run(all_of_them())
    left = found.count(None)
    assert 0 < left < count
    assert any(told and told["stopped"] for told in found)
    until = time.monotonic() + 600
    while running_requests(server):
        assert time.monotonic() < until, "requests still run although their clients have left"
        time.sleep(0.1)
