"""What every user of the machine reads of its processes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def command_lines() -> set[str]:
    """Of all processes."""
    lines = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            lines.add((process / "cmdline").read_text(errors="replace").replace("\0", " "))
    return lines


@contextmanager
def watched_command_lines() -> Iterator[set[str]]:
    """All that were there at any time; one that Ray replaces is there for a third of a second."""
    lines, ended = set[str](), threading.Event()

    def watch() -> None:
        while not ended.is_set():
            lines.update(command_lines())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lines
    finally:
        ended.set()
        watcher.join()
