"""Who may use the playground, and what any of its requests may be."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PASSWORD_VARIABLE = "ELASTIC_PLAYGROUND_PASSWORD"
MIN_PASSWORD = 12
"""Characters of a password that is to keep others out."""
CLIENT_LOGINS, ALL_LOGINS = 5, 60
"""Logins that are tried in a minute: by one address, and by all together."""

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


def read_password(file: Path | None) -> str | None:
    """The first line of the file, or without a file what the environment says; None without either.

    Raises:
        UserError: when it cannot be read or is too short to keep anybody out.
    """
    try:
        password = os.environ.get(PASSWORD_VARIABLE, "") if file is None else file.read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"--password-file {file}: {reason}; expected a file whose first line is the password") from None
    password = password.strip()
    if file is None and not password:
        return None
    if len(password) < MIN_PASSWORD:
        where = PASSWORD_VARIABLE if file is None else f"--password-file {file}"
        raise UserError(f"{where}: a password of {len(password)} characters; expected {MIN_PASSWORD} or more")
    return password


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there. Raises UserError when this machine has no such address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(f"no address {host!r} on this machine ({error.strerror}); use 127.0.0.1") from None
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def require_password(host: str, password: str | None) -> None:
    """Raises UserError when others could reach the page without a password."""
    if password is None and not is_loopback(host):
        raise UserError(
            f"others can reach the playground on {host}: give a password in {PASSWORD_VARIABLE} or --password-file, or "
            "listen on 127.0.0.1"
        )


class Logins:
    """How many logins were tried in the last minute, right or wrong.

    Args:
        clock: seconds, ever growing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried: deque[tuple[float, str]] = deque()

    def allow(self, client: str) -> bool:
        """Whether this address may try once more; if so, it has."""
        now = self._clock()
        while self._tried and self._tried[0][0] <= now - 60:
            self._tried.popleft()
        if len(self._tried) >= ALL_LOGINS or [each for _, each in self._tried].count(client) >= CLIENT_LOGINS:
            return False
        self._tried.append((now, client))
        return True


class Guard:
    """Refuses, before anybody reads them: requests without the token, with too large a body, for files, and logins too
    fast to be a person's; adds security headers.

    Args:
        max_body: bytes.
        token: the first part of every path that is answered; None where a password is asked for.
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
        _, first, path = (*scope["path"].split("/", 2), "")[:3]
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
