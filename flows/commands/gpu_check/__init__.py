"""`make gpu`: everything that only a GPU can show, in order. Each step returns what was seen, and leaves what shows it
in one folder, the evidence."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.errors import UserError
from elastic_core.models import files as model_files
from elastic_core.models.twins.twin import SMALL, make_twin, origin_of
from elastic_core.system.accelerators import installed_gpus
from elastic_core.system.files import write_text
from elastic_core.system.retry import wait_until
from elastic_core.training import gradient_check
from flows import presets
from flows.commands.gpu_check.evidence import (
    FILE,
    REPOSITORY,
    Machine,
    NotHere,
    Record,
    Step,
    conclusion,
    facts,
    find_machine,
    nvidia_smi,
    run_steps,
    write_summary,
)
from flows.commands.gpu_check.training import (
    GPU_TWIN,
    KILLED_AFTER,
    PRESET,
    PROBLEMS,
    STEPS,
    Twin,
    as_rows,
    first_step,
    judge,
    preset_values,
    read_steps,
    shortened,
)
from flows.commands.rehearsal.preset import prepare_rows, toml
from flows.runtime import subprocesses as children
from flows.runtime.environment import runs_directory
from tasks.records.stage_directory import METRICS, TABLE

EVIDENCE, WORK = "gpu-evidence", "gpu-check"
"""Directories of what is kept, and of what it was made with."""


def gpu_check(say: Callable[[str], None]) -> tuple[str, bool]:
    """Run what has not passed here yet, and leave the evidence.

    Args:
        say: shows a line of progress.

    Returns:
        The conclusion, and whether no step failed.

    Raises:
        UserError: when this machine is one that no step could run on.
    """
    machine = find_machine()
    evidence, work = runs_directory() / EVIDENCE, runs_directory() / WORK
    begin(work, machine.commit)
    model, missing = None, NO_GPU
    if machine.gpus:
        base = shortened(machine.ranks, twin=False).base
        say(f"looking for {base}")
        try:
            model = model_files.locate(base)
        except UserError as error:
            missing = str(error)
    known = facts(machine)
    for name, text in {"machine.json": json.dumps(known, indent=2), "nvidia-smi.txt": nvidia_smi()}.items():
        write_text(evidence / name, f"{text}\n")
    steps = Check(machine, evidence, work, model, missing).steps()

    def finished(records: list[Record]) -> None:
        write_summary(evidence, known, records, len(steps))

    records = run_steps(
        steps, evidence / "steps", where=machine.name, commit=machine.commit, say=say, finished=finished
    )
    told = f"{conclusion(records, len(steps))} {evidence / FILE}"
    return told, all(record.verdict != "failed" for record in records)


def begin(work: Path, commit: str) -> None:
    """Drop what other code made: a training that it began would not be the one that goes on."""
    file = work / "commit"
    if file.exists() and file.read_text() == commit:
        return
    shutil.rmtree(work, ignore_errors=True)
    write_text(file, commit)


BENCH = "tests.bench.bench_gpu"
NO_GPU = "no GPU here"
_FREED_SECONDS = 120
"""How long the memory of a killed process may take to be free again."""


@dataclass(frozen=True)
class Check:
    """What the steps work with.

    Attributes:
        evidence: the folder that is kept.
        work: where models, checkpoints and tables go; as large as they are.
        model: the real model's directory; None where it could not be had.
        missing: why it could not.
    """

    machine: Machine
    evidence: Path
    work: Path
    model: Path | None
    missing: str

    @property
    def name(self) -> str:
        """Of the preset: nothing of a twin's can be taken for the model's."""
        return "gpu-model" if self.model else "gpu-twin"

    @property
    def preset(self) -> Path:
        return self.work / f"{self.name}.toml"

    @property
    def twin(self) -> Path:
        return self.work / "twin"

    @property
    def results(self) -> Path:
        return self.work / self.name

    def steps(self) -> list[Step]:
        """In their order."""
        base = shortened(1, twin=False).base
        used = base if self.model else f"a twin of {base}"
        return [
            Step("doctor", "this machine can run the pipeline", self._doctor),
            Step("inputs", "a twin, and the preset of the steps below", self._inputs, model=used),
            Step("gradient", "untied models have the right gradient over FSDP2 ranks", self._gradient),
            Step("bench-twin", f"bench_gpu: a twin of {base}", partial(self._bench, "twin"), ("inputs",)),
            Step("bench-model", f"bench_gpu: {base}", partial(self._bench, "model")),
            Step("train", f"GRPO, killed after step {KILLED_AFTER}", self._train, ("inputs",), used),
            Step("resume", f"GRPO goes on, to step {STEPS}", self._resume, ("train",), used),
            Step("sweep", "a sweep of base and trained model", self._sweep, ("resume",), used),
            Step("report", "the report", self._report, ("sweep",), used),
        ]

    def _doctor(self) -> str:
        asked = []
        if self.machine.gpus:
            ranks = self.machine.ranks
            given = {"base": "shipped", "train.gpus_per_node": ranks, "engine.data_parallel_size": ranks}
            asked = ["--preset", PRESET, *(part for name in given for part in ("--set", f"{name}={given[name]}"))]
        status = self._child("doctor", "-m", "flows.commands", "doctor", *asked)
        findings = self._log("doctor").read_text().rpartition("\n$ ")[2].splitlines()
        failures = [line for line in findings if line.startswith("failure")]
        if status or failures:
            raise UserError("; ".join(" ".join(line.split()[1:]) for line in failures) or findings[-1])
        warnings = [" ".join(line.split()[1:]) for line in findings if line.startswith("warning")]
        return f"no failure; warnings: {'; '.join(warnings) or 'none'}"

    def _inputs(self) -> str:
        size = GPU_TWIN if self.machine.gpus else SMALL
        settings = shortened(self.machine.ranks, twin=self.model is None)
        origin = origin_of(settings.base)
        make_twin(settings.base, origin, self.twin, size=size)
        told = f"twin of {size.layers} layers, width {size.width}: {origin}"
        twin = None
        if self.model is None:
            inputs, rows = prepare_rows(settings, self.work)
            twin = Twin(self.twin, inputs)
            told = f"{told}; rows: {rows}; the model itself: {self.missing}"
        values = preset_values(self.machine.ranks, "gpu" if self.machine.gpus else "cpu", twin)
        write_text(self.preset, f"# {PRESET}, shortened by `make gpu`.\n{toml(values)}")
        presets.resolve(str(self.preset))
        self._keep(self.preset, "preset.toml")
        return told

    def _gradient(self) -> str:
        directory = self.work / "gradient"
        directory.mkdir(parents=True, exist_ok=True)
        device, ranks = ("cuda", min(2, self.machine.ranks)) if self.machine.gpus else ("cpu", 2)
        module = "elastic_core.training.gradient_check"
        log = self._run("gradient", "-m", module, "--device", device, "--ranks", str(ranks), str(directory))
        self._keep(directory / gradient_check.RESULT)
        return f"{children.last_line(log)} (families: {', '.join(gradient_check.FAMILIES)}; untied and tied)"

    def _bench(self, which: str) -> str:
        if not self.machine.gpus:
            raise NotHere(NO_GPU)
        model = self.twin if which == "twin" else self.model
        if model is None:
            raise NotHere(self.missing)
        runs, name = self.work / f"bench-{which}", f"bench-{which}"
        written = runs / "bench" / "gpu.json"
        written.unlink(missing_ok=True)
        arguments = ("--model", str(model), "--think", "1024", "--solution", "1024")
        log = self._run(name, "-m", BENCH, *arguments, runs=runs)
        if not written.exists():
            raise UserError(children.last_line(log))
        self._keep(written, f"{name}.json")
        figures = json.loads(written.read_text())
        speed, seconds = figures["rollout_tokens_per_second"], figures["step_seconds_step"]
        return f"{speed:.0f} tokens/s in rollouts, {seconds:.1f} s a training step"

    def _train(self) -> str:
        found = f"train/*/checkpoints/global_step_{KILLED_AFTER}"

        def saved() -> bool:
            return any(self.results.glob(found))

        if saved():
            return f"stopped after step {KILLED_AFTER} by an earlier attempt"
        status = self._flow("train", "train", until=saved)
        if not saved():
            raise self._failed("train", status)
        return "killed with SIGKILL once its checkpoint was there"

    def _resume(self) -> str:
        self._finish("resume", "train")
        stage = _newest(self.results, "train/*")
        for file in (stage / METRICS, stage / "verl.yaml", *stage.glob("train*.log")):
            self._keep(file, f"training/{file.name}")
        begun = first_step(stage / "train.log")
        if begun <= KILLED_AFTER:
            raise UserError(f"it began with step {begun}, though the checkpoint of step {KILLED_AFTER} was there")
        steps = read_steps(pl.read_parquet(stage / METRICS))
        write_text(self.evidence / "training" / "steps.json", json.dumps(as_rows(steps), indent=2) + "\n")
        return f"went on with step {begun}; {judge(steps, STEPS)}"

    def _sweep(self) -> str:
        self._finish("sweep", "sweep")
        table = _newest(self.results, "sweep/*") / TABLE
        rows = pl.scan_parquet(table / "**/*.parquet", hive_partitioning=False)
        found = rows.select("model", "strategy", "benchmark", "problem", "sample").collect()
        problems, samples = found.select("benchmark", "problem").n_unique(), found["sample"].n_unique()
        models, strategies = (", ".join(sorted(found[name].unique())) for name in ("model", "strategy"))
        told = f"{problems} problems × {samples} samples; models {models}; {strategies}; {len(found)} rows"
        if problems < PROBLEMS:
            raise UserError(f"{told}; expected {PROBLEMS} problems")
        return told

    def _report(self) -> str:
        self._finish("report", "report")
        shutil.copytree(self.results / "report", self.evidence / "report", dirs_exist_ok=True)
        return "report/report.md and report/report.html"

    def _flow(self, log: str, flow: str, until: Callable[[], bool] = lambda: False) -> int | None:
        """Exit status of `elastic run`; None when it was killed."""
        return self._child(log, "-m", "flows.commands", "run", flow, "-v", "--preset", str(self.preset), until=until)

    def _finish(self, log: str, flow: str) -> None:
        """A flow to its end. Raises UserError when it failed, with the end of its log."""
        if status := self._flow(log, flow):
            raise self._failed(log, status)

    def _run(self, log: str, *arguments: str, runs: Path | None = None) -> Path:
        """A Python module of this repository, to its end; its log.

        Raises:
            UserError: when it failed, with the end of its log.
        """
        if status := self._child(log, *arguments, runs=runs, directory=REPOSITORY):
            raise self._failed(log, status)
        return self._log(log)

    def _child(self, log: str, *arguments: str, runs: Path | None = None, **how: Any) -> int | None:
        self._wait_for_memory()
        command = [sys.executable, *arguments]
        return children.run(command, self._log(log), runs or self.work, hub=self.model is not None, **how)

    def _log(self, name: str) -> Path:
        return self.evidence / "logs" / f"{name}.log"

    def _wait_for_memory(self) -> None:
        """The driver frees a killed process's memory after that process is gone; what starts before would find none."""
        before = sum(gpu.free for gpu in self.machine.gpus)
        wait_until(lambda: sum(gpu.free for gpu in installed_gpus()) >= 0.9 * before, _FREED_SECONDS, every=1)

    def _keep(self, file: Path, name: str | None = None) -> None:
        target = self.evidence / (name or file.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)

    def _failed(self, log: str, status: int | None) -> UserError:
        return UserError(f"exit status {status} ({children.failure(self._log(log))}); its log is {self._log(log)}")


def _newest(results: Path, pattern: str) -> Path:
    return max(results.glob(pattern), key=lambda path: path.stat().st_mtime)
