"""Many differences looked at together: their intervals hold together, and what was picked is what it was picked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.intervals import Estimate, paired_interval, problems_needed, simultaneous
from reports.content import Verdict

MARGIN = 0.02


def sweep(
    random: np.random.Generator, truth: np.ndarray, num_problems: int, num_samples: int, shared: float
) -> np.ndarray:
    """Differences of cells from a reference cell, as a sweep with the memo draws them, shape (problems, cells).

    Args:
        truth: by how much each cell's accuracy differs from the reference's, at most 0.
        shared: share of a cell's samples that are the reference's, but for those that it loses.
    """
    skill = random.beta(2, 1, num_problems)[:, None]
    shape = num_problems, num_samples
    free = random.random(shape) < skill
    differences = []
    for loss in -truth:
        lost = random.random(shape) < loss / np.mean(skill)
        fresh = (random.random(shape) < skill) & ~lost
        cell = np.where(random.random(shape) < shared, free & ~lost, fresh)
        differences.append(cell.mean(axis=1) - free.mean(axis=1))
    return np.stack(differences, axis=1)


def together(differences: np.ndarray, families: int = 1) -> list[Estimate]:
    """Of columns, each of one seed."""
    return simultaneous([column[None] for column in differences.T], [1] * differences.shape[1], families)


def judged(differences: np.ndarray) -> list[Verdict]:
    return [verdict(one) for one in together(differences)]


def verdict(one: Estimate) -> Verdict:
    if one.low >= -MARGIN:
        return Verdict.HOLDS
    return Verdict.FAILS if one.high < -MARGIN else Verdict.UNDECIDED


def test_enough_problems_tell_what_holds_from_what_fails() -> None:
    differences = sweep(np.random.default_rng(0), np.array([-0.3, -0.1, 0, 0]), 2000, 8, 0.9)
    assert judged(differences) == [
        Verdict.FAILS,
        Verdict.FAILS,
        Verdict.HOLDS,
        Verdict.HOLDS,
    ]


def test_the_problems_that_are_needed_do_decide() -> None:
    random, truth = np.random.default_rng(1), np.array([0.0, -0.1])
    (better, _) = together(sweep(random, truth, 40, 8, 0.95))
    assert verdict(better) == Verdict.UNDECIDED
    needed = int(problems_needed(better.mean + MARGIN, (better.high - better.low) / 2, 0.0, 40))
    assert 40 < needed < 20_000
    assert judged(sweep(random, truth, 2 * needed, 8, 0.95))[0] == Verdict.HOLDS


def test_at_the_margin_itself_no_number_of_problems_decides() -> None:
    assert problems_needed(0.0, 0.2, 0.0, 10) == np.inf


def test_one_problem_decides_nothing() -> None:
    (one,) = together(np.zeros((1, 1)))
    assert (one.low, one.high, verdict(one)) == (-1, 1, Verdict.UNDECIDED)


scores = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=6, max_size=6)


@given(st.lists(scores, min_size=1, max_size=5))
def test_together_intervals_are_wider_than_one_by_one(columns: list[list[float]]) -> None:
    differences = np.array(columns).T
    found = together(differences)
    for column, one in zip(differences.T, found, strict=True):
        low, high = paired_interval(column)
        assert one.low <= low + 1e-9
        assert one.high >= high - 1e-9
        if len(columns) == 1:
            assert (one.low, one.high) == pytest.approx((low, high))


def test_several_families_hold_together_by_wider_intervals() -> None:
    differences = sweep(np.random.default_rng(0), np.array([0.0, -0.1]), 100, 8, 0.8)
    (one, _), (of_twenty, _) = together(differences), together(differences, 20)
    assert of_twenty.low < one.low < one.mean < one.high < of_twenty.high
    low, high = paired_interval(differences[:, 0], 0.025 / 20)
    (alone,) = together(differences[:, :1], 20)
    assert (alone.low, alone.high) == pytest.approx((low, high))


def test_problems_do_not_narrow_what_seeds_add() -> None:
    assert problems_needed(0.1, 0.2, 0.0, 100) == 400
    assert problems_needed(0.1, 0.2, 0.06, 100) == 625
    assert problems_needed(0.1, 0.2, 0.1, 100) == np.inf
