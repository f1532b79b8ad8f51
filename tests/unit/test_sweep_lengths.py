"""Longest first: what a plan's order knows, what it keeps, and how little of a sweep is left to few engines."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from elastic_core.budget import Budget
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.plan import SweepPlan, known_lengths, longest_first, plan_sweep
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY, SCHEMA
from tests import simulated
from tests.simulated import SimulatedEngine, swept, tail, wall

CELLS = build_cells(["base"], ["simulated"], ["separate"], [Budget(8192, 16)])
NOTHING = pl.DataFrame(schema={name: SCHEMA[name] for name in KEY})


def planned(num_problems: int, num_samples: int) -> SweepPlan:
    problems = simulated.problems(num_problems)
    return plan_sweep(CELLS, problems, num_samples=num_samples, seed=0, finished=NOTHING)


def order(plan: SweepPlan) -> list[tuple[int, int]]:
    return [(unit.number, int(unit.problem.id)) for unit in plan.work]


def expected(*tokens: float) -> dict[tuple[str, str], float]:
    return {("simulated", f"{i:06d}"): count for i, count in enumerate(tokens)}


def test_rounds_stay_rounds_until_the_last_half_of_them_with_long_problems_first() -> None:
    found = longest_first(planned(3, 4), expected(10, 30, 20))
    rounds = [(number, problem) for number in (0, 1) for problem in (1, 2, 0)]
    assert order(found) == [*rounds, (2, 1), (3, 1), (2, 2), (3, 2), (2, 0), (3, 0)]


def test_an_unknown_problem_is_as_long_as_the_others_and_where_none_is_known_the_order_stays() -> None:
    assert order(longest_first(planned(3, 1), expected(10, 30))) == [(0, 1), (0, 2), (0, 0)]
    assert longest_first(planned(3, 4), {}).work[:6] == planned(3, 4).work[:6]


def test_nothing_is_added_or_lost() -> None:
    plan = planned(7, 3)
    found = longest_first(plan, expected(*range(7)))
    assert sorted(order(found)) == sorted(order(plan)) and found.num_missing == plan.num_missing


def lengths(problem: int, seed: int) -> tuple[int, int]:
    """As those of a reasoning model of 1.5B parameters, in tens of tokens: 100 to 3,000, with a long tail; samples of
    one problem are alike within a third or so."""
    typical = np.exp(random.Random(problem).gauss(np.log(450), 0.7))
    return int(np.clip(typical * np.exp(random.Random(seed).gauss(0, 0.3)), 100, 3000)), 16


def test_earlier_rows_tell_which_problems_are_long_and_the_order_changes_none(tmp_path: Path) -> None:
    """500 samples on eight engines, after as many of four samples each."""
    earlier, given, ordered = ([SimulatedEngine(lengths, max_num_seqs=4) for _ in range(8)] for _ in range(3))
    swept(tmp_path / "earlier", planned(125, 4), earlier, max_in_flight=8)
    known = known_lengths(TrajectoryStore(tmp_path / "earlier"), "base")
    later = replace(planned(125, 8), work=planned(125, 8).work[-500:])
    swept(tmp_path / "given", later, given, max_in_flight=8)
    swept(tmp_path / "ordered", longest_first(later, known), ordered, max_in_flight=8)
    tables = [TrajectoryStore(tmp_path / name).read().sort(KEY) for name in ("given", "ordered")]
    assert tables[0].equals(tables[1])
    assert wall(*ordered) < wall(*given)
    assert tail(ordered) <= 0.05


def test_rows_of_the_model_itself_count_before_those_of_others(tmp_path: Path) -> None:
    def rows(model: str, problem: str, tokens: list[int]) -> pl.DataFrame:
        frame = pl.DataFrame(
            {
                "model": model,
                "benchmark": "simulated",
                "problem": problem,
                "sample": [0] * len(tokens),
                "strategy": "separate",
                "think_budget": tokens,
                "think_tokens": tokens,
                "solution_tokens": 1,
            }
        )
        missing = [pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items() if name not in frame.columns]
        return frame.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())

    store = TrajectoryStore(tmp_path)
    with store.writing(Manifest({}, {}, {}, {})):
        store.append(pl.concat([rows("a", "0", [4, 9]), rows("b", "0", [99]), rows("b", "1", [19, 29])]))
    assert known_lengths(store, "a") == {("simulated", "0"): 10, ("simulated", "1"): 30}
