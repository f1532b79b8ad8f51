"""Change this setting, or this file of the project: exactly these stages run again."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.data.build import build
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.system import fingerprint
from flows import presets
from flows.commands.run import finished
from flows.runtime.run import FlowRun
from tasks.records.stage_directory import TABLE

PROJECT = Path(__file__).parents[2]
SMALL = {
    "base": "shipped", "sweep.models": ["base"], "warm_start.initial": "shipped",
    "data.miniature.num_train": 64, "data.miniature.problems_per_benchmark": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def stages(runs: Path, changes: dict[str, Any]) -> dict[str, Path]:
    """Markers of all stages, by name; the data is built, as what follows depends on what it is and not on its key."""
    run = FlowRun(presets.resolve("smoke", SMALL | changes), runs)
    if not run.data.is_done:
        build(run.build, run.data.directory)
        run.data.marker.touch()
    with TrajectoryStore(run.sweep.directory / TABLE).writing(Manifest({}, {}, {}, {})):
        pass  # A report needs a table.
    found = [run.data, run.warm_start, *run.trainings.values(), run.sweep, run.report()]
    return {stage.name: stage.marker for stage in found}


@pytest.fixture(scope="module")
def before(runs: Path) -> dict[str, Path]:
    """Nothing changed."""
    return stages(runs, {})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's code."""
    copy = tmp_path_factory.mktemp("project")
    for folder in ("elastic_core", "reports", "tasks", "flows"):
        shutil.copytree(PROJECT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "base"))
    return copy


def again(before: dict[str, Path], after: dict[str, Path]) -> set[str]:
    return {name for name, marker in before.items() if after[name] != marker}


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("data.miniature.num_train", 65, {"data", "train", "report"}),
        ("data.miniature.evaluation_seed", 4242, {"data", "sweep", "report"}),
        ("data.common_ngrams", 10, {"data", "report"}),
        ("data.decontaminate", False, {"data", "report"}),
        ("data.decontaminate", True, set()),
        ("data.max_tests", 15, {"data", "report"}),
        ("train.mask_truncated_samples", True, {"train", "report"}),
        ("train.mask_truncated_samples", False, set()),
        ("sweep.strategies_of", {}, set()),
        ("sweep.max_response_tokens", 64, {"sweep", "report"}),
        ("sweep.max_response_tokens", None, set()),
        ("warm_start.learning_rate", 2e-4, {"warm-start", "report"}),
        ("train.learning_rate", 2e-4, {"train", "report"}),
        ("train.budget", "16+16", {"train", "report"}),
        ("train.rollout_workers", 3, {"report"}),
        ("train.memory_fraction", 0.3, {"report"}),
        ("train.keep_checkpoints", 5, {"report"}),
        ("train.start_timeout_seconds", 9999, {"report"}),
        ("sweep.samples", 9, {"sweep", "report"}),
        ("sweep.grading", "ours", set()),
        ("sweep.grading", "elastic-reasoning", {"sweep", "report"}),
        ("sweep.strategies", ["separate"], {"sweep", "report"}),
        ("sweep.temperature", 0.9, {"sweep", "report"}),
        ("engine.max_model_len", 190, {"sweep", "report"}),
        ("engine.max_num_seqs", 3, {"report"}),
        ("mlflow.tracking_uri", "http://127.0.0.1:1", {"report"}),
    ],
)
def test_a_setting(runs: Path, before: dict[str, Path], setting: str, value: Any, expected: set[str]) -> None:
    """The report tells all settings, so each of them makes it anew."""
    assert again(before, stages(runs, {setting: value})) == expected


@pytest.mark.parametrize(
    "setting", ["train.rollout_workers", "train.memory_fraction", "sweep.samples", "sweep.grading"]
)
def test_what_is_asked_for_or_how_it_runs_is_no_other_place(runs: Path, before: dict[str, Path], setting: str) -> None:
    after = stages(
        runs, {setting: {"train.memory_fraction": 0.3, "sweep.grading": "elastic-reasoning"}.get(setting, 9)}
    )
    assert {name: marker.parent for name, marker in before.items()} == {n: m.parent for n, m in after.items()}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("elastic_core/miniature/problems.py", {"data", "warm-start"}),
        ("elastic_core/miniature/corpus.py", {"warm-start"}),
        ("elastic_core/miniature/warm_start.py", {"warm-start"}),
        ("elastic_core/data/mapping.py", {"data"}),
        ("elastic_core/rewards/truth.py", {"data", "report"}),
        ("elastic_core/rewards/code/sandbox.py", set()),
        ("elastic_core/engines/vllm.py", set()),
        ("elastic_core/statistics/accuracy.py", {"report"}),
        ("reports/tables/costs.py", {"report"}),
        ("reports/assets/reader.js", {"report"}),
        ("flows/commands/cli.py", set()),
    ],
)
def test_a_file_of_the_project(
    runs: Path,
    before: dict[str, Path],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    expected: set[str],
) -> None:
    changed = project / file
    text = changed.read_text() if changed.exists() else None
    changed.write_text((text or "") + "\n")
    monkeypatch.setattr(fingerprint, "_PROJECT", project)
    monkeypatch.setattr("flows.runtime.stages.reports.__file__", str(project / "reports" / "__init__.py"))
    fingerprint.source_fingerprint.cache_clear()
    try:
        assert again(before, stages(runs, {})) == expected
    finally:
        changed.unlink() if text is None else changed.write_text(text)
        fingerprint.source_fingerprint.cache_clear()


@pytest.mark.parametrize("flow", ["prepare-data", "train", "sweep", "report", "pipeline"])
def test_a_flow_is_finished_when_all_its_stages_are(runs: Path, monkeypatch: pytest.MonkeyPatch, flow: str) -> None:
    """It is then known what it returns, and no server is started."""
    monkeypatch.setenv("ELASTIC_RUNS", str(runs))
    monkeypatch.setattr("flows.sweep.conclusion", lambda run: "separate beats vanilla")  # Of a table without rows.
    changes = SMALL | {"warm_start.learning_rate": 3e-4}
    markers = stages(runs, changes)
    names = {
        "prepare-data": ["data"], "train": ["data", "train"], "sweep": ["data", "sweep"], "report": ["sweep", "report"],
        "pipeline": ["data", "train", "sweep", "report"],
    }[flow]  # fmt: skip
    for name in names:
        markers[name].unlink(missing_ok=True)
    run = FlowRun(presets.resolve("smoke", changes), runs)
    for name in names:
        assert finished(flow, run) is None
        markers[name].parent.mkdir(parents=True, exist_ok=True)
        markers[name].touch()
    done = finished(flow, run)
    last = markers[names[-1]].parent
    result = {"prepare-data": last, "train": last / "model", "sweep": last / "table"}.get(flow, last / "report.html")
    assert done == (result, "separate beats vanilla" if flow == "sweep" else "")


def test_what_does_more_than_its_stages_leave_is_never_finished(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(runs))
    for marker in stages(runs, SMALL).values():
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    run = FlowRun(presets.resolve("smoke", SMALL), runs)
    assert finished("pipeline", run) is not None
    assert not any(finished(flow, run) for flow in ("nightly", "ablation"))


def test_a_stage_is_performed_until_it_succeeds_and_then_answered_by_its_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefect.get_run_logger", lambda: logging.getLogger("flow"))
    outcomes: list[Any] = [RuntimeError("lost"), {"rows": 3}]

    class Fake:
        def with_options(self, **_: Any) -> Fake:
            return self

        def __call__(self, *_: Any) -> Any:
            if isinstance(outcome := outcomes.pop(0), Exception):
                raise outcome
            return outcome

    run = FlowRun(presets.resolve("smoke"), tmp_path)
    run.__dict__["tracker"] = SimpleNamespace(find=lambda label: None)
    task: Any = Fake()
    stage = run.stage("sweep", {"seed": 1})
    with pytest.raises(RuntimeError, match="lost"):
        run.perform(task, stage)
    assert not stage.is_done
    for _ in range(2):  # The second time there is no outcome left.
        run.perform(task, stage)
    assert stage.is_done and json.loads(stage.marker.read_text()) == {"result": {"rows": 3}}
