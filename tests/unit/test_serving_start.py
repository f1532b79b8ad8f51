"""The start of a server's middleware: a server that cannot keep its word does not answer."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.serving import middleware
from elastic_core.serving.admission import Admission
from elastic_core.serving.requests import VARIABLE, ServeConfiguration
from tests.served import BASE
from tests.unit.test_serving_law import MARKERS
from tests.unit.test_serving_requests import Engine


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


@pytest.mark.parametrize("word", ["medium", "high"])
def test_a_level_does_not_tell_the_template_what_it_refuses(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of Qwen3.8, which takes xhigh, medium and low."""
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    template = model / "chat_template.jinja"
    refuses = "{%- if reasoning_effort == 'high' -%}{{- raise_exception('no such effort') -}}{%- endif -%}"
    template.write_text(refuses + template.read_text())
    config = ServeConfiguration(None, {"low": Budget(8, 4)}, template={"low": {"reasoning_effort": word}})
    monkeypatch.setenv(VARIABLE, config.dump())
    engine = Engine([], 1, None)
    engine.model_config.model = engine.model_config.tokenizer = str(model)
    if word == "medium":
        assert middleware._Served.by(engine).config == config
        return
    with pytest.raises(UserError, match=r"the level low tells the chat template .*'high'.*no such effort"):
        middleware._Served.by(engine)


def test_harmony_is_told_what_the_family_is_measured_at() -> None:
    template = (("reasoning_effort", "high"),)
    for parser, effort in (("openai_gptoss", "high"), ("qwen3", None)):
        markers = replace(MARKERS, parser=parser, template=template)
        assert middleware._Served(ServeConfiguration(), markers, None).effort == effort
