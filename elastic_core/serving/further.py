"""What a user may add to the arguments of `vllm serve`: nothing that keeps budgets, or that `elastic serve` checks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from elastic_core.engines.parameters import EngineParameters

_ADDABLE = {"middleware", "shutdown_timeout"}
"""That we set too, and a user may add to, or replace."""
_CHECKED = {"max_model_len", "api_key", "uds", "grpc", "headless"}
"""That we may not set, and would be another context, key or way in than those that were checked."""
_INSTEAD = {
    "host": "give --host before the --",
    "port": "give --port before the --",
    "model": "give --model before the --",
    "api_key": "the key that clients give is in $VLLM_API_KEY",
}


def conflict(ours: Sequence[str], further: Sequence[str]) -> str | None:
    """The sentence that refuses an argument, None when there is nothing to refuse. Ends the process with vLLM's own
    sentence when an argument cannot be read.

    Args:
        ours: arguments of `vllm serve`, without this word.
        further: those that a user adds, in any spelling that vLLM takes.
    """
    if not further:
        return None
    added = _names(further)
    if speculative := sorted(name for name in added if name.startswith(("speculative", "spec_"))):
        return f"{_flag(speculative[0])}: budgets are not served with speculative decoding; leave it out"
    taken = sorted(added & ((_names(ours) | _CHECKED) - _ADDABLE))
    if not taken:
        return None
    setting = taken[0] in EngineParameters.model_fields
    instead = f"give --set engine.{taken[0]}=VALUE before the --" if setting else _INSTEAD.get(taken[0], "leave it out")
    return f"{_flag(taken[0])} after the --: `elastic serve` sets this itself; {instead}"


def _names(arguments: Sequence[str]) -> set[str]:
    """What arguments set, by vLLM's own parser: it takes abbreviations, keys after a dot, and a file of them."""
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (command,) = cmd_init()
    parser = command.subparser_init(FlexibleArgumentParser().add_subparsers())
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # Else what is given could not be told from defaults.
    names = vars(parser.parse_args(list(arguments)))
    return {"model" if name == "model_tag" else name for name in names}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
