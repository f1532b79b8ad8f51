"""`elastic playground`: a page to try models under token budgets, models and strategies side by side.

It runs the strategies, engine and grader of training and sweeps. It remembers the tokens of a sample, so that another
budget cuts the same thought.

Promised: loopback only unless there is a password; without one a token in the address, as Jupyter has it; logins no
faster than a person's; no file of this machine leaves it; bounded input, concurrency and time; model text is shown as
text; no request goes to another host. Not promised: encryption (put a proxy with TLS in front), and protection of the
engine against those who know the password.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastic_core.errors import UserError
from elastic_core.system.network import is_loopback, reachable, require_free_port
from elastic_core.system.processes import end_family
from flows.commands.options import PATH, address_options, family_option, settings_options
from flows.runtime.environment import USER, runs_directory
from tasks.records.terminal import print_result, quiet

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from flows.commands.playground.session import Session


PASSWORD_VARIABLE = "ELASTIC_PLAYGROUND_PASSWORD"
MIN_PASSWORD = 12  # Characters of a password that is to keep others out.
CLIENT_LOGINS, ALL_LOGINS = 5, 60  # Logins that are tried in a minute: by one address, and by all together.

_HEADERS = {
    # Gradio renders its components with functions made of text. Nothing is fetched from, or sent to, any other host.
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_FILES = ("upload", "file=", "file/", "proxy=", "stream/", "process_recording")
"""Where gradio takes files, gives them, and fetches them from elsewhere."""
_FAREWELL_SECONDS = 2  # Until open pages, each of which holds a connection, are left.


@dataclass(frozen=True)
class PlaygroundParameters:
    """Address of the page, and its limits: runs at the same time, runs that wait for these before more are refused,
    characters of a problem and of a reference answer, and seconds of a run with its wait for the engine."""

    host: str = "127.0.0.1"
    port: int = 7860
    concurrent: int = 2
    waiting: int = 8
    max_question: int = 20_000
    max_reference: int = 1_000
    run_seconds: float = 600

    @property
    def max_body(self) -> int:
        """Bytes of a request: every character may take four, and JSON escapes them."""
        return 100_000 + 12 * (self.max_question + self.max_reference)


@click.command()
@settings_options("Preset whose models, benchmarks, engine and sampling are taken.")
@click.option(
    "--model",
    "named",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A further model, and the first to be chosen: a checkpoint directory, OWNER/NAME on the hub, or a server's "
    "address, http://host:8000/v1#MODEL.",
)
@family_option
@address_options("a password", 7860)
@click.option(
    "--password-file",
    type=PATH,
    help="File whose first line is the password to ask for; without it $ELASTIC_PLAYGROUND_PASSWORD, if set.",
)
@click.option("--concurrent", type=click.IntRange(1, 64), default=2, help="Runs at the same time.")
def playground(
    preset: str,
    overrides: dict[str, Any],
    password_file: Path | None,
    named: Sequence[str],
    family: str | None,
    **limits: Any,
) -> None:
    """Try a model under token budgets, on a page in the browser.

    Strategies answer side by side.
    """
    parameters = PlaygroundParameters(**limits)
    if importlib.util.find_spec("gradio") is None:
        raise UserError('the playground needs gradio, of the extra ui: run `make install`, or pip install "gradio>=6"')
    password = read_password(password_file)
    require_password(parameters.host, password)
    require_free_port(parameters.host, parameters.port, "playground", "--port")
    import uvicorn

    from flows.commands.playground.session import Session
    from flows.runtime.models import find_models

    found = find_models(preset, overrides, named, family)
    log = runs_directory() / found.settings.preset / "playground.log"
    for number in (signal.SIGINT, signal.SIGTERM):
        # A module that is being imported may swallow KeyboardInterrupt. Uvicorn, once it runs, ends open requests first
        # and then hands the signal on.
        signal.signal(number, lambda *_: end_family())
    with quiet(log):
        session = Session(found, parameters)
        token = None if password else secrets.token_urlsafe(32)
        config = uvicorn.Config(
            application(session, password, token),
            host=parameters.host,
            port=parameters.port,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_FAREWELL_SECONDS,
        )

        async def serve() -> None:
            server = uvicorn.Server(config)
            try:
                await asyncio.gather(server.serve(), session.engines.preload(found.first))
            except Exception:
                if not server.should_exit:  # Ctrl-C reaches an engine that starts, too.
                    raise

        address = f"http://{reachable(parameters.host)}:{parameters.port}/"
        login = f"{address}{token}/" if token else f"{address} (user {USER}, password as given)"
        print_result(f"playground: {login}; Ctrl-C stops it; log: {log}")
        asyncio.run(serve())


def application(session: Session, password: str | None, token: str | None) -> Guard:
    """The page of a session as an ASGI application, with a password or else a token at the end of its address. The
    token is in the path: a cookie would be sent to pages of other ports too."""
    files = runs_directory() / "playground"
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Gradio reads both at its import and later. Its default directory is in /tmp, where another user can put one first.
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_TEMP_DIR": str(files)}
    import gradio as gr
    from fastapi import FastAPI
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from flows.commands.playground.page import build
    from flows.commands.playground.view import CSS

    parameters = session.parameters
    page = build(session)
    # Without it, which only `launch` sets, gradio copies any file that a request names to where it serves files from.
    page.has_launched = True
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(CORSMiddleware)  # It allows no other origin; gradio's would allow any, with the login.
    gr.mount_gradio_app(
        app,
        page,
        path=f"/{token or ''}",
        server_name=parameters.host,
        server_port=parameters.port,
        auth=(USER, password) if password else None,
        show_error=False,
        max_file_size=1,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=gr.themes.Default(
            primary_hue="indigo",  # Controls; the usual orange marks forced text.
            secondary_hue="zinc",
            font=["system-ui", "sans-serif"],
            font_mono=["ui-monospace", "monospace"],
        ),
        css=CSS,
    )
    if is_loopback(parameters.host):
        # DNS rebinding: a page elsewhere with a name that is made to point here gets no answer.
        names = ["127.0.0.1", "localhost", "[::1]", reachable(parameters.host)]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
    return Guard(app, parameters.max_body, token)


def read_password(file: Path | None) -> str | None:
    """The first line of the file, else PASSWORD_VARIABLE, else None. UserError when it is unreadable or too short."""
    try:
        password = os.environ.get(PASSWORD_VARIABLE, "") if file is None else file.read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UserError(f"--password-file {file}: {reason}; expected a file whose first line is the password") from None
    password = password.strip()
    if file is None and not password:
        return None
    if len(password) < MIN_PASSWORD:
        where = PASSWORD_VARIABLE if file is None else f"--password-file {file}"
        raise UserError(f"{where}: a password of {len(password)} characters; expected {MIN_PASSWORD} or more")
    return password


def require_password(host: str, password: str | None) -> None:
    """Raises UserError when others could reach the page without a password."""
    if password is None and not is_loopback(host):
        raise UserError(
            f"others can reach the playground on {host}: give a password in {PASSWORD_VARIABLE} or --password-file, or "
            "listen on 127.0.0.1"
        )


class Logins:
    """The logins of the last minute, right or wrong. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried: deque[tuple[float, str]] = deque()

    def allow(self, client: str) -> bool:
        """Whether this address may try once more; if so, the attempt is counted."""
        now = self._clock()
        while self._tried and self._tried[0][0] <= now - 60:
            self._tried.popleft()
        if len(self._tried) >= ALL_LOGINS or [each for _, each in self._tried].count(client) >= CLIENT_LOGINS:
            return False
        self._tried.append((now, client))
        return True


class Guard:
    """Refuses, before the application reads them, requests without the token, with too large a body, or for files, and
    logins too fast for a person; adds security headers.

    Args:
        max_body: bytes.
        token: the first part of every valid path; None where a password is required.
    """

    def __init__(self, app: ASGIApp, max_body: int, token: str | None = None, logins: Logins | None = None) -> None:
        self._app, self._max_body, self._token = app, max_body, token
        self._logins = logins or Logins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import PlainTextResponse

        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # The page opens no web sockets.
            await send({"type": "websocket.close"})
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            status, sentence = refusal
            await PlainTextResponse(sentence, status, {"connection": "close"})(scope, receive, send)
            return
        read = 0

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_body:  # Its length was not announced, or wrong.
                return {"type": "http.disconnect"}
            return message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        await self._app(scope, limited, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        _, first, path = (*scope["path"].split("/", 2), "", "")[:3]  # "OPTIONS *" has no slash.
        if self._token is None:
            path = f"{first}/{path}"
        elif not secrets.compare_digest(first.encode(), self._token.encode()):
            return 403, "open the address that `elastic playground` printed: it ends in the token that is missing here"
        if path.removeprefix("gradio_api/").startswith(_FILES):
            return 403, "the playground takes no files, and has none"
        if path.strip("/") == "login" and scope["method"] == "POST" and not self._logins.allow(_client(scope)):
            return 429, f"more than {CLIENT_LOGINS} logins in a minute; try again in a minute"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self._max_body:
            return 413, f"a request of {announced.decode('latin-1')} bytes; expected at most {self._max_body}"
        return None


def _client(scope: Scope) -> str:
    """The owner of an IPv6 address has all of its network."""
    address = ipaddress.ip_address(scope["client"][0].partition("%")[0])
    return str(address if address.version == 4 else ipaddress.ip_network(f"{address}/64", strict=False))
