"""The start of a server's middleware: a server that cannot keep its word does not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.errors import UserError
from elastic_core.serving import middleware
from elastic_core.serving.admission import Admission


@pytest.mark.parametrize("error", [UserError("--latency 0.1: too early"), ZeroDivisionError("float division by zero")])
def test_whatever_fails_at_the_start_ends_the_server(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def fails(*given: object) -> Admission:
        raise error

    async def inner(*given: object) -> None:
        raise AssertionError("the server goes on")

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[dict[str, Any]] = []
    served = SimpleNamespace(config=SimpleNamespace(goal=object()))
    monkeypatch.setattr(middleware._Served, "by", lambda engine: served)
    monkeypatch.setattr(Admission, "by", fails)
    app = SimpleNamespace(state=SimpleNamespace(engine_client=None))
    asyncio.run(middleware.Budgets(inner)({"type": "lifespan", "app": app}, receive, send))  # type: ignore[arg-type]
    assert sent == [{"type": "lifespan.startup.failed", "message": f"no budgets can be kept: {error}"}]
