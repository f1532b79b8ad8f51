"""Ends a training some of whose processes have died. verl and vLLM would wait for them for ever."""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import ray

from elastic_core.retry import ProcessLost

_SECONDS_BETWEEN_LOOKS = 10


@contextmanager
def watching(workers: Sequence[Any], servers: Sequence[Any]) -> Iterator[None]:
    """Inside, this process exits as soon as one of them is found dead, which fails the job.

    Args:
        workers: Ray actors.
        servers: actors of verl's vLLM servers; each has an engine in a process of its own.

    Raises:
        ProcessLost: for an error inside when one of them is dead, which is the reason then.
    """
    over = Event()
    Thread(target=_watch, args=(workers, servers, over), daemon=True).start()
    try:
        yield
    except Exception:
        if death := _find_dead(workers, servers):
            traceback.print_exc()
            raise ProcessLost(f"a process of the training died: {death}") from None
        raise
    finally:
        over.set()


def _watch(workers: Sequence[Any], servers: Sequence[Any], over: Event) -> None:
    while not over.wait(_SECONDS_BETWEEN_LOOKS):
        death = _find_dead(workers, servers)
        if over.is_set():
            return
        if death is not None:
            print(f"a process of the training died: {death}", file=sys.stderr, flush=True)
            # The main thread waits where no exception reaches it.
            os._exit(1)


def _find_dead(workers: Sequence[Any], servers: Sequence[Any]) -> Exception | None:
    """What one of them answers with who is dead; None when all live, or are busy: then the deadlines of whoever follows
    the job decide how long."""
    looks = [worker.__ray_ready__.remote() for worker in workers]
    looks += [server.__ray_call__.remote(_require_engine) for server in servers]
    try:
        ray.get(looks, timeout=_SECONDS_BETWEEN_LOOKS)
    except ray.exceptions.GetTimeoutError:
        return None
    except ray.exceptions.RayError as error:
        return error
    return None


def _require_engine(server: Any) -> None:
    """Run by a server's actor."""
    engine = getattr(server, "engine", None)
    if engine is not None and engine.errored:  # Of several nodes only the first has one.
        raise engine.dead_error
