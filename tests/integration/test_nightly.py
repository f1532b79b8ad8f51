"""The nightly measurement: what it takes on an empty directory and after a training, and its history by date."""

import logging
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
from mlflow.entities import Run

from elastic_core.data.build import build
from elastic_core.miniature.warm_start import BASE
from elastic_core.statistics.accuracy import paired_difference
from flows import nightly, presets
from flows.nightly import NEWEST, nightly_overrides, record_night
from flows.runtime.run import FlowRun
from reports.summary import summarize
from tasks.records.mlflow_tracker import Tracker
from tests.unit.test_report_summary import make_rows

FIRST, SECOND = date(2026, 11, 22), date(2026, 11, 23)
RUN = "smoke/nightly/0123"


def night(budgets: list[int | None], models: tuple[str, ...]) -> pl.DataFrame:
    rows = make_rows(models=models, benchmarks=["easy"], strategies=["separate"], budgets=budgets, num_problems=6)
    return rows.with_columns(model=pl.col("model").replace("trained", NEWEST))


def test_an_empty_directory_has_base_alone_and_every_night_draws_anew() -> None:
    settings = presets.resolve("embedded")
    first, second = (presets.resolve("embedded", nightly_overrides(settings, on, None)).sweep for on in (FIRST, SECOND))
    assert first.models == second.models == ["base"]
    assert (first.seed, second.seed) == (20261122, 20261123)
    assert first.model_copy(update={"seed": second.seed}) == second


@pytest.mark.parametrize(
    ("preset", "overrides", "expected"),
    [
        ("embedded", {}, ["base", NEWEST]),
        ("embedded", {"sweep.models": ["trained", "base>trained"]}, ["base", NEWEST]),
        ("ablation-e1-math-1.5b", {}, ["base", NEWEST]),
        ("evaluate-e1-acereason-14b", {}, ["base", "E1-AceReason-14B", NEWEST]),
    ],
)
def test_the_newest_model_takes_the_place_of_what_training_leaves(
    preset: str, overrides: dict[str, object], expected: list[str]
) -> None:
    settings = presets.resolve(preset, overrides)
    sweep = presets.resolve(preset, {**overrides, **nightly_overrides(settings, FIRST, Path("/newest"))}).sweep
    assert sweep.models == expected
    assert sweep.checkpoints == {**settings.sweep.checkpoints, NEWEST: "/newest"}


def test_the_newest_model_is_where_training_left_it_or_a_copy_of_the_servers(tracker: Tracker, tmp_path: Path) -> None:
    assert tracker.newest("elastic-nights", tmp_path) is None
    run = tracker.ensure("nights/train/k", "train")
    tags = {"stage": "nights/train/k"}
    left = tmp_path / "nights" / "train" / "k" / "model"
    version = tracker.register("elastic-nights", "best", BASE, run, tags)
    assert tracker.newest("elastic-nights", tmp_path) is None, "the best is not the newest"
    tracker.register("elastic-nights", "last", BASE, run, tags)
    tracker.client.log_artifacts(run, str(BASE), BASE.name)  # As a server has it.
    for _ in range(2):
        found = tracker.newest("elastic-nights", tmp_path)
        assert found == (version, tmp_path / "nights" / "registered" / version / BASE.name)
        assert (found[1] / "model.safetensors").read_bytes() == (BASE / "model.safetensors").read_bytes()
    left.with_name(BASE.name).mkdir(parents=True)
    assert tracker.newest("elastic-nights", tmp_path) == (version, left.with_name(BASE.name))


def histories(tracker: Tracker) -> dict[str, Run]:
    parent = tracker.find(RUN)
    found = tracker.client.search_runs([tracker.experiment_id], f"tags.`mlflow.parentRunId` = '{parent}'")
    return {run.data.tags["model"]: run for run in found}


def points(tracker: Tracker, run_id: str, metric: str) -> dict[date, float]:
    history = tracker.client.get_metric_history(run_id, metric)
    days = [datetime.fromtimestamp(point.timestamp / 1000, UTC).date() for point in history]
    assert len(set(days)) == len(days) and [(day - date(1970, 1, 1)).days for day in days] == [p.step for p in history]
    return dict(zip(days, (point.value for point in history), strict=True))


def test_every_night_adds_a_point_to_a_chart_of_accuracy_at_a_budget_by_date(tracker: Tracker) -> None:
    """The first night has base alone, the second a model too; that one is recorded twice, as after a crash."""
    alone, both = night([16, 48], ("base",)), night([16, 48], ("base", "trained"))
    for on, rows, version in ((FIRST, alone, None), (SECOND, both, "3"), (SECOND, both, "3")):
        record_night(tracker, RUN, rows, on, version)
    runs, metric = histories(tracker), "accuracy/easy/separate/48-32"
    (base,) = summarize(both).filter(model="base", think_budget=48).to_dicts()
    (newest,) = summarize(both).filter(model=NEWEST, think_budget=48).to_dicts()
    assert points(tracker, runs["base"].info.run_id, metric)[SECOND] == base["avg_at_k"]
    assert points(tracker, runs["base"].info.run_id, metric).keys() == {FIRST, SECOND}
    assert points(tracker, runs[NEWEST].info.run_id, metric) == {SECOND: newest["avg_at_k"]}
    assert points(tracker, runs[NEWEST].info.run_id, f"{metric}_low") == {SECOND: newest["ci_low"]}
    assert points(tracker, runs[NEWEST].info.run_id, "model_version") == {SECOND: 3.0}
    parent = tracker.find(RUN)
    assert parent is not None
    gain = paired_difference(both.filter(model=NEWEST), both.filter(model="base"))
    for end, value in zip(("", "_low", "_high"), gain[:3], strict=True):
        assert points(tracker, parent, f"gain/easy/{NEWEST}/separate{end}") == {SECOND: pytest.approx(value)}
    assert points(tracker, parent, "anytime/easy/base/separate").keys() == {FIRST, SECOND}
    note = tracker.client.get_run(parent).data.tags["mlflow.note.content"]
    assert "[easy, separate 48+32](#/metric?runs=" in note and all(run.info.run_id in note for run in runs.values())


@pytest.fixture
def measured(tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[FlowRun]:
    """What was measured by nights in an empty directory, with everything but engines."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.tracking_uri)

    def build_data(run: FlowRun) -> None:
        if not run.data.is_done:
            build(run.build, run.data.directory)
            run.data.marker.touch()

    runs: list[FlowRun] = []

    def measure_grid(run: FlowRun) -> None:
        assert presets.resolve(run.preset, run.overrides) == run.settings
        runs.append(run)

    def measured_cells(run: FlowRun) -> pl.DataFrame:
        return night([16, 48], ("base", "trained")).filter(pl.col("model").is_in(run.settings.measured))

    for stand_in in (measure_grid, measured_cells):
        monkeypatch.setattr(nightly, stand_in.__name__, stand_in)
    monkeypatch.setattr(nightly, "run_prepare_data", build_data)
    monkeypatch.setattr(nightly, "get_run_logger", lambda: logging.getLogger("nightly"))
    return runs


def test_nights_before_and_after_a_training_are_one_history(
    tracker: Tracker, tmp_path: Path, measured: list[FlowRun]
) -> None:
    small = {"base": "shipped", "data.miniature.num_train": 64, "data.miniature.problems_per_benchmark": 4}
    run = FlowRun(presets.resolve("smoke", small), tmp_path, overrides=small)
    tables = [nightly.measure_night(run, FIRST)]
    left = tmp_path / "smoke" / "train" / "k" / "model"
    shutil.copytree(BASE, left)
    training = tracker.ensure("smoke/train/k", "train")
    tracker.register("elastic-smoke", "last", left, training, {"stage": "smoke/train/k"})
    tables += [nightly.measure_night(run, SECOND)]
    assert [run.settings.sweep.models for run in measured] == [["base"], ["base", NEWEST]]
    assert measured[1].settings.sweep.checkpoints[NEWEST] == str(left)
    assert len({table.parent for table in tables}) == 2, "other samples lie in another table"
    (parent,) = {run.parent for run in measured}
    assert parent is not None and tracker.client.get_run(parent).info.status == "FINISHED"
    assert points(tracker, parent, "anytime/easy/base/separate").keys() == {FIRST, SECOND}
    assert points(tracker, parent, f"gain/easy/{NEWEST}/separate").keys() == {SECOND}
    assert nightly.history_label(measured[0]) == nightly.history_label(measured[1])
    colder = FlowRun(presets.resolve("smoke", {**small, "sweep.models": ["base"], "sweep.temperature": 0.1}), tmp_path)
    assert nightly.history_label(colder) != nightly.history_label(measured[0])
