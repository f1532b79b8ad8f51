"""Flows of a shortened preset (`elastic rehearse`, `make gpu`), in child processes, and their logs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastic_core.errors import UserError
from elastic_core.system.files import write_text
from elastic_core.system.processes import PYTHON, end_with_parent, kill_tree
from elastic_core.system.retry import wait_until
from flows.runtime.environment import RUNS_VARIABLE

_SHOWN = 300  # Characters of a log's line.
_ERROR = re.compile(r"error: |^[\w.]*(Error|Exception|Failed|Lost|Exit)\b.*:")
"""A sentence for the user, or the last line of a traceback."""


def begin(directory: Path, commit: str) -> None:
    """Empty the directory of another commit's or key's files: its training must not go on."""
    file = directory / "commit"
    if not file.exists() or file.read_text() != commit:
        shutil.rmtree(directory, ignore_errors=True)
        write_text(file, commit)


@dataclass(frozen=True)
class Commands:
    """Runs Python programs as child processes, apart from the user's servers, clusters, GPUs and the hub: with
    this runs directory, and this preset file for flows."""

    runs: Path
    logs: Path
    preset: Path

    @property
    def results(self) -> Path:
        return self.runs / self.preset.stem

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def environment(self) -> dict[str, str]:
        """Variables of the next program; those of the user that name a server or a cluster are left out."""
        outside = ("PREFECT_", "MLFLOW_", "RAY_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
        return {**inherited, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}

    def start(
        self, log: str, *arguments: str, runs: Path | None = None, until: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Run Python to its end, or kill it once `until()` is true. It ends with this process, and appends its output
        to the log. The exit status; None when it was killed."""
        command = [*PYTHON, *arguments]
        environment = {**self.environment(), RUNS_VARIABLE: str(runs or self.runs)}
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
            # Killed, as a Ray cluster that ends by itself trains on until then.
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
    """Lines of a log that the last command printed; [""] without any."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return f"\n{text}".rpartition("\n$ ")[2].rstrip().splitlines()[1:] or [""]


def failure(log: Path) -> str:
    """The last line of a failed command's log that names an error, or else the last line."""
    lines = last_lines(log)
    return next((line.strip()[-_SHOWN:] for line in reversed(lines) if _ERROR.search(line)), lines[-1][:_SHOWN])
