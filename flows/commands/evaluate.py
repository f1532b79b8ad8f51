"""`elastic evaluate MODEL`: preset `evaluate` with a model, benchmarks and GPUs in place of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from elastic_core.engines.endpoint import CHAT, is_endpoint, parse_address
from elastic_core.errors import UserError, nearest
from elastic_core.models.files import is_local
from flows.runtime.settings import TRAINED

PRESET = "evaluate"
_IN_TEXT = ["vanilla", "unconstrained", "effort"]
"""Strategies of a model behind a chat API; it is told efforts, and cut after t + s tokens."""


def settings_of(
    model: str,
    *,
    benchmarks: Sequence[str],
    budgets: Sequence[str],
    samples: int | None,
    problems: int | None,
    gpus: int,
    tokenizer: str | None,
) -> dict[str, Any]:
    """Settings to replace in the preset.

    Args:
        model: a checkpoint directory, OWNER/NAME on the hub, or a server's address.
        benchmarks, budgets, samples, problems: the preset's where there are none.
        gpus: of this machine, one engine each; 0 takes its CPU.
        tokenizer: of a model behind a server that takes token ids.

    Raises:
        UserError: when there is no such model, a server's tokenizer is not named, or one is named for anything else.
    """
    if not is_endpoint(model) and is_local(model) and not Path(model).exists():
        beside = [file.name for file in Path(model).absolute().parent.glob("*")]
        raise UserError(
            f"{model}: no such directory{nearest(Path(model).name, beside)}; expected a checkpoint directory, "
            "OWNER/NAME on the hub, or a server's address like http://host:8000/v1#MODEL"
        )
    name = name_of(model)
    given = {
        "data.benchmarks": list(benchmarks),
        "sweep.budgets": list(budgets),
        "sweep.samples": samples,
        "sweep.problems": problems,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value}
    changes |= {"sweep.models": [name], "sweep.checkpoints": {name: model}}
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
    return changes | {"base": model} | _engine(gpus)


def name_of(model: str) -> str:
    """What the model is called in tables and figures: its last name, and the one before where a preset's own models
    have that name. Before the name of a model behind a server is the server's.

    Raises:
        UserError: when an address cannot be read.
    """
    if is_endpoint(model):
        try:
            address = parse_address(model)
        except ValueError as error:
            raise UserError(str(error)) from None
        model = f"{urlsplit(address.url).netloc}/{address.model}"
    parts = Path(model).resolve().parts if Path(model).is_dir() else model.rstrip("/").split("/")
    taken = parts[-1] in ("base", *TRAINED)
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(parts[-2:] if taken else parts[-1:]))


def _engine(gpus: int) -> dict[str, Any]:
    if gpus:
        return {"engine.data_parallel_size": gpus}
    return {"engine.device": "cpu", "engine.dtype": "float32", "engine.enforce_eager": True}
