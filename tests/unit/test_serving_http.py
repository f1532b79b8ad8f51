"""The start of the server, and keys, errors and CORS headers, with vLLM's own application and no engine."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.serving import middleware
from elastic_core.serving.admission import Admission
from elastic_core.serving.requests import VARIABLE, ServeConfiguration
from elastic_core.system.network import LOCAL_PAGES
from tests.served import BASE
from tests.unit.test_serving_law import MARKERS
from tests.unit.test_serving_requests import DEFAULT, Engine

pytest.importorskip("vllm")
KEY, PAGE = "secret", "https://page.example"
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.entrypoints.launchers.app import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    middleware = "elastic_core.serving.middleware.Budgets"
    arguments = ["--api-key", KEY, "--middleware", middleware, "--allowed-origins", f'["{PAGE}"]']
    parser = cmd_init()[0].subparser_init(FlexibleArgumentParser().add_subparsers())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, DEFAULT.dump())
        found = build_app(parser.parse_args(arguments), ("generate",))
        found.state.engine_client = Engine([], 1, None)
        yield found


def asked(app: Any, path: str, headers: dict[str, str], body: Any = None, method: str = "POST") -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, headers={"Origin": PAGE, **headers}, json=body)

    return asyncio.run(ask())


BEARER = {"Authorization": f"Bearer {KEY}"}
WRONG = {"thinking": {"budget": 3}}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (BEARER, 400),
        ({"x-api-key": KEY}, 400),
        ({"api-key": KEY}, 400),
        ({"x-goog-api-key": KEY}, 400),
        ({"x-api-key": "wrong"}, 401),
        ({"x-api-key": KEY, "Authorization": "Bearer wrong"}, 401),
        ({"x-api-key": "wrong"} | BEARER, 400),
        ({"authorization-key": KEY}, 401),
        ({}, 401),
    ],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_a_key_is_read_from_every_sdks_header_unless_there_is_the_usual_one(
    app: Any, path: str, headers: dict[str, str], status: int
) -> None:
    assert asked(app, path, headers, WRONG).status_code == status


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "kind", "sentence"),
    [
        (MESSAGES, BEARER, WRONG, 400, "invalid_request_error", "thinking.budget sets no budget"),
        (MESSAGES, BEARER, {"messages": 3}, 400, "invalid_request_error", "messages"),
        (MESSAGES, {}, WRONG, 401, "authentication_error", "Unauthorized"),
        (f"{MESSAGES}/batches", BEARER, WRONG, 404, "not_found_error", "no budgets are kept at /v1/messages/batches"),
        (CHAT, BEARER, WRONG, 400, "Bad Request", "thinking.budget sets no budget"),
        (CHAT, {}, WRONG, 401, "authentication_error", "Unauthorized"),
        (
            CHAT,
            BEARER,
            {"structured_outputs": [5]},
            400,
            "Bad Request",
            "structured_outputs is [5]; expected an object",
        ),
        ("/v1/embeddings", BEARER, WRONG, 404, "NotFoundError", "no budgets are kept at /v1/embeddings"),
    ],
)
def test_an_error_has_the_shape_of_its_api_and_cors_headers(
    app: Any, path: str, headers: dict[str, str], body: Any, status: int, kind: str, sentence: str
) -> None:
    answer = asked(app, path, headers, body)
    document = answer.json()
    assert answer.status_code == status and answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert document["error"]["type"] == kind and sentence in document["error"]["message"]
    assert document.keys() == ({"type", "error"} if path.startswith(MESSAGES) else {"error"})
    foreign = asked(app, path, headers | {"Origin": "https://else.example"}, body)
    assert "Access-Control-Allow-Origin" not in foreign.headers


@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_a_page_that_may_not_ask_gets_nothing_also_where_its_name_points_here(app: Any, method: str) -> None:
    headers = {"Origin": "http://here", "Access-Control-Request-Method": "POST"}
    foreign = asked(app, CHAT, headers | BEARER, WRONG, method)
    assert foreign.status_code == 403 and "Access-Control-Allow-Origin" not in foreign.headers


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 400),
        ("https://tauri.localhost", 400),
        ("http://[::1]:3000", 400),
        ("app://obsidian.md", 400),
        ("chrome-extension://abc", 400),
        ("null", 403),
        ("http://localhost.example", 403),
        ("http://localhost:3000.example", 403),
        ("https://127.0.0.1.example", 403),
        ("http://evil.example:8000", 403),
    ],
)
def test_pages_of_this_machine_and_of_its_programs_may_ask_where_they_are_allowed(
    app: Any, monkeypatch: pytest.MonkeyPatch, origin: str, status: int
) -> None:
    monkeypatch.setattr(app.state.args, "allowed_origins", [LOCAL_PAGES])
    answer = asked(app, CHAT, {"Origin": origin} | BEARER, WRONG)
    assert answer.status_code == status
    assert answer.headers.get("Access-Control-Allow-Origin") == (origin if status == 400 else None)


def test_a_browser_may_ask_for_leave_to_send_a_key(app: Any) -> None:
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}
    answer = asked(app, MESSAGES, wanted, method="OPTIONS")
    assert answer.status_code == 200 and answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "x-api-key" in answer.headers["Access-Control-Allow-Headers"]


# The start: a server that cannot keep its word does not answer.


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
    monkeypatch.setenv(VARIABLE, replace(config, template={"low": {"tokenize": True}}).dump())
    with pytest.raises(UserError, match=r"the level low tells the chat template .*tokenize"):
        middleware._Served.by(engine)


def test_harmony_is_told_what_the_family_is_measured_at() -> None:
    template = (("reasoning_effort", "high"),)
    for parser, effort in (("openai_gptoss", "high"), ("qwen3", None)):
        markers = replace(MARKERS, parser=parser, template=template)
        assert middleware._Served(ServeConfiguration(), markers, None).effort == effort
