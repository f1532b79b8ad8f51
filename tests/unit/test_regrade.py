"""A finished table graded once more."""

from pathlib import Path

import polars as pl
import pytest

from elastic_core.data.problems import Problem
from elastic_core.sweep.manifest import Manifest
from elastic_core.sweep.regrade import regrade
from elastic_core.sweep.store import TrajectoryStore
from elastic_core.trajectory import SCHEMA

PROBLEMS = {"easy": {str(i): Problem("easy", str(i), "2+2=?", "4", "math") for i in range(4)}}
TEXTS = [("hm", "\\boxed{4}"), ("hm", "\\boxed{5}"), ("hm", "four"), ("hm \\boxed{4}", None)]
MANIFEST = Manifest({"base": "f"}, {"base": "e"}, {"easy": "h"}, {"seed": 7})


def rows(status: str) -> pl.DataFrame:
    """A row of every outcome, all with the same wrong grade."""
    frame = pl.DataFrame(
        [
            {
                "model": "base",
                "benchmark": "easy",
                "problem": str(i),
                "sample": 0,
                "strategy": "separate",
                "think_budget": 8,
                "solution_budget": 8,
                "thinking": thinking,
                "solution": solution,
                "answer": "?",
                "score": 0.5,
                "grade_status": status,
            }
            for i, (thinking, solution) in enumerate(TEXTS)
        ]
    )
    return frame.with_columns(
        pl.lit(None, dtype).alias(n) for n, dtype in SCHEMA.items() if n not in frame.columns
    ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    store = TrajectoryStore(tmp_path / "table")
    with store.writing(MANIFEST):
        store.append(rows("wrong"))
        store.append(rows("correct").with_columns(pl.lit(1, pl.Int32).alias("sample")))
    return store


def test_answers_scores_and_statuses_are_rewritten_and_nothing_else(store: TrajectoryStore) -> None:
    before = store.read()
    changes = regrade(store, PROBLEMS)
    after = store.read()
    graded = after.select("answer", "score", "grade_status").rows()
    expected = [("4", 1.0, "correct"), ("5", 0.0, "wrong"), (None, 0.0, "no_answer"), (None, 0.0, "truncated")]
    assert graded == expected * 2
    assert after.drop("answer", "score", "grade_status").equals(before.drop("answer", "score", "grade_status"))
    assert changes.filter(before="wrong").rows() == [
        ("wrong", status, 1) for status in sorted(status for *_, status in expected)
    ]
    assert changes["rows"].sum() == 8


def test_grading_again_changes_nothing(store: TrajectoryStore) -> None:
    regrade(store, PROBLEMS)
    once = store.read()
    changes = regrade(store, PROBLEMS)
    assert store.read().equals(once)
    assert changes["before"].to_list() == changes["after"].to_list()


def test_an_interrupted_run_leaves_whole_shards(store: TrajectoryStore) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regrade(store, PROBLEMS, stop)
    assert store.read().height == 8
    regrade(store, PROBLEMS)
    assert set(store.read()["score"]) == {0.0, 1.0}


def test_a_row_of_an_unknown_problem_is_an_error_before_anything_is_written(store: TrajectoryStore) -> None:
    before = store.read()
    with pytest.raises(KeyError):
        regrade(store, {"easy": {"0": PROBLEMS["easy"]["0"]}})
    assert store.read().equals(before)
