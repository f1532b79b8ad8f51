"""A small HTTP server on this machine, in a thread: what the servers that tests play are made of."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers a request; `site` is what `served` was given."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # A response is one write: a second small one waits 40 ms for the first's acknowledgement.
    site: Any

    def answer(
        self,
        status: int,
        found: bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        drop_after: int | None = None,
    ) -> None:
        """Send bytes, or an object as JSON. With `drop_after` the connection is dropped after so many bytes of it."""
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:drop_after])
        self.close_connection |= drop_after is not None

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that leaves is not an error."""


@contextmanager
def served(handler: type[Handler], site: Any, port: int = 0) -> Iterator[str]:
    """Listen on loopback, at any free port or this one; its address, without a slash at its end."""
    with _Listening(("127.0.0.1", port), type("Bound", (handler,), {"site": site})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
