"""What a report finds around a trajectory table, by contents, and what is said where there is none."""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from elastic_core.data.problems import VERL_SCHEMA
from elastic_core.errors import UserError
from elastic_core.sweep.grid import first_ids
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.system.fingerprint import hash_files, model_fingerprint
from tasks.report import machine, report_sources
from tests.unit.test_report_summary import make_rows

REQUEST = {"models": ["base", "trained"], "strategies": ["separate"], "budgets": ["16+32", "64+32"], "samples": 2}


def write_json(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """runs/embedded with a data set of 5 problems, a training, and a sweep that has measured 3 of the 5."""
    preset = tmp_path / "runs" / "embedded"
    data = preset / "data" / "d1" / "hard.parquet"
    data.parent.mkdir(parents=True)
    extra = {"split": "test", "index": 0, "grader": "math"}
    problem = {
        "data_source": "hard",
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
    }
    problems = [
        problem | {"extra_info": extra | {"id": f"{i:03}"}, "prompt": [{"role": "user", "content": f"1 + {i}?"}]}
        for i in range(5)
    ]
    pl.DataFrame(problems, schema=VERL_SCHEMA).write_parquet(data)
    write_json(data.with_name("manifest.json"), {"datasets": {"hard": {"rows": 5}}})
    model = preset / "train" / "t1" / "model"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"weights")
    write_json(model.parent / "inputs.json", {"inputs": {"base": "b453", "train": {"budget": "48+32"}}, "request": {}})
    metrics = pl.DataFrame({"step": [1, 2], "name": ["critic/score/mean"] * 2, "value": [0.1, 0.2]})
    metrics.write_parquet(model.parent / "metrics.parquet")
    (preset / "train" / "unfinished").mkdir()
    manifest = Manifest(
        {"base": "b453", "trained": model_fingerprint(model)}, {}, {"hard": hash_files([data])}, {"temperature": 0.8}
    )
    store = TrajectoryStore(preset / "sweep" / "s1" / "table")
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[16, 64], num_problems=3, num_samples=2)
    with store.writing(manifest):
        store.append(rows)
    write_json(
        store.directory.parent / "inputs.json", {"inputs": {"benchmarks": manifest.benchmarks}, "request": REQUEST}
    )
    return preset


def test_everything_that_belongs_to_a_table_is_found_by_its_contents(preset: Path) -> None:
    sources = report_sources(preset / "sweep" / "s1" / "table", {"command": "elastic"})
    training = sources.trainings["trained"]
    assert (str(training.budget), training.base, training.asks_length) == ("48+32", "base", False)
    assert training.metrics is not None
    assert len(sources.problems) == 5
    assert sources.asked is not None
    assert (len(sources.asked.cells), sources.asked.num_problems, sources.asked.num_samples) == (4, {"hard": 5}, 2)
    assert set(sources.documents) == {"trajectory table", "sweep", "training of trained", "data of d1"}
    assert sources.provenance["command"] == "elastic"


def test_a_sweep_of_some_problems_is_reported_of_these_though_its_table_holds_more(preset: Path) -> None:
    inputs = preset / "sweep" / "s1" / "inputs.json"
    write_json(inputs, json.loads(inputs.read_text()) | {"request": REQUEST | {"problems": 4}})
    chosen = first_ids("hard", [f"{i:03}" for i in range(5)], 4)
    sources = report_sources(preset / "sweep" / "s1", {})
    begun = chosen & {"000", "001", "002"}
    assert set(sources.rows.collect()["problem"]) == begun and len(begun) > 0
    assert {problem for _, problem in sources.problems} == chosen
    assert sources.asked is not None and sources.asked.num_problems == {"hard": 4} and sources.asked.chosen
    shutil.rmtree(preset / "data")
    assert set(report_sources(preset / "sweep" / "s1", {}).rows.collect()["problem"]) == {"000", "001", "002"}


def test_the_sweep_directory_is_as_good_as_its_table(preset: Path) -> None:
    assert report_sources(preset / "sweep" / "s1", {}).trainings.keys() == {"trained"}


def test_other_weights_and_other_data_are_not_taken_for_those_of_the_table(preset: Path) -> None:
    (preset / "train" / "t1" / "model" / "model.safetensors").write_bytes(b"trained again")
    data = preset / "data" / "d1" / "hard.parquet"
    pl.read_parquet(data).head(2).write_parquet(data)
    sources = report_sources(preset / "sweep" / "s1" / "table", {})
    assert not sources.trainings
    assert not sources.problems
    assert sources.asked is not None
    assert sources.asked.num_problems == {"hard": 3}  # those that were begun


def test_a_table_that_was_moved_away_is_a_report_too(preset: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    (preset / "sweep" / "s1" / "table").rename(moved)
    sources = report_sources(moved, {})
    assert sources.asked is None
    assert sources.rows.collect().height == 24


def test_what_is_no_table_or_has_no_rows_is_one_sentence(preset: Path) -> None:
    with pytest.raises(UserError, match=r"train .*runs/PRESET/sweep/KEY/table"):
        report_sources(preset / "train", {})
    for shard in (preset / "sweep" / "s1" / "table").glob("*.parquet"):
        shard.unlink()
    with pytest.raises(UserError, match="no rows"):
        report_sources(preset / "sweep" / "s1" / "table", {})


def test_the_code_is_named_by_version_and_commit_and_the_packages_by_their_lock() -> None:
    found, root = machine(), Path(__file__).parents[2]
    commit = r", commit [0-9a-f]{12}(-dirty)?" if (root / ".git").exists() else ""
    assert re.fullmatch(rf"elastic-reasoning \d+\.\d+\.\d+\S*{commit}", found["code"])
    name, digest = found["lock"].split(", sha256 ")
    assert digest == hash_files([root / "infra" / "requirements" / name])


@pytest.mark.parametrize(("limit", "expected"), [({}, 5), ({"validation_problems": 3}, 3)])
def test_the_problems_of_a_validation_are_counted_where_its_data_is_there(
    preset: Path, limit: dict[str, int], expected: int
) -> None:
    data, stage = preset / "data" / "d1" / "hard.parquet", preset / "train" / "t1"
    metrics = pl.DataFrame({"step": [0, 2], "name": ["val-core/hard/acc/mean_at_4"] * 2, "value": [0.1, 0.2]})
    metrics.write_parquet(stage / "metrics.parquet")
    train = {"budget": "48+32", **limit}
    write_json(
        stage / "inputs.json",
        {"inputs": {"base": "b453", "train": train, "validation_data": hash_files([data])}, "request": {}},
    )
    assert report_sources(preset / "sweep" / "s1", {}).trainings["trained"].num_validation == expected
    shutil.rmtree(preset / "data")
    assert report_sources(preset / "sweep" / "s1", {}).trainings["trained"].num_validation is None
