"""The models of a preset: whether each can be used, before anything is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from flows.doctor.finding import Finding
from flows.doctor.software import finish_probe, last_line, start_probe

if TYPE_CHECKING:
    from flows.settings import Settings

PROBE = "from flows.doctor.models import probe; probe()"


class Use(NamedTuple):
    """A model, and what for.

    Attributes:
        setting: that names it.
        model: "shipped", a directory, or OWNER/NAME on the hub.
        device: of its engine.
        trained: whether verl trains it, with its fused loss.
    """

    setting: str
    model: str
    device: Literal["cpu", "cuda"]
    trained: bool = False


def models_in_use(settings: Settings) -> list[Use]:
    """What the preset begins with and compares with, each once."""
    trains = settings.train is not None
    on_cpu = settings.engine.device == "cpu" or (settings.train is not None and settings.train.device == "cpu")
    device: Literal["cpu", "cuda"] = "cpu" if on_cpu else "cuda"
    uses = [Use("base", settings.base, device, trains)]
    if settings.base == "warm-start":
        # Fine-tuning keeps architecture and tokenizer; the miniature made anew has those of the one that is shipped.
        initial = settings.warm_start.initial
        uses = [Use("warm_start.initial", "shipped" if initial == "random" else initial, device, trained=True)]
    known = {use.model for use in uses}
    further = {name: model for name, model in settings.sweep.checkpoints.items() if model not in known}
    return uses + [Use(f"sweep.checkpoints.{name}", model, settings.engine.device) for name, model in further.items()]


def look(uses: list[Use]) -> list[Finding]:
    """A finding for each, in about ten seconds."""
    return finish_look(uses, start_look(uses)) if uses else []


def start_look(uses: list[Use]) -> subprocess.Popen[str]:
    return start_probe(PROBE, json.dumps(uses))


def finish_look(uses: list[Use], started: subprocess.Popen[str]) -> list[Finding]:
    # A hub that is away takes its time to be found so.
    return check_models(uses, *finish_probe(started, seconds=90 + 60 * len(uses)))


def check_models(uses: list[Use], status: int, output: str) -> list[Finding]:
    """What `probe` printed about each."""
    if status:
        return [Finding("model", "failure", f"models could not be looked at ({last_line(output)}): run `make install`")]
    # What is imported may print lines of its own.
    lines = output.strip().splitlines()[-len(uses) :]
    return [
        # A refusal names its model.
        Finding(
            "model", "ok" if usable else "failure", f"{use.setting} = {f'{use.model}: ' if usable else ''}{message}"
        )
        for use, (usable, message) in zip(uses, map(json.loads, lines), strict=True)
    ]


def probe() -> None:
    """Run in a process of its own, as it imports transformers and vLLM: for each `Use` of the JSON list in the first
    argument a line of JSON, [whether it is usable, why]."""
    from elastic_core.errors import UserError
    from elastic_core.hub import TOKENIZER_FILES, locate
    from elastic_core.miniature.warm_start import BASE
    from elastic_core.model_check import require_usable

    found = []
    for use in (Use(*fields) for fields in json.loads(sys.argv[1])):
        try:
            # Of a model of the hub only what is small is fetched here.
            checkpoint = BASE if use.model == "shipped" else locate(use.model, TOKENIZER_FILES)
            here = use.model == "shipped" or Path(use.model).exists()
            message = require_usable(checkpoint, name=use.model, device=use.device, trained=use.trained, weights=here)
            found.append((True, message))
        except UserError as error:
            found.append((False, str(error)))
    for line in found:
        print(json.dumps(line))
