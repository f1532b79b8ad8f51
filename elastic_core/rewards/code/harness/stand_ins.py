"""Stand-ins for what right programs use and the sandbox does not have: processes, for which there are threads, and the
names of streams, such as /dev/stdin, which open copies of their descriptors.

They are in the program's reach, and no wall. Unlike processes, these share all memory and cannot be killed.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import queue
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

MAX_WORKERS = 4
"""Threads of a pool, and processors that a program finds: a thread takes address space, and threads are limited."""

_STREAMS = {f"{folder}/{number}": number for folder in ("/dev/fd", "/proc/self/fd") for number in range(3)}
_STREAMS |= {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_LOCKS = "Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"


def name_streams() -> None:
    """Let `open` and `os.open` know the names of streams."""
    builtins.open = io.open = _opening(io.open, io.open)
    os.open = _opening(os.open, lambda copy, *_, **__: copy)


def _opening(path: Callable[..., Any], copy: Callable[..., Any]) -> Any:
    """Opens by `path`, and the copy of a stream's descriptor by `copy`."""

    @functools.wraps(path)
    def open_(file: Any, *arguments: Any, **options: Any) -> Any:
        number = None if isinstance(file, int) else _STREAMS.get(os.fsdecode(file))
        return (path if number is None else copy)(file if number is None else os.dup(number), *arguments, **options)

    return open_


def use_threads(program: bytes) -> None:
    """Have processes be threads for a program that names them: the imports would slow down the others."""
    if b"multiprocessing" not in program and b"ProcessPoolExecutor" not in program:
        return
    whole, context, dummy, heap, pool, futures, processes = map(import_module, (
        "multiprocessing", "multiprocessing.context", "multiprocessing.dummy", "multiprocessing.heap",
        "multiprocessing.pool", "concurrent.futures", "concurrent.futures.process",
    ))  # fmt: skip

    class Queue(queue.Queue[Any]):
        def close(self) -> None: ...

        join_thread = cancel_join_thread = close

    class Process(dummy.Process):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: Any, daemon: bool | None = None, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.daemon = bool(daemon)

        def terminate(self) -> None: ...

        kill = close = terminate

    class Manager(context.ForkContext):  # type: ignore[misc, name-defined]
        dict, list, Namespace = dict, list, dummy.Namespace

        def __enter__(self) -> Manager:
            return self

        def shutdown(self, *_: object) -> None: ...

        __exit__ = shutdown

    def make_pool(
        processes: Any = None, initializer: Any = None, initargs: Any = (), maxtasksperchild: Any = None
    ) -> Any:
        return pool.ThreadPool(min(processes or MAX_WORKERS, MAX_WORKERS), initializer, initargs)

    def executor(max_workers: Any = None, mp_context: Any = None, initializer: Any = None, initargs: Any = ()) -> Any:
        return futures.ThreadPoolExecutor(min(max_workers or MAX_WORKERS, MAX_WORKERS), "", initializer, initargs)

    os.cpu_count = lambda: MAX_WORKERS
    heap.Arena._dir_candidates = []  # without /dev/shm
    made = {name: getattr(threading, name) for name in _LOCKS}
    made |= {"Queue": Queue, "JoinableQueue": Queue, "Manager": Manager, "Pool": make_pool}
    for name, make in made.items():
        setattr(context.BaseContext, name, staticmethod(make))
    for kind in (context, context.DefaultContext, *map(type, context._concrete_contexts.values())):
        kind.Process = Process
    vars(whole).update({name: getattr(context._default_context, name) for name in whole.__all__})
    vars(futures)["ProcessPoolExecutor"] = vars(processes)["ProcessPoolExecutor"] = executor
