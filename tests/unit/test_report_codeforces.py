"""The report's part on Codeforces: a rating per cell, and what it could not use."""

import numpy as np
import polars as pl

from elastic_core.rewards.codeforces import SAMPLE_TESTS_NOTE, CodeforcesRating, Standings
from elastic_core.trajectory import CELL
from reports.content import RATINGS
from reports.tables.codeforces import rated as shown
from reports.tables.codeforces import rating_frame, ratings, remark

USERS = {800: 50, 1500: 40, 2500: 10}


def standings(contest: int) -> Standings:
    """300 participants from 800 to 2400, who solved the more the better they are."""
    ranked = np.linspace(800, 2400, 300)
    points = np.repeat([0.0, 470.0, 1200.0], 100)
    return Standings(contest, {"A": 500.0, "B": 1000.0}, ranked, points, np.zeros(300))


def rows(*solved: tuple[str, str, list[int]]) -> pl.DataFrame:
    """(model, problem, score of each sample)."""
    return pl.DataFrame(
        [
            {
                "model": model,
                "benchmark": "codeforces",
                "problem": problem,
                "sample": sample,
                "strategy": "separate",
                "think_budget": None,
                "solution_budget": 32,
                "score": float(score),
            }
            for model, problem, scores in solved
            for sample, score in enumerate(scores)
        ],
        schema_overrides={"think_budget": pl.Int32},
    )


TABLE = rows(
    ("base", "100A", [1, 0]), ("base", "100B", [0, 0]), ("base", "101A", [1, 1]), ("base", "102A", [0, 0]),
    ("trained", "100A", [0, 1]), ("trained", "100B", [1, 1]), ("trained", "101A", [1, 1]), ("trained", "102A", [1, 0]),
)  # fmt: skip


CONTESTS = {100: standings(100), 101: standings(101)}


def rated(table: pl.DataFrame) -> dict[str, CodeforcesRating]:
    """The ratings of a table's models."""
    return {cell[0]: found for cell, found in ratings(table, CONTESTS, USERS).items() if found}


def test_who_solves_more_is_rated_higher_and_samples_are_attempts_in_order() -> None:
    found = rated(TABLE)
    base, trained = found["base"], found["trained"]
    assert trained.rating > base.rating
    assert list(trained.contests) == [100, 101]
    # One failure before the first success costs something.
    shuffled = TABLE.with_columns(sample=1 - pl.col("sample")).sample(fraction=1, shuffle=True, seed=1)
    assert rated(shuffled)["base"].rating < base.rating


def test_the_remark_says_what_the_tests_are_worth_and_what_is_missing() -> None:
    """Later cells know neither of the unknown problem nor of the contest without standings, the last of no contest."""
    half = rows(
        ("base", "100A", [1, 0]),
        ("later", "100A", [1, 0]), ("later", "100X", [0, 0]), ("later", "102A", [0, 0]),
        ("queued", "103A", [1, 0]),
    )  # fmt: skip
    text = remark(half, ratings(half, CONTESTS, USERS))
    assert SAMPLE_TESTS_NOTE in text and "left out: 102, 103." in text and "unknown to them: 100X." in text
    assert "1 of the cells have none" in text
    none = remark(TABLE, ratings(TABLE, {}, USERS))
    assert "Not measured" in none and "100, 101, 102" in none and SAMPLE_TESTS_NOTE in none
    assert "Not measured" in remark(TABLE, None)


def test_ratings_are_a_table_that_other_programs_read_and_the_report_shows() -> None:
    found = ratings(TABLE, CONTESTS, USERS)
    frame = rating_frame(found)
    assert frame.schema == RATINGS and frame["model"].to_list() == ["base", "trained"]
    for line, one in zip(frame.to_dicts(), found.values(), strict=True):
        assert one is not None
        assert line["rating"] == one.rating and line["percentile_high"] == one.percentile_high
        assert (line["think_budget"], line["solution_budget"], line["num_contests"]) == (None, 32, 2)
    assert rating_frame(ratings(TABLE, {}, USERS)).is_empty(), "without standings there is no rating"
    cells = frame.select(*CELL, num_trajectories=pl.Series([8, 6]), num_seeds=1)
    table = shown(frame, cells)
    assert table is not None and table.frame["budget"].to_list() == ["unlimited+32", "unlimited+32 †"]
    assert table.frame["rating"].to_list() == frame["rating"].to_list() and table.lines[0][4].text.endswith("]")
