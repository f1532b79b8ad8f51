"""The Codeforces rating of every cell, as CodeElo defines it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

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
from reports.content import RATINGS, ReportTable
from reports.summary import partial
from reports.tables import PLACE, estimate, readable, table_of
from reports.wording import budget_text, sentence

BENCHMARK = "codeforces"


Rated = Mapping[tuple[Any, ...], CodeforcesRating | None]
"""The rating of every cell of the benchmark, by its `CELL`; None where none of its contests can be used."""


def ratings(rows: pl.DataFrame, standings: Mapping[int, Standings], users: Mapping[int, int]) -> Rated:
    """Each cell of the benchmark with its rating, from the standings by contest, and the number of users by rating;
    samples are attempts, in the order of their numbers."""
    cells = rows.filter(benchmark=BENCHMARK).sort("sample").partition_by(CELL, as_dict=True, maintain_order=True)
    found = {}
    for key, cell in sorted(cells.items(), key=lambda item: str(item[0])):
        solved = cell.group_by("problem", maintain_order=True).agg(pl.col("score") == 1)
        found[key] = rating(dict(solved.iter_rows()), standings, users, mean_share)
    return found


def rating_frame(rated: Rated) -> pl.DataFrame:
    """The cells that have a rating, in schema RATINGS."""
    names = ("rating", "low", "high", "percentile", "percentile_low", "percentile_high")
    known = [(cell, found) for cell, found in rated.items() if found]
    lines = [(*cell, *(getattr(found, name) for name in names), len(found.contests)) for cell, found in known]
    return pl.DataFrame(lines, schema=RATINGS, orient="row")


def rated(ratings: pl.DataFrame, summary: pl.DataFrame) -> ReportTable | None:
    """The cells with a rating, in schema RATINGS; those of a sweep that is not done are marked. None without any."""
    mark = summary.select(*CELL, mark=pl.when(partial()).then(pl.lit(" †")).otherwise(pl.lit("")))
    frame = ratings.join(mark, on=CELL, nulls_equal=True, how="left", maintain_order="left").select(
        *PLACE,
        budget=budget_text() + pl.col("mark").fill_null(""),
        **estimate("rating", "rating", scale=1),
        **estimate("percentile among users", "percentile", scale=1),
        contests="num_contests",
    )
    return table_of("codeforces_ratings", readable(frame), least=MIN_CONTESTS)


def remark(rows: pl.DataFrame, found: Rated | None) -> str:
    """Remark on the benchmark's tests, and on the contests that ratings could not use.
    `found` is None where the number of users at each rating is not known."""
    contests = {split_id(problem)[0] for problem in rows.filter(benchmark=BENCHMARK)["problem"].unique()}
    known = [each for each in (found or {}).values() if each]
    used = {contest for each in known for contest in each.contests}
    unknown = {problem for each in known for problem in each.unknown_problems}
    if used:
        words = {"missing": _listed(sorted(contests - used)), "unknown": _listed(sorted(unknown, key=split_id))}
        said = sentence("rated", unrated=len(found or {}) - len(known), **words)
    elif found is not None:
        words = {"participants": str(MIN_PARTICIPANTS), "missing": _listed(sorted(contests))}
        said = sentence("unrated", contests=len(contests), **words)
    else:
        said = sentence("no_users")
    return f"**Codeforces rating** (CodeElo). {SAMPLE_TESTS_NOTE}\n\n{said}"


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items)) or "none"
