"""Waiting for what can only be looked at: other processes and machines, which tell nobody when they are ready."""

from __future__ import annotations

from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float | None = None, *, every: float = 0.5) -> bool:
    """Look at a condition until it is true. What it raises ends the waiting.

    Args:
        seconds: how long to wait; None is without end. The condition is looked at once even when there is no time.
        every: seconds between two looks.

    Returns:
        Whether it became true.
    """
    import tenacity

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda is_true: not is_true),
        stop=tenacity.stop_never if seconds is None else tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(every),
        retry_error_callback=lambda _: False,
    )
    return retrying(condition)
