"""avg@k of one cell, paired differences of two, and of every pair in a whole table at equal budget."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl

from elastic_core.statistics.intervals import Estimate, wilson
from elastic_core.statistics.problems import check_scores, column_of, common_problems, problem_table
from elastic_core.trajectory import BUDGET


def avg_at_k(rows: pl.DataFrame) -> Estimate:
    """avg@k: the mean over problems of the mean score over their k samples, scores in [0, 1].

    Args:
        rows: of one cell, with `problem` and `score`; every row is one sample.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    problems = problem_table(rows, ["score"])
    check_scores(rows)
    return mean_score(problems)


def mean_score(problems: pl.DataFrame, column: str = "score") -> Estimate:
    """The mean over problems of a share of their samples, from one cell's `problem_table`.

    The interval is Wilson's score interval (Wilson 1927) at the effective sample size n = p(1 - p) / var, where var is
    the between-problem variance of the mean (clusters are problems; Dean and Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys").

    The effective size is computed with two pseudo-problems added, one all right and one all wrong, in the spirit of
    Agresti and Coull (1998). Near 0 and 1 a handful of problems carries the whole variance, and without them the
    interval covers as little as 86 % (30 problems x 16 samples, intra-problem correlation 0.5, p = 0.05). With them
    it covers 94 % or more for 30 problems and up, and all-right and all-wrong need no case of their own. The price is
    an interval too wide where samples of one problem are nearly independent.
    """
    means = column_of(problems, column)
    num_trajectories = int(problems["num_samples"].sum())
    padded = np.append(means, (0.0, 1.0))
    variance = padded.var(ddof=1) / len(means)
    # No clustering can make samples worth more than if they were all independent.
    effective = min(float(padded.mean() * (1 - padded.mean()) / variance), num_trajectories)
    mean = float(means.mean())
    return Estimate(mean, *wilson(mean, effective), len(means), num_trajectories)


def paired_difference(a: pl.DataFrame, b: pl.DataFrame) -> Estimate:
    """avg@k of `a` minus avg@k of `b`, over the problems both have, scores in [0, 1].

    Raises:
        ValueError: when no problem is in both, or as `avg_at_k`.
    """
    a, b = common_problems(a, b)
    problems_a, problems_b = problem_table(a, ["score"]), problem_table(b, ["score"])
    check_scores(a)
    check_scores(b)
    return score_difference(problems_a, problems_b)


def score_difference(a: pl.DataFrame, b: pl.DataFrame) -> Estimate:
    """`mean_score` of `a` minus that of `b`, from the `problem_table` of each; both hold the same problems.

    The interval combines the two avg@k intervals with the correlation of the problem means (MOVER: Zou and Donner
    2008; Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on
    paired data"). Unlike a t-interval of the differences it keeps its width when every problem agrees, as between a
    model that is nearly always wrong and one that is nearly always right.
    """
    right, left = mean_score(a), mean_score(b)
    shared = _correlation(column_of(a, "score"), column_of(b, "score"))
    below, above = (right.mean - right.low, left.high - left.mean), (right.high - right.mean, left.mean - left.low)
    difference = right.mean - left.mean
    return Estimate(
        difference,
        difference - _combined(*below, shared),
        difference + _combined(*above, shared),
        right.num_problems,
        right.num_trajectories + left.num_trajectories,
    )


def paired_differences(rows: pl.DataFrame, between: Literal["model", "strategy"], baseline: str) -> pl.DataFrame:
    """Every pair of models under one strategy, or of strategies of one model, at every benchmark and equal budget.

    The difference is avg@k of `second` minus avg@k of `first`, over the problems both have (`score_difference`).

    Args:
        rows: of a trajectory table.
        between: what the two sides of a difference differ in; they agree in the other one.
        baseline: the name that is first in its pairs; other names are in alphabetical order. It need not occur.

    Returns:
        A row per pair with a problem in common, columns: benchmark, strategy (or model, when between strategies),
        think_budget, solution_budget, first, second, difference, low, high (in [-1, 1]), num_problems (common ones),
        num_trajectories (of both sides). Sorted by these columns, unlimited budgets last.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    other = "strategy" if between == "model" else "model"
    place = ["benchmark", other, *BUDGET]
    problems = problem_table(rows, ["score"], by=[*place, between])
    check_scores(rows)
    schema = {name: problems.schema[name] for name in place} | {
        "first": pl.String(),
        "second": pl.String(),
        "difference": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "num_problems": pl.Int64(),
        "num_trajectories": pl.Int64(),
    }
    found = []
    for key, cells in problems.partition_by(place, as_dict=True).items():
        sides = {name: side for (name,), side in cells.partition_by(between, as_dict=True).items()}
        for first, second in combinations(sorted(sides, key=lambda name: (name != baseline, name)), 2):
            if set(sides[first]["problem"]).isdisjoint(sides[second]["problem"]):
                continue
            ours, theirs = common_problems(sides[second], sides[first])
            found.append((*key, first, second, *score_difference(ours, theirs)))
    return pl.DataFrame(found, schema=schema, orient="row").sort([*place, "first", "second"], nulls_last=True)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, and 0 where one of them is constant: nothing is known to be shared."""
    return 0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else float(np.corrcoef(a, b)[0, 1])


def _combined(a: float, b: float, correlation: float) -> float:
    """Half-width of a difference from the half-widths a and b of its terms."""
    return float(np.sqrt(max(a**2 + b**2 - 2 * correlation * a * b, 0.0)))
