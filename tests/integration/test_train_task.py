"""The training task around its job: nothing is published without every metric, one follower at a time, and a failure
is what is raised, whatever else fails."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from elastic_core.errors import UserError
from elastic_core.system.files import exclusive
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.grpo.step_metrics import EVERY_STEP
from tasks import train
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import METRICS, Stage

PARAMETERS = GrpoParameters(steps=3, validate_every=0)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A training whose last checkpoint is there, and that was not published."""
    monkeypatch.setattr("elastic_core.training.grpo.config.compose", lambda *args, **job: None)
    stage = Stage(tmp_path, "smoke", "train", {"test": str(tmp_path)})
    (stage.directory / "checkpoints" / "global_step_3").mkdir(parents=True)
    return stage


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    published: list[Stage] = []
    monkeypatch.setattr(train, "publish", lambda stage, *rest: published.append(stage))
    return published


def run(stage: Stage, tracker: Tracker) -> dict[str, Any]:
    files = [stage.runs / "data.parquet"]
    return train.train_policy.fn(stage, tracker, None, PARAMETERS, None, stage.runs, files, files)


def log(stage: Stage, tracker: Tracker, *steps: int) -> None:
    tracker.log_points(
        tracker.ensure(stage.label, "train"), [(name, step, 0.5) for name in EVERY_STEP for step in steps]
    )


def test_a_training_is_published_once_and_only_with_every_metric(
    stage: Stage, tracker: Tracker, published: list[Stage]
) -> None:
    log(stage, tracker, 1, 3)
    for _ in range(2):  # Run again, it is not taken for done.
        with pytest.raises(UserError, match=r"lacks steps \[2\].*; delete that run and .* to train anew"):
            run(stage, tracker)
    assert not published and not (stage.directory / METRICS).exists()
    log(stage, tracker, 2)
    done = run(stage, tracker)
    assert published == [stage] and (stage.directory / METRICS).exists()
    assert tracker.client.get_run(done["mlflow_run"]).info.status == "FINISHED"
    tracker.client.update_run(done["mlflow_run"], "RUNNING")
    assert run(stage, tracker) == done  # After a kill at its very end, or having queued for it.
    assert published == [stage]
    assert tracker.client.get_run(done["mlflow_run"]).info.status == "FINISHED"


def test_a_training_that_runs_already_is_named_and_left_alone(
    stage: Stage, tracker: Tracker, published: list[Stage]
) -> None:
    log(stage, tracker, 1, 2, 3)
    with (
        exclusive(stage.directory),
        pytest.raises(UserError, match=r"process \d+ on .* is at this training; wait for it, or stop it"),
    ):
        run(stage, tracker)
    assert not published
    run(stage, tracker)
    assert published


def test_what_failed_is_raised_though_mlflow_is_away(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*args: Any) -> None:
        raise MlflowException("connection refused")

    run_id = tracker.ensure("away", "train")
    monkeypatch.setattr(tracker.client, "set_terminated", away)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(UserError, match="took no metrics"),
        tracker.running(run_id),
    ):
        raise UserError("MLflow took no metrics for 600 s")
    assert run_id in caplog.text and "connection refused" in caplog.text


def test_the_training_s_own_warnings_reach_whoever_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(train, "get_run_logger", lambda: SimpleNamespace(warning=shown.append))
    monkeypatch.setattr(train, "_job_logger", lambda: logging.getLogger("job"))
    lines = train._Lines()
    lines.pass_on("\x1b[36m(ElasticTaskRunner pid=7)\x1b[0m training warning: nothing was learned in steps 1 to 5")
    lines.pass_on("(ElasticTaskRunner pid=7) step:5 - rollout/acc:0.0")
    assert shown == lines.warnings == ["nothing was learned in steps 1 to 5"]
