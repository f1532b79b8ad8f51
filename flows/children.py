"""Commands that run in processes of their own, with everything they start, and are killed with it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elastic_core.processes import end_with_parent

_LOOK_SECONDS = 0.5


def run(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    directory: Path | None = None,
    until: Callable[[], bool] = lambda: False,
) -> int | None:
    """Run a command to its end, or kill it as soon as `until()` is true. It ends with this process, however that ends.

    Args:
        log: what it prints is appended there.
        directory: to run in.

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
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    try:
        while process.poll() is None:
            if until():
                return None
            time.sleep(_LOOK_SECONDS)
        return process.returncode
    finally:
        kill(process)


def kill(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """The process and its group, with SIGKILL."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def last_line(log: Path) -> str:
    """The last line that a log holds, shortened; "" without one."""
    lines = log.read_text(errors="replace").rstrip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else ""
