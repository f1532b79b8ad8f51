"""Which errors may be gone when the same work is done again.

A process, node or connection that was lost, and a wait that was too long. Everything else, an assertion as well as a
wrong file, would only fail again, minutes later.
"""

from __future__ import annotations

import errno
import sys

_BY_NAME = (
    "httpx.TransportError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "urllib.error.URLError",
    "aiohttp.client_exceptions.ClientConnectionError",
    "vllm.v1.engine.exceptions.EngineDeadError",
)
"""Other libraries' classes for a lost connection or process; whoever raised one has imported it."""
_RAY = ("WorkerCrashedError", "LocalRayletDiedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError",
        "RaySystemError", "RpcError")  # fmt: skip
_ERRNO = {errno.EIO, errno.ESTALE, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN}
_MLFLOW = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")
"""MLflow's codes for a server or database that did not answer."""


class ProcessLost(RuntimeError):
    """A process that did part of the work is gone: killed, out of memory, or its node went away."""


def is_transient(error: BaseException) -> bool:
    """Whether the work may succeed when it is done again. What another error caused is judged by its cause."""
    error = _task_cause(error)
    if isinstance(error, ProcessLost):
        return error.__cause__ is None or is_transient(error.__cause__)
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _ERRNO:
        return True
    return isinstance(error, _known()) or _ray_lost(error) or _mlflow_away(error)


def _known() -> tuple[type[BaseException], ...]:
    found = (getattr(sys.modules.get(module), name, None) for module, _, name in (n.rpartition(".") for n in _BY_NAME))
    return tuple(each for each in found if each is not None)


def _task_cause(error: BaseException) -> BaseException:
    """What a Ray task raised, however many tasks handed it on."""
    exceptions = sys.modules.get("ray.exceptions")
    while exceptions is not None and isinstance(error, exceptions.RayTaskError) and error.cause is not None:
        error = error.cause
    return error


def _ray_lost(error: BaseException) -> bool:
    exceptions = sys.modules.get("ray.exceptions")
    if exceptions is None:
        return False
    if isinstance(error, exceptions.RayActorError):
        return not error.actor_init_failed  # Else its own code raised something.
    return isinstance(error, tuple(getattr(exceptions, name) for name in _RAY))


def _mlflow_away(error: BaseException) -> bool:
    exceptions = sys.modules.get("mlflow.exceptions")
    return exceptions is not None and isinstance(error, exceptions.MlflowException) and error.error_code in _MLFLOW
