"""Files from the network: GitHub by plain URLs, the hub by its own client; both retried and resumed alike.

What arrives is checked by the caller. The bodies of hub files are streamed here too, because `hf_hub_download`
deletes what it has of a file when it is interrupted (huggingface_hub 1.33), and the largest files are on the hub.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from elastic_core.bounded import TooLarge, pieces
from elastic_core.data.dataset import GitHub, Hub
from elastic_core.data.lock import Pin
from elastic_core.errors import UserError

if TYPE_CHECKING:
    import httpx
    from huggingface_hub.hf_api import DatasetInfo
    from tenacity import RetryCallState

T = TypeVar("T")

NUM_ATTEMPTS = 5
FIRST_WAIT = 0.5
"""Seconds before the second attempt; doubled before each further one."""
LONGEST_WAIT = 300.0
"""Seconds, even if the server asks for more: the hub counts requests in windows of five minutes."""
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0
"""Seconds until a connection stands, and until the next bytes come."""
MAX_BYTES = 64 << 30
"""Of a file whose size nobody knows before it comes."""


class NotObtained(Exception):
    """The network did not give a file; the message says why."""


class Interrupted(Exception):
    """The fetch was given up while this transfer ran."""


@dataclass(frozen=True)
class Listing:
    """A hub repository at a commit. The files' sha256 are given where they are stored in LFS."""

    commit: str
    files: Mapping[str, Pin]


class Network:
    """The network during one fetch. Safe for several threads.

    A host that could not be reached is not asked again, and a hub repository is listed once.

    Attributes:
        stop: set to end all transfers; what they have is kept.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._unreachable: dict[str, str] = {}
        self._listings: dict[Hub, Listing | Exception] = {}
        self._listing_locks: defaultdict[Hub, threading.Lock] = defaultdict(threading.Lock)
        # It logs every URL at INFO, and those of the hub's storage carry signatures that grant access.
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def listing(self, source: Hub, revision: str) -> Listing:
        """The repository's files and the commit that the revision stands for.

        Raises:
            NotObtained: when the hub cannot be asked.
            UserError: when it refuses: no such repository, no such revision, gated.
        """
        with self._listing_locks[source]:
            if source not in self._listings:
                try:
                    self._listings[source] = self._list(source, revision)
                except (NotObtained, UserError) as error:
                    self._listings[source] = error
        listing = self._listings[source]
        if isinstance(listing, Exception):
            raise listing
        return listing

    def download(self, source: GitHub | Hub, name: str, commit: str, part: Path, size: int | None) -> bool:
        """Bring `part` to the whole content of a file, going on after the bytes that it has.

        Args:
            size: of the file in bytes, where it is known. A larger one is given up, and nothing of it is kept.

        Returns:
            Whether it was put together from more than one response.

        Raises:
            NotObtained, UserError: as `listing`.
            OSError: when it cannot be written.
        """
        _refuse_offline()
        part.parent.mkdir(parents=True, exist_ok=True)
        remote = _remote(source, name, commit)
        most = MAX_BYTES if size is None else size
        try:
            return self._retried(lambda: self._receive(remote, part, most), source, commit, _host(remote.url))
        except TooLarge as error:
            part.unlink(missing_ok=True)
            expected = f"no more than {most}" if size is None else str(size)
            raise NotObtained(f"{_host(remote.url)}: {error}; expected {expected}") from None

    def _list(self, source: Hub, revision: str) -> Listing:
        _refuse_offline()
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HFValidationError

        api = HfApi()

        def attempt() -> DatasetInfo:
            # The client itself does not retry this request.
            return api.dataset_info(source.repository, revision=revision, files_metadata=True, timeout=READ_TIMEOUT)

        try:
            info = self._retried(attempt, source, revision, _host(api.endpoint))
        except HFValidationError as error:
            raise UserError(f"{source}: not a name of a data set on the hub: {error}") from error
        except (ValueError, KeyError) as error:
            raise NotObtained(f"{_host(api.endpoint)} did not answer as the hub does") from error
        if info.sha is None or info.siblings is None:
            raise NotObtained(f"{_host(api.endpoint)} answered without a commit or without a list of files")
        files = {file.rfilename: Pin(file.lfs.sha256 if file.lfs else None, file.size) for file in info.siblings}
        return Listing(info.sha, files)

    def _retried(self, attempt: Callable[[], T], source: GitHub | Hub, revision: str, host: str) -> T:
        import httpx
        import tenacity

        if host in self._unreachable:
            raise NotObtained(self._unreachable[host])
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(NUM_ATTEMPTS),
            retry=tenacity.retry_if_exception(_is_transient),
            wait=_wait,
            sleep=tenacity.sleep_using_event(self.stop),
            before=lambda _: self._check(),
            reraise=True,
        )
        try:
            return retrying(attempt)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            self._unreachable[host] = f"cannot reach {host}: {error or type(error).__name__}"
            raise NotObtained(self._unreachable[host]) from error
        except httpx.HTTPError as error:
            raise _explained(error, source, revision, host) from error

    def _receive(self, remote: _Remote, part: Path, most: int) -> bool:
        """One attempt. Returns whether the body continued what `part` had."""
        offset = part.stat().st_size if part.exists() else 0
        with remote.request(offset) as response:
            if offset and response.headers.get("Content-Range") == f"bytes */{offset}":
                return True  # All had arrived, and the fetch ended before it was checked.
            if not offset or _continues(response, offset):
                remote.raise_for_status(response)
                self._write(response, part, most)
                return response.status_code == 206
        part.unlink()
        return self._receive(remote, part, most)

    def _write(self, response: httpx.Response, part: Path, most: int) -> None:
        from tqdm import tqdm

        resumed = response.status_code == 206
        start = part.stat().st_size if resumed else 0
        length = response.headers.get("Content-Length")
        bar = tqdm(
            total=start + int(length) if length else None,
            initial=start,
            desc=part.stem,
            unit="B",
            unit_scale=True,
            disable=None,  # Where nobody watches.
        )
        with part.open("ab" if resumed else "wb") as file, bar:
            for piece in pieces(response, most - start):
                self._check()
                file.write(piece)
                bar.update(len(piece))

    @contextmanager
    def alone(self, lock: Path) -> Iterator[None]:
        """Hold a lock file, so that no two processes write to one partial download."""
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(lock)
        while not held.is_locked:
            self._check()
            with suppress(Timeout):
                held.acquire(timeout=1)
        try:
            yield
        finally:
            held.release()

    def _check(self) -> None:
        if self.stop.is_set():
            raise Interrupted


@dataclass(frozen=True)
class _Remote:
    """A file's address, and how to ask for it and recognise a refusal."""

    url: str
    stream: Callable[..., AbstractContextManager[httpx.Response]]
    raise_for_status: Callable[[httpx.Response], object]
    headers: Mapping[str, str]

    def request(self, offset: int) -> AbstractContextManager[httpx.Response]:
        """Ask for the bytes from `offset` on. Redirects to other hosts do not take the login along."""
        import httpx

        # A compressed body could not be continued: ranges would count compressed bytes.
        headers = {**self.headers, "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
        return self.stream("GET", self.url, headers=headers, timeout=timeout, follow_redirects=True)


def _remote(source: GitHub | Hub, name: str, commit: str) -> _Remote:
    if isinstance(source, GitHub):
        import httpx

        return _Remote(source.url(name), httpx.stream, httpx.Response.raise_for_status, {})
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    url = hf_hub_url(source.repository, name, repo_type="dataset", revision=commit)
    return _Remote(url, get_session().stream, hf_raise_for_status, build_hf_headers())


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


def _refuse_offline() -> None:
    """Hold to HF_HUB_OFFLINE as the hub's client does, for every host.

    Raises:
        NotObtained: when it is set.
    """
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}:
            raise NotObtained(f"not asked, because {variable} is set")


def _continues(response: httpx.Response, offset: int) -> bool:
    """Whether the answer to a request from `offset` on is of use: that part, the whole, or an error that stands."""
    if response.status_code == 206:
        return response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
    return response.status_code != 416


def _is_transient(error: BaseException) -> bool:
    import httpx

    response = getattr(error, "response", None)  # httpx's status errors and the hub's.
    if response is not None:
        return response.status_code in (408, 429) or response.status_code >= 500
    return isinstance(error, (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError))


def _wait(state: RetryCallState) -> float:
    """Seconds until the next attempt: what the server asks for, else exponentially more; with jitter."""
    error = state.outcome.exception() if state.outcome else None
    asked = _retry_after(getattr(error, "response", None))
    wait = FIRST_WAIT * 2 ** (state.attempt_number - 1) if asked is None else asked
    return min(wait, LONGEST_WAIT) + random.uniform(0, FIRST_WAIT)


def _retry_after(response: httpx.Response | None) -> float | None:
    """Seconds that the server asks to wait, in Retry-After (seconds or a date) or in the hub's RateLimit header."""
    if response is None:
        return None
    asked = response.headers.get("Retry-After", "").strip()
    if asked.isdigit():
        return float(asked)
    if asked:
        try:
            return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
        except ValueError:
            return None
    reset = re.search(r";\s*r=0\s*;\s*t=(\d+)", response.headers.get("RateLimit", ""))
    return float(reset[1]) if reset and response.status_code == 429 else None


def _explained(error: httpx.HTTPError, source: GitHub | Hub, revision: str, host: str) -> NotObtained | UserError:
    """What a failed request means. URLs stay out of it: those that the hub redirects to carry signatures."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(source, Hub):
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        login = f"accept its conditions at https://{source} and log in by `hf auth login`, or set HF_TOKEN"
        if isinstance(error, GatedRepoError) or status == 403 or (status == 401 and source.gated):
            return UserError(f"{source} is gated (HTTP {status}): {login}")
        if status == 401:  # The hub says so, too, of repositories that do not exist, when nobody is logged in.
            return UserError(f"{source} is gated, private or does not exist (HTTP 401): check its name, {login}")
        if isinstance(error, RepositoryNotFoundError):
            return UserError(f"{source}: no such data set on {host}; check its name")
        if isinstance(error, RevisionNotFoundError):
            return UserError(f"{source} does not have the revision {revision}; check its name")
    if status is not None:
        return NotObtained(f"{host} answered HTTP {status}")
    return NotObtained(f"{host}: {type(error).__name__} {error}".rstrip())
