"""A client of one server: a pool of connections, a cap on concurrent requests, and retries.

A request is sent again while the server is away (no connection, no answer in time, 429, 502, 503, 504), until the
server has been silent for `wait_seconds`; the server may be restarted, because a request's seed makes its
answer the same. A request that breaks the server (any other 5xx) is sent three times, one that it refuses (4xx) once.

The client is aiohttp: httpx takes a core for 400 requests a second, and loses connections among hundreds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
import tenacity

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.budgets.parameters import FIXED
from elastic_core.engines.endpoint import CHAT, Address, EndpointParameters, Served, api_key, key_variables
from elastic_core.errors import UserError
from elastic_core.system.retry import as_asked_or_growing

_ATTEMPTS = 3  # Of a request that breaks the server.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0  # Seconds between attempts; more only when the server asks for more.
_CONNECT_SECONDS = 10.0
_KEPT_SECONDS = 2.0
"""How long an idle connection is kept: shorter than servers keep it (uvicorn: 5), or it closes as it is used."""
_LINE_BYTES = 1 << 22  # Most of one line of a stream; the first one holds the prompt's ids.
_LOOK_SECONDS = 5.0
"""How long a server with requests may be silent before `_watch` tests whether it still takes connections."""
_SHOWN = 300  # Characters of a server's message that are passed on.
_JSON = {"Content-Type": "application/json"}
_AWAY = {429, 502, 503, 504}
_VERSIONS = (
    ("//version", "version"),
    ("//server_info", "version"),
    ("//get_server_info", "version"),
    ("//props", "build_info"),
    ("//health/readiness", "litellm_version"),
)

_log = logging.getLogger(__name__)


class ServerLost(EngineLost):
    """A server has been silent for `wait_seconds`."""


class _Response(NamedTuple):
    """A response in the form that `elastic_core.system.retry` reads."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class _Away(Exception):
    """The server did not answer, or takes no requests now."""

    def __init__(self, reason: str, response: _Response | None = None) -> None:
        super().__init__(reason)
        self.response = response


class _Broken(_Away):
    """This request seems to break the server."""


class HttpServer:
    """Use as `async with HttpServer(name, address, parameters) as server:`. The model's name in the settings names the
    environment variable of its key, unless `key_from` does. `last_answer` is by the monotonic clock."""

    def __init__(
        self, name: str, address: Address, parameters: EndpointParameters, key_from: str | None = None
    ) -> None:
        self.address = address
        self.parameters = parameters
        self.last_answer = float("-inf")
        self._key_variables = [key_from] if key_from else key_variables(name, address)
        self._key = os.environ.get(key_from) if key_from else api_key(name, address)
        self._under_way = asyncio.Semaphore(parameters.max_requests)
        self._said = False
        self._exchanges: set[asyncio.Task[_Response]] = set()
        self._client = aiohttp.ClientSession(
            # A measurement runs under the requested budget.
            headers={FIXED: "true", **({"Authorization": f"Bearer {self._key}"} if self._key else {})},
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
        """The answer to a request, a JSON object; a path that begins with two slashes is below the server's root.
        Raises RequestFailed when the server refuses this request, or breaks at it; ServerLost when it answers no
        request any more."""
        return await self._retried(self._url(path), body)

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The answer to a request, object by object as it comes, without retries. Raises RequestFailed when the server
        refuses this request, or breaks off; ServerLost when it cannot be reached."""
        url = self.address.url + path
        try:
            async with self._under_way, self._request(url, body | {"stream": True}) as response:
                if response.status != 200:
                    said = self._said_by(await response.read())
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
        """See `post`."""
        return await self._retried(self._url(path), None)

    def _url(self, path: str) -> str:
        parts = urlsplit(self.address.url)
        return f"{parts.scheme}://{parts.netloc}{path[1:]}" if path.startswith("//") else self.address.url + path

    async def _retried(self, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        failures, silent_since = 0, None
        growing = as_asked_or_growing(_FIRST_WAIT, _LONGEST_WAIT)

        def is_over(state: tenacity.RetryCallState) -> bool:
            """Counts failures of a server that seems to be there; the last attempt is at `wait_seconds`."""
            nonlocal failures, silent_since
            error, now = state.outcome.exception() if state.outcome else None, time.monotonic()
            others_answered = silent_since is not None and self.last_answer > silent_since
            response = error.response if isinstance(error, _Away) else None
            asked_to_wait = response is not None and response.status_code == 429
            failures += isinstance(error, _Broken) or (others_answered and not asked_to_wait)
            if silent_since is None or others_answered:
                silent_since = now
            if failures >= _ATTEMPTS:
                return True
            left = silent_since + self.parameters.wait_seconds - now
            state.upcoming_sleep = max(0.0, min(state.upcoming_sleep, left))
            # The first failure may be a connection that closed while idle.
            if left > 0 and state.attempt_number > 1 and not self._said:
                self._said = True
                _log.warning("waiting up to %g s for %s: %s", self.parameters.wait_seconds, self.address, error)
            return left <= 0

        when = tenacity.retry_if_exception_type(_Away)
        retrying = tenacity.AsyncRetrying(retry=when, wait=growing, stop=is_over, reraise=True)
        try:
            async with self._under_way:
                return await retrying(self._send, url, body)
        except _Away as error:
            if failures >= _ATTEMPTS:
                raise RequestFailed(f"{self.address} failed {_ATTEMPTS} times at a request: {error}") from None
            waited = self.parameters.wait_seconds
            silent = f"did not answer for {waited:g} s (endpoint.wait_seconds)" if waited else "does not answer"
            raise ServerLost(f"{self.address} {silent}: {error}") from None

    def _request(self, url: str, body: dict[str, Any] | None) -> Any:
        method, data = ("GET", None) if body is None else ("POST", orjson.dumps(body))
        # Without redirects: the key is for the address in the settings alone.
        return self._client.request(method, url, data=data, headers=_JSON, allow_redirects=False)

    async def _send(self, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async def exchanged() -> _Response:
            async with self._request(url, body) as answer:
                return _Response(answer.status, answer.headers, await answer.read())

        exchange = asyncio.create_task(exchanged())
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        try:
            response = await exchange
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _Away(f"{url} takes no connections any more") from None  # `_watch` cancelled it.
        except TimeoutError:
            raise _Away(f"no answer of {url} in {self.parameters.timeout_seconds:g} s") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise _Away(f"{type(error).__name__} of {url}: {error}".removesuffix(": ")) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise RequestFailed(f"{url}: {type(error).__name__}: {error}") from None
        if response.status_code == 200:
            self.last_answer, self._said = time.monotonic(), False
            try:
                found = orjson.loads(response.content)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                raise RequestFailed(f"{url} answered with no JSON object, but {_text(response.content)!r}")
            return found
        reason = f"HTTP {response.status_code}: {self._said_by(response.content)}"
        if response.status_code in _AWAY:
            raise _Away(reason, response)
        if response.status_code >= 500:
            raise _Broken(reason, response)
        self.last_answer = time.monotonic()
        if response.status_code in (401, 403):
            found, names = "a key" if self._key else "no key", " or ".join(self._key_variables)
            raise UserError(f"{self.address} refused {found} ({reason}); set {names} in the environment")
        raise RequestFailed(f"{self.address} refused a request, {reason}")

    async def _watch(self) -> None:
        """Cancel the requests under way when the server takes no new connections. After SIGTERM vLLM stops its engine
        and leaves open connections without an answer."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            silent = time.monotonic() - self.last_answer > _LOOK_SECONDS
            if not self._exchanges or not silent:
                continue
            try:
                async with asyncio.timeout(_CONNECT_SECONDS), self._request(f"{self.address.url}/models", None):
                    pass
            except aiohttp.ClientConnectorError:
                for exchange in tuple(self._exchanges):
                    exchange.cancel()
            except (aiohttp.ClientError, TimeoutError):
                pass

    def _said_by(self, content: bytes) -> str:
        """The reason in the server's refusal, without the key."""
        try:
            found = orjson.loads(content)
            error = found.get("error", found)
            said = _text(error.get("message", error) if isinstance(error, dict) else error)
        except (ValueError, AttributeError):
            said = _text(content)
        return said.replace(self._key, "***") if self._key else said


def _text(said: Any) -> str:
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return " ".join(text.split())[:_SHOWN]


async def look(server: HttpServer, model: str) -> Served:
    """The server's report of itself and of the model. Raises UserError when it does not serve the model, refuses the
    key, or has no API there; ServerLost when it does not answer."""
    address = server.address
    try:
        found = await listed_models(server)
    except RequestFailed as error:
        if address.chat:  # Some gateways list no models.
            return Served("unknown", "unknown", "", None)
        raise UserError(f"{address.url}/models gave no list of models ({error}); is this the API's address?") from None
    if model not in found:
        there = ", ".join(found) or "none"
        raise UserError(f'{address.url} serves no model "{model}"; expected one of {there} after the #')
    card = found[model]
    context = card.get("max_model_len")
    if not isinstance(context, int) and not address.chat:
        raise UserError(
            f"{address.url}/models does not say the context of {model} (max_model_len), as vLLM and SGLang do; ask "
            f"another server through its chat API: {CHAT}{address}"
        )
    version = "unknown" if address.chat else await server_version(server)
    return Served(str(card.get("owned_by") or "unknown"), version, str(card.get("root") or ""), context)


async def listed_models(server: HttpServer) -> dict[str, dict[str, Any]]:
    """What the server says of each of its models, by name. Raises as `HttpServer.get`."""
    try:
        return {str(each["id"]): each for each in (await server.get("/models"))["data"]}
    except (KeyError, TypeError):
        raise RequestFailed('no "data" in it') from None


async def server_version(server: HttpServer) -> str:
    """The version by vLLM's /version, SGLang's /server_info, llama.cpp's /props or LiteLLM's /health/readiness;
    "unknown" where there is none, as of a hosted API."""
    for path, key in _VERSIONS:
        try:
            found = (await server.get(path)).get(key)
        except (RequestFailed, UserError):
            continue
        if isinstance(found, str):
            return found
    return "unknown"
