"""avg@k, the mean over problems of the mean score of their k samples; paired differences of two cells, and of every
pair in a table at equal budget; the parts of an interval, and its width with more data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.estimates import (
    by_seed,
    column_of,
    common_problems,
    estimates_table,
    num_units,
    paired_scores,
    paired_tables,
    problem_table,
    seed_keys,
    units,
)
from elastic_core.statistics.intervals import (
    LEVEL,
    Estimate,
    mean_share,
    paired_interval,
    seed_half_widths,
    t_quantile,
    with_seeds,
)
from elastic_core.trajectory import BUDGET, CELL


def avg_at_k(rows: pl.DataFrame) -> Estimate:
    """avg@k of one cell, the mean over problems of the mean score over their k samples; ValueError on no rows, or a
    score that is missing or outside [0, 1]."""
    return mean_score(problem_table(rows, ["score"]))


def mean_score(problems: pl.DataFrame, column: str = "score") -> Estimate:
    """The mean over problems of a share of their samples, from one cell's `problem_table`.

    The interval is Clopper and Pearson's (`share_interval`) at the `effective_size` of the problems' means, with the
    part of several training seeds (`with_seeds`); also that of pass@k, of maj@k, and of a count as a share of the most
    that it can be.
    """
    values = units(problems, column)
    means = values.mean(axis=0)
    num_trajectories = int(problems["num_samples"].sum())
    mean = float(means.mean())
    (added,) = seed_half_widths([values])
    # No clustering can make samples worth more than if they were all independent.
    interval = with_seeds(mean, mean_share(means, most=num_trajectories), added, (0.0, 1.0))
    return Estimate(mean, *interval, problems.height, num_trajectories, added)


def paired_difference(a: pl.DataFrame, b: pl.DataFrame) -> Estimate:
    """avg@k of `a` minus avg@k of `b`, over the problems both have; ValueError without any, or as `avg_at_k`."""
    return score_difference(*paired_tables(a, b, ["score"]))


def score_difference(a: pl.DataFrame, b: pl.DataFrame) -> Estimate:
    """`mean_score` of `a` minus that of `b`, from the `problem_table` of each; both hold the same problems.

    The interval is that of the differences problem by problem (`paired_interval`), so samples that cells share through
    the memo cancel, with the part of several training seeds (`with_seeds`). With one seed the difference is about that
    training.
    """
    (estimate,) = score_differences([(a, b)])
    return estimate


def score_differences(pairs: Sequence[tuple[pl.DataFrame, pl.DataFrame]]) -> list[Estimate]:
    """`score_difference` of each pair, with intervals that hold together (Bonferroni). Pairs may be of different
    problems, such as those of different benchmarks."""
    sides = [paired_scores(a, b) for a, b in pairs]
    found = []
    widths = seed_half_widths([each for each, _ in sides])
    for (problems, _), (values, trajectories), added in zip(pairs, sides, widths, strict=True):
        differences = values.mean(axis=0)
        mean = float(differences.mean())
        bounds = with_seeds(mean, paired_interval(differences, LEVEL / 2 / len(pairs)), added, (-1.0, 1.0))
        found.append(Estimate(mean, *bounds, problems.height, trajectories, added))
    return found


def paired_differences(rows: pl.DataFrame, between: Literal["model", "strategy"], baseline: str) -> pl.DataFrame:
    """Every pair of models under one strategy, or of strategies of one model, at every benchmark and equal budget:
    avg@k of `second` minus avg@k of `first`, over the problems both have (`score_difference`). `baseline` is first
    in its pairs; other names are in alphabetical order. It need not occur.

    A row per pair with a problem in common, columns: benchmark, strategy (or model, when between strategies),
    think_budget, solution_budget, first, second, difference, low, high (in [-1, 1]), num_problems (common ones),
    num_trajectories (of both sides). Sorted by these columns, unlimited budgets last.
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


def published_differences(problems: pl.DataFrame) -> pl.DataFrame:
    """Subtract avg@k by our grades from avg@k as published, for each cell with both (`score_difference`). `problems` is
    the table of `reports.summary.cell_problems`.

    Columns: those of `CELL`, difference, low, high (in [-1, 1]), num_problems, num_trajectories (of both gradings).
    """
    found, name = [], "published_score"
    for key, ours in problems.drop_nulls(name).partition_by(CELL, as_dict=True).items():
        theirs = ours.drop("score", by_seed("score"), strict=False)
        theirs = theirs.rename({name: "score", by_seed(name): by_seed("score")}, strict=False)
        found.append((*key, *score_difference(theirs, ours).row))
    return estimates_table(found, {each: problems.schema[each] for each in CELL}, ["difference", "low", "high"])


def mean_squares(values: np.ndarray) -> tuple[float, float, float]:
    """Two-way analysis of variance without replication of values of shape (seeds, problems), two of each or more: the
    mean squares between seeds, between problems, and of the rest, of samples and of seed with problem."""
    num_seeds, num_problems = values.shape
    of_seeds, of_problems, mean = values.mean(axis=1), values.mean(axis=0), values.mean()
    problems = num_seeds * float(((of_problems - mean) ** 2).sum()) / (num_problems - 1)
    seeds = num_problems * float(((of_seeds - mean) ** 2).sum()) / (num_seeds - 1)
    rest = float(((values - of_seeds[:, None] - of_problems + mean) ** 2).sum())
    return seeds, problems, rest / (num_seeds - 1) / (num_problems - 1)


class Split(NamedTuple):
    """The half width of one estimate's 95 % interval, and its parts: "seeds", "problems" and "samples"; None where
    unknown (seeds or samples of which there is one). `shares` of the squared half width add up to 1; the interaction of
    problem and seed counts with problems. `twice` is the half width to expect with twice as many. `num_samples` are
    those of a problem, cell and seed."""

    estimate: Estimate
    num_seeds: int
    num_samples: int
    half_width: float
    shares: dict[str, float | None]
    twice: dict[str, float | None]


def variance_split(ours: pl.DataFrame, theirs: pl.DataFrame | None = None) -> Split | None:
    """The parts of the interval of a paired difference of two sides (rows of one model, benchmark and strategy each),
    averaged over the budgets that both have; without another side, of the accuracy averaged over budgets. None where
    there are fewer than two problems.

    The squared half width is that over problems plus that of seeds (`with_seeds`). Of the former, samples make the
    share that their variance within problems has in the variance of the mean of problems (moment estimates: Searle,
    Casella and McCulloch 1992, chapter 4); a sample is taken over all budgets together, as these share its draws.
    """
    if theirs is not None:
        place = ["problem", *BUDGET]
        ours, theirs = (
            one.join(two, on=place, how="semi", nulls_equal=True) for one, two in ((ours, theirs), (theirs, ours))
        )
    sides = [side for side in (ours, theirs) if side is not None]
    if num_units(ours) < 2:
        return None
    tables = [problem_table(side, ["score"]) for side in sides]
    of_one_seed = [each.drop(by_seed("score"), strict=False) for each in tables]
    if theirs is None:
        values = units(tables[0], "score")
        estimate, alone = (mean_score(each) for each in (tables[0], of_one_seed[0]))
    else:
        values, _ = paired_scores(tables[0], tables[1])
        estimate, alone = (score_difference(one, other) for one, other in (tables, of_one_seed))
    squared, added = ((alone.high - alone.low) / 2) ** 2, estimate.seeds**2
    num_seeds, num_problems = values.shape
    drawn = [_of_samples(side) for side in sides]
    between, within = float(values.mean(axis=0).var(ddof=1)) / num_problems, sum(each for each, _ in drawn)
    of_samples = min(1.0, within / between) if between and not np.isnan(within) else None
    twice_seeds = None
    if num_seeds > 1:
        _, of_problems, rest = mean_squares(values)
        shrinking = min(1.0, rest / of_problems) if of_problems else 0.0
        twice_seeds = float(np.sqrt(squared * (1 - shrinking / 2) + added * _halved(num_seeds)))
    total = squared + added
    return Split(
        estimate,
        num_seeds,
        min(number for _, number in drawn),
        float(np.sqrt(total)),
        {
            "seeds": added / total if num_seeds > 1 else None,
            "problems": squared / total * (1 - (of_samples or 0.0)),
            "samples": None if of_samples is None else squared / total * of_samples,
        },
        {
            "seeds": twice_seeds,
            "problems": float(np.sqrt(squared * _halved(num_problems) + added)),
            "samples": None if of_samples is None else float(np.sqrt(squared * (1 - of_samples / 2) + added)),
        },
    )


def _halved(count: int) -> float:
    """The share of a squared half width of Student's t that remains with twice as many."""
    return (t_quantile(2 * count - 1) / t_quantile(count - 1)) ** 2 / 2


def _of_samples(rows: pl.DataFrame) -> tuple[float, int]:
    """The variance of the mean of problems and seeds that samples make, nan where a problem has one sample; and the
    fewest samples of any problem and seed."""
    place = ["problem", *seed_keys(rows)]
    samples = rows.group_by([*place, "sample"], maintain_order=True).agg(pl.col("score").mean())
    cells = samples.group_by(place, maintain_order=True).agg(pl.col("score").var() / pl.len(), number=pl.len())
    variance = np.nan if cells["score"].null_count() else float(column_of(cells, "score").mean()) / cells.height
    return variance, int(cells["number"].to_numpy().min())
