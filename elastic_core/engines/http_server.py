"""One server over HTTP: a pool of connections, a cap on requests under way, and what to do when it does not answer.

A server that is away (no connection, no answer in time, 429, 502, 503, 504) is asked again until it has been silent for
as long as told; it may be restarted meanwhile, and a request's seed makes its answer the same. A request that breaks it
(any other 5xx) is asked a few times, and one that it refuses (4xx) once.

aiohttp, as httpx takes the time of a core for 400 requests a second, and loses connections when hundreds are under way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
import tenacity

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.endpoint import CHAT, Address, EndpointParameters, Served, api_key, key_variables
from elastic_core.errors import UserError
from elastic_core.system.retry import as_asked_or_growing

_ATTEMPTS = 3
"""How often a request is sent that breaks the server."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0
"""Seconds between attempts at a server that is away; more only when it asks for more."""
_CONNECT_SECONDS = 10.0
_KEPT_SECONDS = 2.0
"""How long a connection is kept for the next request: less than servers keep it (uvicorn 5), or one closes as it is
used."""
_LINE_BYTES = 1 << 22
"""Of a streamed answer, at most; the first line holds the prompt's ids."""
_LOOK_SECONDS = 5.0
"""How long a server with requests may say nothing before it is looked whether it is there."""
_SHOWN = 300
"""Characters of what a server says that are passed on."""
_JSON = {"Content-Type": "application/json"}
_AWAY = {429, 502, 503, 504}

_log = logging.getLogger(__name__)


class ServerLost(EngineLost):
    """A server has been silent for as long as it was waited for."""


class _Response(NamedTuple):
    """As `elastic_core.system.retry` reads one."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class _Away(Exception):
    """The server did not answer, or takes no requests now."""

    def __init__(self, reason: str, response: _Response | None = None) -> None:
        super().__init__(reason)
        self.response = response


class _Broken(_Away):
    """This request breaks the server, as far as can be seen."""


class HttpServer:
    """Use as `async with HttpServer(name, address, parameters) as server:`.

    Args:
        name: of the model in the settings, by which its key is found in the environment.

    Attributes:
        last_answer: when it last answered a request, by the monotonic clock.
    """

    def __init__(self, name: str, address: Address, parameters: EndpointParameters) -> None:
        self.address = address
        self._name = name
        self.parameters = parameters
        self.last_answer = float("-inf")
        self._key = api_key(name, address)
        self._under_way = asyncio.Semaphore(parameters.max_requests)
        self._said = False
        self._exchanges: set[asyncio.Task[_Response]] = set()
        self._client = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=aiohttp.ClientTimeout(parameters.timeout_seconds, sock_connect=_CONNECT_SECONDS),
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),  # The semaphore is the cap.
            read_bufsize=_LINE_BYTES,
            trust_env=True,  # Proxies.
        )

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._client.close()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, a JSON object.

        Args:
            path: below the address.

        Raises:
            RequestFailed: when the server refuses this request, or breaks at it.
            ServerLost: when it answers none any more.
        """
        return await self._asked("POST", self.address.url + path, body)

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The answer to a request, object by object as it comes. It is requested once: somebody is watching.

        Raises:
            RequestFailed: when the server refuses this request, or breaks off.
            ServerLost: when it cannot be reached.
        """
        url = self.address.url + path
        try:
            async with self._under_way, self._request("POST", url, body | {"stream": True}) as response:
                if response.status != 200:
                    said = self._without_key(_said(await response.read()))
                    raise RequestFailed(f"{self.address} refused a request, HTTP {response.status}: {said}")
                async for line in response.content:
                    data = line.removeprefix(b"data:").strip()
                    if line.startswith(b"data:") and data != b"[DONE]":
                        yield orjson.loads(data)
        except aiohttp.ClientConnectorError as error:
            raise ServerLost(f"{self.address} cannot be reached: {error}") from None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise RequestFailed(f"{self.address} broke off: {type(error).__name__}: {error}") from None

    async def get(self, path: str) -> dict[str, Any]:
        """As `post`.

        Args:
            path: below the address, or below the server's root when it begins with two slashes.
        """
        parts = urlsplit(self.address.url)
        root = f"{parts.scheme}://{parts.netloc}"
        url = root + path[1:] if path.startswith("//") else self.address.url + path
        return await self._asked("GET", url, None)

    async def _asked(self, method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        patience = _Patience(self)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_Away),
            wait=as_asked_or_growing(_FIRST_WAIT, _LONGEST_WAIT),
            stop=patience.is_over,
            reraise=True,
        )
        try:
            async with self._under_way:
                return await retrying(self._send, method, url, body)
        except _Away as error:
            if patience.failures >= _ATTEMPTS:
                raise RequestFailed(f"{self.address} failed {_ATTEMPTS} times at a request: {error}") from None
            waited = self.parameters.wait_seconds
            silent = f"did not answer for {waited:g} s (endpoint.wait_seconds)" if waited else "does not answer"
            raise ServerLost(f"{self.address} {silent}: {error}") from None

    def say(self, error: BaseException | None) -> None:
        """Why it is waited for, once for every time that it is away."""
        if not self._said:
            self._said = True
            _log.warning("waiting up to %g s for %s: %s", self.parameters.wait_seconds, self.address, error)

    def _request(self, method: str, url: str, body: dict[str, Any] | None) -> Any:
        # A key goes to the address that was named, and to none that it points to.
        data = None if body is None else orjson.dumps(body)
        return self._client.request(method, url, data=data, headers=_JSON, allow_redirects=False)

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        exchange = asyncio.create_task(self._exchange(method, url, body))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        try:
            response = await exchange
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _Away(f"{url} takes no connections any more") from None  # `_watch` gave it up.
        except TimeoutError:
            raise _Away(f"no answer of {url} in {self.parameters.timeout_seconds:g} s") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise _Away(f"{type(error).__name__} of {url}: {error}".removesuffix(": ")) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise RequestFailed(f"{url}: {type(error).__name__}: {error}") from None
        if response.status_code == 200:
            self.last_answer, self._said = time.monotonic(), False
            return _object(url, response.content)
        reason = f"HTTP {response.status_code}: {self._without_key(_said(response.content))}"
        if response.status_code in _AWAY:
            raise _Away(reason, response)
        if response.status_code >= 500:
            raise _Broken(reason, response)
        self.last_answer = time.monotonic()
        if response.status_code in (401, 403):
            found, variables = "a key" if self._key else "no key", key_variables(self._name, self.address)
            raise UserError(
                f"{self.address} refused {found} ({reason}); set {' or '.join(variables)} in the environment"
            )
        raise RequestFailed(f"{self.address} refused a request, {reason}")

    async def _exchange(self, method: str, url: str, body: dict[str, Any] | None) -> _Response:
        async with self._request(method, url, body) as answer:
            return _Response(answer.status, answer.headers, await answer.read())

    async def _watch(self) -> None:
        """Give up what is under way once the server takes no connections. One that is told to stop may keep those that
        it has, with its engine gone, until they are closed: vLLM does after SIGTERM."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            silent = time.monotonic() - self.last_answer > _LOOK_SECONDS
            if self._exchanges and silent and await self._is_gone():
                for exchange in tuple(self._exchanges):
                    exchange.cancel()

    async def _is_gone(self) -> bool:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS), self._request("GET", f"{self.address.url}/models", None):
                return False
        except aiohttp.ClientConnectorError:
            return True
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


@dataclass
class _Patience:
    """With one request: how long to go on.

    Attributes:
        failures: attempts at which this request failed and, as far as can be seen, not the whole server.
    """

    server: HttpServer
    failures: int = 0
    silent_since: float | None = None

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        """Whether to give up; else the wait that follows ends where the patience does, for one last look."""
        error, now = state.outcome.exception() if state.outcome else None, time.monotonic()
        others_answered = self.silent_since is not None and self.server.last_answer > self.silent_since
        asked_to_wait = isinstance(error, _Away) and error.response is not None and error.response.status_code == 429
        self.failures += isinstance(error, _Broken) or (others_answered and not asked_to_wait)
        if self.silent_since is None or others_answered:
            self.silent_since = now
        if self.failures >= _ATTEMPTS:
            return True
        left = self.silent_since + self.server.parameters.wait_seconds - now
        state.upcoming_sleep = max(0.0, min(state.upcoming_sleep, left))
        if left > 0 and state.attempt_number > 1:  # A connection that was closed meanwhile is no tidings.
            self.server.say(error)
        return left <= 0


def _object(url: str, content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RequestFailed(f"{url} answered with no JSON object, but {_text(content)!r}")
    return found


def _said(content: bytes) -> str:
    """Why a server refused, as far as it says."""
    try:
        found = orjson.loads(content)
        error = found.get("error", found)
        return _text(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        return _text(content)


def _text(said: Any) -> str:
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return " ".join(text.split())[:_SHOWN]


async def look(server: HttpServer, model: str) -> Served:
    """What a server says of itself and the model.

    Raises:
        UserError: when it does not serve the model, refuses us, or has no API there.
        ServerLost: when it does not answer.
    """
    address = server.address
    try:
        listed = (await server.get("/models"))["data"]
        found = {str(each["id"]): each for each in listed}
    except (RequestFailed, KeyError, TypeError) as error:
        if address.chat:  # Not every gateway lists what is behind it.
            return Served("unknown", "unknown", "", None)
        raise UserError(f"{address.url}/models gave no list of models ({error}); is this the API's address?") from None
    if model not in found:
        raise UserError(
            f'{address.url} serves no model "{model}"; expected one of {", ".join(found) or "none"} after the #'
        )
    card = found[model]
    context = card.get("max_model_len")
    if not isinstance(context, int) and not address.chat:
        raise UserError(
            f"{address.url}/models does not say the context of {model} (max_model_len), as vLLM and SGLang do; ask "
            f"another server through its chat API: {CHAT}{address}"
        )
    return Served(str(card.get("owned_by") or "unknown"), await _version(server), str(card.get("root") or ""), context)


async def _version(server: HttpServer) -> str:
    """As vLLM (/version) or SGLang (/server_info) tell it. A closed API has neither."""
    if server.address.chat:
        return "unknown"
    for path in ("//version", "//server_info", "//get_server_info"):
        try:
            found = (await server.get(path)).get("version")
        except (RequestFailed, UserError):
            continue
        if isinstance(found, str):
            return found
    return "unknown"
