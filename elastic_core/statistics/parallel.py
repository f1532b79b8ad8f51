"""Thinking in parallel at equal tokens: n short thoughts and a vote in place of one long thought.

No token is drawn for it. A sweep has several samples of each problem under separate budgeting; n of them at (t, s) are
n parallel thoughts of the budget n·(t + s), and their vote, over all n-subsets of the samples, is an exact expectation.
So this is a statistic of a table and no strategy: a strategy would draw n trunks a sample to learn the same, and it
works on token ids, where a vote over answers has no place.

- majority_n: all n vote (Wang et al. 2023, self-consistency), ties shared.
- short_m_at_n: the m shortest thoughts vote, and the others are stopped when the m-th ends (Hassid et al. 2025, "Don't
  overthink it", arXiv 2505.17813, short-m@k). A tie goes to the shorter thought.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import problem_maj_at_k
from elastic_core.statistics.seeds import TRAIN_SEED
from elastic_core.trajectory import BUDGET

_NAME = re.compile(r"majority_([1-9]\d*)|short_([1-9]\d*)_at_([1-9]\d*)")
MAX_VOTES = 5
"""Most votes of short-m@n: the expectation goes through all choices of so many of the samples."""
_SEPARATE = "separate"


class Parallel(NamedTuple):
    """Attributes:
    num_thoughts: begun together.
    num_votes: of the shortest thoughts; None where all vote.
    """

    name: str
    num_thoughts: int
    num_votes: int | None

    @classmethod
    def parse(cls, name: str) -> Parallel:
        """Raises:
        ValueError: on a name that says none.
        """
        found = _NAME.fullmatch(name)
        if found and found[1]:
            return cls(name, int(found[1]), None)
        if found and int(found[2]) <= min(int(found[3]), MAX_VOTES):
            return cls(name, int(found[3]), int(found[2]))
        raise ValueError(
            f'"{name}" is no parallel thinking; expected majority_N, or short_M_at_N with M up to N and {MAX_VOTES}, '
            "such as majority_4 or short_1_at_4"
        )


def parallel_problems(rows: pl.DataFrame, problems: pl.DataFrame, wanted: Sequence[Parallel]) -> pl.DataFrame:
    """Cells of parallel thinking beside those of separate budgeting, in the columns of `problems`: the strategy is the
    name, the budget n times that of one thought, the score the expected one of the vote, k is 1.

    Cells with fewer than n samples of some problem are left out, and tables with several trainings of one model. Tokens
    are those of all n; of short-m@n those until the m-th shortest thought ends, and m solutions. Forced tokens and the
    work of a response are n times those of one. For an interval num_samples is how often the samples make n: no more
    votes are independent.

    Args:
        rows: of a trajectory table.
        problems: `reports.summary.cell_problems` of them.
    """
    cells = problems.filter(pl.col(BUDGET[0]).is_not_null(), pl.col(BUDGET[1]).is_not_null(), strategy=_SEPARATE)
    key = ["model", "benchmark", *BUDGET]
    rows = rows.filter(strategy=_SEPARATE)
    found = [problems.clear()]
    if TRAIN_SEED in rows.columns:
        return found[0]
    for place, cell in cells.partition_by(key, as_dict=True).items():
        num_samples = int(cell["num_samples"].to_numpy().min())
        mine = rows.filter(pl.col(name) == value for name, value in zip(key, place, strict=True))
        for each in wanted:
            if each.num_thoughts <= num_samples:
                found.append(_cell(mine, cell, each))
    return pl.concat(found)


def _cell(rows: pl.DataFrame, cell: pl.DataFrame, wanted: Parallel) -> pl.DataFrame:
    n = wanted.num_thoughts
    if wanted.num_votes is None:
        voted = problem_maj_at_k(rows, n).select("problem", vote="maj_at_k")
        tokens = {name: pl.col(name) * n for name in ("think_tokens", "solution_tokens")}
    else:
        schema = {"problem": pl.String, "vote": pl.Float64, "thinking": pl.Float64, "solving": pl.Float64}
        voted = pl.DataFrame(list(_short(rows, n, wanted.num_votes)), schema, orient="row")
        tokens = {"think_tokens": pl.col("thinking"), "solution_tokens": pl.col("solving")}
    counted = [name for name in cell.columns if name.endswith("_tokens") and name not in tokens]
    return (
        cell.join(voted, on="problem", maintain_order="left")
        .with_columns(
            *(pl.col(name) * n for name in [*BUDGET, *counted, "turns"]),
            *(expression.alias(name) for name, expression in tokens.items()),
            strategy=pl.lit(wanted.name),
            num_samples=pl.col("num_samples") // n,
            k=pl.lit(1, cell.schema["k"]),
            **{name: pl.col("vote") for name in ("score", "pass_at_k", "maj_at_k")},
        )
        .with_columns(tokens=pl.col("think_tokens") + pl.col("solution_tokens"))
        .select(pl.col(name).cast(dtype) for name, dtype in cell.schema.items())
    )


def _short(rows: pl.DataFrame, n: int, m: int) -> Iterator[tuple[str, float, float, float]]:
    """Of each problem the expected score, thinking tokens and solution tokens over all n-subsets of its samples."""
    ordered = rows.sort("think_tokens", "sample").with_columns(
        code=pl.when(pl.col("answer").is_not_null()).then(pl.col("answer").rank("dense")).fill_null(0)
    )
    for (problem,), samples in ordered.partition_by("problem", as_dict=True, maintain_order=True).items():
        size = samples.height
        # Voters, shortest first; the n - m others of a subset are any that come after.
        voters = np.array([chosen for chosen in combinations(range(size), m) if size - 1 - chosen[-1] >= n - m])
        chances = np.array([comb(size - 1 - last, n - m) for last in voters[:, -1]]) / comb(size, n)
        codes, scores, thinking, solving = (
            samples[name].cast(pl.Float64).to_numpy()[voters]
            for name in ("code", "score", "think_tokens", "solution_tokens")
        )
        votes = ((codes[:, :, None] == codes[:, None, :]) & (codes[:, :, None] > 0)).sum(axis=2)
        score = np.take_along_axis(scores, votes.argmax(axis=1)[:, None], axis=1)[:, 0]
        thought = thinking.sum(axis=1) + (n - m) * thinking[:, -1]
        yield str(problem), float(chances @ score), float(chances @ thought), float(chances @ solving.sum(axis=1))
