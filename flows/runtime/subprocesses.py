"""Commands that run in processes of their own, apart from all servers and clusters of the user's, and are killed with
everything they start."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from elastic_core.system.processes import end_with_parent, kill_tree
from elastic_core.system.retry import wait_until
from flows.runtime.environment import RUNS_VARIABLE

_SHOWN = 300
"""Characters of a line."""
_ERROR = re.compile(r"error: |^[\w.]*(Error|Exception|Failed|Lost|Exit)\b.*:")
"""A sentence for the user, or the last line of a traceback."""


def run(
    command: Sequence[str],
    log: Path,
    runs: Path,
    *,
    directory: Path | None = None,
    until: Callable[[], bool] = lambda: False,
    gpus: bool = True,
    hub: bool = True,
) -> int | None:
    """Run a command to its end, or kill it as soon as `until()` is true. It ends with this process, however that ends.

    Args:
        log: what it prints is appended there.
        runs: directory of its results.
        directory: to run in.
        gpus, hub: whether it sees this machine's GPUs, and fetches models.

    Returns:
        Its exit status; None when it was killed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=_environment(runs, gpus, hub),
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
        # At once: told to end, a Ray cluster trains on meanwhile.
        kill_tree(process.pid)
        process.wait()


def _environment(runs: Path, gpus: bool, hub: bool) -> dict[str, str]:
    """Without any server or cluster but the command's own."""
    outside = ("PREFECT_", "MLFLOW_", "RAY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    without_gpus, offline = {"CUDA_VISIBLE_DEVICES": ""}, {"HF_HUB_OFFLINE": "1"}
    return kept | {RUNS_VARIABLE: str(runs)} | ({} if gpus else without_gpus) | ({} if hub else offline)


def last_line(log: Path) -> str:
    """The last line that a log holds, shortened; "" without one."""
    lines = _lines(log)
    return lines[-1][:_SHOWN] if lines else ""


def failure(log: Path) -> str:
    """The line of a failed command's log that names the error: the last that does, or the last of all."""
    named = [line for line in _lines(log) if _ERROR.search(line)]
    return named[-1].strip()[-_SHOWN:] if named else last_line(log)


def _lines(log: Path) -> list[str]:
    """What the last command printed there."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return text.rpartition("\n$ ")[2].rstrip().splitlines()
