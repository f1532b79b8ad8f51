"""The report of a Codeforces sweep: made again once the standings are there, recorded in MLflow, and rated wherever it
is made from."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from click.testing import CliRunner
from prefect.testing.utilities import prefect_test_harness

from elastic_core.data.problems import VERL_SCHEMA
from elastic_core.rewards.codeforces import SAMPLE_TESTS_NOTE
from elastic_core.rewards.codeforces.standings import API_VARIABLE
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.system.fingerprint import hash_files
from flows import sweep as sweep_flow
from flows.commands.report import report as report_command
from flows.runtime.stages import Stages
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import TABLE, Stage
from tests.data_server import Server
from tests.integration.test_standings import api  # noqa: F401 (a fixture)
from tests.report_tables import row, table

CODEFORCES = "codeforces"
RATED = "## Codeforces ratings"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A runs directory, and a Prefect of its own."""
    runs = tmp_path / "runs"
    mlflow = f"sqlite:///{runs / 'mlflow.db'}"
    with (
        mock.patch.dict(os.environ, {"ELASTIC_RUNS": str(runs), "MLFLOW_TRACKING_URI": mlflow}),
        prefect_test_harness(server_startup_timeout=600),
    ):
        yield runs


@pytest.fixture
def sweep(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A finished sweep of contest 1, with its data."""
    data = runs / "smoke" / "data" / "key"
    data.mkdir(parents=True)
    problem = {
        "data_source": CODEFORCES,
        "prompt": [{"role": "user", "content": "Add."}],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": "{}"},
        "extra_info": {"split": "test", "index": 0, "id": "1A", "grader": "code"},
    }
    problems = data / "codeforces.parquet"
    pl.DataFrame([problem], schema=VERL_SCHEMA).write_parquet(problems)
    pl.DataFrame({"rating": [800, 2400], "users": [90, 10]}).write_parquet(data / "codeforces-ratings.parquet")
    (data / "manifest.json").write_text("{}")
    stage = Stage(runs, "smoke", "sweep", {"test": "codeforces"})
    store = TrajectoryStore(stage.directory / TABLE)
    rows = [row(benchmark=CODEFORCES, problem="1A", sample=sample, seed=0) for sample in range(2)]
    with store.writing(Manifest({"base": "b453"}, {}, {CODEFORCES: hash_files([problems])}, {})):
        store.append(table(*rows))
    stage.marker.write_text("{}")

    def data_files(self: Stages, names: list[str]) -> list[Path]:
        return [data / f"{name}.parquet" for name in names]

    monkeypatch.setattr(Stages, "sweep", stage)
    monkeypatch.setattr(Stages, "data_files", data_files)
    return stage


@pytest.mark.slow
def test_a_report_without_standings_is_made_again_once_they_can_be_fetched(
    runs: Path,
    sweep: Stage,
    api: Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overrides = {"data.benchmarks": [CODEFORCES]}
    monkeypatch.setenv(API_VARIABLE, "nowhere")
    text = sweep_flow.report("smoke", overrides).read_text()
    assert "none of 1 contests" in text and SAMPLE_TESTS_NOTE in text

    monkeypatch.setenv(API_VARIABLE, api.url)
    report = sweep_flow.report("smoke", overrides)
    assert RATED in report.read_text()

    made = report.stat().st_mtime_ns
    assert sweep_flow.report("smoke", overrides).stat().st_mtime_ns == made, "nothing was new"

    tracker = Tracker("smoke", runs)
    run_id = tracker.find("smoke/report/" + Stage(runs, "smoke", "report", {}).key)
    assert run_id is not None
    assert {"report.html", "report.md"} <= {file.path for file in tracker.client.list_artifacts(run_id)}
    assert "figures/accuracy_vs_tokens.png" in {file.path for file in tracker.client.list_artifacts(run_id, "figures")}

    done = CliRunner().invoke(report_command, ["--from", str(sweep.directory / TABLE)], catch_exceptions=False)
    assert done.exit_code == 0
    elsewhere = (sweep.directory / "report" / "report.md").read_text()
    assert RATED in elsewhere and SAMPLE_TESTS_NOTE in elsewhere
