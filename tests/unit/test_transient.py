"""Work is done again after what is gone by itself, never after an error that would only come again."""

import errno
import time
import unittest.mock
from types import SimpleNamespace

import pytest
import ray.exceptions
import requests
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from prefect.states import Failed
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.errors import UserError
from elastic_core.system.retry import ProcessLost, is_transient, retry_after, wait_until
from tasks.records.stage_directory import worth_retrying


def raised_in_task(cause: Exception) -> Exception:
    """As `ray.get` raises it."""
    return RayTaskError("work", "Traceback", cause).as_instanceof_cause()


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("shapes differ"),
        ValueError("no such key"),
        TypeError("None"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        UserError("the model has no tokenizer"),
        RequestFailed("the prompt is too long"),
        FileNotFoundError("config.json"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("model does not appear to have a file named config.json"),
        MlflowException("no such run", INVALID_PARAMETER_VALUE),
        raised_in_task(AssertionError("shapes differ")),
        raised_in_task(raised_in_task(AssertionError("shapes differ"))),
        ActorDiedError(RayTaskError("__init__", "Traceback", ValueError("no tokenizer"))),
        caused(EngineLost("vLLM did not start"), raised_in_task(ValueError("unsupported architecture"))),
    ],
    ids=repr,
)
def test_what_would_fail_again_is_not_tried_again(error: Exception) -> None:
    assert not is_transient(error)
    assert not worth_retrying(None, None, Failed(data=error))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("the head is away"),
        TimeoutError("waited 1800 s for the first step"),
        OSError(errno.ESTALE, "Stale file handle"),
        requests.exceptions.ConnectionError("refused"),
        MlflowException("API request failed with exception"),
        ray.exceptions.WorkerCrashedError(),
        ray.exceptions.NodeDiedError("drained"),
        ray.exceptions.OutOfMemoryError("killed"),
        RayActorError(),
        raised_in_task(ActorDiedError()),
        raised_in_task(raised_in_task(ProcessLost("an engine died"))),
        EngineLost("no engine after 600 s"),
        caused(EngineLost("vLLM did not start"), ActorDiedError()),
    ],
    ids=repr,
)
def test_what_was_lost_is_tried_again(error: Exception) -> None:
    assert is_transient(error)
    assert worth_retrying(None, None, Failed(data=error))


@pytest.mark.parametrize(("date", "seconds"), [("Sun, 01 Nov 2026 12:00:00 GMT", 7), ("no date", None), (None, None)])
def test_a_date_to_wait_for_is_read_by_the_servers_clock(date: str | None, seconds: float | None) -> None:
    headers = {"Retry-After": "Sun, 01 Nov 2026 12:00:07 GMT", **({"Date": date} if date else {})}
    assert retry_after(SimpleNamespace(headers=headers, status_code=429)) == seconds


# `wait_until`: one way to wait for what can only be looked at.


def test_it_looks_until_the_condition_is_true_or_raises_or_time_is_over() -> None:
    looks = iter([False, False, True])
    assert wait_until(lambda: next(looks), every=0.01)
    assert next(looks, None) is None
    assert wait_until(lambda: True, 0) and not wait_until(lambda: False, 0), "once, where there is no time"
    seen, started = [], time.monotonic()
    assert not wait_until(lambda: bool(seen.append(1)), 0.2, every=0.05)
    assert time.monotonic() - started >= 0.2 and len(seen) > 1
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            wait_until(unittest.mock.Mock(side_effect=error))
