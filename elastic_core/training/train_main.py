"""The training job's entry point: `python -m elastic_core.training.train_main CONFIG.yaml`.

CONFIG.yaml is what `config.compose` returned. Killed, the same command resumes from the last checkpoint; finished, it
says so and does nothing.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from omegaconf import DictConfig


def main(arguments: list[str] | None = None) -> None:
    """Train to the end, or exit with the reason."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        raise SystemExit("usage: python -m elastic_core.training.train_main CONFIG.yaml")
    from omegaconf import OmegaConf

    from elastic_core.training.export import is_finished
    from elastic_core.training.plugin_check import require_plugin

    config = cast("DictConfig", OmegaConf.load(arguments[0]))
    out_dir, steps = Path(config.trainer.default_local_dir), int(config.trainer.total_training_steps)
    if is_finished(out_dir, steps):
        print(f"{out_dir}: already trained for {steps} steps, nothing to do")
        return
    require_plugin()

    run(config)
    if not is_finished(out_dir, steps):
        raise RuntimeError(f"verl returned, but {out_dir} holds no checkpoint of step {steps}")
    check_mlflow(config, steps)


def run(config: "DictConfig") -> None:
    """Train on the job's cluster."""
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    from elastic_core.training.trainer import ElasticTaskRunner

    environment = get_ppo_ray_runtime_env(config)
    environment["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    ray.init(runtime_env=environment)
    runner = ray.remote(ElasticTaskRunner).remote()
    ray.get(runner.run.remote(config))


def check_mlflow(config: "DictConfig", steps: int) -> None:
    """Nothing, when MLflow was not asked for or got the metrics of the last step; verl drops what it cannot send.

    Raises:
        RuntimeError: when it did not.
    """
    if "mlflow" not in config.trainer.logger:
        return
    from mlflow import MlflowClient

    run = os.environ["MLFLOW_RUN_ID"]
    history = MlflowClient().get_metric_history(run, "training/global_step")
    if not any(metric.step == steps for metric in history):
        raise RuntimeError(f"MLflow run {run} at {os.environ['MLFLOW_TRACKING_URI']} lacks the metrics of step {steps}")


if __name__ == "__main__":
    main()
