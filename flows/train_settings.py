"""verl's configuration of a preset, before there are data sets, checkpoints or a cluster."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from elastic_core.training.config import compose
from flows.settings import Settings


def composed(settings: Settings) -> str:
    """As YAML. Paths that are known only once data is built and the stage has its key have KEY in them.

    Raises:
        UserError: when the preset trains nothing.
    """
    from omegaconf import OmegaConf

    parameters, runs = settings.training, Path("runs") / settings.preset
    data = runs / "data" / "KEY"
    with redirect_stdout(sys.stderr):  # verl reports there that its checks passed.
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
