"""Addresses and ports that services listen on."""

from __future__ import annotations

import contextlib
from typing import Any

from elastic_core.errors import UserError


def require_free_port(host: str, port: int, service: str, option: str | None = None) -> None:
    """Raise UserError if `port` cannot be listened on, naming who has it where that can be known, and the command's
    option for another one (None: --SERVICE-port)."""
    import socket

    family, kind, protocol, _, address = _resolve(host, port)
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise UserError(
                f"{service} cannot listen on {host} port {port} ({error.strerror}{_owner(port)}): "
                f"stop what uses it, or choose another port with {option or f'--{service}-port'}"
            ) from error


def reachable(host: str) -> str:
    """The address to call a server by that listens on `host`."""
    wildcard = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return wildcard.get(host, f"[{host}]" if ":" in host else host)


def _resolve(host: str, port: int) -> tuple[Any, ...]:
    import socket

    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise UserError(f"no address {host!r} on this machine ({error.strerror}); use 127.0.0.1") from error


def _owner(port: int) -> str:
    """ " by process N (name)" for a port one of the user's processes listens on; others' cannot be looked up."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f", by process {connection.pid}, {psutil.Process(connection.pid).name()}"
    return ""
