"""Settings that go to verl and vLLM as they are: what these do not know is refused at the entrance, not hours later."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from flows.runtime.settings import Settings


def require_known(settings: Settings) -> None:
    """Raise UserError for the first one that is unknown or set already."""
    if settings.engine.vllm:
        from elastic_core.engines.vllm import require_arguments

        require_arguments(settings.engine.vllm)
    if settings.train is None:
        return
    for changes in ({}, *(variant.train for variant in settings.ablation.values())):
        parameters = settings.train.changed(changes)
        if parameters.verl:
            from elastic_core.training.grpo.config import compose

            nowhere = Path("runs")  # The model may not be made yet.
            with redirect_stdout(sys.stderr):  # verl reports there that its checks passed.
                compose(parameters, model=nowhere, train_files=[], validation_files=[], out_dir=nowhere, run_name="")
