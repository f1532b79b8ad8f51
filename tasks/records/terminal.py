"""The user's terminal. What Prefect, Ray, vLLM and MLflow print goes to a log instead; warnings, and lines marked TOLD,
go to both."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

TOLD: dict[str, Any] = {"told": True}
"""Of a line for Prefect, `get_run_logger().info(..., extra=TOLD)`: it is for the terminal, too. Warnings are anyway."""
_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")

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
    """Have everything that is printed go to the end of a file, but for what is told. The file is named before that, so
    that input refused before any work is answered by its error alone."""
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
        _flush()
        _output = _console = None
        for descriptor, stream in enumerate(kept, start=1):
            stream.flush()
            os.dup2(stream.fileno(), descriptor)
            stream.close()


def _console_of(file: TextIO) -> Console:
    from rich.console import Console

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
