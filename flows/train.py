"""warm-start: supervised fine-tuning with verl, which makes the base that training starts from. train: GRPO under a
budget, as a Ray job. And what both will be, before there is data or a cluster: verl's configuration."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.training.grpo.config import compose
from elastic_core.training.sft import compose_config
from flows.data import build_if_missing
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun
from flows.runtime.settings import Settings
from tasks.records.stage_directory import MODEL
from tasks.train import train_policy
from tasks.warm_start import Imitation, fine_tune

if TYPE_CHECKING:
    from omegaconf import DictConfig


@flow(name="warm-start", flow_run_name="{preset} warm-start")
def warm_start(
    preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None
) -> Path:
    """Train the miniature on its warm-start corpus, or fine-tune a model on conversations; returns the Hugging Face
    checkpoint.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    sft, imitation = run.settings.warm_start.sft, None
    if sft is not None:
        require_chat_template(run.settings)
        build_if_missing(run, preset, overrides)
    inputs = Inputs(run)
    if sft is not None:
        imitation = Imitation(sft, inputs.initial, *inputs.data.conversations)
    run.perform(fine_tune, inputs.warm_start, imitation)
    return inputs.warm_start.directory / MODEL


@flow(name="train", flow_run_name="{preset} train")
def train(preset: str = "embedded", overrides: dict[str, Any] | None = None, parent_run: str | None = None) -> Path:
    """Train the base model under the budget, once with each seed; returns the trained Hugging Face checkpoint, that of
    the first seed.

    Called as `pipeline` is; `parent_run` is the MLflow run that this one belongs to.
    """
    run = FlowRun.begin(preset, overrides, parent_run)
    trainings, base, data = run.settings.training.by_seed, Inputs(run).base, run.settings.data
    build_if_missing(run, preset, overrides)
    inputs = Inputs(run)
    inputs.data.require_graders([*data.train, *data.validation])
    for seed, stage in inputs.trainings.items():
        run.perform(
            train_policy, stage, trainings[seed], run.settings.ray.running, base,
            inputs.data.files(data.train), inputs.data.files(data.validation),
        )  # fmt: skip
    return next(iter(inputs.trainings.values())).directory / MODEL


def composed(settings: Settings) -> str:
    """As YAML: GRPO's, or where there is none that of fine-tuning. Paths that are known only once data is built and the
    stage has its key have KEY in them.

    Raises:
        UserError: when the preset trains nothing, or fine-tunes under a chat template that is not the model's.
    """
    from omegaconf import OmegaConf

    require_chat_template(settings, fetch=False)

    with redirect_stdout(sys.stderr):  # verl reports there that its checks passed.
        fine_tunes = settings.train is None and settings.warm_start.sft is not None
        config = _fine_tuning(settings) if fine_tunes else _grpo(settings)
    return OmegaConf.to_yaml(config, resolve=True)


def _grpo(settings: Settings) -> DictConfig:
    parameters, *_ = settings.training.by_seed.values()
    runs = Path("runs") / settings.preset
    data = runs / "data" / "KEY"
    return compose(
        parameters,
        model=settings.base,
        train_files=[data / f"{name}.parquet" for name in settings.data.train],
        validation_files=[data / f"{name}.parquet" for name in settings.data.validation],
        out_dir=runs / "train" / "KEY" / "checkpoints",
        run_name=f"{settings.preset}/train/KEY",
        mlflow=True,
    )


def _fine_tuning(settings: Settings) -> DictConfig:
    sft, stage = settings.warm_start.sft, Path("runs") / settings.preset / "warm-start" / "KEY"
    assert sft is not None
    # As many rows as make one step an epoch; how many there are is known once data is built.
    job = sft.warm_start(
        Path(settings.warm_start.initial), stage / "rows.parquet", sft.batch_size, stage / "run", stage / "model"
    )
    config = compose_config(job)
    steps = f"{sft.epochs} * (rows // {sft.batch_size})"
    config.trainer.total_training_steps = config.trainer.total_epochs = (
        steps if sft.steps is None else f"min({sft.steps}, {steps})"
    )
    config.trainer.device = "cpu" if sft.device == "cpu" else "cuda"
    config.trainer.n_gpus_per_node = sft.gpus
    return config


def require_chat_template(settings: Settings, *, fetch: bool = True) -> None:
    """Nothing, when fine-tuning under the settings can tell responses from prompts, or there is none.

    Args:
        fetch: have the tokenizer of a model on the hub; False looks at models that are directories only.

    Raises:
        UserError: when the template is not the model's, or there is no such model.
    """
    sft, initial = settings.warm_start.sft, settings.warm_start.initial
    if sft is None or settings.base != "warm-start":
        return
    if not fetch and initial != "shipped" and not Path(initial).is_dir():
        return
    check_chat_template(initial, sft.chat_template)


def check_chat_template(initial: str, name: str) -> None:
    """As `require_chat_template`, of a model and the name of a template."""
    from transformers import AutoTokenizer

    from elastic_core.reasonflux.chat_templates import fitting_template

    directory = BASE if initial == "shipped" else model_files.locate(initial, model_files.TOKENIZER_FILES)
    if not any(directory.glob("tokenizer*")):
        raise UserError(
            f"warm_start.initial = {initial}: no model there; give a checkpoint directory, such as `elastic model "
            "prepare` makes, or OWNER/NAME on the hub"
        )
    fitting_template(name, AutoTokenizer.from_pretrained(directory))
