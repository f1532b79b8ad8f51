"""warm-start: supervised fine-tuning with verl, which makes the base that training starts from. train: GRPO under a
budget, in a Ray job. `composed` shows verl's configuration of either before there is data or a cluster."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from prefect import flow

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.training.grpo.config import compose
from elastic_core.training.sft import compose_config
from flows.data import run_prepare_data
from flows.runtime.run import FlowRun, for_deployments
from flows.runtime.settings import Settings
from tasks.records.stage_directory import MODEL
from tasks.train import train_policy
from tasks.warm_start import ROWS, Imitation, fine_tune


@flow(name="warm-start", flow_run_name="{run.settings.preset} warm-start", validate_parameters=False)
def run_warm_start(run: FlowRun) -> Path:
    """Train the miniature on its corpus, or fine-tune a model on conversations; returns its checkpoint."""
    imitation = None
    if (sft := run.settings.warm_start.sft) is not None:
        require_chat_template(run.settings)
        if not run.data.is_done:
            run_prepare_data(run)
        imitation = Imitation(sft, run.initial, *run.conversations)
    run.perform(fine_tune, run.warm_start, imitation)
    return run.warm_start.directory / MODEL


warm_start = for_deployments(run_warm_start)


@flow(name="train", flow_run_name="{run.settings.preset} train", validate_parameters=False)
def run_train(run: FlowRun) -> Path:
    """Train the base model under the budget, once with each seed; returns the checkpoint of the first."""
    trainings, base, data = run.settings.training.by_seed, run.base, run.settings.data
    if not run.data.is_done:
        run_prepare_data(run)
    run.require_graders([*data.train, *data.validation])
    for seed, stage in run.trainings.items():
        run.perform(
            train_policy, stage, trainings[seed], run.settings.ray.running, base,
            run.data_files(data.train), run.data_files(data.validation),
        )  # fmt: skip
    return next(iter(run.trainings.values())).directory / MODEL


train = for_deployments(run_train)


def composed(settings: Settings, *, fine_tuning: bool = False) -> str:
    """verl's configuration in YAML, of `run_train` or of `run_warm_start`'s fine-tuning. In paths, KEY stands for the
    hash that is known once data is built.

    Raises:
        UserError: when the preset trains nothing, or fine-tunes under a chat template that is not the model's.
    """
    from omegaconf import OmegaConf

    require_chat_template(settings, fetch=False)
    sft, runs = settings.warm_start.sft, Path("runs") / settings.preset
    data = runs / "data" / "KEY"
    with redirect_stdout(sys.stderr):  # verl reports there that its checks passed.
        if fine_tuning and sft is not None:
            stage = runs / "warm-start" / "KEY"
            # The rows of one step make an epoch; how many there are is known once data is built.
            rows, initial = stage / ROWS, Path(settings.warm_start.initial)
            config = compose_config(sft.warm_start(initial, rows, sft.batch_size, stage / "run", stage / MODEL))
            steps = f"{sft.epochs} * (rows // {sft.batch_size})"
            steps = steps if sft.steps is None else f"min({sft.steps}, {steps})"
            config.trainer.total_training_steps = config.trainer.total_epochs = steps
            config.trainer.device = "cpu" if sft.device == "cpu" else "cuda"
            config.trainer.n_gpus_per_node = sft.gpus
        else:
            parameters, *_ = settings.training.by_seed.values()
            config = compose(
                parameters,
                model=settings.base,
                train_files=[data / f"{name}.parquet" for name in settings.data.train],
                validation_files=[data / f"{name}.parquet" for name in settings.data.validation],
                out_dir=runs / "train" / "KEY" / "checkpoints",
                run_name=f"{settings.preset}/train/KEY",
                mlflow=True,
            )
    return OmegaConf.to_yaml(config, resolve=True)


def require_chat_template(settings: Settings, *, fetch: bool = True) -> None:
    """Raise UserError when fine-tuning could not tell responses from prompts: another chat template, or no such model.

    Args:
        fetch: get the tokenizer of a model on the hub; False checks only models that are directories.
    """
    sft, initial = settings.warm_start.sft, settings.warm_start.initial
    is_here = initial == "shipped" or Path(initial).is_dir()
    if sft is not None and settings.base == "warm-start" and (fetch or is_here):
        check_chat_template(initial, sft.chat_template)


def check_chat_template(initial: str, name: str) -> None:
    """`require_chat_template` of a model and the name of a template."""
    from transformers import AutoTokenizer

    from elastic_core.reasonflux.chat_templates import fitting_template

    directory = BASE if initial == "shipped" else model_files.locate(initial, model_files.TOKENIZER_FILES)
    if not any(directory.glob("tokenizer*")):
        raise UserError(
            f"warm_start.initial = {initial}: no model there; give a checkpoint directory, such as `elastic model "
            "prepare` makes, or OWNER/NAME on the hub"
        )
    fitting_template(name, AutoTokenizer.from_pretrained(directory))
