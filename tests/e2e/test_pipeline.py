"""The embedded pipeline in small, with the real Prefect, Ray, verl, vLLM and MLflow, as a user runs it."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from mlflow import MlflowClient

from elastic_core.errors import UserError
from elastic_core.sweep.table import SweepTable, TrajectoryStore
from elastic_core.trajectory import CELL, KEY, SCHEMA
from tests.e2e.conftest import WatchedRun
from tests.elastic_command import elastic_here
from tests.exactness import broken_rules, recorded
from tests.gpu.check import measured

CELL_KEYS = {
    *CELL, "num_problems", "num_samples", "avg_at_k", "ci_low", "ci_high", "tokens_mean", "think_tokens_mean",
    "solution_tokens_mean", "forced_fraction",
}  # fmt: skip


def test_the_last_line_is_the_report(first: subprocess.CompletedProcess[str], runs: Path) -> None:
    assert first.returncode == 0, first.stdout[-6000:]
    report = Path(first.stdout.strip().splitlines()[-1])
    assert report.is_relative_to(runs)
    assert "Accuracy" in report.read_text()


def test_every_stage_tells_its_time_and_little_else_is_told(first: subprocess.CompletedProcess[str]) -> None:
    stages = ("data", "train", "sweep", "report")
    for stage in stages:
        assert f"{stage}: finished in" in first.stdout
    last = next(line for line in first.stdout.splitlines() if line.startswith("pipeline finished in"))
    assert all(f"{stage} " in last for stage in stages)
    for chatter in ("INFO", "Flow run", "mlflow", "Ray cluster"):
        assert chatter not in first.stdout


def test_nothing_listens_where_another_machine_could_call(watched_run: WatchedRun) -> None:
    """Prefect's server, Ray, torch.distributed in training, vLLM, TransferQueue."""
    finished, places, _ = watched_run
    assert finished.returncode == 0, finished.stdout[-6000:]
    for part in ("prefect.server", "gcs_server", "raylet", "WorkerDict"):
        assert any(part in place.command for place in places), f"{part} was not seen: {places}"
    assert not [place for place in places if not place.is_loopback]


def test_no_other_user_gets_to_a_socket_or_a_file_of_it(watched_run: WatchedRun) -> None:
    """Ray's, vLLM's, verl's, torch's, in /tmp and /dev/shm."""
    finished, _, files = watched_run
    assert finished.returncode == 0, finished.stdout[-6000:]
    for part in ("/sockets/raylet", "/sockets/plasma_store"):
        assert any(part in each.path for each in files), f"{part} was not seen: {files}"
    assert any(re.fullmatch(r"[0-9a-f-]{36}", Path(each.path).name) for each in files), f"none of vLLM's: {files}"
    assert not [each for each in files if each.exposed]


def test_the_table_holds_every_cell_once_and_no_budget_is_exceeded(table: pl.DataFrame) -> None:
    assert table.schema == SCHEMA
    assert table.height == table.n_unique(KEY) > 0
    assert set(table["strategy"]) == {"vanilla", "budget_forcing", "separate", "reasonflux_zero", "unconstrained"}
    assert set(table["model"]) == {"base", "trained"}
    assert broken_rules(table) == {}


def test_the_summary_is_the_table_cell_by_cell(table: pl.DataFrame, runs: Path) -> None:
    cells = json.loads((runs / "smoke" / "report" / "summary.json").read_text())["cells"]
    assert all(set(cell) >= CELL_KEYS for cell in cells)
    for cell in cells:
        rows = table.filter(*(pl.col(key).eq_missing(cell[key]) for key in CELL))
        assert rows.height == cell["num_problems"] * cell["num_samples"]
        assert rows["score"].mean() == pytest.approx(cell["avg_at_k"], abs=1e-6)
        assert cell["ci_low"] <= cell["avg_at_k"] <= cell["ci_high"]


def test_mlflow_holds_pipeline_stages_and_cells(table: pl.DataFrame, runs: Path) -> None:
    everything = recorded(MlflowClient(f"sqlite:///{runs / 'mlflow.db'}"))
    runs_by_name = {run.info.run_name: run for run in everything}
    parent = runs_by_name["pipeline"]
    for stage in ("train", "sweep", "report"):
        assert runs_by_name[stage].data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert runs_by_name[stage].info.status == "FINISHED"
    # verl goes on in silence when MLflow fails, so its metrics are looked for here.
    assert "critic/score/mean" in runs_by_name["train"].data.metrics
    below = [r for r in everything if r.data.tags.get("mlflow.parentRunId") == runs_by_name["sweep"].info.run_id]
    cells = [run for run in below if run.data.tags["stage"] == "cell"]
    assert len(cells) == table.select(CELL).n_unique()
    assert all({"avg_at_k", "avg_at_k_low", "avg_at_k_high"} <= set(cell.data.metrics) for cell in cells)
    (trained,) = [cell for cell in cells if cell.info.run_name == "trained · miniature-easy · separate 48+32"]
    assert (trained.data.params["train_budget"], trained.data.params["train_steps"]) == ("48+32", "2")
    curves = {run.info.run_name: run.data for run in below if run.data.tags["stage"] == "curve"}
    assert curves.keys() == {"base · over tokens", "trained · over tokens"}
    assert all("accuracy in percent over tokens/miniature-easy/separate" in curve.metrics for curve in curves.values())
    headline = {"star/miniature-easy/trained/separate", "gain/miniature-easy/trained/separate_low"}
    headline |= {"anytime/miniature-easy/base/separate", "free_tokens/miniature-easy/trained/unconstrained"}
    assert headline <= runs_by_name["report"].data.metrics.keys() & parent.data.metrics.keys()
    assert {"seconds/train", "seconds/sweep", "seconds/report"} <= parent.data.metrics.keys()
    assert 0 < runs_by_name["train"].data.metrics["first_step_seconds"] < parent.data.metrics["seconds/train"]
    assert len(runs_by_name["train"].data.params) < 40, "verl's thousand are an artifact"


def test_running_it_again_does_nothing_and_says_so(table: pl.DataFrame, runs: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in runs.glob("smoke/**/*") if file.is_file()}
    for preset in ("smoke", str(runs / "smoke" / "settings.toml")):
        again = elastic_here("run", "pipeline", "--preset", preset, runs=runs)
        assert again.returncode == 0, again.stdout[-6000:]
        (line,) = again.stdout.splitlines()
        assert line.startswith("pipeline: done before, nothing to do: /") and line.endswith("/report.html")
    assert {file: file.stat().st_mtime_ns for file in runs.glob("smoke/**/*") if file.is_file()} == before


def test_the_sweep_says_on_the_models_card_what_it_measured(
    first: subprocess.CompletedProcess[str], runs: Path
) -> None:
    (card,) = runs.glob("smoke/train/*/model/README.md")
    assert "| separate |" in card.read_text() and "no finished sweep" not in card.read_text()


def test_a_grade_that_was_wrong_is_put_right(table: pl.DataFrame, runs: Path, tmp_path: Path) -> None:
    (original,) = runs.glob("smoke/sweep/*/table")
    copy = tmp_path / "table"
    store = TrajectoryStore(copy)
    with store.writing(replace(SweepTable(original).manifest, stores={})):
        store.append(table.with_columns(score=1 - pl.col("score"), grade_status=pl.lit("wrong")))
    missing = elastic_here("data", "regrade", str(copy), runs=runs)
    assert missing.returncode == 2 and "give --data DIRECTORY" in missing.stdout
    (data,) = (file.parent for file in runs.glob("smoke/data/*/manifest.json"))
    result = elastic_here("data", "regrade", str(copy), "--data", str(data), runs=runs)
    assert result.returncode == 0, result.stdout[-3000:]
    key = list(KEY)
    assert store.read().sort(key).equals(table.sort(key))
    assert "not a trajectory table" in elastic_here("data", "regrade", str(runs), runs=runs).stdout


def test_make_gpu_reads_what_a_sweep_measured(table: pl.DataFrame, runs: Path) -> None:
    (directory,) = runs.glob("smoke/sweep/*/table")
    told = f"12 problems × 2 samples; models base, trained; .*; {table.height} rows"
    assert re.fullmatch(told, measured(directory, expected=12))
    with pytest.raises(UserError, match="expected 13 problems"):
        measured(directory, expected=13)
