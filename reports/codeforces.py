"""The Codeforces rating of every cell, as CodeElo defines it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from elastic_core.budget import Budget
from elastic_core.rewards.codeforces import SAMPLE_TESTS_NOTE, CodeforcesRating, Standings, rating, split_id

BENCHMARK = "codeforces"
_CELL = ["model", "strategy", "think_budget", "solution_budget"]


def ratings(
    rows: pl.DataFrame, standings: Mapping[int, Standings], users: Mapping[int, int]
) -> list[tuple[str, CodeforcesRating]]:
    """The rating of each cell of the benchmark, by its name; samples are attempts, in the order of their numbers.

    Args:
        rows: the trajectory table.
        standings: by contest.
        users: number of users by rating.

    Raises:
        ValueError: when no contest has standings.
    """
    cells = rows.filter(benchmark=BENCHMARK).sort("sample").partition_by(_CELL, as_dict=True, maintain_order=True)
    found = []
    for (model, strategy, think, solution), cell in sorted(cells.items(), key=lambda item: str(item[0])):
        solved = cell.group_by("problem", maintain_order=True).agg(pl.col("score") == 1)
        results = dict(solved.iter_rows())
        found.append((f"{model}, {strategy}, {Budget(think, solution)}", rating(results, standings, users)))
    return found


def section(rows: pl.DataFrame, standings: Mapping[int, Standings], users: Mapping[int, int]) -> str:
    """Markdown for the benchmark's part of the report: ratings, and which contests they could not use."""
    contests = sorted({split_id(problem)[0] for problem in rows.filter(benchmark=BENCHMARK)["problem"].unique()})
    lines = [f"**Codeforces rating** (CodeElo). {SAMPLE_TESTS_NOTE}", ""]
    try:
        found = ratings(rows, standings, users)
    except ValueError as error:
        return "\n".join([*lines, f"Not measured: {error}. Contests without standings: {_listed(contests)}."])
    lines += ["| cell | rating | percentile among users | contests |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {r.rating:.0f} [{r.low:.0f}, {r.high:.0f}] "
        f"| {r.percentile:.1f} [{r.percentile_low:.1f}, {r.percentile_high:.1f}] | {r.num_contests} |"
        for name, r in found
    ]
    missing = found[0][1].without_data
    unknown = found[0][1].unknown_problems
    lines += ["", f"Contests without data, left out: {_listed(missing)}. Problems unknown to them: {_listed(unknown)}."]
    return "\n".join(lines)


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "none"
