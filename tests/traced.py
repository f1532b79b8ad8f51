"""Files of the product whose functions a call runs, in the order of the first call: `traced`, or of a command
`python -m tests.traced FILE COMMAND...`, which writes them to FILE, one a line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

PROJECT = Path(__file__).resolve().parent.parent
ROOMS = ("elastic_core", "flows", "reports", "tasks")
_DIRECTORIES = tuple(f"{PROJECT}/{room}/" for room in ROOMS)


@contextmanager
def traced() -> Iterator[list[str]]:
    """The files, as the calls come. An import is not traced: what it runs is no call, and libraries take seconds."""
    found: list[str] = []
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        name = code.co_filename.removeprefix(f"{PROJECT}/")
        if code.co_filename.startswith(_DIRECTORIES) and name not in found:
            found.append(name)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        with (
            patch("builtins.__import__", _untraced(__import__)),
            patch("importlib.import_module", _untraced(import_module)),
        ):
            yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def _untraced(call: Callable[..., Any]) -> Callable[..., Any]:
    def untraced(*arguments: Any, **named: Any) -> Any:
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            return call(*arguments, **named)
        finally:
            sys.setprofile(before)

    return untraced


def files_of(call: Callable[[], object]) -> list[str]:
    with traced() as found:
        call()
    return found


if __name__ == "__main__":
    from elastic_core.sweep.table import SweepTable
    from flows.commands.cli import main

    target = Path(sys.argv[1])
    sys.argv = ["elastic", *sys.argv[2:]]
    stored = SweepTable.append

    def first_row(table: SweepTable, rows: Any) -> None:
        """The path of a row ends where it is stored."""
        stored(table, rows)
        if not target.exists():
            target.write_text("\n".join(files))

    SweepTable.append = first_row  # type: ignore[method-assign]
    with traced() as files:
        main()
