"""`sweep.problems`: some of a benchmark's problems, in the same table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.data.clean import verl_rows
from elastic_core.data.problems import Problem
from elastic_core.data.registry import REGISTRY
from elastic_core.sweep.grid import build_cells, first_ids, first_problems, rows_of
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.table import TrajectoryStore
from elastic_core.trajectory import KEY, SCHEMA
from flows import presets
from flows.runtime.run import FlowRun
from tasks.records.stage_directory import Stage
from tasks.sweep import Sweep

PROBLEMS = {name: [Problem(name, str(i), "q", "4", "math") for i in range(9)] for name in ("easy", "hard")}
GRID = build_cells(["base"], ["easy", "hard"], ["separate"], [Budget(4, 2)])


@given(st.sets(st.text()), st.integers(1, 20), st.integers(0, 20))
def test_a_smaller_number_is_a_subset_of_a_larger_one(ids: set[str], num: int, more: int) -> None:
    chosen = first_ids("easy", ids, num)
    assert len(chosen) == min(num, len(ids)) and chosen <= first_ids("easy", ids, num + more) <= ids
    assert first_ids("easy", sorted(ids, reverse=True), num) == chosen, "whatever their order"


def test_problems_are_those_first_in_the_order_of_a_hash_and_stay_in_their_own() -> None:
    chosen = first_problems(PROBLEMS, 4)
    assert {name: [problem.id for problem in given] for name, given in chosen.items()} == {
        "easy": ["0", "1", "3", "8"],
        "hard": ["1", "2", "6", "7"],
    }, "another order would measure other problems"
    assert first_problems(PROBLEMS, None) == first_problems(PROBLEMS, 9) == first_problems(PROBLEMS, 99) == PROBLEMS


def test_raising_the_number_adds_problems_and_generates_none_again() -> None:
    def plan(num: int, finished: pl.DataFrame) -> Any:
        return plan_sweep(GRID, first_problems(PROBLEMS, num), num_samples=2, seed=1, finished=finished)

    nothing = pl.DataFrame(schema={name: SCHEMA[name] for name in KEY})
    four = plan(4, nothing)
    keys = [
        (c.model, c.benchmark, w.problem.id, w.number, c.strategy, c.budget.think, c.budget.solution)
        for w in four.work
        for c in w.cells
    ]
    finished = pl.DataFrame(keys, nothing.schema, orient="row")
    assert plan(4, finished).num_missing == plan(2, finished).num_missing == 0
    more = plan(6, finished)
    assert (more.num_present, more.num_missing) == (2 * 4 * 2, 2 * 2 * 2)


def run(tmp_path: Path, **sweep: Any) -> FlowRun:
    dotted = {f"sweep.{name}": value for name, value in sweep.items()}
    return FlowRun(presets.resolve("smoke", {"sweep.models": ["base"], **dotted}), tmp_path)


def test_the_number_asks_for_more_or_less_of_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowRun, "benchmark_files", {})
    whole, part = (run(tmp_path, problems=problems).sweep for problems in (None, 3))
    assert whole.directory == part.directory and whole.marker != part.marker
    assert part.request["problems"] == 3


def test_what_is_measured_is_read_from_a_table_that_holds_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "easy.parquet"
    clean = pl.DataFrame({"id": [p.id for p in PROBLEMS["easy"]], "question": "q", "starter_code": None, "truth": "4"})
    verl_rows(replace(REGISTRY["math500"], name="easy"), clean).write_parquet(file)
    monkeypatch.setattr(FlowRun, "benchmark_files", {"easy": file})
    rows = pl.DataFrame({"benchmark": ["easy"] * 9 + ["hard"], "problem": [*map(str, range(9)), "1"]})
    assert rows.filter(run(tmp_path, problems=4).measured_rows)["problem"].to_list() == ["0", "1", "3", "8"]
    all_of_them = run(tmp_path).settings.data.benchmarks
    every = pl.DataFrame({"benchmark": [*all_of_them, "other"], "problem": "1"})
    assert every.filter(run(tmp_path).measured_rows)["benchmark"].to_list() == all_of_them
    assert rows.filter(rows_of({})).is_empty()


def test_only_what_is_measured_decides_how_many_samples_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = first_problems({"easy": PROBLEMS["easy"]}, 4)
    found: list[pl.DataFrame] = []

    def noted(rows: pl.LazyFrame, cells: Any) -> Any:
        found.append(rows.collect())
        raise StopIteration

    monkeypatch.setattr("tasks.sweep.widest", noted)
    key = {"model": "base", "benchmark": "easy", "sample": 0, "strategy": "separate", "score": 1.0}
    table = pl.DataFrame([key | {"problem": problem.id, "think_budget": 4} for problem in PROBLEMS["easy"]])
    store = TrajectoryStore(tmp_path)
    monkeypatch.setattr(store.__class__, "scan", lambda self: table.with_columns(solution_budget=2).lazy())
    stage = Stage(tmp_path, "smoke", "sweep", {}, {"until_ci": 1.0, "max_samples": 2})
    model: Any = type("Model", (), {"cells": GRID})()
    with pytest.raises(StopIteration):
        Sweep(stage, store, None, [model], chosen, samples=1).widen([model])  # type: ignore[arg-type]
    assert found[0]["problem"].to_list() == ["0", "1", "3", "8"]
