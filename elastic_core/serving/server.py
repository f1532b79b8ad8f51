"""`vllm serve` for a model under budgets: its arguments and environment, and as a program vLLM's own command line:

python -m elastic_core.serving.server serve MODEL ... -- FURTHER_ARGUMENTS ...
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastic_core.engines.budgets.parameters import additional_config
from elastic_core.engines.budgets.processor import Stops
from elastic_core.engines.budgets.runners import installed_runner
from elastic_core.engines.parameters import EngineParameters, engine_environment
from elastic_core.serving.configuration import VARIABLE, Offer
from elastic_core.strategies.base import Sampling

MIDDLEWARE = "elastic_core.serving.middleware.Budgets"
REASONING_PARSER = "deepseek_r1"
"""vLLM's parser of <think>…</think>, whether the template or the model opens the thought."""
DRAIN_SECONDS = 60
"""Most that responses under way may take after SIGTERM, unless `--shutdown-timeout` says otherwise."""
CLOSE_SECONDS = 5
"""Then their connections are closed, for which vLLM (0.29) would wait for ever."""


def arguments(
    model: Path, name: str, parameters: EngineParameters, sampling: Sampling, stops: Stops, host: str, port: int
) -> list[str]:
    """Arguments of `vllm serve`.

    Args:
        name: what requests call the model.
        sampling: what a request gets that does not say how to sample.

    Raises:
        UserError: as `installed_runner`.
    """
    engine = {
        **parameters.arguments(str(model)),
        "data_parallel_size": parameters.data_parallel_size,
        "logits_processors": installed_runner(parameters.device).processor,
        "additional_config": additional_config(stops),
        "reasoning_parser": REASONING_PARSER,
        # The checkpoint's own defaults would add to what the levels were measured with, as by top_k.
        "generation_config": "vllm",
        "override_generation_config": {"temperature": sampling.temperature, "top_p": sampling.top_p},
    }
    server = {"served_model_name": name, "host": host, "port": port, "middleware": MIDDLEWARE}
    server |= {"shutdown_timeout": DRAIN_SECONDS}
    return ["serve", str(model), *_flags(engine | server)]


def environment(parameters: EngineParameters, offer: Offer) -> dict[str, str]:
    """Variables that the server is started with.

    Raises:
        UserError: as `installed_runner`.
    """
    return {
        **engine_environment(parameters.device),
        **installed_runner(parameters.device).environment,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_RUST_FRONTEND": "0",  # It has no middleware.
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "0",
        VARIABLE: offer.dump(),
    }


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags


def _main(program: str, *arguments: str) -> None:
    from elastic_core.engines.vllm_alias import AliasFinder

    sys.meta_path.append(AliasFinder())
    import uvicorn
    from vllm.entrypoints.cli.main import main

    from elastic_core.serving.further import conflict

    ours, further = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    try:
        sentence = conflict(ours[1:], further)
    except SystemExit as end:
        sys.exit(end.code or 2)  # vLLM's help was asked for: nothing was served.
    if sentence:
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
    uvicorn.Config = functools.partial(uvicorn.Config, timeout_graceful_shutdown=CLOSE_SECONDS)  # type: ignore
    sys.argv = [program, *ours, *further]
    main()


if __name__ == "__main__":
    _main(*sys.argv)
