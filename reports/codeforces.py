"""The Codeforces rating of every cell, as CodeElo defines it, and what others published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

from elastic_core.budget import Budget
from elastic_core.codeforces.rating import (
    MIN_PARTICIPANTS,
    SAMPLE_TESTS_NOTE,
    CodeforcesRating,
    Standings,
    rating,
    split_id,
)
from elastic_core.escaping import escaped
from elastic_core.trajectory import CELL
from reports.summary import published, sources, stated_budget
from reports.wording import with_bounds

BENCHMARK = "codeforces"


class RatedCell(NamedTuple):
    """A cell of the benchmark.

    Attributes:
        partial: it has fewer trajectories than the fullest.
        rating: None where none of its contests can be used.
    """

    name: str
    partial: bool
    rating: CodeforcesRating | None


def ratings(rows: pl.DataFrame, standings: Mapping[int, Standings], users: Mapping[int, int]) -> list[RatedCell]:
    """Each cell of the benchmark; samples are attempts, in the order of their numbers.

    Args:
        rows: the trajectory table.
        standings: by contest.
        users: number of users by rating.
    """
    cells = rows.filter(benchmark=BENCHMARK).sort("sample").partition_by(CELL, as_dict=True, maintain_order=True)
    fullest = max(cell.height for cell in cells.values())
    found = []
    for (model, _, strategy, think, solution), cell in sorted(cells.items(), key=lambda item: str(item[0])):
        solved = cell.group_by("problem", maintain_order=True).agg(pl.col("score") == 1)
        name = f"{model}, {strategy}, {Budget(think, solution)}"
        found.append(RatedCell(name, cell.height < fullest, rating(dict(solved.iter_rows()), standings, users)))
    return found


def section(rows: pl.DataFrame, standings: Mapping[int, Standings], users: Mapping[int, int]) -> str:
    """Markdown for the benchmark's part of the report: ratings, which contests they could not use, published ones.

    Args:
        rows, standings, users: as in `ratings`; standings and users may be empty.
    """
    contests = {split_id(problem)[0] for problem in rows.filter(benchmark=BENCHMARK)["problem"].unique()}
    found = ratings(rows, standings, users) if users else []
    used = {contest for cell in found if cell.rating for contest in cell.rating.contests}
    if used:
        ours = _measured(found, contests - used)
    elif users:
        ours = (
            f"Not measured: none of {len(contests)} contests has standings of {MIN_PARTICIPANTS} rated participants or "
            f"more. Contests without standings: {_listed(sorted(contests))}. `elastic run report` fetches what it can."
        )
    else:
        ours = "Not measured: the data set with the number of users at each rating is not at hand."
    return "\n\n".join([f"**Codeforces rating** (CodeElo). {SAMPLE_TESTS_NOTE}", ours, _published()])


def _measured(cells: list[RatedCell], missing: set[int]) -> str:
    lines = ["| cell | rating | percentile among users | contests |", "|---|---|---|---|"]
    for name, partial, found in cells:
        shown = f"{escaped(name)}{' †' if partial else ''}"
        if found is None:
            lines.append(f"| {shown} | not measured | | 0 |")
            continue
        value = with_bounds(found.rating, found.low, found.high, ".0f", scale=1)
        percentile = with_bounds(found.percentile, found.percentile_low, found.percentile_high, scale=1)
        lines.append(f"| {shown} | {value} | {percentile} | {len(found.contests)} |")
    unknown = sorted(
        {problem for cell in cells if cell.rating for problem in cell.rating.unknown_problems}, key=split_id
    )
    lowered = ""
    if any(cell.partial for cell in cells):
        lowered = ", which lowers those marked †: they have fewer trajectories than the fullest"
    lines += [
        "",
        f"Contests without data, left out: {_listed(sorted(missing))}. "
        f"Problems unknown to them: {_listed(unknown)}. "
        f"A problem of a used contest that a cell lacks counts as unsolved{lowered}.",
    ]
    return "\n".join(lines)


def _published() -> str:
    theirs = published([BENCHMARK]).filter(pl.col("metric").is_in(["rating", "percentile"]))
    frame = theirs.with_columns(budget=stated_budget()).pivot("metric", index=["model", "budget"], values="value")
    lines = [f"Published, not measured here ({sources(theirs)}):", ""]
    lines += ["| published cell | rating | percentile |", "|---|---|---|"]
    lines += [
        f"| published: {row['model']}, {row['budget']} | {row['rating']:.0f} | {row['percentile']:.1f} |"
        for row in frame.iter_rows(named=True)
    ]
    return "\n".join(lines)


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "none"
