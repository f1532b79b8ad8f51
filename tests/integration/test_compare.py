"""`elastic compare` on sweeps on disk and in a real MLflow: what it takes, what it keeps, what it refuses."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest
from mlflow import MlflowClient

from elastic_core.errors import UserError
from elastic_core.sweep.table import Manifest, TrajectoryStore
from flows.commands.cli import cli
from flows.commands.compare import comparison
from reports.comparison import paired_cells
from tasks.records.mlflow_tracker import Result, Tracker
from tests.unit.test_report_comparison import pair_rows


@pytest.fixture(scope="module")
def runs(empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runs directory and its MLflow database."""
    directory = tmp_path_factory.mktemp("runs")
    shutil.copy(empty_mlflow, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{directory / 'mlflow.db'}")
        patch.setenv("ELASTIC_RUNS", str(directory))
        yield directory


def sweep(runs: Path, key: str, sha256: str = "h", **options: object) -> Path:
    """A finished sweep's directory."""
    directory = runs / "embedded" / "sweep" / key
    store = TrajectoryStore(directory / "table")
    with store.writing(Manifest({}, {}, {"easy": sha256}, {"preset": "embedded"})):
        store.append(pair_rows(**options).drop("tokens"))
    return directory


def record(runs: Path, key: str, name: str, model: str) -> tuple[str, str]:
    """Ids of a sweep's run and of one of its cells'."""
    tracker = Tracker("embedded", runs)
    label = f"embedded/sweep/{key}"
    pipeline = tracker.ensure(f"embedded/pipeline/{key}", f"pipeline {name}")
    run_id = tracker.ensure(label, name, pipeline)
    tags = dict(zip(("model", "benchmark", "strategy", "t", "s"), (model, "easy", "separate", "48", "32"), strict=True))
    tracker.record(run_id, [Result(f"{label}/cell", f"cell of {name}", tags, {}, {})])
    found = tracker.find(f"{label}/cell")
    assert found is not None
    return run_id, found


def test_runs_are_found_by_id_name_pipeline_cell_and_directory(runs: Path) -> None:
    first, second = sweep(runs, "a", models=["base"]), sweep(runs, "b", models=["trained"])
    (id_a, cell_a), (id_b, cell_b) = record(runs, "a", "first", "base"), record(runs, "b", "second", "trained")
    whole = {
        comparison(*pair, runs).split("\n", 2)[2].rpartition("\n")[0]
        for pair in (
            (str(first), str(second / "table")),
            (id_a, id_b),
            ("first", "second"),
            ("pipeline first", "pipeline second"),
        )
    }
    assert len(whole) == 1 and whole.pop().count("base → trained") == 7
    assert comparison(cell_a, cell_b, runs).count("base → trained") == 1


def test_mlflow_keeps_the_table_and_the_differences_over_tokens(runs: Path) -> None:
    directories = [str(sweep(runs, key)) for key in "cd"]
    shown = comparison(*directories, runs)
    run_id = shown.rpartition(" ")[2]
    assert comparison(*directories, runs).rpartition(" ")[2] == run_id, "the same comparison is the same run"
    client = MlflowClient()
    run = client.get_run(run_id)
    assert run.data.tags["stage"] == "compare" and run.info.status == "FINISHED"
    table = json.loads(Path(client.download_artifacts(run_id, "comparison.json", str(runs))).read_text())
    assert len(table["data"]) == 14 and {"difference", "difference_low", "num_problems"} <= set(table["columns"])
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "comparison.json", "type": "table"}]
    assert "difference/easy/trained/separate" in run.data.metrics
    history = client.get_metric_history(run_id, "difference/easy/trained/separate")
    assert {metric.step for metric in history} == {
        round(row["tokens_a"])
        for row in paired_cells(pair_rows(), pair_rows()).filter(model="trained", strategy="separate").to_dicts()
    }


def test_a_comparison_of_sweeps_that_have_grown_holds_their_new_points_only(runs: Path) -> None:
    first, second = (sweep(runs, key, num_samples=2) for key in "gh")
    before = comparison(str(first), str(second), runs).rpartition(" ")[2]
    shutil.rmtree(second)
    sweep(runs, "h", num_samples=4)
    after = comparison(str(first), str(second), runs).rpartition(" ")[2]
    assert after != before and MlflowClient().get_run(before).info.lifecycle_stage == "deleted"
    table = paired_cells(pair_rows(num_samples=2), pair_rows(num_samples=4)).filter(
        model="trained", strategy="separate"
    )
    history = MlflowClient().get_metric_history(after, "difference/easy/trained/separate")
    expected = {(round(row["tokens_a"]), row["difference"]) for row in table.to_dicts()}
    assert {(point.step, point.value) for point in history} == expected


def refusal(*arguments: str) -> str:
    error = click.testing.CliRunner().invoke(cli, ["compare", *arguments]).exception
    assert isinstance(error, UserError), error
    return str(error)


def test_what_cannot_be_compared_is_one_sentence(runs: Path) -> None:
    directory = str(sweep(runs, "e"))
    assert "no directory, MLflow run id or MLflow run name 'nowhere'" in refusal(directory, "nowhere")
    assert "is not a trajectory table; its tables are" in refusal(directory, str(runs))
    other = str(sweep(runs, "f", sha256="of other problems"))
    assert "easy " in refusal(directory, other)
    tracker = Tracker("embedded", runs)
    for label in ("x", "y"):
        tracker.ensure(label, "twice")
    assert "'twice'; give an id: " in refusal(directory, "twice")
    tracker.ensure("embedded/train/z", "train")
    assert "is not a sweep" in refusal(directory, "train")
    assert "no directory" in refusal(directory, 'it\'s "quoted"')
