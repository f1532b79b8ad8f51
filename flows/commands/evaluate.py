"""`elastic evaluate MODEL`: the pipeline of preset `evaluate`, of any model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from elastic_core.engines.endpoint import CHAT, is_endpoint, parse_address
from elastic_core.errors import UserError, nearest
from elastic_core.models.files import is_local
from elastic_core.system.accelerators import count_gpus
from flows.commands.options import benchmarks_option, family_option, overriding, verbose_option
from flows.commands.run import start, tree_option

PRESET = "evaluate"
_IN_TEXT = ["vanilla", "unconstrained", "effort"]
"""Strategies of a model behind a chat API: it takes an effort, and is cut after t + s tokens."""


@click.command()
@click.argument("model")
@benchmarks_option("One of `elastic data list`; may be given again. Without it math500.")
@click.option(
    "--gpus",
    type=click.IntRange(0, 1024),
    help="How many GPUs, with an engine on each; 0 takes the CPU. Without it all of this machine.",
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="T+S",
    help='Thinking + solution tokens, like "1k+512"; may be given again.',
)
@click.option("--samples", type=click.IntRange(1), help="Responses to each problem under each budget.")
@click.option("--problems", type=click.IntRange(1), help="How many problems of each benchmark.")
@click.option("--tokenizer", metavar="DIR", help="If MODEL is a server's address: its tokenizer, DIR or OWNER/NAME.")
@family_option
@tree_option
@overriding("Replace a setting of preset evaluate.")
@verbose_option
def evaluate(
    model: str, gpus: int | None, mirror: str | None, overrides: dict[str, Any], verbose: bool, **given: Any
) -> None:
    """Measure MODEL under a grid of budgets and write its report.

    The benchmark is fetched on the way. MODEL is a checkpoint directory, OWNER/NAME on the hub, or a server's address:
    http://host:8000/v1#MODEL, or openai+https://HOST/v1#MODEL for a chat API. The same command after a crash finishes
    the rest.
    """
    changes = settings_of(model, gpus=count_gpus() if gpus is None else gpus, **given)
    if mirror is not None:
        changes["data.mirror"] = mirror
    start("pipeline", PRESET, changes | overrides, verbose=verbose)


def settings_of(
    model: str,
    *,
    benchmarks: Sequence[str],
    budgets: Sequence[str],
    samples: int | None,
    problems: int | None,
    gpus: int,
    tokenizer: str | None,
    family: str | None = None,
) -> dict[str, Any]:
    """What `elastic evaluate` replaces in its preset, which has a value for all that is not given.

    Args:
        gpus: of this machine, one engine each; 0 takes its CPU.
        tokenizer: of a model behind a server that takes token ids; None for any other.
        family: of its think markers, where the model does not show it.

    Raises:
        UserError: when the model does not exist, or `tokenizer` is missing or has no effect.
    """
    if not is_endpoint(model) and is_local(model) and not Path(model).exists():
        beside = [file.name for file in Path(model).absolute().parent.glob("*")]
        raise UserError(
            f"{model}: no such directory{nearest(Path(model).name, beside)}; expected a checkpoint directory, "
            "OWNER/NAME on the hub, or a server's address like http://host:8000/v1#MODEL"
        )
    name = name_of(model)
    given = {"data.benchmarks": [*benchmarks], "sweep.budgets": [*budgets]}
    numbers = {"sweep.samples": samples, "sweep.problems": problems}
    changes: dict[str, Any] = {key: value for key, value in {**given, **numbers}.items() if value}
    changes |= {"sweep.models": [name], "sweep.checkpoints": {name: model}}
    if family is not None:
        changes |= {"models": {each: {"family": family} for each in ("base", name)}}
    needs_tokenizer = is_endpoint(model) and not model.startswith(CHAT)
    if needs_tokenizer != (tokenizer is not None):
        raise UserError(
            f"{model} takes token ids: give --tokenizer DIR or OWNER/NAME, the tokenizer of the model that it serves"
            if needs_tokenizer
            else f"--tokenizer {tokenizer}: {model} brings its own; leave it out"
        )
    if needs_tokenizer:
        return changes | {"base": tokenizer, "sweep.tokenizers": {name: tokenizer}}
    if is_endpoint(model):
        return changes | {"sweep.strategies": _IN_TEXT}
    on_cpu = {"engine.device": "cpu", "engine.dtype": "float32", "engine.enforce_eager": True}
    return changes | {"base": model} | ({"engine.data_parallel_size": gpus} if gpus else on_cpu)


def name_of(model: str) -> str:
    """Return the model's name in tables and figures: its last name, after the one before it where models of presets
    have that name. Raises UserError when an address cannot be read."""
    if is_endpoint(model):
        try:
            address = parse_address(model)
        except ValueError as error:
            raise UserError(str(error)) from None
        model = f"{urlsplit(address.url).netloc}/{address.model}"
    from flows.runtime.settings import TRAINED  # Imported here, so that --help is fast.

    parts = Path(model).resolve().parts if Path(model).is_dir() else model.rstrip("/").split("/")
    taken = parts[-1] in ("base", *TRAINED)
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(parts[-2:] if taken else parts[-1:]))
