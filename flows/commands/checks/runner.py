"""Runs a list of steps (`elastic rehearse`, `make gpu`) and records each: what has passed is not repeated."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from elastic_core.system.processes import PYTHON, end_with_parent, kill_tree
from elastic_core.system.retry import wait_until
from flows.runtime.environment import RUNS_VARIABLE

_SHOWN = 300  # Characters of a log's line.
_ERROR = re.compile(r"error: |^[\w.]*(Error|Exception|Failed|Lost|Exit)\b.*:")
"""A sentence for the user, or the last line of a traceback."""


@dataclass(frozen=True)
class Step:
    """A function that returns what was seen, or raises UserError; names of the steps that it `needs`, the model that it
    loads where there is a choice, and why it is skipped on this machine."""

    name: str
    title: str
    run: Callable[[], str]
    needs: tuple[str, ...] = ()
    model: str = ""
    skip: str = ""


@dataclass(frozen=True)
class Record:
    """A step's last attempt: what was seen, why it was skipped, or what failed (`told`), on which machine and model
    (`where`), by which commit of the code (a rehearsal: its key)."""

    name: str
    title: str
    verdict: Literal["passed", "skipped", "failed"]
    seconds: float
    told: str
    where: str
    commit: str


def begin(directory: Path, commit: str) -> None:
    """Empty the directory of another commit's or key's files: its training must not go on."""
    file = directory / "commit"
    if not file.exists() or file.read_text() != commit:
        shutil.rmtree(directory, ignore_errors=True)
        write_text(file, commit)


def run_steps(
    steps: Sequence[Step], directory: Path, *, where: str, commit: str, say: Callable[[str], None]
) -> Iterator[Record]:
    """Run what has not passed yet at this `where` and `commit`, with lines of progress to `say`, and yield each record,
    kept in the directory. A step that fails stops only those that need it."""
    passed: set[str] = set()
    for step in steps:
        file = directory / f"{step.name}.json"
        record = Record(**json.loads(file.read_text())) if file.exists() else None
        unmet = [name for name in step.needs if name not in passed]
        here = ", ".join(filter(None, (where, step.model)))
        if record and (record.verdict, record.where, record.commit) == ("passed", here, commit) and not unmet:
            say(f"{step.name}: passed before")
        else:
            say(f"{step.name}: {step.title}")
            skip = f"it needs {' and '.join(unmet)}, which did not pass" if unmet else step.skip
            verdict: Literal["passed", "skipped", "failed"]
            started = time.monotonic()
            try:
                verdict, told = ("skipped", skip) if skip else ("passed", step.run())
            except UserError as error:
                verdict, told = "failed", str(error)
            seconds = round(time.monotonic() - started, 1)
            record = Record(step.name, step.title, verdict, seconds, told, here, commit)
            write_text(file, json.dumps(asdict(record), indent=2) + "\n")
            say(f"{step.name}: {verdict} in {seconds:.0f} s: {told}")
        if record.verdict == "passed":
            passed.add(step.name)
        yield record


@dataclass(frozen=True)
class Commands:
    """Runs Python programs in processes of their own, apart from the user's servers and clusters: with this runs
    directory, this preset file for flows, GPUs and the hub if they may use them, each after a call of `prepare`."""

    runs: Path
    logs: Path
    preset: Path
    gpus: bool
    hub: bool
    prepare: Callable[[], object] = lambda: None

    @property
    def results(self) -> Path:
        return self.runs / self.preset.stem

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def start(
        self, log: str, *arguments: str, runs: Path | None = None, until: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Run Python to its end, or kill it once `until()` is true. It ends with this process, and appends its output
        to the log. The exit status; None when it was killed."""
        self.prepare()
        command = [*PYTHON, *arguments]
        outside = ("PREFECT_", "MLFLOW_", "RAY_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
        environment[RUNS_VARIABLE] = str(runs or self.runs)
        if not self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        if not self.hub:
            environment["HF_HUB_OFFLINE"] = "1"
        self.logs.mkdir(parents=True, exist_ok=True)
        with self.log(log).open("a") as output:
            output.write(f"$ {' '.join(command)}\n")
            output.flush()
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        try:
            wait_until(lambda: process.poll() is not None or until())
            return process.returncode
        finally:
            # At once: a Ray cluster that ends by itself trains on meanwhile.
            kill_tree(process.pid)
            process.wait()

    def finish(self, log: str, *arguments: str, runs: Path | None = None) -> None:
        """Run Python to its end. Raises UserError with the error in its log when it fails."""
        if status := self.start(log, *arguments, runs=runs):
            raise self._failed(log, status)

    def flow(self, log: str, flow: str) -> None:
        """`elastic run FLOW` of the preset, to its end. Raises UserError as `finish`."""
        self.finish(log, *self._flow(flow))

    def kill(self, log: str, flow: str, checkpoint: str) -> str:
        """Kill `elastic run FLOW` as soon as it has left a `checkpoint` (a pattern below `results`), and say so. Raises
        UserError when the flow ends without one."""

        def saved() -> bool:
            return any(self.results.glob(checkpoint))

        if saved():
            return "killed after its checkpoint by an earlier attempt"
        status = self.start(log, *self._flow(flow), until=saved)
        if not saved():
            raise self._failed(log, status)
        return "ended before it could be killed" if status == 0 else "killed with SIGKILL once its checkpoint was there"

    def _flow(self, flow: str) -> tuple[str, ...]:
        return ("-m", "flows.commands", "run", flow, "-v", "--preset", str(self.preset))

    def _failed(self, log: str, status: int | None) -> UserError:
        return UserError(f"exit status {status} ({failure(self.log(log))}); its log is {self.log(log)}")


def newest(results: Path, pattern: str) -> Path:
    """The newest directory of a pattern. Raises UserError when there is none."""
    if found := sorted(results.glob(pattern), key=lambda path: path.stat().st_mtime):
        return found[-1]
    raise UserError(f"{results}: no {pattern}")


def last_lines(log: Path) -> list[str]:
    """What the last command printed there, line by line; [""] for nothing."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return f"\n{text}".rpartition("\n$ ")[2].rstrip().splitlines()[1:] or [""]


def failure(log: Path) -> str:
    """The last line of a failed command's log that names an error, or else the last line."""
    lines = last_lines(log)
    return next((line.strip()[-_SHOWN:] for line in reversed(lines) if _ERROR.search(line)), lines[-1][:_SHOWN])
