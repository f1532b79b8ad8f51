"""`wait_until`: one way to wait for what can only be looked at."""

import time

import pytest

from elastic_core.system.retry import wait_until


def test_it_looks_until_the_condition_is_true() -> None:
    looks = iter([False, False, True])
    assert wait_until(lambda: next(looks), every=0.01)
    assert next(looks, None) is None


def test_time_that_is_over_is_told() -> None:
    looks = []
    started = time.monotonic()
    assert not wait_until(lambda: bool(looks.append(1)), 0.2, every=0.05)
    assert time.monotonic() - started >= 0.2 and len(looks) > 1


def test_it_looks_once_where_there_is_no_time() -> None:
    assert wait_until(lambda: True, 0) and not wait_until(lambda: False, 0)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_the_condition_raises_ends_the_waiting(error: type[BaseException]) -> None:
    def condition() -> bool:
        raise error

    with pytest.raises(error):
        wait_until(condition)
