"""A finished table graded once more."""

from pathlib import Path

import polars as pl
import pytest

from elastic_core.data.problems import VERL_SCHEMA, Problem
from elastic_core.sweep.rows import regrade
from elastic_core.sweep.store import Manifest, TrajectoryStore
from elastic_core.trajectory import SCHEMA
from flows.commands.tables import regrade_table
from tasks.records.stage_directory import TABLE, Stage

PROBLEMS = {"easy": {str(i): Problem("easy", str(i), "2+2=?", "4", "math") for i in range(5)}}
TEXTS = [
    ("closed", "hm", "\\boxed{4}"),
    ("forced", "hm", "\\boxed{5}"),
    ("closed", "hm", "\\boxed{}"),
    ("length", "hm \\boxed{4}", None),
    ("end_of_text", "hm \\boxed{4}", None),
]
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
                "think_finish": finish,
                "thinking": thinking,
                "solution": solution,
                "answer": "?",
                "score": 0.5,
                "grade_status": status,
            }
            for i, (finish, thinking, solution) in enumerate(TEXTS)
        ]
    )
    return frame.with_columns(
        pl.lit(None, dtype).alias(n) for n, dtype in SCHEMA.items() if n not in frame.columns
    ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


def filled(directory: Path) -> TrajectoryStore:
    store = TrajectoryStore(directory)
    with store.writing(MANIFEST):
        store.append(rows("wrong"))
        store.append(rows("correct").with_columns(pl.lit(1, pl.Int32).alias("sample")))
    return store


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    return filled(tmp_path / "table")


def test_answers_scores_and_statuses_are_rewritten_and_nothing_else(store: TrajectoryStore) -> None:
    before = store.read()
    changes = regrade(store, PROBLEMS)
    after = store.read()
    graded = after.select("answer", "score", "grade_status").rows()
    expected = [("4", 1.0, "correct"), ("5", 0.0, "wrong"), (None, 0.0, "no_answer"), (None, 0.0, "truncated")]
    expected.append((None, 0.0, "no_answer"))  # The model stopped; it was not cut.
    assert graded == expected * 2
    assert after.drop("answer", "score", "grade_status").equals(before.drop("answer", "score", "grade_status"))
    assert changes.filter(before="wrong").rows() == [
        ("wrong", "correct", 1),
        ("wrong", "no_answer", 2),
        ("wrong", "truncated", 1),
        ("wrong", "wrong", 1),
    ]
    assert changes["rows"].sum() == 10


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
    assert store.read().height == 10
    regrade(store, PROBLEMS)
    assert set(store.read()["score"]) == {0.0, 1.0}


def test_a_row_of_an_unknown_problem_is_an_error_before_anything_is_written(store: TrajectoryStore) -> None:
    before = store.read()
    with pytest.raises(KeyError):
        regrade(store, {"easy": {"0": PROBLEMS["easy"]["0"]}})
    assert store.read().equals(before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Directory of the problems as they are built."""
    directory = tmp_path / "data"
    directory.mkdir()
    problems = [
        {
            "data_source": problem.benchmark,
            "prompt": [{"role": "user", "content": problem.question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.truth},
            "extra_info": {"split": "test", "index": index, "id": problem.id, "grader": problem.grader},
        }
        for index, problem in enumerate(PROBLEMS["easy"].values())
    ]
    pl.DataFrame(problems, schema=VERL_SCHEMA).write_parquet(directory / "easy.parquet")
    return directory


def test_a_sweep_whose_grades_change_is_to_be_recorded_again(tmp_path: Path, data: Path) -> None:
    stages = [Stage(tmp_path / "runs", "smoke", "sweep", {"seed": 7}, {"samples": n}) for n in (1, 2)]
    table = filled(stages[0].prepare() / TABLE).directory
    for stage in stages:
        stage.marker.touch()
    said = regrade_table(table, data)
    assert [stage.marker.exists() for stage in stages] == [False, False]
    assert "10 rows graded, 8 changed; next: elastic run sweep" in said
    assert (stages[0].directory / "inputs.json").exists()
    stages[0].marker.touch()
    assert "10 rows graded, 0 changed; next: elastic run report" in regrade_table(table, data)
    assert stages[0].marker.exists(), "a sweep whose grades stay remains finished"


def test_files_beside_a_table_that_is_no_sweeps_are_left(store: TrajectoryStore, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "result-of-mine.json"
    other.touch()
    assert regrade_table(store.directory, data).endswith("8 changed; next: elastic run report")
    assert other.exists()


def test_a_run_that_is_killed_leaves_no_marker(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path / "runs", "smoke", "sweep", {"seed": 7}, {"samples": 1})
    store = filled(stage.prepare() / TABLE)
    stage.marker.touch()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrajectoryStore, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        regrade_table(store.directory, data)
    assert not stage.marker.exists()
