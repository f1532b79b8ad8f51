"""GRPO on real vLLM and verl as a Ray job: killed after a step, resumed to its end, with its metrics in MLflow."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

import elastic_core.miniature
from elastic_core.data.miniature import TRAIN, VALIDATION, MiniatureParameters
from elastic_core.fingerprint import model_fingerprint
from elastic_core.training import export, launch, train_main
from elastic_core.training.config import GrpoParameters, compose
from elastic_core.training.local_ray import local_cluster
from elastic_core.training.resources import InsufficientResources, Resources, check_resources, required_resources
from tests.miniature_data import build_miniature

BASE = Path(elastic_core.miniature.__file__).parent / "base"
PARAMETERS = GrpoParameters(
    budget="16+16",
    steps=8,
    batch_size=8,
    mini_batch_size=8,
    group_size=4,
    learning_rate=1e-4,
    kl_coefficient=0,
    entropy_coefficient=0,
    temperature=1.0,
    reuse_rollout_logprobs=True,
    prompt_tokens=32,
    save_every=1,
    validate_every=8,
    validation_samples=1,
    validation_temperature=0,
    device="cpu",
    gpus_per_node=1,
    tokens_per_device=4096,
    rollout_workers=1,
)


class Killed(Exception):
    pass


def kill_after_first_step(step: int) -> None:
    raise Killed


@pytest.mark.timeout(600)
def test_a_killed_training_resumes_to_its_end(tmp_path: Path) -> None:
    data, out_dir = tmp_path / "data", tmp_path / "checkpoints"
    sizes = MiniatureParameters(num_train=24, hard_fraction=0, evaluation_seed=0, problems_per_benchmark=1)
    build_miniature(sizes, data)
    config = compose(
        PARAMETERS,
        model=BASE,
        train_files=[data / f"{TRAIN}.parquet"],
        validation_files=[data / f"{VALIDATION}.parquet"],
        out_dir=out_dir,
        run_name="test",
        mlflow=True,
    )
    mlflow = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    run = mlflow.create_run(mlflow.create_experiment("test", (tmp_path / "artifacts").as_uri())).info.run_id
    environment = launch.job_environment(config) | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "MLFLOW_RUN_ID": run,
    }
    file, log = tmp_path / "verl.yaml", tmp_path / "train.log"
    # The fewest logical CPUs that training can be placed on.
    required = required_resources(config)
    with local_cluster(cpus=required.cpus + required.shared_cpus) as cluster:
        with pytest.raises(InsufficientResources):
            check_resources(cluster, Resources(2, 1, 3, 3))
        job = launch.submit(cluster, config, file, environment)
        with pytest.raises(Killed):
            launch.follow(cluster, job, log_file=log, on_step=kill_after_first_step)
        # What a flow that was started again does: it finds the job.
        assert launch.submit(cluster, config, file, environment) == job
        launch.stop(cluster, job)
        with pytest.raises(launch.TrainingFailed, match="STOPPED"):
            launch.follow(cluster, job, log_file=log)
        reached = export.checkpoint_steps(out_dir)
        assert reached and reached[-1] < PARAMETERS.steps

        steps: list[int] = []
        job = launch.submit(cluster, config, file, environment)
        launch.follow(cluster, job, log_file=log, on_step=steps.append)
    assert steps == list(range(reached[-1] + 1, PARAMETERS.steps + 1)), log.read_text()
    assert len(export.checkpoint_steps(out_dir)) == PARAMETERS.keep_checkpoints
    assert export.is_finished(out_dir, PARAMETERS.steps)
    check_metrics(mlflow, run)
    check_model(export.export(export.latest_checkpoint(out_dir) or out_dir, tmp_path / "model"))
    train_main.main([str(file)])  # Finished: it returns at once.


def check_metrics(mlflow: MlflowClient, run: str) -> None:
    for name in ("critic/score/mean", "response_length/mean", "rollout/acc", "rollout/forced", "rollout/think_tokens"):
        history = {metric.step: metric.value for metric in mlflow.get_metric_history(run, name)}
        assert sorted(history) == list(range(1, PARAMETERS.steps + 1)) and all(map(math.isfinite, history.values())), (
            name,
            history,
        )
    assert 0 < mlflow.get_metric_history(run, "rollout/think_tokens")[0].value <= 16
    # One update per batch of rollouts: the policy that sampled is the one that is updated.
    assert abs(mlflow.get_metric_history(run, "actor/ppo_kl")[-1].value) < 1e-4
    assert any(name.startswith("val-core/") for name in mlflow.get_run(run).data.metrics)


def check_model(model: Path) -> None:
    def read(directory: Path) -> dict[str, Any]:
        return json.loads((directory / "config.json").read_text())

    assert read(model)["architectures"] == read(BASE)["architectures"]
    assert read(model).get("dtype") == "float32"
    assert model_fingerprint(model) != model_fingerprint(BASE)
