"""The executor: what is missing is generated once, graded, stored; a failure stops nothing else."""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_core.budget import Budget, parse_grid
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, EngineLost, RequestFailed
from elastic_core.engines.budgets.processor import Progress
from elastic_core.errors import UserError
from elastic_core.seeds import sample_seed
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling
from elastic_core.sweep import executor
from elastic_core.sweep.executor import SweepIncomplete, SweepResult, run_sweep
from elastic_core.sweep.grid import Cell, build_cells
from elastic_core.sweep.models import Prompts
from elastic_core.sweep.plan import Sharing, plan_sweep
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

EOT, START, END, NEWLINE = 1, 2, 3, 4
WORDS = {EOT: "<eos>", START: "<think>", END: "</think>", NEWLINE: "\n"}
WORDS |= {5: "\\boxed{", 6: "}", 7: "4", 8: "5", 9: "hm "}
MARKERS = markers(single(START, END, EOT), (NEWLINE,), (NEWLINE, 9), (9,))
MANIFEST = Manifest({"base": "f"}, {"base": "e"}, {"easy": "h"}, {"seed": 7})
PROBLEMS = {"easy": [Problem("easy", str(i), f"{i}", "4", "math") for i in range(5)]}
GRIDS = [
    ({"separate_native"}, "12+2 8+6"),
    ({"vanilla", "budget_forcing", "budget_forcing_wait2", "separate", "unconstrained"}, "0+6 3+6 20+6 unlimited+6"),
    ({"l1_exact"}, "3+6 10+2"),
]
CELLS = [
    cell
    for strategies, budgets in GRIDS
    for cell in build_cells(["base"], ["easy"], sorted(strategies), parse_grid(budgets.split()))
]


HALF = settings(max_examples=settings().max_examples // 2)
"""Each sweeps up to five times."""


class WordTokenizer:
    """One word per token; a question is spelt by tokens 10 and above."""

    chat_template = "one message"
    name_or_path = "words"

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(WORDS[i] for i in ids)

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        question, *instruction = messages[0]["content"].split()
        return [10 + int(question), *(100 + int(word) for word in instruction if word.isdigit()), START]


PROMPTS = Prompts(WordTokenizer())


def next_token(prefix: tuple[int, ...], seed: int) -> int:
    """A thought of random length, closed or broken off, then a boxed 4 or 5, then end-of-text."""
    rng = random.Random(f"{seed} {prefix}")
    if END not in prefix:
        return rng.choices([9, END, EOT], [0.8, 0.15, 0.05])[0]
    if 5 not in prefix:
        return 5
    return {5: rng.choice([7, 8]), 7: 6, 8: 6}.get(prefix[-1], EOT)


class Scripted(ScriptedEngine):
    """Keeps a budget itself where it is asked to."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        progress = request.budget and Progress(request.budget, MARKERS)

        def keeping(prefix: tuple[int, ...], seed: int) -> int:
            forced = progress and progress.update(prefix[len(request.prefix) :]).token
            return self.next_token(prefix, seed) if forced is None else forced

        self.requests.append(request)
        return await ScriptedEngine(keeping, self.context).generate(request, seed)


def rows_builder() -> RowBuilder:
    return RowBuilder(WordTokenizer(), MARKERS, "f", "e")


def sweep(
    directory: Path,
    engine: Engine | None = None,
    cells: Sequence[Cell] = CELLS,
    num_samples: int = 2,
    sharing: Sharing = "memo",
    sampling: Sampling = Sampling(),  # noqa: B008
    **options: Any,
) -> SweepResult:
    async def run() -> SweepResult:
        store = TrajectoryStore(directory)
        with store.writing(MANIFEST):
            plan = plan_sweep(
                cells, PROBLEMS, num_samples=num_samples, seed=7, finished=store.finished(), sharing=sharing
            )
            replicas = [{"base": engine or Scripted(next_token, context=64)}]
            return await run_sweep(
                plan, sampling=sampling, prompts=PROMPTS, replicas=replicas, rows=rows_builder(), store=store,
                **options,
            )  # fmt: skip

    return asyncio.run(run())


def table(directory: Path) -> pl.DataFrame:
    return TrajectoryStore(directory).read().sort(KEY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The table of one uninterrupted run."""
    directory = tmp_path_factory.mktemp("whole")
    result = sweep(directory)
    assert (result.rows_written, result.rows_present) == (len(CELLS) * 5 * 2, 0)
    return table(directory)


def test_rows_that_break_a_rule_of_their_strategy_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but the rule is wrong here, which is as good as a strategy that breaks one that is right.
    wrong = replace(STRATEGIES["separate"], rules={"no solution ends": pl.col("solution_finish") != "stop"})
    monkeypatch.setitem(STRATEGIES, "separate", wrong)
    with pytest.raises(UserError, match=r"rows break a rule \(no solution ends\), .*not stored"):
        sweep(tmp_path, cells=[cell for cell in CELLS if cell.strategy == "separate"])
    assert table(tmp_path).is_empty()


def test_a_second_run_generates_nothing(tmp_path: Path) -> None:
    sweep(tmp_path)
    engine = Scripted(next_token)
    result = sweep(tmp_path, engine)
    assert engine.requests == []
    assert (result.rows_written, result.rows_present, result.tokens_generated) == (0, len(CELLS) * 10, 0)


def test_more_samples_later_keep_the_first(tmp_path: Path, whole: pl.DataFrame) -> None:
    assert sweep(tmp_path, num_samples=1).rows_written == len(CELLS) * 5
    assert sweep(tmp_path, num_samples=2).rows_written == len(CELLS) * 5
    assert table(tmp_path).equals(whole)


def test_the_table_is_that_of_one_cell_after_the_other(tmp_path: Path, whole: pl.DataFrame) -> None:
    """A sweep of one cell at a time goes on from the rows of those before."""
    for cell in CELLS:
        sweep(tmp_path, cells=[cell])
    assert table(tmp_path).equals(whole)


class Mortal:
    """Answers a number of requests, each after a while of its own, then is gone."""

    def __init__(self, life: int, delays: int = 0) -> None:
        self.life = life
        self.delays = random.Random(delays)
        self.inner = Scripted(next_token, context=64)

    async def generate(self, request: Generate, seed: int) -> Completion:
        for _ in range(self.delays.randrange(1, 9)):
            await asyncio.sleep(0)
        self.life -= 1
        if self.life < 0:
            raise EngineLost("gone")
        return await self.inner.generate(request, seed)


@HALF
@given(
    lives=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    max_in_flight=st.sampled_from([1, 7, 512]),
    delays=st.integers(0, 999),
)
def test_an_interrupted_sweep_ends_with_the_table_of_an_uninterrupted_one(
    whole: pl.DataFrame, lives: list[int], max_in_flight: int, delays: int
) -> None:
    """However its requests interleave."""
    with tempfile.TemporaryDirectory() as directory:
        stored = 0
        for life in lives:
            with suppress(EngineLost):
                sweep(Path(directory), Mortal(life, delays), max_in_flight=max_in_flight)
            stored = table(Path(directory)).height
        assert sweep(Path(directory)).rows_written == whole.height - stored
        assert table(Path(directory)).equals(whole)


@HALF
@given(limit=st.integers(1, 30), life=st.integers(1, 60))
def test_a_phase_without_a_budget_ends_where_responses_do_however_long_the_prompt(limit: int, life: int) -> None:
    with tempfile.TemporaryDirectory() as interrupted, tempfile.TemporaryDirectory() as once:
        with suppress(EngineLost):
            sweep(Path(interrupted), Mortal(life), max_response_tokens=limit)
        for directory in (interrupted, once):
            sweep(Path(directory), max_response_tokens=limit)
        found = table(Path(once))
        assert table(Path(interrupted)).equals(found)
    free, thinking = found.filter(strategy="unconstrained"), pl.col("think_budget").is_null()
    assert max(row["think_tokens"] + row["solution_tokens"] for row in free.rows(named=True)) <= limit
    # Budget forcing by "Wait" thinks several times, each of them without a budget.
    once_only = found.filter(thinking, pl.col("strategy") == "separate")
    assert once_only["think_tokens"].max() <= limit  # type: ignore[operator]


def test_what_was_finished_before_a_cancellation_is_stored(tmp_path: Path) -> None:
    class Stuck(Scripted):
        async def generate(self, request: Generate, seed: int) -> Completion:
            if len(self.requests) >= 8:
                await asyncio.Event().wait()
            return await super().generate(request, seed)

    async def cancelled() -> None:
        store = TrajectoryStore(tmp_path)
        with store.writing(MANIFEST):
            plan = plan_sweep(CELLS, PROBLEMS, num_samples=1, seed=7, finished=store.finished())
            replicas = [{"base": Stuck(next_token, context=64)}]
            options = {"sampling": Sampling(), "prompts": PROMPTS, "replicas": replicas}
            running = asyncio.create_task(run_sweep(plan, rows=rows_builder(), store=store, **options))
            for _ in range(1000):
                await asyncio.sleep(0)
            running.cancel()
            await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert table(tmp_path).height >= 8


def test_what_a_strategy_draws_that_shares_nothing_is_known_to_none(tmp_path: Path) -> None:
    """Its rows do not tell it again, so a resumed sweep could not know it either."""
    cells = [Cell("base", "easy", "separate_native", budget) for budget in parse_grid(["12+1", "8+6"])]
    for part in (cells[:1], cells):
        sweep(tmp_path / "interrupted", cells=part, num_samples=10)
    sweep(tmp_path / "whole", cells=cells, num_samples=10)
    assert table(tmp_path / "interrupted").equals(table(tmp_path / "whole"))


def test_no_more_samples_are_in_flight_than_allowed(tmp_path: Path) -> None:
    class Counting(Scripted):
        now, most = 0, 0

        async def generate(self, request: Generate, seed: int) -> Completion:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.now -= 1
            return await super().generate(request, seed)

    engine = Counting(next_token, context=64)
    sweep(tmp_path, engine, max_in_flight=6)
    assert engine.most == 6


def test_failing_samples_are_listed_with_their_keys_and_the_rest_is_stored(tmp_path: Path, whole: pl.DataFrame) -> None:
    class Refusing(Scripted):
        async def generate(self, request: Generate, seed: int) -> Completion:
            if request.prefix == (13, START, END):
                raise RequestFailed("no such luck")
            return await super().generate(request, seed)

    with pytest.raises(SweepIncomplete, match=r"2 of 210 .*\n  base easy .*0\+6 .*3 .*0: no such luck") as e:
        sweep(tmp_path, Refusing(next_token, context=64))
    assert [str(sample) for sample, _ in e.value.failures] == [
        f"base easy separate 0+6 problem 3 sample {i}" for i in range(2)
    ]
    assert e.value.result.rows_written == whole.height - 2
    assert sweep(tmp_path).rows_written == 2
    assert table(tmp_path).equals(whole)


def test_a_request_that_fails_once_is_tried_again(tmp_path: Path, whole: pl.DataFrame) -> None:
    failed: set[tuple[Generate, int]] = set()

    class Flaky(Scripted):
        async def generate(self, request: Generate, seed: int) -> Completion:
            if (request, seed) not in failed:
                failed.add((request, seed))
                if len(failed) % 10 == 0:
                    raise RequestFailed("once")
            return await super().generate(request, seed)

    sweep(tmp_path, Flaky(next_token, context=64))
    assert table(tmp_path).equals(whole)


def test_shards_stay_few_and_progress_counts_stored_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "FLUSH_ROWS", 50)
    reports: list[SweepResult] = []
    result = sweep(tmp_path, on_progress=reports.append)
    assert len(list(tmp_path.glob("*.parquet"))) <= 3
    assert reports[-1].rows_written == result.rows_written == result.rows_total


def test_texts_and_grades_are_exact(whole: pl.DataFrame) -> None:
    for row in whole.iter_rows(named=True):
        text = "".join(WORDS[i] for i in row["response_ids"]).removesuffix("<eos>")
        if row["solution"] is None:
            assert text == row["thinking"]
            assert row["grade_status"] == ("no_answer" if row["think_finish"] == "end_of_text" else "truncated")
        else:
            assert text == row["thinking"] + "</think>" + row["solution"]
            assert (row["grade_status"] == "correct") == ("\\boxed{4}" in row["solution"]) == (row["score"] == 1)
    assert set(whole["grade_status"]) == {"correct", "wrong", "no_answer", "truncated"}


def test_budgets_hold_in_every_row(whole: pl.DataFrame) -> None:
    assert whole.filter(pl.col("solution_tokens") > pl.col("solution_budget"), strategy="separate").is_empty()
    assert whole.filter(pl.col("think_tokens") > pl.col("think_budget"), strategy="separate").is_empty()


def test_a_sample_has_one_seed_in_all_cells(whole: pl.DataFrame) -> None:
    assert whole.group_by("problem", "sample").agg(pl.col("seed").n_unique())["seed"].to_list() == [1] * 10
    assert whole["seed"].n_unique() == 10
    assert sample_seed(7, "easy", "1", 0) != sample_seed(8, "easy", "1", 0)


def test_a_benchmark_without_problems_is_refused(tmp_path: Path) -> None:
    cells = [Cell("a", "none", "vanilla", Budget(1, 1))]
    with pytest.raises(ValueError, match='"none"'):
        plan_sweep(cells, PROBLEMS, num_samples=1, seed=0, finished=TrajectoryStore(tmp_path).finished())
