"""The report's part on Codeforces: a rating per cell, and what it could not use."""

import numpy as np
import polars as pl

from elastic_core.rewards.codeforces import SAMPLE_TESTS_NOTE, CodeforcesRating, Standings
from reports.content import RATINGS
from reports.tables import published
from reports.tables.codeforces import rating_table, ratings
from reports.tables.codeforces import section as section_of

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


def section(table: pl.DataFrame, contests: dict[int, Standings], users: dict[int, int], model: str = "base") -> str:
    found = ratings(table, contests, users) if users else None
    return section_of(table, found, published(["codeforces"], [model]))


def rated(table: pl.DataFrame) -> dict[str, CodeforcesRating]:
    """The ratings of a table's models."""
    cells = ratings(table, {100: standings(100), 101: standings(101)}, USERS)
    return {cell.cell[0]: cell.rating for cell in cells if cell.rating}


def test_who_solves_more_is_rated_higher_and_samples_are_attempts_in_order() -> None:
    found = rated(TABLE)
    base, trained = found["base"], found["trained"]
    assert trained.rating > base.rating
    assert list(trained.contests) == [100, 101]
    # One failure before the first success costs something.
    shuffled = TABLE.with_columns(sample=1 - pl.col("sample")).sample(fraction=1, shuffle=True, seed=1)
    assert rated(shuffled)["base"].rating < base.rating


def test_the_section_says_what_the_tests_are_worth_and_what_is_missing() -> None:
    text = section(TABLE, {100: standings(100), 101: standings(101)}, USERS)
    assert SAMPLE_TESTS_NOTE in text
    assert "| trained, separate, unlimited+32 |" in text and "[" in text
    assert "left out: 102." in text and "unknown to them: none." in text


def test_without_standings_there_is_no_rating_and_that_is_said() -> None:
    text = section(TABLE, {}, USERS)
    assert "Not measured" in text and "100, 101, 102" in text and "| cell |" not in text
    assert SAMPLE_TESTS_NOTE in text
    assert "Not measured" in section(TABLE, {100: standings(100)}, {})


def test_in_a_half_done_table_every_cell_counts_and_those_behind_are_marked() -> None:
    """The first cell knows neither of the unknown problem nor of the contest without standings, the last no contest
    that can be used."""
    half = rows(
        ("base", "100A", [1, 0]),
        ("later", "100A", [1, 0]), ("later", "100X", [0, 0]), ("later", "102A", [0, 0]),
        ("queued", "103A", [1, 0]),
    )  # fmt: skip
    lines = section(half, {100: standings(100)}, USERS).splitlines()
    assert any(line.startswith("| base, separate, unlimited+32 † | ") for line in lines)
    assert any(line.startswith("| later, separate, unlimited+32 | ") for line in lines)
    assert "| queued, separate, unlimited+32 † | not measured |  | 0 |" in lines
    assert any("left out: 102, 103." in line and "unknown to them: 100X." in line for line in lines)
    assert any("those marked †" in line for line in lines)
    assert "†" not in section(TABLE, {100: standings(100)}, USERS)


def test_published_ratings_are_listed_as_published_where_their_models_belong_to_the_report() -> None:
    for text in (section(TABLE, {100: standings(100)}, USERS, "E1-Code-14B"), section(TABLE, {}, {}, "E1-Code-14B")):
        paper = "Elastic Reasoning, arXiv 2505.05315"
        assert f"| published: E1-Code-14B, 1024+1024 | 1457 | 78.1 | {paper} |" in text
        assert f"| published: E1-Code-14B, unlimited | 1987 | 96.0 | {paper} |" in text
        assert f"| published: DeepCoder-14B, unlimited | 1945 | 95.4 | {paper} |" in text
        assert (
            "| published: DeepCoder-14B, not stated | 1936 | 95.3 | agentica-project/rllm on GitHub, README |" in text
        )
        assert text.count("| published: ") == 12
    assert "ublished" not in section(TABLE, {100: standings(100)}, USERS)


def test_ratings_are_a_table_that_other_programs_read() -> None:
    found = ratings(TABLE, {100: standings(100), 101: standings(101)}, USERS)
    table = rating_table(found)
    assert table.schema == RATINGS and table["model"].to_list() == ["base", "trained"]
    for line, cell in zip(table.to_dicts(), found, strict=True):
        assert cell.rating is not None
        assert line["rating"] == cell.rating.rating and line["percentile_high"] == cell.rating.percentile_high
        assert (line["think_budget"], line["solution_budget"], line["num_contests"]) == (None, 32, 2)
    assert rating_table(ratings(TABLE, {}, USERS)).is_empty(), "without standings there is no rating"
