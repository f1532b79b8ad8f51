"""`vllm serve` for a model under budgets: its arguments and environment, and as a program vLLM's command line:

python -m elastic_core.serving.server serve MODEL ... -- FURTHER_ARGUMENTS ...
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from elastic_core.engines.budgets.parameters import installed_runner, refused_drafts
from elastic_core.engines.parameters import EngineParameters
from elastic_core.models.special_tokens import Markers
from elastic_core.serving.requests import VARIABLE, ServeConfiguration
from elastic_core.strategies.base import Sampling

DRAIN_SECONDS = 60  # For responses under way after SIGTERM, unless `--shutdown-timeout` is given.
CLOSE_SECONDS = 5  # Then connections are closed; vLLM (0.29) would wait for them without end.
_ADDABLE = {"allowed_origins", "middleware", "shutdown_timeout"}  # Set here, and a user may add to or replace them.
_CHECKED = {"additional_config", "max_model_len", "api_key", "uds", "grpc", "headless"}
"""May be unset here, and would change the marks, context, key or entrance that were checked."""
_INSTEAD = {
    "host": "give --host before the --",
    "port": "give --port before the --",
    "model": "give --model before the --",
    "api_key": "the key that clients give is in $VLLM_API_KEY",
}


def arguments(
    model: Path, name: str, parameters: EngineParameters, sampling: Sampling, markers: Markers, host: str, port: int
) -> list[str]:
    """Arguments of `vllm serve`; raises as `installed_runner`. `name` is the model's in requests, `sampling` that of
    requests that do not set it."""
    engine = {
        **parameters.arguments(str(model)),
        "data_parallel_size": parameters.data_parallel_size,
        **_of_budgets(parameters.device, markers),
        # The checkpoint's defaults, such as top_k, were not in force when the levels were measured.
        "generation_config": "vllm",
        "override_generation_config": {"temperature": sampling.temperature, "top_p": sampling.top_p},
    }
    server = {"served_model_name": name, "host": host, "port": port, "shutdown_timeout": DRAIN_SECONDS}
    return ["serve", str(model), *_flags(engine | server)]


def plugin_flags(device: Literal["cpu", "cuda"], markers: Markers | None = None) -> list[str]:
    """Flags that keep budgets in the user's `vllm serve` and, with the model's markers, read its thoughts. Raises as
    `installed_runner`."""
    return _flags(_of_budgets(device, markers))


def _of_budgets(device: Literal["cpu", "cuda"], markers: Markers | None) -> dict[str, Any]:
    return {
        "logits_processors": installed_runner(device).processor,
        "middleware": "elastic_core.serving.middleware.Budgets",
        "reasoning_parser": markers and markers.parser,
        "default_chat_template_kwargs": (markers and dict(markers.template)) or None,
    }


def _flags(settings: dict[str, Any]) -> list[str]:
    flags = []
    for key, value in settings.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else str(value)]
    return flags


def environment(parameters: EngineParameters, config: ServeConfiguration) -> dict[str, str]:
    """Environment of the server's process; raises as `installed_runner`."""
    return {
        **parameters.environment,
        **installed_runner(parameters.device).environment,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_RUST_FRONTEND": "0",  # It has no middleware.
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "0",
        # vLLM's 5 seconds are those of many clients, which then send a request into a connection that is being closed;
        # proxies keep theirs for 60.
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": os.environ.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "75"),
        VARIABLE: config.dump(),
    }


def conflict(ours: Sequence[str], further: Sequence[str], closings: Collection[str] = ()) -> str | None:
    """The sentence that refuses one of the user's `further` arguments: none may set what keeps budgets, or what
    `elastic serve` checks. Ends the process with vLLM's message when an argument cannot be read. `ours` are those of
    `vllm serve`, without "serve"; `closings` are the levels that do not close a thought by think-end alone."""
    if not further:
        return None
    added = _names(further)
    speculative = sorted(name for name in added if name.startswith(("speculative", "spec_")))
    if speculative and (refused := refused_drafts(ours[list(ours).index("--logits-processors") + 1])):
        return f"{_flag(speculative[0])}: {refused}"
    if speculative and closings:
        return f"{_flag(speculative[0])}: drafts keep no closing, and {', '.join(closings)} has one; leave it out"
    taken = sorted(added & ((_names(ours) | _CHECKED) - _ADDABLE))
    if not taken:
        return None
    setting = taken[0] in EngineParameters.model_fields
    instead = f"give --set engine.{taken[0]}=VALUE before the --" if setting else _INSTEAD.get(taken[0], "leave it out")
    return f"{_flag(taken[0])} after the --: `elastic serve` sets this itself; {instead}"


def _names(arguments: Sequence[str]) -> set[str]:
    """The settings of arguments by vLLM's parser, which takes abbreviations, keys after a dot, and files."""
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (command,) = cmd_init()
    parser = command.subparser_init(FlexibleArgumentParser().add_subparsers())
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # So that only given arguments are in the result.
    return {"model" if name == "model_tag" else name for name in vars(parser.parse_args(list(arguments)))}


def _with_known_parser(arguments: Sequence[str]) -> list[str]:
    """Drop vLLM's reasoning parser where this vLLM lacks it or its requirements: a thought is then in the content."""
    from vllm.reasoning import ReasoningParserManager

    found = list(arguments)
    if (flag := "--reasoning-parser") in found:
        at = found.index(flag)
        try:
            ReasoningParserManager.get_reasoning_parser(found[at + 1])
        except (KeyError, ImportError) as error:
            reason = " ".join(str(error).split())
            print(f"no reasoning parser {found[at + 1]}, so thoughts stay in the content: {reason}", file=sys.stderr)
            del found[at : at + 2]
    return found


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _main(program: str, *arguments: str) -> None:
    from elastic_core.engines.parameters import AliasFinder

    sys.meta_path.append(AliasFinder())
    import uvicorn
    from vllm.entrypoints.cli.main import main

    ours, further = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    try:
        sentence = conflict(ours[1:], further, json.loads(os.environ[VARIABLE]).get("closings") or ())
    except SystemExit as end:
        sys.exit(end.code or 2)  # After vLLM's help, too: nothing was served.
    if sentence:
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
    uvicorn.Config = functools.partial(uvicorn.Config, timeout_graceful_shutdown=CLOSE_SECONDS)  # type: ignore
    sys.argv = [program, *_with_known_parser(ours), *further]
    main()


if __name__ == "__main__":
    try:
        _main(*sys.argv)
    except KeyboardInterrupt:  # Before vLLM handles the signal, or while its engine starts.
        sys.exit(130)
