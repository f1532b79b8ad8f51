"""How long a sweep takes on engines that are nearly empty, and on full ones: by a clock that only decoding moves."""

import random
from pathlib import Path

import pytest

from elastic_core.budget import Budget
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.plan import SweepPlan, plan_sweep
from elastic_core.sweep.table import TrajectoryStore
from tests import simulated
from tests.simulated import SimulatedEngine, one_after_the_other, swept, wall

SOLUTION = 64
BUDGETS = [Budget(think, SOLUTION) for think in range(128, 128 * 17, 128)]
CELLS = build_cells(["base"], ["simulated"], ["vanilla", "budget_forcing", "separate"], BUDGETS)


def lengths(problem: int, seed: int) -> tuple[int, int]:
    """Thoughts of which some are closed within a budget and some within none; solutions that go on to theirs."""
    return random.Random(problem).randrange(256, 4096), SOLUTION


def planned(directory: Path, num_problems: int) -> SweepPlan:
    finished = TrajectoryStore(directory).finished()
    return plan_sweep(CELLS, simulated.problems(num_problems), num_samples=1, seed=0, finished=finished)


def test_few_samples_take_as_long_as_their_longest_response_and_one_continuation(tmp_path: Path) -> None:
    engine, before = SimulatedEngine(lengths), SimulatedEngine(lengths)
    plan = planned(tmp_path, 8)
    swept(tmp_path, plan, [engine], max_in_flight=512)
    longest = max(min(sum(lengths(i, 0)) + 2, BUDGETS[-1].limited) for i in range(8))
    assert wall(engine) <= 1.3 * (longest + SOLUTION) * engine.step_seconds
    assert one_after_the_other(plan, before, 512) > 1.3 * wall(engine)
    assert engine.num_tokens == before.num_tokens


@pytest.mark.parametrize("max_num_seqs", [1, 4])
def test_a_full_batch_is_no_slower_for_it(tmp_path: Path, max_num_seqs: int) -> None:
    plan = planned(tmp_path, 24)
    engine, before = (SimulatedEngine(lengths, max_num_seqs=max_num_seqs) for _ in range(2))
    swept(tmp_path, plan, [engine], max_in_flight=2 * max_num_seqs)
    assert wall(engine) <= one_after_the_other(plan, before, 2 * max_num_seqs)
    assert engine.num_tokens == before.num_tokens


def test_few_samples_are_spread_over_all_engines(tmp_path: Path) -> None:
    engines = [SimulatedEngine(lengths) for _ in range(4)]
    swept(tmp_path, planned(tmp_path, 8), engines, max_in_flight=512)
    assert all(sum(began == 0 for began, _ in engine.spans) == 2 for engine in engines)
