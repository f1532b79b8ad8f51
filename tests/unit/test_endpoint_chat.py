"""A model that is asked in text: what is sent, how its answer is read, and what its rows say."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data.problems import Problem
from elastic_core.engines.base import RequestFailed
from elastic_core.engines.endpoint import EndpointParameters, parse_address
from elastic_core.engines.http import chat_body, http_pool, read_reply
from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError
from elastic_core.statistics.cost import WORK
from elastic_core.strategies import Finish, Sampling
from elastic_core.strategies.chat import EFFORTS, ChatRequest, Reply
from elastic_core.sweep.executor import run_sweep
from elastic_core.sweep.models import sweep_models
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY
from flows import presets
from flows.runtime.endpoints import find_endpoints
from flows.runtime.settings import Settings
from reports.summary import report_rows, summarize
from tests.api_server import ApiServer, listening
from tests.exactness import broken_rules

SAMPLING = Sampling(0.6, 0.95)
PROBLEMS = {"easy": [Problem("easy", str(i), f"{i}+{42 - i}=?", "42", "math") for i in range(3)]}
STRATEGIES = ["vanilla", "unconstrained", *EFFORTS]


def usage(sampled: int, thinking: int | None = None) -> dict[str, Any]:
    details = None if thinking is None else {"reasoning_tokens": thinking}
    return {"prompt_tokens": 5, "completion_tokens": sampled, "completion_tokens_details": details}


def answer(message: dict[str, Any], used: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": used}


def test_a_request_says_only_what_it_wants() -> None:
    plain = chat_body("m", ChatRequest("1+1=?", None, SAMPLING), 7)
    assert plain["messages"] == [{"role": "user", "content": "1+1=?"}]
    assert not plain.keys() & {"max_completion_tokens", "reasoning_effort", "return_token_ids"}
    limited = chat_body("m", ChatRequest("1+1=?", 8, SAMPLING, "low"), 2**62)
    assert (limited["max_completion_tokens"], limited["reasoning_effort"]) == (8, "low")
    assert 0 <= limited["seed"] < 2**31


REQUEST = ChatRequest("1+1=?", 8, SAMPLING)


@pytest.mark.parametrize(
    "given, expected",
    [
        (answer({"content": "2"}, usage(3)), Reply("", "2", 5, 3, None, Finish.STOP)),
        (answer({"content": "2", "reasoning": "hm"}, usage(6, 4)), Reply("hm", "2", 5, 6, 4, Finish.STOP)),
        (answer({"content": "2", "reasoning_content": "hm"}, usage(6)), Reply("hm", "2", 5, 6, None, Finish.STOP)),
        (answer({"content": "<think>hm</think>2"}, usage(6)), Reply("hm", "2", 5, 6, None, Finish.STOP)),
        (answer({"content": "<think>hm"}, usage(8), "length"), Reply("hm", None, 5, 8, None, Finish.LENGTH)),
        (answer({"content": None}, usage(8, 8), "length"), Reply("", None, 5, 8, 8, Finish.LENGTH)),
    ],
)
def test_thought_and_solution_are_what_the_server_tells_apart(given: dict[str, Any], expected: Reply) -> None:
    assert read_reply(given, REQUEST) == expected


@pytest.mark.parametrize(
    "given, sentence",
    [
        (answer({"content": "2"}, usage(9)), "took 9 tokens of max_completion_tokens = 8"),
        (answer({"content": "2"}, {}), "no usage to count tokens by"),
        (answer({"content": "2"}, usage(2), "content_filter"), "ended a response with content_filter"),
        ({"choices": []}, "no message"),
    ],
)
def test_an_answer_that_cannot_be_a_row_fails(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestFailed, match=sentence):
        read_reply(given, REQUEST)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pl.DataFrame]:
    """A sweep of a chat API, stopped by nothing and done twice: the second time there is nothing to do."""
    with listening(ApiServer(None)) as api:
        behind = {"closed": (parse_address(f"openai+{api.address}"),)}
        endpoints = find_endpoints(behind, {}, EndpointParameters(), tmp_path_factory.mktemp("runs"))
        request = {"models": ["closed"], "strategies": STRATEGIES, "budgets": ["0+1", "4+4"]}
        fingerprints = {"closed": endpoints["closed"].fingerprint}
        engine = EngineParameters()
        (model,) = sweep_models(request, fingerprints, {}, PROBLEMS, engine, None, endpoints)
        store = TrajectoryStore(tmp_path_factory.mktemp("table"))

        async def sweep() -> None:
            async with http_pool(model.endpoints) as replicas:
                plan = plan_sweep(model.cells, PROBLEMS, num_samples=2, seed=0, finished=store.finished())
                await run_sweep(
                    plan, sampling=SAMPLING, prompts=model.prompts, replicas=replicas, rows=model.rows, store=store
                )

        with store.writing(Manifest({}, {}, {}, {})):
            asyncio.run(sweep())
        drawn = len(api.drawn)
        with store.writing(Manifest({}, {}, {}, {})):
            asyncio.run(sweep())
        assert len(api.drawn) == drawn == store.read().height
        yield store.read().sort(KEY)


def test_a_row_holds_the_servers_counts_and_no_ids(rows: pl.DataFrame) -> None:
    assert rows.height == (2 + 1 + 4) * 3 * 2
    assert rows["response_ids"].null_count() == rows.height
    assert broken_rules(rows) == {}
    high = rows.filter(strategy="effort_high").row(0, named=True)
    assert (high["prompt_tokens"], high["think_tokens"], high["solution_tokens"]) == (9, 4, 2)
    assert (high["think_finish"], high["solution_finish"], high["thinking"]) == ("closed", "stop", "hm hm hm hm")
    cut = rows.filter(strategy="vanilla", think_budget=0).row(0, named=True)
    assert (cut["think_finish"], cut["solution_finish"], cut["solution_tokens"]) == ("not_applicable", "length", 1)


def test_it_is_graded_and_summarised_as_any_other(rows: pl.DataFrame) -> None:
    summary = summarize(report_rows(rows.lazy()).collect())
    assert set(summary["avg_at_k"]) == {1.0}
    tokens = dict(summary.filter(pl.col("think_budget").is_null()).select("strategy", "tokens_mean").iter_rows())
    assert tokens["unconstrained"] == 2 and tokens["effort_low"] < tokens["effort_medium"]
    costs = report_rows(rows.lazy()).collect().select(WORK)
    assert costs["turns"].to_list() == [1] * rows.height
    assert costs["output_tokens"].to_list() == (rows["think_tokens"] + rows["solution_tokens"]).to_list()


CLOSED = "openai+https://host/v1#model"


def settings(**changes: Any) -> Settings:
    given = {"sweep.models": ["closed"], "sweep.checkpoints.closed": CLOSED, "report.pairs": []}
    return presets.resolve("embedded", given | {"sweep.strategies": ["vanilla", "effort"]} | changes)


def test_effort_is_its_levels() -> None:
    assert settings().sweep.strategies == ["vanilla", *EFFORTS]
    both = {"sweep.models": ["base", "closed"], "sweep.strategies": ["separate"]}
    assert (
        settings(**both, **{"sweep.strategies_of.closed": ["effort"]}).sweep.strategies_of["closed"] == STRATEGIES[2:]
    )


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"sweep.strategies": ["vanilla", "separate"]}, "separate .*closed"),
        ({"sweep.models": ["base"]}, "effort_minimal .*base"),
        ({"sweep.tokenizers.closed": "OWNER/NAME"}, "tokenizers.closed"),
        ({"sweep.models": ["closed>base"], "sweep.strategies": ["separate"]}, "closed>base"),
    ],
)
def test_what_needs_token_ids_is_refused_with_the_reason(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        settings(**changes)


def test_a_gateway_that_lists_no_models_is_taken_at_its_word(tmp_path: Path) -> None:
    with listening(ApiServer(None)) as api:
        address = parse_address(f"openai+{api.url}/gateway#any")
        found = find_endpoints({"closed": (address,)}, {}, EndpointParameters(), tmp_path)["closed"]
    assert found.served.server == "unknown" and found.description["weights"].startswith("not hashed")
