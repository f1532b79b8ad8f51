"""What a plan says before anything runs: what is missing, in which order, and what it costs at most."""

import asyncio
import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.sweep.cost import bound
from elastic_core.sweep.grid import Cell, build_cells
from elastic_core.sweep.plan import plan_sweep
from elastic_core.trajectory import KEY, SCHEMA
from tests.scripted import ScriptedEngine
from tests.unit.test_memo import CELLS, END, EOS, MARKERS, WORD, Wanted, prompt

PROBLEMS = {"easy": [Problem("easy", str(i), "q", "4", "math") for i in range(3)]}
NOTHING = pl.DataFrame(schema={name: SCHEMA[name] for name in KEY})
GRID = build_cells(["base"], ["easy"], ["vanilla", "separate"], [Budget(4, 2), Budget(8, 2)])


def test_samples_come_in_rounds_over_all_problems_and_cells_from_the_largest_down() -> None:
    plan = plan_sweep(GRID, PROBLEMS, num_samples=2, seed=1, finished=NOTHING)
    assert [(unit.number, unit.problem.id) for unit in plan.work] == [(n, p) for n in (0, 1) for p in "012"]
    assert [str(cell) for cell in plan.work[0].cells] == [
        "base easy vanilla 8+2",
        "base easy separate 8+2",
        "base easy vanilla 4+2",
        "base easy separate 4+2",
    ]
    assert (plan.num_missing, plan.num_present) == (24, 0)


def test_each_benchmark_has_its_own_number_of_samples() -> None:
    problems = PROBLEMS | {name: [Problem(name, "0", "q", "4", "math")] for name in ("few", "rare")}
    grid = build_cells(["base"], list(problems), ["separate"], [Budget(4, 2)])
    counts = {"few": 1, "default": 2, "rare": 3}
    plan = plan_sweep(grid, problems, num_samples=counts, seed=1, finished=NOTHING)
    asked = [(unit.number, unit.problem.benchmark) for unit in plan.work if unit.problem.id == "0"]
    assert asked == [(0, "easy"), (0, "few"), (0, "rare"), (1, "easy"), (1, "rare"), (2, "rare")]
    assert plan.num_missing == plan.num_rows == 3 * 2 + 1 + 3
    alike = plan_sweep(grid, problems, num_samples=dict.fromkeys(problems, 2), seed=1, finished=NOTHING)
    assert alike == plan_sweep(grid, problems, num_samples=2, seed=1, finished=NOTHING)


def test_a_plan_holds_what_the_table_lacks() -> None:
    keys = [("base", "easy", "0", 0, "vanilla", t, 2) for t in (4, 8)] + [("base", "easy", "1", 0, "separate", 4, 2)]
    finished = pl.DataFrame(keys, schema=NOTHING.schema, orient="row")
    plan = plan_sweep(GRID, PROBLEMS, num_samples=1, seed=1, finished=finished)
    assert {unit.problem.id: len(unit.cells) for unit in plan.work} == {"0": 2, "1": 3, "2": 4}
    assert (plan.num_missing, plan.num_present) == (9, 3)


def test_independent_cells_are_units_of_their_own_with_seeds_of_their_own() -> None:
    """With the sample's seed they would draw the same thought, and be as coupled as with a memo."""
    shared = plan_sweep(GRID, PROBLEMS, num_samples=1, seed=1, finished=NOTHING)
    apart = plan_sweep(GRID, PROBLEMS, num_samples=1, seed=1, finished=NOTHING, sharing="independent")
    assert all(len(unit.cells) == 1 and not unit.resumed for unit in apart.work)
    assert apart.num_missing == shared.num_missing
    assert len({unit.seed for unit in apart.work}) == len(apart.work)
    again = plan_sweep(GRID, PROBLEMS, num_samples=2, seed=1, finished=NOTHING, sharing="independent")
    assert {unit.seed for unit in apart.work} <= {unit.seed for unit in again.work}


def test_the_bound_of_a_response_without_a_budget_is_its_limit() -> None:
    grid = build_cells(["base"], ["easy"], ["unconstrained"], [])
    plan = plan_sweep(grid, PROBLEMS, num_samples=1, seed=1, finished=NOTHING)
    assert bound(plan, lambda *_: (1,) * 10, MARKERS, 100).independent == 3 * 90
    assert bound(plan, lambda *_: (1,) * 10, MARKERS, 100, max_response_tokens=20).independent == 3 * 20


@given(st.lists(CELLS, min_size=1, max_size=8, unique=True), st.integers(0, 99), st.integers(1, 6))
def test_no_model_draws_more_than_the_bound(cells: list[Wanted], seed: int, wordiness: int) -> None:
    def token(prefix: tuple[int, ...], seed: int) -> int:
        return random.Random(f"{prefix} {seed}").choice([END, EOS, *[WORD] * wordiness])

    grid = [Cell("base", "easy", name, budget) for name, budget in cells]
    plan = plan_sweep(grid, {"easy": PROBLEMS["easy"][:1]}, num_samples=1, seed=seed, finished=NOTHING)
    most = bound(plan, lambda problem, name, budget: prompt(name, budget), MARKERS, context=90)
    memo = ContinuationMemo(ScriptedEngine(token, context=90))
    drawn_alone = 0
    for cell in grid:
        decode = STRATEGIES[cell.strategy].decode
        for engine in (memo, ScriptedEngine(token, context=90)):
            rollout = decode(prompt(cell.strategy, cell.budget), cell.budget, MARKERS, Sampling())
            done = asyncio.run(drive(rollout, {"policy": engine}, seed))
        drawn_alone += len(done.response_ids) - done.forced_tokens + len(done.dropped)
    assert memo.counts.generated <= most.shared <= most.independent
    assert drawn_alone <= most.independent


def test_the_bound_is_reached_by_a_model_that_never_stops() -> None:
    plan = plan_sweep(GRID, PROBLEMS, num_samples=5, seed=1, finished=NOTHING)
    most = bound(plan, lambda *_: (7, 8), MARKERS, context=90)
    # The trunk of 10; of the forced separate cells a solution of 2 each.
    assert most.shared == 15 * (10 + 2 + 2)
    assert most.independent == 15 * (10 + 10 + 6 + 6)


def test_a_thought_that_the_engine_closes_itself_is_counted_for_every_budget() -> None:
    grid = build_cells(["base"], ["easy"], ["separate", "separate_native"], [Budget(8, 2), Budget(4, 2)])
    plan = plan_sweep(grid, PROBLEMS, num_samples=1, seed=1, finished=NOTHING)
    most = bound(plan, lambda *_: (7, 8), MARKERS, context=90)
    # A thought of 8 and two solutions shared, and two native responses with the engine's own think-end.
    assert most.shared == 3 * (8 + 2 + 2 + (8 + 1 + 2) + (4 + 1 + 2))
    assert most.independent == 3 * (10 + 6 + 11 + 7)


@pytest.mark.parametrize(
    "models, strategies, budgets, found",
    [
        (["a>b"], ["vanilla"], [Budget(1, 1)], "asks thinker and solver apart"),
        (["a>b>c"], ["separate"], [Budget(1, 1)], "THINKER>SOLVER"),
        ([">b"], ["separate"], [Budget(1, 1)], "THINKER>SOLVER"),
        (["a"], ["l1_max"], [Budget(None, 4)], "l1_max cannot run under unlimited"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(
    models: list[str], strategies: list[str], budgets: list[Budget], found: str
) -> None:
    with pytest.raises(ValueError, match=found):
        build_cells(models, ["easy"], strategies, budgets)


def test_a_pair_runs_the_strategies_that_can_be_split() -> None:
    cells = build_cells(["a", "a>b"], ["easy"], ["vanilla", "separate"], [Budget(1, 1)])
    assert {(cell.model, cell.strategy) for cell in cells} == {
        ("a", "vanilla"), ("a", "separate"), ("a>b", "separate"),
    }  # fmt: skip
