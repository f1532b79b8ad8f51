"""What k samples of a problem are worth: avg@k; pass@k, to whoever can recognise the right one; maj@k, to whoever can
only vote. And paired differences of avg@k: of two cells, and of every pair in a whole table at equal budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import polars as pl

from elastic_core.statistics.estimates import (
    Estimate,
    bootstrap,
    column_of,
    common_problems,
    estimates_table,
    paired_columns,
    paired_tables,
    problem_table,
    seed_columns,
)
from elastic_core.statistics.intervals import paired_interval, share_interval
from elastic_core.statistics.seeds import seed_half_widths, with_seeds
from elastic_core.trajectory import BUDGET


def avg_at_k(rows: pl.DataFrame) -> Estimate:
    """avg@k: the mean over problems of the mean score over their k samples, scores in [0, 1].

    Args:
        rows: of one cell, with `problem` and `score`; every row is one sample.

    Raises:
        ValueError: on no rows, or a score that is missing or outside [0, 1].
    """
    return mean_score(problem_table(rows, ["score"]))


def mean_score(problems: pl.DataFrame, column: str = "score") -> Estimate:
    """The mean over problems of a share of their samples, from one cell's `problem_table`.

    The interval is Clopper and Pearson's at the effective sample size n = p(1 - p) / var (`share_interval`), where var
    is the between-problem variance of the mean (clusters are problems; Dean and Pagano 2015, "Evaluating confidence
    interval methods for binomial proportions in clustered surveys").

    The effective size is computed with two pseudo-problems added, one all right and one all wrong, in the spirit of
    Agresti and Coull (1998). Near 0 and 1 a handful of problems carries the whole variance, and all-right and all-wrong
    need no case of their own. The price is an interval too wide where samples of one problem are nearly independent.

    Where the table has several training seeds, what they add is in the interval (`with_seeds`).
    """
    means = column_of(problems, column)
    num_trajectories = int(problems["num_samples"].sum())
    padded = np.append(means, (0.0, 1.0))
    variance = padded.var(ddof=1) / len(means)
    # No clustering can make samples worth more than if they were all independent.
    effective = min(float(padded.mean() * (1 - padded.mean()) / variance), num_trajectories)
    mean = float(means.mean())
    (added,) = seed_half_widths([seed_columns(problems, column)])
    interval = with_seeds(mean, share_interval(mean, effective), added, (0.0, 1.0))
    return Estimate(mean, *interval, len(means), num_trajectories, added)


def paired_difference(a: pl.DataFrame, b: pl.DataFrame) -> Estimate:
    """avg@k of `a` minus avg@k of `b`, over the problems both have, scores in [0, 1].

    Raises:
        ValueError: when no problem is in both, or as `avg_at_k`.
    """
    return score_difference(*paired_tables(a, b, ["score"]))


def score_difference(a: pl.DataFrame, b: pl.DataFrame) -> Estimate:
    """`mean_score` of `a` minus that of `b`, from the `problem_table` of each; both hold the same problems.

    The interval is that of the differences problem by problem (`paired_interval`), so cells that share samples, as the
    memo lets them, are told apart by what they do not share. What several training seeds add is in it (`with_seeds`).
    """
    (estimate,) = score_differences([(a, b)])
    return estimate


def score_differences(pairs: Sequence[tuple[pl.DataFrame, pl.DataFrame]]) -> list[Estimate]:
    """`score_difference` of each pair, with intervals that hold together (Bonferroni). Pairs may be of different
    problems, such as those of different benchmarks."""
    values = [np.subtract(*paired_columns(a, b, "score")) for a, b in pairs]
    found = []
    for (a, b), by_seed, added in zip(pairs, values, seed_half_widths(values), strict=True):
        differences = by_seed.mean(axis=0)
        mean = float(differences.mean())
        bounds = with_seeds(mean, paired_interval(differences, len(pairs)), added, (-1.0, 1.0))
        trajectories = int(a["num_samples"].sum()) + int(b["num_samples"].sum())
        found.append(Estimate(mean, *bounds, len(differences), trajectories, added))
    return found


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
    place = ["benchmark", "strategy" if between == "model" else "model", *BUDGET]
    problems = problem_table(rows, ["score"], by=[*place, between])
    found = []
    for key, cells in problems.partition_by(place, as_dict=True).items():
        sides = {name: side for (name,), side in cells.partition_by(between, as_dict=True).items()}
        for first, second in combinations(sorted(sides, key=lambda name: (name != baseline, name)), 2):
            ours, theirs = common_problems(sides[second], sides[first])
            if not ours.is_empty():
                found.append((*key, first, second, *score_difference(ours, theirs).row))
    keys = {name: problems.schema[name] for name in place} | {"first": pl.String(), "second": pl.String()}
    return estimates_table(found, keys, ["difference", "low", "high"])


def mean_rate(problems: pl.DataFrame, column: str) -> Estimate:
    """Mean over problems of a value in [0, 1], with its bootstrap interval, to which training seeds add as in
    `mean_score`; one row per problem, with `num_samples`."""
    values = column_of(problems, column)[:, None]
    extremes = np.array([[0.0], [1.0]])
    found = bootstrap(values, lambda means: means[:, 0], extremes, int(problems["num_samples"].sum()))
    (added,) = seed_half_widths([seed_columns(problems, column)])
    low, high = with_seeds(found.mean, (found.low, found.high), added, (0.0, 1.0))
    return found._replace(low=low, high=high)


def problem_pass_at_k(rows: pl.DataFrame, k: int, by: Sequence[str] = ()) -> pl.DataFrame:
    """One row per problem, with `pass_at_k`: the expected best score of k of its n samples.

    Where scores are 0 and 1 and c samples are right, it is 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, "Evaluating
    large language models trained on code", equation 1). Written over the samples in order of their scores it also
    holds for scores in between: the i-th smallest is the best of C(i - 1, k - 1) of the C(n, k) subsets.

    Args:
        rows: of the cells that `by` tells apart, with `problem` and `score`; every row is one sample.

    Raises:
        ValueError: on no rows, a problem with fewer than k samples, or a score that is missing or outside [0, 1].
    """
    keys = [*by, "problem"]
    return _beside(_sampled_k_times(rows, k, by), pass_at_k_values(rows, k, keys), keys)


def pass_at_k_values(rows: pl.DataFrame, k: int, keys: Sequence[str]) -> pl.DataFrame:
    """As `problem_pass_at_k`, of problems that `keys` tell apart and that are known to be sampled k times: the keys and
    `pass_at_k`, in no order."""
    ascending = rows.group_by(keys).agg(pl.col("score").sort(), num_samples=pl.len())
    values = []
    for (n,), part in ascending.partition_by("num_samples", as_dict=True).items():
        best = np.array([comb(i, k - 1) / comb(n, k) for i in range(n)])
        scores = part["score"].explode().to_numpy().reshape(-1, n)
        values.append(part.select(keys).with_columns(pass_at_k=scores @ best))
    return pl.concat(values)


def problem_maj_at_k(rows: pl.DataFrame, k: int, by: Sequence[str] = ()) -> pl.DataFrame:
    """One row per problem, with `maj_at_k`: the expected score of the answer that most of k of its n samples give.

    The majority vote is self-consistency (Wang et al. 2023). Answers are equal when their text is; one that could not
    be read is null and does not vote. Answers with equally many votes share the vote: each is chosen with the same
    chance. A vote scores what rows with its answer score on average. Without votes the score is that of the rows
    drawn, 0 as they are graded. So maj@1 is avg@1, and all-different answers leave avg@k.

    For k < n it is the exact expectation over all subsets of k samples, as in pass@k, from the number of samples behind
    each answer. It takes time in proportion to k² and to the square of the number of different answers.

    Args:
        rows: as of `problem_pass_at_k`, with `answer`.

    Raises:
        ValueError: as `problem_pass_at_k`.
    """
    keys = [*by, "problem"]
    return _beside(_sampled_k_times(rows, k, by), maj_at_k_values(rows, k, keys), keys)


def maj_at_k_values(rows: pl.DataFrame, k: int, keys: Sequence[str]) -> pl.DataFrame:
    """As `pass_at_k_values`, with `maj_at_k`."""
    votes = rows.group_by(*keys, "answer").agg(pl.col("score").mean(), votes=pl.len()).sort("votes", "answer")
    voting = pl.col("answer").is_not_null()
    ballots = votes.group_by(keys).agg(
        pl.col("votes").filter(voting),
        pl.col("score").filter(voting),
        silent=pl.col("votes").filter(~voting).sum(),
        silent_score=pl.col("score").filter(~voting).sum(),
    )
    values = []
    for counts, scores, silent, silent_score in ballots.select(pl.exclude(keys)).iter_rows():
        chances = _chances(tuple(counts), silent, k)
        voted = sum(chance * score for chance, score in zip(chances, scores, strict=True))
        values.append(voted + (1 - sum(chances)) * silent_score)
    # Rounding may leave a share of 1 by an ulp, and the bounds of a score are exact.
    shares = pl.Series("maj_at_k", values, dtype=pl.Float64).clip(0, 1)
    return ballots.select(keys).with_columns(shares)


def _beside(problems: pl.DataFrame, values: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return problems.join(values, on=keys, how="left", nulls_equal=True, maintain_order="left")


def _sampled_k_times(rows: pl.DataFrame, k: int, by: Sequence[str]) -> pl.DataFrame:
    """The problem table of `rows`, each problem sampled k times at least."""
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1 sample")
    problems = problem_table(rows, ["score"], by)
    few = problems.filter(pl.col("num_samples") < k)
    if not few.is_empty():
        found = few.row(0, named=True)
        raise ValueError(f"problem {found['problem']} has {found['num_samples']} samples; expected {k} or more")
    return problems


@lru_cache(maxsize=65536)
def _chances(votes: tuple[int, ...], silent: int, k: int) -> list[float]:
    """Each answer's chance to win the vote of k samples, drawn of `votes` samples per answer and `silent` without."""
    n = sum(votes) + silent
    if k == n:
        most = max(votes, default=0)
        return [float(count == most) / votes.count(most) for count in votes]
    known = {own: _chance(votes, silent, k, votes.index(own)) for own in set(votes)}
    return [known[count] for count in votes]


def _chance(votes: tuple[int, ...], silent: int, k: int, place: int) -> float:
    """The chance of the answer at `place`: over j, its votes, with no other above j and r others at j, 1 / (1 + r)."""
    rivals = votes[:place] + votes[place + 1 :]
    total = 0.0
    for j in range(1, min(votes[place], k) + 1):
        # Ways to draw the samples that do not give this answer, by (rivals at j, samples drawn).
        ways = {(0, size): comb(silent, size) for size in range(k - j + 1)}
        for rival in rivals:
            more: dict[tuple[int, int], int] = defaultdict(int)
            for (tied, size), count in ways.items():
                for drawn in range(min(rival, j, k - j - size) + 1):
                    more[tied + (drawn == j), size + drawn] += count * comb(rival, drawn)
            ways = more
        shared = sum(count / (1 + tied) for (tied, size), count in ways.items() if size == k - j)
        total += comb(votes[place], j) * shared
    return total / comb(sum(votes) + silent, k)
