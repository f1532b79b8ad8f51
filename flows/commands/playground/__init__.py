"""`elastic playground`: a page to try models under token budgets, models and strategies side by side.

The strategies, the engine and the grader are those of training and sweeps. What is drawn of a sample is remembered, so
that another budget cuts the same thought.

Promised: loopback only unless there is a password; without one a token in the address, as Jupyter has it; logins no
faster than a person's; no file of this machine leaves it; bounded input, concurrency and time; model text is shown as
text; nothing is asked of any other host. Not promised: encryption (put a proxy in front that adds TLS), and protection
of the engine against those who know the password.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from elastic_core.errors import UserError
from elastic_core.system.network import reachable, require_free_port
from elastic_core.system.processes import end_family
from flows.commands.playground.access import Guard, is_loopback, read_password, require_password
from flows.runtime.environment import USER, runs_directory
from tasks.records.terminal import print_result, quiet

if TYPE_CHECKING:
    from flows.commands.playground.choices import Choices
    from flows.commands.playground.session import Session


@dataclass(frozen=True)
class PlaygroundParameters:
    """Where the page is, and how much it takes on."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 7860
    """Port to listen on."""
    concurrent: int = 2
    """Runs at the same time."""
    waiting: int = 8
    """Runs that may queue for these; further ones are refused."""
    max_question: int = 20_000
    """Longest problem, in characters."""
    max_reference: int = 1_000
    """Longest reference answer, in characters."""
    run_seconds: float = 600
    """A run that takes longer is stopped, in seconds; waiting for the engine counts."""

    @property
    def max_body(self) -> int:
        """Bytes of the largest request the server reads: every character may take four, and JSON escapes them."""
        return 100_000 + 12 * (self.max_question + self.max_reference)


_FAREWELL_SECONDS = 2
"""What open pages, which hold a connection for ever, and an engine that holds its thread while it starts get each."""


def require_gradio() -> None:
    """Raises UserError when the extra `ui` is not installed."""
    from importlib.util import find_spec

    if find_spec("gradio") is None:
        raise UserError('the playground needs gradio, of the extra ui: run `make install`, or pip install "gradio>=6"')


def require_access(parameters: PlaygroundParameters, password_file: Path | None) -> str | None:
    """The password that the page asks for, if any.

    Raises:
        UserError: when others could reach the page without one, or the port is taken.
    """
    password = read_password(password_file)
    require_password(parameters.host, password)
    require_free_port(parameters.host, parameters.port, "playground", "--port")
    return password


def serve(choices: Choices, parameters: PlaygroundParameters, password: str | None) -> None:
    """Show the page until SIGINT or SIGTERM; the first engines start meanwhile, and what they say is logged."""
    import uvicorn

    from flows.commands.playground.session import Session

    log = runs_directory() / choices.settings.preset / "playground.log"
    with quiet(log), Session(choices, parameters) as session:
        end_with_signals(session)  # Uvicorn, once it runs, ends open requests first and then hands the signal on.
        session.preload(choices.side_by_side)
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
        address = f"http://{reachable(parameters.host)}:{parameters.port}/"
        login = f"{address}{token}/" if token else f"{address} (user {USER}, password as given)"
        print_result(f"playground: {login}; Ctrl-C stops it; log: {log}")
        asyncio.run(uvicorn.Server(config).serve())


def end_with_signals(session: Session) -> None:
    """SIGINT and SIGTERM end the session and this process. No KeyboardInterrupt: a module that is being imported may
    swallow it, or raise something else for it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _leave(session))


def _leave(session: Session) -> NoReturn:
    """End the session and its engine's processes, then this one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    session.end(_FAREWELL_SECONDS)
    end_family()


def application(session: Session, password: str | None, token: str | None) -> Guard:
    """The page of a session as an ASGI application.

    Args:
        password: what the page asks for.
        token: without a password, what the address ends in. As a part of the path no page of another port is sent it,
            as it would be a cookie.
    """
    files = runs_directory() / "playground"
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Read when gradio is imported and later. Its own directory is in /tmp, where another user's may stand.
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_TEMP_DIR": str(files)}
    import gradio as gr
    from fastapi import FastAPI
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from flows.commands.playground.page import build
    from flows.commands.playground.view import CSS

    parameters = session.parameters
    page = build(session)
    # Else gradio copies any file that a request names to where it serves files from; only `launch` sets it.
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
            primary_hue="indigo",  # Controls; the usual orange is what was forced.
            secondary_hue="zinc",
            font=["system-ui", "sans-serif"],
            font_mono=["ui-monospace", "monospace"],
        ),
        css=CSS,
    )
    if is_loopback(parameters.host):
        # A page elsewhere whose name is made to point here must not be answered.
        names = ["127.0.0.1", "localhost", "[::1]", reachable(parameters.host)]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
    return Guard(app, parameters.max_body, token)
