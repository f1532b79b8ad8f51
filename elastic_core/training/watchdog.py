"""Ends a training some of whose processes have died. verl and vLLM would wait for them for ever."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import ray

_SECONDS_BETWEEN_LOOKS = 10


@contextmanager
def watching(workers: Sequence[Any], servers: Sequence[Any]) -> Iterator[None]:
    """Inside, this process exits as soon as one of them is found dead, which fails the job.

    Args:
        workers: Ray actors.
        servers: actors of verl's vLLM servers; each has an engine in a process of its own.
    """
    over = Event()
    Thread(target=_watch, args=(workers, servers, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(workers: Sequence[Any], servers: Sequence[Any], over: Event) -> None:
    while not over.wait(_SECONDS_BETWEEN_LOOKS):
        try:
            looks = [worker.__ray_ready__.remote() for worker in workers]
            looks += [server.__ray_call__.remote(_require_engine) for server in servers]
            ray.get(looks, timeout=_SECONDS_BETWEEN_LOOKS)
        except ray.exceptions.GetTimeoutError:
            continue  # Busy. The deadlines of whoever follows the job decide how long.
        except ray.exceptions.RayError as error:
            if over.is_set():
                return
            print(f"a process of the training died: {error}", file=sys.stderr, flush=True)
            # The main thread waits where no exception reaches it.
            os._exit(1)


def _require_engine(server: Any) -> None:
    """Run by a server's actor."""
    engine = getattr(server, "engine", None)
    if engine is not None and engine.errored:  # Of several nodes only the first has one.
        raise engine.dead_error
