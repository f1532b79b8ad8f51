"""`elastic serve` with more asked of it than it may give: budgets fall to the floor, and no client is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.served import BUDGETS, elastic_serve, model_with_levels

pytestmark = pytest.mark.slow
FIXED = {"reasoning_effort": "high", "elastic": {"fixed": True}}
QUESTION = [{"role": "user", "content": "36+6-4+8=?"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    directory = tmp_path_factory.mktemp("load")
    model = model_with_levels(directory / "model")
    given = ("--tokens-per-second", "40", "--floor", "low")
    sizes = ("--set", "engine.max_model_len=512", "--set", "engine.max_num_seqs=16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTIC_RUNS", str(directory / "runs"))
        with elastic_serve(model, directory / "log", *given, *sizes) as (address, _):
            yield address, directory / "log"


def ask(server: str, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    answer = httpx.post(
        f"{server}/v1/chat/completions",
        json={"model": "model", "messages": QUESTION, **body},
        headers=headers or {},
        timeout=600,
    )
    assert answer.is_success, answer.text
    told: dict[str, Any] = answer.json()["choices"][0]["elastic"]
    return told


def test_all_choices_of_a_request_have_the_budget_that_so_many_leave(served: tuple[str, Path]) -> None:
    body = {"model": "model", "messages": QUESTION, "reasoning_effort": "high", "n": 8}
    first, second = (
        httpx.post(f"{served[0]}/v1/chat/completions", json=body, timeout=600).json()["choices"] for _ in range(2)
    )
    for choices in (first, second):
        assert len(choices) == 8 and len({each["elastic"]["budget"] for each in choices}) == 1
    assert {each["elastic"]["why"] for each in second} == {"load"}


def test_budgets_fall_to_the_floor_and_whoever_says_so_keeps_theirs(served: tuple[str, Path]) -> None:
    server, log = served
    with ThreadPoolExecutor(8) as pool:
        crowd = list(pool.map(lambda seed: ask(server, reasoning_effort="high", seed=seed), range(40)))
        assert {told["asked"] for told in crowd} == {"160+24"} and {told["level"] for told in crowd} == {"high"}
        lowered = [told for told in crowd if told["why"] == "load"]
        assert len(lowered) > 20 and lowered[-1]["price"] > 0
        floor, solution = BUDGETS["low"][0], BUDGETS["high"][1]
        assert {told["budget"] for told in lowered} <= {f"{think}+{solution}" for think, _ in BUDGETS.values()}
        assert lowered[-1]["budget"] == f"{floor}+{solution}"
        assert all(told["thinking_tokens"] <= int(told["budget"].split("+")[0]) for told in crowd)
        kept = [
            ask(server, reasoning_effort="high", elastic={"fixed": True}),
            ask(server, {"Elastic-Fixed": "true"}, reasoning_effort="high"),
        ]
        assert [(told["budget"], told["why"]) for told in kept] == [("160+24", "fixed")] * 2
        below = ask(server, reasoning_effort="minimal")
        assert (below["budget"], below["why"]) == ("4+6", "asked"), "load never adds"
        without = ask(server)
        assert (without["asked"], without["why"]) == ("unlimited", "load")
    metrics = httpx.get(f"{server}/metrics").text
    assert 'elastic_budget_given_bucket{le="16.0",level="high"}' in metrics and "elastic_token_price" in metrics
    assert "a step takes" in log.read_text()


def test_requests_wait_before_the_engine_and_whoever_leaves_waits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    sizes = ("--set", "engine.max_model_len=512", "--set", "engine.max_num_seqs=2")
    model = model_with_levels(tmp_path / "model")
    with elastic_serve(model, tmp_path / "log", "--latency", "60", "--floor", "low", *sizes) as (server, _):
        answers, most = asyncio.run(_crowd(server, 30, 10))
    assert answers == 20 and 1 <= most <= 2, "at once in the engine, with those that wait there"


async def _crowd(server: str, count: int, impatient: int) -> tuple[int, float]:
    """Of so many requests at once, some of whose clients leave soon: answers, and most that vLLM had at once."""
    body, held = {"model": "model", "messages": QUESTION, **FIXED}, list[float]()

    async def one(client: httpx.AsyncClient, number: int) -> bool:
        call = client.post(f"{server}/v1/chat/completions", json=body | {"seed": number})
        try:
            return (await asyncio.wait_for(call, 0.3 if number < impatient else 600)).is_success
        except TimeoutError:
            return False

    async def look(client: httpx.AsyncClient) -> None:
        while True:
            lines = (await client.get(f"{server}/metrics")).text.splitlines()
            names = "vllm:num_requests_running{", "vllm:num_requests_waiting{"
            held.append(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names)))
            await asyncio.sleep(0.1)

    async with httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        looking = asyncio.create_task(look(client))
        # The first ones have the places: the impatient come after them, and wait.
        order = [*range(impatient, impatient + 5), *range(impatient), *range(impatient + 5, count)]
        answered = await asyncio.gather(*(one(client, number) for number in order))
        looking.cancel()
    return sum(answered), max(held)
