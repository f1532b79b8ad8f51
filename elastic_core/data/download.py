"""Files from the network: GitHub and the hub alike, retried, resumed and bounded; the caller checks the result.

The transfers are ours. `hf_hub_download` (huggingface_hub 1.33, by HTTP as by Xet) and `pooch.retrieve` (1.9) start an
interrupted file from its first byte, and take whatever a server sends that does not end.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from elastic_core.data.dataset import GitHub, Hub
from elastic_core.errors import UserError, first_fault
from elastic_core.system.files import write_text
from elastic_core.system.network import DownloadError, TooLarge, pieces
from elastic_core.system.retry import retrying

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

NUM_ATTEMPTS = 5
FIRST_WAIT = 0.5  # seconds before the second attempt; doubled before each further one
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0  # seconds until a connection stands, and until the next bytes come
MAX_BYTES = 64 << 30  # of a file of unknown size


@dataclass(frozen=True)
class Pin:
    """What identifies a file's content; None where it is not known. `bytes` is its size."""

    sha256: str | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        size = "" if self.bytes is None else f" ({self.bytes} bytes)"
        return f"sha256 {self.sha256 or 'unknown'}{size}"


@dataclass
class Entry:
    """Record of one repository at the revision that data sets name, in `sources.lock.json`."""

    revision: str | None = None  # the commit; None when all files came from a mirror
    patterns: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the files that each pattern stands for
    files: dict[str, Pin] = field(default_factory=dict)  # by path in the repository


_ENTRIES = TypeAdapter(dict[str, Entry])


def read_pins(file: Path) -> dict[str, Entry]:
    """Entries by key; none without the file. UserError for a file of another kind."""
    try:
        return _ENTRIES.validate_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        what = f"not a record of sources ({first_fault(error)})"
        raise UserError(f"{file}: {what}; restore it, or delete it to record anew") from None


def write_pins(file: Path, entries: Mapping[str, Entry]) -> None:
    content = _ENTRIES.dump_python(dict(entries), mode="json")
    write_text(file, json.dumps(content, indent=2, sort_keys=True) + "\n")


class Network:
    """Retries, bounds and the way to stop, for one fetch. Safe for several threads.

    A host that could not be reached is not tried again. `stop` ends all transfers with CancelledError; their bytes
    are kept. Each request raises DownloadError when the host cannot be reached or its answer is wrong, and
    UserError when it refuses: no such repository, no such revision, gated.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._unreachable: dict[str, str] = {}
        # It logs every URL at INFO, and those of the hub's storage carry signatures that grant access.
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def listing(self, source: Hub, revision: str) -> tuple[str, Mapping[str, Pin]]:
        """The commit of a revision, and the repository's files there; the sha256 of those stored in LFS."""
        from huggingface_hub import HfApi

        api = HfApi()
        host = _host(api.endpoint)
        # The client itself does not retry this request.
        listed = partial(api.dataset_info, revision=revision, files_metadata=True, timeout=READ_TIMEOUT)
        try:
            info = self._retried(partial(listed, source.repository), source, revision, host)
        except (ValueError, KeyError) as error:
            raise DownloadError(f"{host} did not answer as the hub does") from error
        if info.sha is None or info.siblings is None:
            raise DownloadError(f"{host} answered without a commit or without a list of files")
        return info.sha, {
            file.rfilename: Pin(file.lfs.sha256 if file.lfs else None, file.size) for file in info.siblings
        }

    def download(self, source: GitHub | Hub, name: str, revision: str, part: Path, size: int | None) -> None:
        """Bring `part` to the content of a file, going on after its bytes; nothing is kept of more than `size`
        bytes."""
        if size is not None and part.is_file() and part.stat().st_size == size:
            return  # All had arrived, and the fetch ended before it was checked.
        part.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, GitHub):
            url, login = source.url(name), dict[str, str]()
        else:
            from huggingface_hub import hf_hub_url
            from huggingface_hub.utils import build_hf_headers

            url = hf_hub_url(source.repository, name, repo_type="dataset", revision=revision)
            login = build_hf_headers()
        most = MAX_BYTES if size is None else size
        try:
            self._retried(lambda: self._receive(url, login, part, most), source, revision, _host(url))
        except TooLarge as error:
            part.unlink(missing_ok=True)
            expected = f"no more than {most}" if size is None else str(size)
            raise DownloadError(f"{_host(url)}: {error}; expected {expected}") from None

    def _retried(self, attempt: Callable[[], T], source: GitHub | Hub, revision: str, host: str) -> T:
        import httpx
        from huggingface_hub import is_offline_mode

        def checked() -> T:
            if self.stop.is_set():
                raise CancelledError
            return attempt()

        if is_offline_mode():
            raise DownloadError("not asked, because HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")
        if host in self._unreachable:
            raise DownloadError(self._unreachable[host])
        try:
            return retrying(_is_transient, NUM_ATTEMPTS, FIRST_WAIT, self.stop)(checked)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            self._unreachable[host] = f"cannot reach {host}: {error or type(error).__name__}"
            raise DownloadError(self._unreachable[host]) from error
        except httpx.HTTPError as error:
            raise _explained(error, source, revision, host) from error

    def _receive(self, url: str, login: Mapping[str, str], part: Path, most: int) -> None:
        """One attempt. Redirects to other hosts do not take the login along, and lead nowhere but to HTTP."""
        import httpx
        from tqdm import tqdm

        offset = part.stat().st_size if part.exists() else 0
        # A compressed body could not be continued: ranges would count compressed bytes.
        headers = {**login, "Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
        with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
            status, answered = response.status_code, response.headers.get("Content-Range", "")
            if offset and (status == 416 or (status == 206 and not answered.startswith(f"bytes {offset}-"))):
                part.unlink()
                raise httpx.RemoteProtocolError(f"the answer does not go on at byte {offset}")
            response.raise_for_status()
            start, mode = (offset, "ab") if status == 206 else (0, "wb")
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else None
            with (
                part.open(mode) as file,
                # Disable None shows nothing without a terminal.
                tqdm.wrapattr(file, "write", total=total, initial=start, desc=part.stem, disable=None) as counted,
            ):
                for piece in pieces(response, most - start):
                    if self.stop.is_set():
                        raise CancelledError
                    counted.write(piece)


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


def _is_transient(error: BaseException) -> bool:
    import httpx

    response = getattr(error, "response", None)  # httpx's status errors and the hub's.
    if response is not None:
        return response.status_code in (408, 429) or response.status_code >= 500
    return isinstance(error, (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError))


def _explained(error: httpx.HTTPError, source: GitHub | Hub, revision: str, host: str) -> DownloadError | UserError:
    """Explain a failed request. URLs stay out of it: those that the hub redirects to carry signatures."""
    response: httpx.Response | None = getattr(error, "response", None)
    if response is None:
        return DownloadError(f"{host}: {type(error).__name__} {error}".rstrip())
    status, code = response.status_code, response.headers.get("X-Error-Code")
    if isinstance(source, Hub):
        login = f"accept its conditions at https://{source} and log in by `hf auth login`, or set HF_TOKEN"
        if code == "GatedRepo":
            return UserError(f"{source} is gated (HTTP {status}): {login}")
        if status in (401, 403):  # 401 also of what does not exist, when the user is not logged in.
            return UserError(f"{source} is gated, private or does not exist (HTTP {status}): check its name, {login}")
        if code == "RepoNotFound":
            return UserError(f"{source}: no such data set on {host}; check its name")
        if code == "RevisionNotFound":
            return UserError(f"{source} does not have the revision {revision}; check its name")
    return DownloadError(f"{host} answered HTTP {status}")
