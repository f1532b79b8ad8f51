"""What takes torch, transformers or verl to look up, in processes of their own: models, verl's plugin, a template."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from elastic_core.errors import UserError
from flows.commands.doctor.finding import Finding, judged
from flows.commands.doctor.machine import installed_build

if TYPE_CHECKING:
    from flows.runtime.settings import Settings

_MODELS_PROBE = "from flows.commands.doctor.models import probe_models; probe_models()"


class Use(NamedTuple):
    """A model, by the setting that names it, and what for.

    Attributes:
        model: "shipped", a directory, or OWNER/NAME on the hub.
        device: of its engine.
        trained: whether verl trains it, with its fused loss.
        thinks: whether it needs think markers.
    """

    setting: str
    model: str
    device: Literal["cpu", "cuda"]
    trained: bool = False
    thinks: bool = True


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
    further = {name: model for name, model in settings.sweep.directories.items() if model not in known}
    uses += [Use(f"sweep.checkpoints.{name}", model, settings.engine.device) for name, model in further.items()]
    return [use._replace(thinks=settings.thinks) for use in uses]


def start_look(uses: list[Use]) -> subprocess.Popen[str]:
    """Begin to look at models, in a process of its own."""
    return start_probe(_MODELS_PROBE, json.dumps(uses))


def look(uses: list[Use], started: subprocess.Popen[str] | None = None) -> list[Finding]:
    """A finding for each model, in about ten seconds. `started` is a probe of them that was begun earlier."""
    if not uses:
        return []
    probe = started or start_look(uses)
    # A hub that is away takes its time to be found so.
    return check_models(uses, *finish_probe(probe, seconds=90 + 60 * len(uses)))


def check_models(uses: list[Use], status: int, output: str) -> list[Finding]:
    """What `probe_models` printed about each."""
    if status:
        problem = f"models could not be looked at ({last_line(output)}): run `make install`"
        return [Finding("model", "failure", problem)]
    # What is imported may print lines of its own. A refusal names its model.
    found = map(json.loads, output.strip().splitlines()[-len(uses) :])
    return [
        Finding("model", "ok", f"{use.setting} = {use.model}: {message}")
        if usable
        else Finding("model", "failure", f"{use.setting} = {message}")
        for use, (usable, message) in zip(uses, found, strict=True)
    ]


def probe_models() -> None:
    """Run in a process of its own, as it imports transformers and vLLM: for each `Use` of the JSON list in the first
    argument a line of JSON, [whether it is usable, why]."""
    from elastic_core.miniature.warm_start import BASE
    from elastic_core.models.check import require_usable
    from elastic_core.models.files import TOKENIZER_FILES, locate

    def usable(use: Use) -> tuple[bool, str]:
        try:
            # Of a model of the hub only what is small is fetched here.
            checkpoint = BASE if use.model == "shipped" else locate(use.model, TOKENIZER_FILES)
            here = use.model == "shipped" or Path(use.model).exists()
            return True, require_usable(
                checkpoint, name=use.model, device=use.device, trained=use.trained, weights=here, thinks=use.thinks
            )
        except UserError as error:
            return False, str(error)

    for line in [usable(Use(*fields)) for fields in json.loads(sys.argv[1])]:
        print(json.dumps(line))


def start_probe(code: str, *arguments: str) -> subprocess.Popen[str]:
    platform = {"VERL_PLATFORM": "cpu"} if installed_build() == "cpu" else {}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, **platform},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish_probe(process: subprocess.Popen[str], seconds: float = 90) -> tuple[int, str]:
    """Exit status, and what it printed or why it failed."""
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, f"no answer within {seconds:g} s"
    return process.returncode, errors if process.returncode else output


def last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1]


def check_plugin(status: int, output: str) -> Finding:
    """verl itself hides a plugin that fails to load."""
    problem = f"does not load ({last_line(output)}): run `make install`"
    return judged("verl plugin", status == 0, "loads", problem)


def check_template(name: str, status: int, output: str) -> Finding:
    """Fine-tuning must know where a response begins."""
    reason = last_line(output).removeprefix("elastic_core.errors.UserError: ")
    problem = f"warm_start.sft.chat_template = {name}: {reason}"
    return judged("chat template", status == 0, f"{name} tells responses from prompts", problem)
