"""Files of the product whose functions a call runs, in the order of the first call: `traced`, or of a command
`python -m tests.traced FILE COMMAND...`, which writes them to FILE, one a line."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
_ROOMS = tuple(f"{PROJECT}/{room}/" for room in ("elastic_core", "flows", "reports", "tasks"))


@contextmanager
def traced() -> Iterator[list[str]]:
    """The files, as the calls come. What an import runs is no call: modules, bodies of classes, and functions that they
    call."""
    files: dict[str, None] = {}
    found: list[str] = []
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        ours = code.co_filename.startswith(_ROOMS) and code.co_flags & inspect.CO_OPTIMIZED
        if ours and _imports(frame.f_back):
            return
        seen.add(code)
        name = code.co_filename.removeprefix(f"{PROJECT}/")
        if ours and name not in files:
            files[name] = None
            found.append(name)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


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
