"""Answers from other machines: no larger than they may be, and requested again where that may help."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState, Retrying

LONGEST_WAIT = 300.0
"""Seconds between attempts, even if the server asks for more: the hub counts requests in windows of five minutes."""


class DownloadError(Exception):
    """Another machine did not give what was requested; the message says why."""


class TooLarge(Exception):
    """More bytes than may come; the message says how many were announced or had come."""


def pieces(response: httpx.Response, most: int) -> Iterator[bytes]:
    """The body of a streamed response, piece by piece.

    Args:
        most: bytes that it may have, after decoding.

    Raises:
        TooLarge: as soon as more are announced, or have come; a server need not announce any number.
    """
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) > most:
        raise TooLarge(f"{announced} bytes are announced")
    received = 0
    for piece in response.iter_bytes():
        received += len(piece)
        if received > most:
            raise TooLarge(f"{received} bytes came and more would have")
        yield piece


def retrying(
    is_transient: Callable[[BaseException], bool],
    num_attempts: int,
    first_wait: float,
    stop: threading.Event | None = None,
) -> Retrying:
    """Calls a function until it succeeds, and raises its last error. The waits are what the server asks for in the
    `response` of an error, else exponentially more, with jitter.

    Args:
        is_transient: whether an error may be gone at the next attempt.
        first_wait: seconds before the second attempt; doubled before each further one.
        stop: ends a wait when it is set.
    """
    import tenacity

    growing = tenacity.wait_exponential(first_wait, max=LONGEST_WAIT) + tenacity.wait_random(0, first_wait)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        seconds = retry_after(getattr(error, "response", None))
        return growing(state) if seconds is None else min(seconds, LONGEST_WAIT)

    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(num_attempts),
        retry=tenacity.retry_if_exception(is_transient),
        wait=wait,
        sleep=tenacity.sleep_using_event(stop) if stop else tenacity.nap.sleep,
        reraise=True,
    )


def retry_after(response: httpx.Response | None) -> float | None:
    """Seconds that a server asks to wait, in Retry-After (seconds or a date) or in the hub's RateLimit header."""
    if response is None:
        return None
    given = response.headers.get("Retry-After", "").strip()
    if given.isdecimal():
        return float(given)
    if given:
        try:
            return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
        except ValueError:
            return None
    reset = re.search(r";\s*r=0\s*;\s*t=(\d+)", response.headers.get("RateLimit", ""))
    return float(reset[1]) if reset and response.status_code == 429 else None
