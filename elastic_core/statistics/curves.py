"""Accuracy over tokens spent: how far two curves are apart at equal tokens, and how fast one rises.

A curve has a point per cell: x = log2 of mean sampled tokens per trajectory, y = avg@k. Resampling problems moves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.estimates import (
    bootstrap,
    estimates_table,
    groups_of,
    problem_table,
    sampled_tokens,
    unit_values,
)
from elastic_core.statistics.intervals import Estimate, paired_interval
from elastic_core.trajectory import BUDGET

MIN_LAW_CELLS = 3  # Two points always lie on a line.
MIN_LAW_BUDGET = 16  # With fewer thinking tokens accuracy is not expected to be log-linear.


class Curve(NamedTuple):
    """Scores and sampled tokens of every problem in every cell, means over samples, each of shape (problems, cells), of
    the problems measured in all cells: their ids, sorted; rows of the table over all cells, shape (problems,); the
    number of each problem's unit (`groups_of`)."""

    problems: list[str]
    scores: np.ndarray
    tokens: np.ndarray
    num_samples: np.ndarray
    groups: np.ndarray

    @property
    def num_cells(self) -> int:
        return self.scores.shape[1]

    @property
    def log_tokens(self) -> np.ndarray:
        """x: log2 of mean tokens per cell, shape (cells,)."""
        return _log_tokens(self.tokens.mean(axis=0))

    @property
    def spans(self) -> bool:
        """Whether x has a range: cells with budgets that do not bind all spend the same. Without problems it has
        none."""
        return bool(self.problems) and bool(np.ptp(self.log_tokens) > 0)

    @property
    def num_trajectories(self) -> int:
        return int(self.num_samples.sum())

    @property
    def values(self) -> np.ndarray:
        """Scores, then tokens: what `bootstrap` resamples, shape (units, 2 * cells)."""
        return unit_values(np.concatenate([self.scores, self.tokens], axis=1).T, self.groups).T


class LogLaw(NamedTuple):
    """accuracy = intercept + slope * log2(t), over the thinking budgets t that it is fitted to, in tokens; r2 is the
    share of the variance between budgets that the line explains, 0 for a flat curve; lack_of_fit the p-value of the
    budgets' means lying on a line, None where there are too few problems to tell."""

    budgets: list[int]
    slope: Estimate
    r2: float
    lack_of_fit: float | None


def read_curve(rows: pl.DataFrame, cell: Sequence[str] = BUDGET) -> Curve:
    """The curve of one strategy of one model on one benchmark, over every budget in `rows`; `cell` tells them apart.
    Problems that some cell lacks are left out, which may leave none. ValueError on no rows, a score that is missing or
    outside [0, 1], or a missing count."""
    table = problem_table(rows.with_columns(tokens=sampled_tokens()), ["score", "tokens"], cell)
    num_cells = table.select(cell).n_unique()
    complete = table.filter(pl.len().over("problem") == num_cells).sort("problem", *cell)
    return Curve(
        complete["problem"].unique(maintain_order=True).to_list(),
        complete["score"].to_numpy().reshape(-1, num_cells),
        complete["tokens"].to_numpy().reshape(-1, num_cells),
        complete["num_samples"].to_numpy().reshape(-1, num_cells).sum(axis=1),
        groups_of(complete)[::num_cells],
    )


def area_difference(a: Curve, b: Curve) -> Estimate:
    """The mean height of `a` minus that of `b` over log2 tokens, in the range that both have, by the trapezoid rule:
    every doubling of tokens counts the same. Over the problems that both have; in [-1, 1].

    Both curves are interpolated linearly at the ends of the common range, which differs between resamples. Problems
    are resampled together for both: the difference is paired. On the pseudo-problems of `bootstrap` one curve is 0.5
    above the other at every length (docs/coverage.md).

    Raises:
        ValueError: when they do not `overlap`.
    """
    if overlap(a, b) is None:
        raise ValueError("the curves have no problem, or no range of tokens, in common")
    a, b = _shared(a, b)
    split = 2 * a.num_cells

    def difference(means: np.ndarray) -> np.ndarray:
        (xa, ya), (xb, yb) = _points(means[:, :split]), _points(means[:, split:])
        low, high = np.maximum(xa.min(axis=1), xb.min(axis=1)), np.minimum(xa.max(axis=1), xb.max(axis=1))
        return _mean_height(xa, ya, low, high) - _mean_height(xb, yb, low, high)

    extremes = np.concatenate([_extremes(a, 0.25, 0.75), _extremes(b, 0.75, 0.25)], axis=1)
    values = np.concatenate([a.values, b.values], axis=1)
    return bootstrap(values, difference, extremes, len(a.problems), a.num_trajectories + b.num_trajectories)


def area_differences(rows: pl.DataFrame, between: Literal["model", "strategy"], baseline: str) -> pl.DataFrame:
    """Models or strategies against `baseline` at equal tokens, over all limited budgets of a strategy: a row per curve
    that has an `overlap` with the baseline's.

    Columns: benchmark, strategy (or model, when between strategies), first (the baseline), second; difference, low,
    high of `area_difference` (in [-1, 1]), from_tokens and to_tokens, the range that both span; num_problems (common
    ones), num_trajectories (of both sides). Sorted by these columns.
    """
    place = ["benchmark", "strategy" if between == "model" else "model"]
    found = []
    for key, part in rows.partition_by(place, as_dict=True).items():
        curves = {name: read_curve(side) for (name,), side in part.partition_by(between, as_dict=True).items()}
        if first := curves.pop(baseline, None):
            for second, curve in curves.items():
                if span := overlap(first, curve):
                    difference = area_difference(curve, first)
                    found.append((*key, baseline, second, *difference[:3], *span, *difference[3:5]))
    keys = {name: pl.String() for name in (*place, "first", "second")}
    return estimates_table(found, keys, ["difference", "low", "high", "from_tokens", "to_tokens"])


def overlap(a: Curve, b: Curve) -> tuple[float, float] | None:
    """The range of tokens that both span over the problems that both have; None without one, or where it is a point."""
    a, b = _shared(a, b)
    if not a.problems:
        return None
    x, y = a.log_tokens, b.log_tokens
    low, high = max(float(x.min()), float(y.min())), min(float(x.max()), float(y.max()))
    return (2.0**low, 2.0**high) if low < high else None


def log_law(rows: pl.DataFrame) -> LogLaw | None:
    """Least squares of accuracy = intercept + slope * log2(t) over thinking budgets t of `MIN_LAW_BUDGET` or more, each
    weighing the same (Elastic Reasoning, Xu et al. 2025). None on fewer than `MIN_LAW_CELLS` such budgets, or where no
    problem was measured in all of them; ValueError as `read_curve`. The slope is the mean of the problems' slopes, with
    the interval of paired differences (`paired_interval`), as a slope is bounded like one.
    """
    rows = rows.filter(pl.col("think_budget") >= MIN_LAW_BUDGET)
    budgets = rows["think_budget"].unique().sort().to_list()
    if len(budgets) < MIN_LAW_CELLS:
        return None
    curve = read_curve(rows, ["think_budget"])
    if not curve.problems:
        return None
    x = np.log2(budgets)
    x -= x.mean()
    weights = x / (x @ x)
    slopes = unit_values(curve.scores @ weights, curve.groups)
    # That of a problem which is wrong below the middle and right above it.
    steepest = np.abs(weights).sum() / 2
    low, high = paired_interval(slopes / steepest)
    slope = Estimate(float(slopes.mean()), low * steepest, high * steepest, len(curve.problems), curve.num_trajectories)
    y = curve.scores.mean(axis=0) - curve.scores.mean(axis=0).mean()
    residual = y - slope.mean * x
    r2 = 1 - float(residual @ residual) / float(y @ y) if np.ptp(y) else 0.0
    return LogLaw(budgets, slope, r2, _lack_of_fit(curve, x))


def _lack_of_fit(curve: Curve, x: np.ndarray) -> float | None:
    """p-value of the mean scores of cells lying on a line over `x`, shape (cells,): Hotelling's T² (Hotelling 1931;
    Anderson 2003, section 5.3) of each problem's contrasts that are orthogonal to 1 and `x`, so cells that share
    problems and draws are paired. None without more problems than contrasts.

    What differs: two pseudo-problems as large as the mean contrast are added in every direction, as the covariance is
    singular where problems agree, and any departure would refute the line.
    """
    from scipy.special import fdtrc

    basis, _ = np.linalg.qr(np.column_stack([np.ones_like(x), x]), mode="complete")
    contrasts = unit_values((curve.scores @ basis[:, 2:]).T, curve.groups).T
    num_units, num_contrasts = contrasts.shape
    if num_units <= num_contrasts:
        return None
    size = float((contrasts**2).mean())
    mean = contrasts.mean(axis=0)
    if np.allclose(contrasts, 0):
        return 1.0
    spread = contrasts - mean
    covariance = (spread.T @ spread + 2 * size * np.eye(num_contrasts)) / (num_units + 1)
    t2 = num_units * float(mean @ np.linalg.solve(covariance, mean))
    rest = num_units - num_contrasts
    return float(fdtrc(num_contrasts, rest, t2 * rest / (num_contrasts * (num_units - 1))))


def _extremes(curve: Curve, low: float, high: float) -> np.ndarray:
    """Two pseudo-problems with the tokens of the mean problem, shape (2, 2 * cells), with these scores per cell."""
    tokens = curve.tokens.mean(axis=0)
    return np.stack([np.concatenate([np.full(tokens.shape, score), tokens]) for score in (low, high)])


def _shared(a: Curve, b: Curve) -> tuple[Curve, Curve]:
    """Both, on the problems that both have, which may be none."""
    problems = set(a.problems) & set(b.problems)
    kept = [[place for place, problem in enumerate(side.problems) if problem in problems] for side in (a, b)]
    one, other = (
        Curve(sorted(problems), *(each[places] for each in side[1:])) for side, places in zip((a, b), kept, strict=True)
    )
    groups = np.unique(one.groups, return_inverse=True)[1]
    return one._replace(groups=groups), other._replace(groups=groups)


def _points(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and y in order of x, each of shape (draws, cells), from means of `Curve.values`."""
    y, tokens = np.split(means, 2, axis=1)
    x = _log_tokens(tokens)
    order = np.argsort(x, axis=1, kind="stable")
    return np.take_along_axis(x, order, axis=1), np.take_along_axis(y, order, axis=1)


def _log_tokens(tokens: np.ndarray) -> np.ndarray:
    """log2, less than one token counted as one."""
    return np.log2(np.maximum(tokens, 1.0))


def _mean_height(x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Mean over [low, high], each of shape (draws,) and within the range of x, of the lines through points in order of
    x, each of shape (draws, cells); nan where that is empty or a point."""
    left = np.clip(x[:, :-1], low[:, None], high[:, None])
    right = np.clip(x[:, 1:], low[:, None], high[:, None])
    # A line's integral is its width by its height in the middle.
    slope = np.nan_to_num(_ratio(np.diff(y, axis=1), np.diff(x, axis=1)))
    middle = y[:, :-1] + slope * ((left + right) / 2 - x[:, :-1])
    return np.where(high > low, _ratio(((right - left) * middle).sum(axis=1), high - low), np.nan)


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """top / bottom, nan where bottom is zero."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)
