"""Metrics of steps reach MLflow, each once, or training stops; and the model registry links to them."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.training.checkpoints import Validation
from elastic_core.training.grpo.step_metrics import EVERY_STEP, StepMetrics, check_metrics, validation_of
from tasks.records.mlflow_tracker import Tracker, flatten

VALIDATION = "val-core/miniature-validation/acc/mean@8"


def rename(name: str) -> str:
    return name.replace("@", "_at_")


@pytest.fixture
def run(tracker: Tracker, request: pytest.FixtureRequest) -> str:
    return tracker.ensure(request.node.name, "train")


def metrics(step: int, **more: float) -> dict[str, float]:
    return {name: float(step) for name in EVERY_STEP} | more


def log(client: Any, run: str, *steps: int, validated: tuple[int, ...] = (2, 4)) -> None:
    """What one life of a training sends."""
    logger = StepMetrics(client, run, rename, patience_seconds=0)
    for step in steps:
        logger.log(metrics(step, **({VALIDATION: 0.5} if step in validated else {})), step)


def test_a_step_that_a_resumed_run_repeats_is_recorded_once(tracker: Tracker, run: str) -> None:
    log(tracker.client, run, 1, 2, 3)
    log(tracker.client, run, 3, 4)  # Killed after step 3; its newest checkpoint is of step 2.
    check_metrics(tracker.client, run, steps=4, validate_every=2)


def test_the_validation_before_the_first_step_is_step_0_and_recorded_once(tracker: Tracker, run: str) -> None:
    for step in (1, 2):  # Killed before its first checkpoint, a training validates the initial model again.
        StepMetrics(tracker.client, run, rename).log({VALIDATION: 0.25}, 0)
        log(tracker.client, run, step)
    check_metrics(tracker.client, run, steps=2, validate_every=2, validate_first=True)
    assert [point.value for point in tracker.client.get_metric_history(run, rename(VALIDATION))] == [0.25, 0.5]


def test_a_missing_validation_of_the_initial_model_is_named(tracker: Tracker, run: str) -> None:
    log(tracker.client, run, 1, 2)
    with pytest.raises(RuntimeError, match=r"training/global_step lacks steps \[0\]"):
        check_metrics(tracker.client, run, steps=2, validate_every=2, validate_first=True)
    check_metrics(tracker.client, run, steps=2, validate_every=0, validate_first=True)


def test_a_step_or_a_validation_that_never_arrived_is_named(tracker: Tracker, run: str) -> None:
    log(tracker.client, run, 1, 2, 4, validated=(2,))
    with pytest.raises(RuntimeError, match=r"training/global_step lacks steps \[3\], has steps \[\] twice"):
        check_metrics(tracker.client, run, steps=4, validate_every=2)
    log(tracker.client, run, 3)
    with pytest.raises(RuntimeError, match=r"val-core/.*lacks steps \[4\]"):
        check_metrics(tracker.client, run, steps=4, validate_every=2)
    check_metrics(tracker.client, run, steps=4, validate_every=0)


class Flaky:
    """MLflow that is away for its first requests."""

    def __init__(self, client: MlflowClient, failures: int) -> None:
        self.client, self.failures = client, failures
        self.tracking_uri = client.tracking_uri

    def get_metric_history(self, run: str, name: str) -> Any:
        return self.client.get_metric_history(run, name)

    def log_batch(self, run: str, metrics: Any) -> None:
        if self.failures:
            self.failures -= 1
            # The request arrived, its answer did not.
            self.client.log_batch(run, metrics=metrics)
            raise MlflowException("connection refused")
        self.client.log_batch(run, metrics=metrics)


def test_mlflow_may_be_away_for_a_while(tracker: Tracker, run: str) -> None:
    logger = StepMetrics(Flaky(tracker.client, failures=1), run, rename)  # type: ignore[arg-type]
    logger.log(metrics(1), 1)
    check_metrics(tracker.client, run, steps=1, validate_every=0)


def test_mlflow_that_stays_away_stops_the_training(tracker: Tracker, run: str) -> None:
    with pytest.raises(UserError, match=r"took no metrics for 0 s \(connection refused\); start it and run the same"):
        log(Flaky(tracker.client, failures=9), run, 1)


def test_validation_accuracy_is_the_mean_over_sets() -> None:
    found = {"val-core/a/acc/mean@8": 0.25, "val-core/b/acc/mean@8": 0.75, "val-aux/a/forced/mean@8": 1.0}
    assert validation_of(found) == Validation(0.5, 8)
    assert validation_of({"critic/score/mean": 1.0}) is None


def test_weights_are_registered_once_with_a_link_to_their_run(tracker: Tracker, run: str) -> None:
    tags = {"step": "4", "data_manifest": "/runs/data/manifest.json"}
    assert tracker.register("elastic-smoke", "last", BASE, run, tags) == "1"
    assert tracker.register("elastic-smoke", "best", BASE, run, tags) == "1"
    version = tracker.client.get_model_version_by_alias("elastic-smoke", "best")
    assert (version.source, version.run_id) == (str(BASE), run)
    assert version.tags["elastic.data_manifest"] == "/runs/data/manifest.json"


def test_a_registered_copy_gets_what_was_written_after_it(tracker: Tracker, run: str, tmp_path: Path) -> None:
    for name in ("model", "best"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text("nothing measured yet")
    tracker.client.log_artifacts(run, str(tmp_path / "model"), "model")  # As a server has it.
    for name in ("model", "best"):
        for file in (tmp_path / name / "README.md", tmp_path / name / "budgets.json"):
            file.write_text("measured")
            tracker.renew(run, file)
    copies = tracker.client.list_artifacts(run, "model")
    assert {Path(copy.path).name for copy in copies} == {"README.md", "budgets.json"}
    for copy in copies:
        assert Path(tracker.client.download_artifacts(run, copy.path)).read_text() == "measured"
    assert not tracker.client.list_artifacts(run, "best")  # Its weights are those of the last: one copy.


def test_parameters_are_named_after_models_of_any_name(tracker: Tracker, run: str) -> None:
    tracker.log(run, params=flatten({"models": {"trained@2": "2ce1", "möd=l>1": "faa7"}}))
    params = tracker.client.get_run(run).data.params
    assert {name: params[name] for name in params if name.startswith("models.")} == {
        "models.trained-seed-2": "2ce1",
        "models.möd-l-1": "faa7",
    }
