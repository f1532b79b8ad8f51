"""The Codeforces rating of every cell, as CodeElo defines it, beside what others published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import polars as pl

from elastic_core.budget import Budget
from elastic_core.rewards.codeforces import (
    MIN_CONTESTS,
    MIN_PARTICIPANTS,
    SAMPLE_TESTS_NOTE,
    CodeforcesRating,
    Standings,
    rating,
    split_id,
)
from elastic_core.statistics.intervals import mean_share
from elastic_core.trajectory import CELL
from reports.content import RATINGS
from reports.tables import grid, sources, stated_budget
from reports.wording import with_bounds

BENCHMARK = "codeforces"


class RatedCell(NamedTuple):
    """A cell of the benchmark; `partial` where it has fewer trajectories than the fullest. It has no rating where none
    of its contests can be used."""

    cell: tuple[Any, ...]
    partial: bool
    rating: CodeforcesRating | None


def ratings(rows: pl.DataFrame, standings: Mapping[int, Standings], users: Mapping[int, int]) -> list[RatedCell]:
    """Each cell of the benchmark with its rating, from the standings by contest, and the number of users by rating;
    samples are attempts, in the order of their numbers."""
    cells = rows.filter(benchmark=BENCHMARK).sort("sample").partition_by(CELL, as_dict=True, maintain_order=True)
    fullest = max(cell.height for cell in cells.values())
    found = []
    for key, cell in sorted(cells.items(), key=lambda item: str(item[0])):
        solved = cell.group_by("problem", maintain_order=True).agg(pl.col("score") == 1)
        rated = rating(dict(solved.iter_rows()), standings, users, mean_share)
        found.append(RatedCell(key, cell.height < fullest, rated))
    return found


def rating_table(cells: Iterable[RatedCell]) -> pl.DataFrame:
    """The cells that have a rating, in schema RATINGS."""
    names = ("rating", "low", "high", "percentile", "percentile_low", "percentile_high")
    rated = [(each.cell, each.rating) for each in cells if each.rating]
    lines = [(*cell, *(getattr(found, name) for name in names), len(found.contests)) for cell, found in rated]
    return pl.DataFrame(lines, schema=RATINGS, orient="row")


def section(rows: pl.DataFrame, found: list[RatedCell] | None, theirs: pl.DataFrame) -> str:
    """Markdown for the benchmark's part of the report: ratings, which contests they could not use, published ones
    (`PUBLISHED`). `found` is None where the number of users at each rating is not known."""
    contests = {split_id(problem)[0] for problem in rows.filter(benchmark=BENCHMARK)["problem"].unique()}
    used = {contest for cell in found or () if cell.rating for contest in cell.rating.contests}
    if found and used:
        ours = _measured(found, contests - used)
    elif found is not None:
        ours = (
            f"Not measured: none of {len(contests)} contests has standings of {MIN_PARTICIPANTS} rated participants or "
            f"more. Contests without standings: {_listed(sorted(contests))}. `elastic report --preset NAME` fetches "
            "what it can."
        )
    else:
        ours = "Not measured: the data set with the number of users at each rating is not at hand."
    parts = [f"**Codeforces rating** (CodeElo). {SAMPLE_TESTS_NOTE}", ours]
    theirs = theirs.filter(pl.col("metric").is_in(["rating", "percentile"]), benchmark=BENCHMARK)
    if not theirs.is_empty():
        index = ["model", "budget", "source"]
        frame = theirs.with_columns(budget=stated_budget()).pivot("metric", index=index, values="value")
        lines = [
            [f"published: {model}, {budget}", f"{rating:.0f}", f"{percentile:.1f}", source]
            for model, budget, source, rating, percentile in frame.select(*index, "rating", "percentile").iter_rows()
        ]
        table = grid(["published cell", "rating", "percentile", "source"], lines)
        parts.append(f"Published, not measured here ({sources(theirs)}):\n\n{table}")
    return "\n\n".join(parts)


def _measured(cells: list[RatedCell], missing: set[int]) -> str:
    lines: list[list[str]] = []
    unknown: set[str] = set()
    for each in cells:
        (model, _, strategy, think, solution), found = each.cell, each.rating
        shown = f"{model}, {strategy}, {Budget(think, solution)}{' †' if each.partial else ''}"
        if found is None:
            lines.append([shown, "not measured", "", "0"])
            continue
        unknown.update(found.unknown_problems)
        rated = with_bounds(found.rating, found.low, found.high, ".0f", scale=1)
        shares = with_bounds(found.percentile, found.percentile_low, found.percentile_high, scale=1)
        lines.append([shown, rated, shares, str(len(found.contests))])
    lowered = ", which lowers those marked †: they have fewer trajectories than the fullest"
    return (
        f"{grid(['cell', 'rating', 'percentile among users', 'contests'], lines)}\n\n"
        f"Fewer than {MIN_CONTESTS} contests bound nothing. "
        f"Contests without data, left out: {_listed(sorted(missing))}. "
        f"Problems unknown to them: {_listed(sorted(unknown, key=split_id))}. "
        "A problem of a used contest that a cell lacks counts as unsolved"
        f"{lowered if any(cell.partial for cell in cells) else ''}."
    )


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items)) or "none"
