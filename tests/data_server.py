"""A server of files with the faults of real ones, on this machine; and one that answers as the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from tests.loopback import Handler, served


@dataclass(frozen=True)
class Answer:
    """What is sent instead of, or to spoil, the proper answer."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    drop_after: int | None = None
    """Bytes of the proper body after which the connection is dropped."""


@dataclass
class Server:
    """Files by path, or by path and query.

    Attributes:
        faults: by path, what the first requests get.
        seconds: how long the first requests wait.
        requests: path and Range header of each.
        times: when each came, by the monotonic clock.
        logins: path and Authorization header of each.
        ranges: whether parts are served; otherwise always the whole.
        endless: paths whose answers never end, and the size that each announces; None for no size.
        sent: bytes of them that were taken.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Answer]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    logins: list[tuple[str, str | None]] = field(default_factory=list)
    ranges: bool = True
    endless: dict[str, int | None] = field(default_factory=dict)
    sent: int = 0
    url: str = ""

    def asked(self, path: str) -> list[str | None]:
        """The Range headers of the requests for a path."""
        return [wanted for asked, wanted in self.requests if asked == path]

    def add_hub(
        self, repository: str, commit: str, files: Mapping[str, bytes], lfs: bool = True, kind: str = "datasets"
    ) -> None:
        """Serve a repository of data sets, or of "models", at "main" and at the commit, its files in LFS behind a
        redirect, or plain."""
        siblings, tree = [], []
        for name, content in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            pointer = {"lfs": {"size": len(content), "sha256": sha256, "pointerSize": 130}} if lfs else {}
            siblings.append({"rfilename": name, "size": len(content), "blobId": "0" * 40, **pointer})
            tree.append({"type": "file", "path": name, "size": len(content), "oid": sha256[:40]})
            resolved = f"{'' if kind == 'models' else f'/{kind}'}/{repository}/resolve/{commit}/{name}"
            self.headers[resolved] = {"X-Repo-Commit": commit, "ETag": f'"{sha256}"'}
            if lfs:
                linked = {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(len(content))}
                self.headers[resolved] |= linked
                self.redirects[resolved] = f"/storage/{sha256}?X-Amz-Signature=secret"
                resolved = f"/storage/{sha256}"
            self.files[resolved] = content
        info = json.dumps({"id": repository, "sha": commit, "siblings": siblings}).encode()
        for revision in ("main", commit):
            self.files[f"/api/{kind}/{repository}/revision/{revision}"] = info
        self.files[f"/api/{kind}/{repository}/tree/{commit}"] = json.dumps(tree).encode()


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    with served(_Handler, server) as server.url:
        yield server


class _Handler(Handler):
    site: Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        is_known = self.path in {*self.site.files, *self.site.faults}
        path, wanted = self.path if is_known else urlsplit(self.path).path, self.headers.get("Range")
        self.site.times.append(time.monotonic())
        self.site.requests.append((path, wanted))
        self.site.logins.append((path, self.headers.get("Authorization")))
        fault = self.site.faults[path].pop(0) if self.site.faults.get(path) else None
        if self.site.seconds:
            time.sleep(self.site.seconds.pop(0))
        if path in self.site.endless:
            self._send_endlessly(self.site.endless[path])
        elif fault and fault.drop_after is None:
            self.answer(fault.status, fault.body or b"", fault.headers)
        elif path in self.site.redirects:
            target = urljoin(self.site.url, self.site.redirects[path])
            self.answer(302, b"", {"Location": target, **self.site.headers[path]})
        elif path in self.site.files:
            self._send_file(self.site.files[path], wanted, self.site.headers.get(path, {}), fault)
        else:
            self.answer(404, b"not here")

    def _send_file(self, content: bytes, wanted: str | None, headers: Mapping[str, str], fault: Answer | None) -> None:
        drop_after = fault.drop_after if fault else None
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.site.ranges else 0
        if start >= len(content) > 0 and start:
            self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        elif start:
            part = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            self.answer(206, content[start:], {**headers, **part}, drop_after)
        else:
            self.answer(200, content, headers, drop_after)

    def _send_endlessly(self, announced: int | None) -> None:
        self.close_connection = True
        self.send_response(200)
        if announced is not None:
            self.send_header("Content-Length", str(announced))
        self.end_headers()
        with suppress(OSError):  # The client hangs up.
            while True:
                self.site.sent += self.wfile.write(bytes(1 << 16))
