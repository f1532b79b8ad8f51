"""A finished table graded once more."""

import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from elastic_core.data.problems import VERL_SCHEMA, Problem
from elastic_core.errors import UserError
from elastic_core.sweep.rows import lacks_published, regrade
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import SCHEMA
from flows.commands.graded_rows import regrade_table
from tasks.records.stage_directory import TABLE, Stage
from tests.tables import frame

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
    found = frame(
        {
            "model": "base", "benchmark": "easy", "problem": str(i), "sample": 0, "strategy": "separate",
            "think_budget": 8, "solution_budget": 8, "think_finish": finish, "thinking": thinking,
            "solution": solution, "answer": "?", "score": 0.5, "grade_status": status,
        }
        for i, (finish, thinking, solution) in enumerate(TEXTS)
    )  # fmt: skip
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items() if name not in found.columns]
    return found.with_columns(missing).select(SCHEMA.names())


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
    assert "10 rows graded, 0 changed; next: elastic report" in regrade_table(table, data)
    assert stages[0].marker.exists(), "a sweep whose grades stay remains finished"


def test_files_beside_a_table_that_is_no_sweeps_are_left(store: TrajectoryStore, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "result-of-mine.json"
    other.touch()
    assert regrade_table(store.directory, data).endswith("8 changed; next: elastic report")
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


PUBLISHED = {  # Their split of a response at its think-ends, and ours.
    ("hm", "\\boxed{4}"): (1.0, 1.0),
    ("hm", "\\boxed{5}"): (0.0, 0.0),
    ("hm", "wait, so </think> \\boxed{4}"): (0.0, 1.0),
    ("hm", "\\boxed{4}</think>"): (1.0, 0.0),
    ("hm \\boxed{4}", None): (0.0, 0.0),
    (None, None): (None, 0.5),
}
LETTER = Problem("choices", "0", "Which?", "A", "choice")
BOTH = {"easy": PROBLEMS["easy"] | {"5": Problem("easy", "5", "2+2=?", "4", "math")}, "choices": {"0": LETTER}}


@pytest.fixture
def mixed(tmp_path: Path) -> TrajectoryStore:
    """A shard of a row for each of `PUBLISHED`, with our grade, and one of a choice; and the same of another sample."""
    first = rows("wrong")[0]
    shard = pl.concat(
        first.with_columns(
            problem=pl.lit(str(i)), thinking=pl.lit(thinking, pl.String), solution=pl.lit(solution, pl.String),
            score=pl.lit(ours), grade_status=pl.lit("correct" if ours else "wrong"),
        )
        for i, ((thinking, solution), (_, ours)) in enumerate(PUBLISHED.items())
    )  # fmt: skip
    choice = shard[:1].with_columns(benchmark=pl.lit("choices"), solution=pl.lit("Answer: A"))
    store = TrajectoryStore(tmp_path / "mixed")
    with store.writing(MANIFEST):
        for sample in range(2):
            store.append(pl.concat([shard, choice]).with_columns(pl.lit(sample, pl.Int32).alias("sample")))
    return store


EXPECTED = [*(theirs for theirs, _ in PUBLISHED.values()), None] * 2


def test_the_grade_as_published_is_beside_ours(mixed: TrajectoryStore) -> None:
    before, counted = mixed.read(), []
    changes = regrade(mixed, BOTH, counted.append, as_published=True)
    after = mixed.read()
    assert after["published_score"].to_list() == EXPECTED
    assert after.drop("published_score").equals(before.drop("published_score"))
    assert changes.filter(pl.col("after") != "not graded").rows() == [
        ("right", "right", 2), ("right", "wrong", 2), ("wrong", "right", 2), ("wrong", "wrong", 4),
    ]  # fmt: skip
    assert counted == [7, 7]
    regrade(mixed, BOTH)
    own = mixed.read()
    assert own["published_score"].to_list() == EXPECTED, "grading by ours again leaves theirs"
    without_text = pl.any_horizontal(pl.col("thinking", "solution").is_not_null()).not_()
    assert own.filter(without_text).equals(before.filter(without_text)), "what has no text cannot be graded again"


def test_a_conversation_of_roles_is_not_graded_as_published(mixed: TrajectoryStore) -> None:
    mixed.rewrite(lambda rows: rows.with_columns(turns=pl.lit([{"at": 0, "role": "navigator"}], SCHEMA["turns"])))
    regrade(mixed, BOTH, as_published=True)
    assert mixed.read()["published_score"].null_count() == 14
    assert mixed.read().filter(lacks_published(BOTH)).is_empty()


def test_grading_as_published_that_is_killed_goes_on(mixed: TrajectoryStore) -> None:
    seen: list[int] = []

    def killed(rows: int) -> None:
        seen.append(rows)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regrade(mixed, BOTH, killed, as_published=True)
    assert mixed.read()["published_score"].to_list() == EXPECTED[:7] + [None] * 7
    mine = mixed.shards()[0].stat().st_mtime_ns
    regrade(mixed, BOTH, seen.append, as_published=True, only=lacks_published(BOTH))
    assert mixed.read()["published_score"].to_list() == EXPECTED
    assert seen[2:] == [5], "only the rows that could be graded and were not"
    assert mixed.shards()[0].stat().st_mtime_ns == mine
    regrade(mixed, BOTH, as_published=True)
    assert mixed.shards()[0].stat().st_mtime_ns == mine, "the same grades again are not written"


@pytest.mark.parametrize("grading", [{}, {"grading": "elastic-reasoning"}])
def test_a_sweep_grades_what_was_drawn_without(
    mixed: TrajectoryStore, monkeypatch: pytest.MonkeyPatch, grading: dict[str, str]
) -> None:
    Sweep = pytest.importorskip("tasks.sweep", exc_type=ImportError).Sweep  # It needs Prefect.
    shown = SimpleNamespace(done=0, reach=lambda done: setattr(shown, "done", done))
    names = []
    # Prefect has a server of its own.
    monkeypatch.setattr("tasks.sweep.progress", lambda name, *_: nullcontext(names.append(name) or shown))
    sweep = Sweep(Stage(mixed.directory, "smoke", "sweep", {}, grading), mixed, *[None] * 4)
    with mixed.writing(MANIFEST):
        sweep.grade_earlier({name: [*given.values()] for name, given in BOTH.items()})
    assert mixed.read()["published_score"].to_list() == (EXPECTED if grading else [None] * 14)
    assert shown.done == (10 if grading else 0)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in names), "a key of Prefect's artifacts"


def test_regrade_as_published_tells_how_many_differ(tmp_path: Path, data: Path) -> None:
    stage = Stage(tmp_path / "runs", "smoke", "sweep", {"seed": 7}, {"samples": 1})
    table = filled(stage.prepare() / TABLE).directory
    regrade_table(table, data)
    stage.marker.touch()
    said = regrade_table(table, data, as_published=True)
    assert said.startswith("10 rows graded as published, 0 otherwise than by ours; next: elastic run sweep")
    assert not stage.marker.exists(), "MLflow does not have their grades yet"
    wrong = TrajectoryStore(table).read().with_columns(score=1 - pl.col("score"))
    TrajectoryStore(table).rewrite(lambda rows: wrong[:5] if rows["sample"][0] == 0 else wrong[5:])
    assert "right by ours, wrong as published: 8 rows\nwrong by ours, right as published: 2 rows\n" in regrade_table(
        table, data, as_published=True
    )


def test_choices_alone_cannot_be_graded_as_published(tmp_path: Path, data: Path) -> None:
    built = pl.read_parquet(data / "easy.parquet")
    info = pl.col("extra_info").struct.with_fields(grader=pl.lit("choice"))
    built.with_columns(info).write_parquet(data / "easy.parquet")
    table = filled(tmp_path / "table")
    with pytest.raises(UserError, match=r"easy: .*choices, which the authors .* do not grade"):
        regrade_table(table.directory, data, as_published=True)
