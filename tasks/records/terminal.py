"""A run as its user sees it: lines and progress bars in the terminal, and a task's progress in Prefect's pages.

What Prefect, Ray, vLLM and MLflow print goes to a log; warnings, and lines for the terminal (`TOLD`), go to both.
Prefect is imported late: it reads an environment that is prepared first.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO, cast
from uuid import UUID

from rich import progress as bars
from rich.console import Console
from rich.table import Column
from rich.text import Text

TOLD: dict[str, Any] = {"told": True}
"""Of a line for Prefect, `get_run_logger().info(..., extra=TOLD)`: it is for the terminal, too. Warnings are anyway."""
_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")
_SECONDS_BETWEEN_UPDATES = 5
_SECONDS_BETWEEN_LINES = 60  # Without a terminal to draw a bar in.
_SHARE = "{task.percentage:.0f} %, {task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"

_output: TextIO | None = None
_console: Console | None = None
"""Both lead to the terminal while the standard descriptors lead elsewhere. One console prints and draws the progress
bar, so that lines do not tear the bar."""


def console() -> Console:
    """Writes to the terminal as errors go there, wherever the rest goes."""
    return _console or _console_of(sys.stderr)


def print_result(text: str) -> None:
    """`print` to the terminal, wherever the rest goes."""
    print(text, file=_output or sys.stdout, flush=True)


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Have everything that is printed go to the end of a file, but for lines for the terminal. The file is named before
    the first of these, so that input refused before any work is answered by its error alone."""
    global _output, _console
    log.parent.mkdir(parents=True, exist_ok=True)
    _flush()
    # The descriptors themselves: child processes and libraries in C have no sys.stderr of ours.
    kept = [os.fdopen(os.dup(descriptor), "w") for descriptor in (1, 2)]
    _output, _console = kept[0], _console_of(kept[1])
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    teller = _Teller(log)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(teller)
    try:
        yield
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(teller)
        try:
            _flush()
        except OSError:  # The log's disk is full: what waits for it is dropped, so that the error gets to the terminal.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            _flush()
        _output = _console = None
        for descriptor, stream in enumerate(kept, start=1):
            stream.flush()
            os.dup2(stream.fileno(), descriptor)
            stream.close()


def _console_of(file: TextIO) -> Console:
    return Console(file=file, highlight=False, soft_wrap=True)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class _Teller(logging.Handler):
    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log: Path | None = log

    def emit(self, record: logging.LogRecord) -> None:
        # Errors end the command, which says why.
        if record.levelno == logging.WARNING or getattr(record, "told", False):
            if self._log is not None:
                console().print(f"log: {self._log}", markup=False)
                self._log = None
            console().print(record.getMessage(), markup=False)


@dataclass
class Progress:
    """Counts up to its total. Each update of the artifact is a request, so they are spaced out."""

    artifact: UUID
    line: bars.Progress
    first_seconds: float | None = None  # What starting takes: from the beginning to the first unit.
    began: float = field(default_factory=time.monotonic)
    updated: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    @property
    def task(self) -> bars.Task:
        """The line's only one."""
        return self.line.tasks[0]

    @property
    def done(self) -> int:
        return int(self.task.completed)

    def expect(self, total: int) -> None:
        """There turned out to be `total` units."""
        self.line.update(self.task.id, total=total)

    def reach(self, done: int) -> None:
        """`done` units are finished."""
        now = time.monotonic()
        if done and self.first_seconds is None:
            self.first_seconds = now - self.began
        self.line.update(self.task.id, completed=done)
        if now - self.updated > _SECONDS_BETWEEN_UPDATES:
            from prefect.artifacts import update_progress_artifact

            self.updated = now
            update_progress_artifact(self.artifact, self.task.percentage)
        if not self.line.console.is_terminal and now - self.told > _SECONDS_BETWEEN_LINES:
            self.told = now
            self.line.console.print(f"{self.task.description}: {_SHARE.format(task=self.task)}, {_left(self.task)}")


@contextmanager
def progress(name: str, total: int, unit: str) -> Iterator[Progress]:
    """Show the progress of `name` over `total` units."""
    from prefect.artifacts import create_progress_artifact, update_progress_artifact

    # Called in a synchronous task it returns the id itself.
    artifact = cast(UUID, create_progress_artifact(0.0, key=f"{name}-progress", description=f"{name}: {total} {unit}"))
    share = bars.TextColumn(_SHARE, table_column=Column())  # The default does not wrap in a narrow terminal.
    columns = ("{task.description}", bars.BarColumn(20), share, bars.TimeElapsedColumn(), _LeftColumn())
    to = console()
    with bars.Progress(
        *columns, console=to, disable=not to.is_terminal, transient=True, refresh_per_second=1,
        speed_estimate_period=300, redirect_stdout=False, redirect_stderr=False,
    ) as line:  # fmt: skip
        line.add_task(name, total=total, unit=unit)
        yield Progress(artifact, line)
    update_progress_artifact(artifact, 100.0)


class _LeftColumn(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        return Text(_left(task))


def _left(task: bars.Task) -> str:
    """Time left by the speed since the first unit; before that the task was starting."""
    seconds = task.time_remaining
    return "starting" if seconds is None else f"about {timedelta(seconds=int(seconds))} left"
