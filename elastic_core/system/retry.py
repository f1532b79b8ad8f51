"""Retries: which errors are temporary, when to try again, and waiting for a condition.

Temporary are a lost process, node or connection, and a wait that was too long. Anything else would fail again.
"""

from __future__ import annotations

import errno
import re
import sys
import threading
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

LONGEST_WAIT = 300.0
"""Seconds between attempts, even if the server asks for more: the hub counts requests in windows of five minutes."""

_LOST = (
    "httpx.TransportError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "urllib.error.URLError",
    "aiohttp.client_exceptions.ClientConnectionError",
    "vllm.v1.engine.exceptions.EngineDeadError",
    *(f"ray.exceptions.{name}" for name in ("WorkerCrashedError", "LocalRayletDiedError", "NodeDiedError",
      "OutOfMemoryError", "ObjectLostError", "RaySystemError", "RpcError")),
)  # fmt: skip
"""Other libraries' classes for a lost connection or process."""
_ERRNO = {errno.EIO, errno.ESTALE, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN}
_MLFLOW = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")
"""MLflow's codes for a server or database that did not answer."""


class ProcessLost(RuntimeError):
    """A process that did part of the work is gone: killed, out of memory, or its node went away."""


def is_transient(error: BaseException) -> bool:
    """Whether the work may succeed when it is done again. An error with a cause is judged by that."""
    while isinstance(error, _imported("ray.exceptions.RayTaskError")) and error.cause is not None:
        error = error.cause  # The task's error, however many tasks handed it on.
    if isinstance(error, ProcessLost):
        return error.__cause__ is None or is_transient(error.__cause__)
    if isinstance(error, _imported("ray.exceptions.RayActorError")):
        return not error.actor_init_failed  # Else its code raised something.
    if isinstance(error, _imported("mlflow.exceptions.MlflowException")):
        return error.error_code in _MLFLOW
    if isinstance(error, OSError) and error.errno in _ERRNO:
        return True
    return isinstance(error, (ConnectionError, TimeoutError, *_imported(*_LOST)))


def _imported(*names: str) -> tuple[Any, ...]:
    """Those classes that are imported; where one was raised, it is."""
    found = (getattr(sys.modules.get(module), name, None) for module, _, name in (n.rpartition(".") for n in names))
    return tuple(each for each in found if each is not None)


def wait_until(condition: Callable[[], bool], seconds: float | None = None, *, every: float = 0.5) -> bool:
    """Check a condition, at least once and then every `every` seconds, until it is true, raises, or the seconds are
    over (None: never). Whether it became true."""
    import tenacity

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda is_true: not is_true),
        stop=tenacity.stop_never if seconds is None else tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(every),
        retry_error_callback=lambda _: False,
    )
    return retrying(condition)


def retrying(
    is_temporary: Callable[[BaseException], bool],
    num_attempts: int,
    first_wait: float,
    stop: threading.Event | None = None,
) -> Retrying:
    """Calls a function until it succeeds or raises an error that is not temporary, `num_attempts` times at most. Waits
    are those of `as_asked_or_growing`; `stop` ends a wait when it is set."""
    import tenacity

    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(num_attempts),
        retry=tenacity.retry_if_exception(is_temporary),
        wait=as_asked_or_growing(first_wait),
        sleep=tenacity.sleep_using_event(stop) if stop else tenacity.nap.sleep,
        reraise=True,
    )


def as_asked_or_growing(first_wait: float, longest: float = LONGEST_WAIT) -> Callable[[RetryCallState], float]:
    """Seconds until the next attempt, for tenacity: the time that a server's `response` in the error states, at most
    LONGEST_WAIT; else exponentially more from `first_wait` to `longest`, with jitter."""
    import tenacity

    growing = tenacity.wait_exponential(first_wait, max=longest) + tenacity.wait_random(0, first_wait)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        seconds = retry_after(getattr(error, "response", None))
        return growing(state) if seconds is None else min(seconds, LONGEST_WAIT)

    return wait


def retry_after(response: Any) -> float | None:
    """Seconds to wait that any client's response asks for, in Retry-After or in the hub's RateLimit header."""
    if response is None:
        return None
    given = response.headers.get("Retry-After", "").strip()
    if given.isdecimal():
        return float(given)
    if given:
        try:
            # The server's clock: by ours, when it is wrong, the wait would be nothing, or as long as it may be.
            now = parsedate_to_datetime(response.headers["Date"])
            return max(0.0, (parsedate_to_datetime(given) - now).total_seconds())
        except (KeyError, ValueError, TypeError):
            return None
    reset = re.search(r";\s*r=0\s*;\s*t=(\d+)", response.headers.get("RateLimit", ""))
    return float(reset[1]) if reset and response.status_code == 429 else None
