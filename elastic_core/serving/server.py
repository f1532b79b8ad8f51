"""`vllm serve` for a model under budgets: its arguments and environment, and as a program vLLM's own command line:

python -m elastic_core.serving.server serve MODEL ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastic_core.engines.parameters import EngineParameters, engine_environment, vllm_version
from elastic_core.serving.law import Stops
from elastic_core.serving.offer import VARIABLE, Offer
from elastic_core.serving.parameters import additional_config
from elastic_core.serving.runners import runner
from elastic_core.strategies.base import Sampling

MIDDLEWARE = "elastic_core.serving.middleware.Budgets"
REASONING_PARSER = "deepseek_r1"
"""vLLM's parser of <think>…</think>, whether the template or the model opens the thought."""


def arguments(
    model: Path, name: str, parameters: EngineParameters, sampling: Sampling, stops: Stops, host: str, port: int
) -> list[str]:
    """Arguments of `vllm serve`.

    Args:
        name: what requests call the model.
        sampling: what a request gets that does not say how to sample.

    Raises:
        UserError: as `runner`.
    """
    engine = {
        **parameters.arguments(str(model)),
        "data_parallel_size": parameters.data_parallel_size,
        "logits_processors": _runner(parameters).processor,
        "additional_config": additional_config(stops),
        "reasoning_parser": REASONING_PARSER,
        # The checkpoint's own defaults would add to what the levels were measured with, as by top_k.
        "generation_config": "vllm",
        "override_generation_config": {"temperature": sampling.temperature, "top_p": sampling.top_p},
    }
    server = {"served_model_name": name, "host": host, "port": port, "middleware": MIDDLEWARE}
    return ["serve", str(model), *_flags(engine | server)]


def environment(parameters: EngineParameters, offer: Offer) -> dict[str, str]:
    """Variables that the server is started with.

    Raises:
        UserError: as `runner`.
    """
    return {
        **engine_environment(parameters.device),
        **_runner(parameters).environment,
        "VLLM_NO_USAGE_STATS": "1",
        VARIABLE: offer.dump(),
    }


def _runner(parameters: EngineParameters) -> Any:
    return runner(vllm_version().rpartition(" ")[2], parameters.device)


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags


if __name__ == "__main__":
    from elastic_core.vllm_alias import AliasFinder

    sys.meta_path.append(AliasFinder())
    from vllm.entrypoints.cli.main import main

    main()
