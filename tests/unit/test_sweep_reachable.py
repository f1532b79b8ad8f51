"""An interval that the problems are too few for is refused before anything takes long, and a plan says so too."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.sweep.grid import Cell
from flows.commands.sweeps import narrowest
from flows.runtime.stages import Stages
from tests.unit.test_sweep_stopping import rows


def stages(until_ci: float | None, num_problems: int) -> Stages:
    """Of a sweep of one benchmark, as far as its intervals are concerned."""
    settings: Any = SimpleNamespace(sweep=SimpleNamespace(until_ci=until_ci, max_samples=256))
    found = Stages(settings, Path("runs"))
    found.__dict__["problems"] = {"aime-2024": [None] * num_problems}
    return found


def sweep(num_problems: int, scores: list[float]) -> Any:
    cell = Cell("base", "easy", "separate", Budget(8, None))
    once = rows("separate", scores)
    table = pl.concat([once, once.with_columns(sample=pl.col("sample") + 1)]) if scores else once
    return SimpleNamespace(
        problems={"easy": [None] * num_problems}, models=[SimpleNamespace(cells=[cell])], scores=table.lazy
    )


def test_two_points_of_thirty_problems_are_refused_with_what_can_be_reached() -> None:
    with pytest.raises(UserError, match=r"until_ci .*aime-2024 .* 30 .*±4\.6.*±11\.9"):
        stages(2.0, 30).require_reachable()


@pytest.mark.parametrize(("until_ci", "num_problems"), [(None, 30), (5.0, 30), (2.0, 100)])
def test_what_some_scores_could_reach_is_not(until_ci: float | None, num_problems: int) -> None:
    stages(until_ci, num_problems).require_reachable()


def test_a_plan_says_what_is_refused_which_cells_stay_wide_and_what_the_rows_so_far_project() -> None:
    (refused,) = narrowest(sweep(30, []), 2.0, 256)
    assert refused.startswith("until_ci=2 ") and "easy has 30 problems" in refused
    assert narrowest(sweep(30, []), 12.0, 256) == []
    assert narrowest(sweep(30, [0.0, 1.0] * 10), 12.0, 256) == [], "no sample is whole yet"
    (certain,) = narrowest(sweep(30, []), 5.0, 256)
    _, projected = narrowest(sweep(30, [0.0, 1.0] * 15), 5.0, 256)
    assert "±11.9" in certain and "256 samples" in projected
