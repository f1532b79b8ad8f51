"""Who the playground answers, asked as an attacker asks it: a server without an engine, over HTTP."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
import uvicorn

from elastic_core.system.network import free_ports
from flows.commands.playground import CLIENT_LOGINS, PlaygroundParameters, application
from flows.commands.playground.session import Session
from flows.runtime.models import Models, find_models

TOKEN = "the token of this test"
PASSWORD = "the password of this test"
TEXTBOXES = 10
"""gradio's number of what happens when the problem is changed; it takes two textboxes and answers at once, with the
reference answer and the problem's number."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    runs = tmp_path_factory.mktemp("runs")
    # What a command sets for its process must not outlive this module.
    with patch.dict(os.environ, ELASTIC_RUNS=str(runs), PREFECT_HOME=str(runs / "prefect")):
        found = find_models("embedded", {})
        yield replace(found, directories={"none": runs}, first=("none",))


@contextmanager
def served(models: Models, **secret: str | None) -> Iterator[str]:
    """Address of a page that asks for the password or the token."""
    parameters = PlaygroundParameters(port=free_ports(1)[0])
    app = application(Session(models, parameters), secret.get("password"), secret.get("token"))
    server = uvicorn.Server(uvicorn.Config(app, port=parameters.port, log_level="error"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended"
            thread.join(0.05)
        yield f"http://127.0.0.1:{parameters.port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(models: Models) -> Iterator[str]:
    with served(models, token=TOKEN) as address:
        yield address


def inside(address: str) -> httpx.Client:
    return httpx.Client(base_url=f"{address}/{TOKEN}/", trust_env=False, timeout=600)


def predict(client: httpx.Client, function: int, *data: Any) -> httpx.Response:
    body = {"data": data, "fn_index": function, "session_hash": "visitor"}
    return client.post("gradio_api/run/predict", json=body)


def test_no_file_of_this_machine_is_copied_to_where_files_are_served(address: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the passwords of the services")
    named = {"path": str(secret), "meta": {"_type": "gradio.FileData"}}
    with inside(address) as client:
        functions = [each["id"] for each in client.get("config").json()["dependencies"]]
        answers = [predict(client, each, *[named] * 9) for each in functions]
    assert len(functions) > TEXTBOXES
    assert not [answer.text for answer in answers if answer.status_code == 200 and secret.name in answer.text]
    copies = Path(os.environ["GRADIO_TEMP_DIR"]).rglob(secret.name)
    assert list(copies) == []


def test_the_page_works_as_before(address: str) -> None:
    with inside(address) as client:
        answer = predict(client, TEXTBOXES, "1+1?", "2", None)
        assert "default-src 'self'" in client.get("").headers["content-security-policy"]
        assert client.post("gradio_api/queue/join", content=b"x" * 2_000_000).status_code == 413
    assert answer.status_code == 200 and answer.json()["data"] == ["2", None]


@pytest.mark.parametrize("path", ["file=/etc/hostname", "file/etc/hostname", "proxy=http://example.org", "upload"])
def test_no_files_are_given_taken_or_fetched(address: str, path: str) -> None:
    with inside(address) as client:
        answer = client.get(f"gradio_api/{path}")
    assert answer.status_code == 403 and "the playground" in answer.text, "refused by us, whatever gradio would do"


@pytest.mark.parametrize("path", ["", "config", "gradio_api/queue/join", "assets/", "login", "favicon.ico"])
@pytest.mark.parametrize("token", ["", "wrong/", f"{TOKEN}x/", f"?token={TOKEN}&"])
def test_without_its_token_nothing_is_answered(address: str, token: str, path: str) -> None:
    answer = httpx.get(f"{address}/{token}{path}", trust_env=False)
    assert answer.status_code == 403 and "that `elastic playground` printed" in answer.text


def test_another_page_is_neither_read_nor_answered(address: str) -> None:
    with inside(address) as client:
        assert client.get("config", headers={"host": "evil.example"}).status_code == 400
        asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        for answer in (client.options("config", headers=asked), client.get("config", headers=asked)):
            assert "access-control-allow-origin" not in answer.headers


def test_logins_are_as_many_as_a_person_tries(models: Models) -> None:
    with served(models, password=PASSWORD) as address, httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get("config").status_code == 401
        tries = [*[f"wrong {number}" for number in range(CLIENT_LOGINS - 1)], PASSWORD, PASSWORD]
        answers = [client.post("login", data={"username": "elastic", "password": each}) for each in tries]
        assert [answer.status_code for answer in answers] == [*[400] * (CLIENT_LOGINS - 1), 200, 429]
        assert client.get("config").status_code == 200, "whoever is in stays in"
