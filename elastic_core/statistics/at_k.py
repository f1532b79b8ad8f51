"""pass@k and maj@k of samples, and thinking in parallel at equal tokens: n short thoughts and a vote in place of a long
thought. n samples under separate budgeting at (t, s) are n parallel thoughts of the budget n·(t + s). Their vote
over all n-subsets of the samples is an exact expectation, for which nothing is sampled.

- majority_n: all n vote (Wang et al. 2023, self-consistency), ties shared.
- short_m_at_n: the m shortest thoughts vote, and the others are stopped when the m-th ends (Hassid et al. 2025, "Don't
  overthink it", arXiv 2505.17813, short-m@k). A tie goes to the shorter thought.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.estimates import TRAIN_SEED
from elastic_core.strategies import SERVED
from elastic_core.trajectory import BUDGET

_NAME = re.compile(r"majority_([1-9]\d*)|short_([1-9]\d*)_at_([1-9]\d*)")
MAX_VOTES = 5  # Most votes of short-m@n: the expectation goes through all choices of that many samples.


def pass_at_k_values(rows: pl.DataFrame, k: int, keys: Sequence[str]) -> pl.DataFrame:
    """Add `pass_at_k` to each problem, by `keys`: the expected best score of k of its n samples, n at least k.

    1 - C(n - c, k) / C(n, k) where c samples are right (Chen et al. 2021, equation 1). Summed in order of scores it
    holds for those between 0 and 1 too: the i-th smallest is the best of C(i - 1, k - 1) of the C(n, k) subsets.
    """
    ascending = rows.group_by(keys).agg(pl.col("score").sort(), num_samples=pl.len())
    values = []
    for (n,), part in ascending.partition_by("num_samples", as_dict=True).items():
        best = np.array([comb(i, k - 1) / comb(n, k) for i in range(n)])
        scores = part["score"].explode().to_numpy().reshape(-1, n)
        values.append(part.select(keys).with_columns(pass_at_k=scores @ best))
    return pl.concat(values)


def maj_at_k_values(rows: pl.DataFrame, k: int, keys: Sequence[str]) -> pl.DataFrame:
    """Add `maj_at_k` to each problem, by `keys`: the expected score of the answer that most of k of its n samples give.

    Self-consistency (Wang et al. 2023) over all subsets of k samples, exactly, in time of the order of k² times (number
    of answers)². Answers are equal when their text is; one that could not be read is null and does not vote. Ties share
    the vote. A vote scores the mean of the rows with its answer; without votes the score is that of the rows sampled.
    """
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
    return ballots.select(keys).with_columns(pl.Series("maj_at_k", values, dtype=pl.Float64).clip(0, 1))


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


class Parallel(NamedTuple):
    """`num_thoughts` begun together; `num_votes` of the shortest thoughts, None where all vote."""

    name: str
    num_thoughts: int
    num_votes: int | None

    @classmethod
    def parse(cls, name: str) -> Parallel:
        """ValueError on a name that says none."""
        found = _NAME.fullmatch(name)
        if found and found[1]:
            return cls(name, int(found[1]), None)
        if found and int(found[2]) <= min(int(found[3]), MAX_VOTES):
            return cls(name, int(found[3]), int(found[2]))
        raise ValueError(
            f'"{name}" does not name thinking in parallel; expected majority_N, or short_M_at_N with M up to N and '
            f"{MAX_VOTES}, such as majority_4 or short_1_at_4"
        )


def parallel_problems(rows: pl.DataFrame, problems: pl.DataFrame, wanted: Sequence[Parallel]) -> pl.DataFrame:
    """Cells of parallel thinking, in the columns of `problems`: the strategy is the name, the budget n times that of
    one thought, the score the expected one of the vote, k is 1. Cells with fewer than n samples of some problem are
    left out, and tables with several trainings of one model.

    Tokens are those of all n; of short-m@n those until the m-th shortest thought ends, and m solutions. Forced tokens
    and the work of a response are n times those of one. For an interval num_samples is how often the samples make n.
    """
    cells = problems.filter(pl.col(BUDGET[0]).is_not_null(), pl.col(BUDGET[1]).is_not_null(), strategy=SERVED)
    key = ["model", "benchmark", *BUDGET]
    rows = rows.filter(strategy=SERVED)
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
        voted = maj_at_k_values(rows, n, ["problem"]).rename({"maj_at_k": "vote"})
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
            published_score=pl.lit(None),  # The vote is of our answers.
            **{name: pl.col("vote") for name in ("score", "pass_at_k", "maj_at_k")},
        )
        .with_columns(tokens=pl.col("think_tokens") + pl.col("solution_tokens"))
        .select(pl.col(name).cast(dtype) for name, dtype in cell.schema.items())
    )


def _short(rows: pl.DataFrame, n: int, m: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield each problem with its expected score, thinking tokens and solution tokens over all n-subsets of its
    samples."""
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
