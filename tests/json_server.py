"""An HTTP server on this machine that answers with JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """What it answers is up to `do_GET` and `do_POST`; `server.state` is what `listening` was given."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # A response is one write: a second small one waits 40 ms for the first's acknowledgement.
    server: Listening

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, found: Any, headers: Mapping[str, str] = {}) -> None:
        content = json.dumps(found).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    state: Any

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gives up is not an error."""


@contextmanager
def listening(handler: type[JsonHandler], state: Any, port: int = 0) -> Iterator[str]:
    """Serve on loopback, at any free port or this one; the address, up to /v1."""
    with Listening(("127.0.0.1", port), handler) as server:
        server.state = state
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
