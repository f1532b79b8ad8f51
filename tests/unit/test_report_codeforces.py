"""The report's part on Codeforces: a rating per cell, and what it could not use."""

import numpy as np
import polars as pl

from elastic_core.rewards.codeforces import SAMPLE_TESTS_NOTE, Standings
from reports.codeforces import ratings, section

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


def test_who_solves_more_is_rated_higher_and_samples_are_attempts_in_order() -> None:
    found = dict(ratings(TABLE, {100: standings(100), 101: standings(101)}, USERS))
    base, trained = found["base, separate, unlimited+32"], found["trained, separate, unlimited+32"]
    assert trained.rating > base.rating
    assert trained.num_contests == 2 and trained.without_data == (102,)
    # One failure before the first success costs something.
    shuffled = TABLE.with_columns(sample=1 - pl.col("sample")).sample(fraction=1, shuffle=True, seed=1)
    assert (
        dict(ratings(shuffled, {c: standings(c) for c in (100, 101)}, USERS))["base, separate, unlimited+32"].rating
        < base.rating
    )


def test_the_section_says_what_the_tests_are_worth_and_what_is_missing() -> None:
    text = section(TABLE, {100: standings(100), 101: standings(101)}, USERS)
    assert SAMPLE_TESTS_NOTE in text
    assert "| trained, separate, unlimited+32 |" in text and "[" in text
    assert "Contests without data, left out: 102. Problems unknown to them: none." in text


def test_without_standings_there_is_no_rating_and_that_is_said() -> None:
    text = section(TABLE, {}, USERS)
    assert "Not measured" in text and "100, 101, 102" in text and "| rating |" not in text
