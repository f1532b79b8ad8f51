"""The network: addresses and ports that services listen on, and answers of a limited size."""

from __future__ import annotations

import ipaddress
import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from elastic_core.errors import UserError

if TYPE_CHECKING:
    import httpx

HOST = "127.0.0.1"
"""Where processes of one machine listen for each other, out of reach of others."""
ON_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment: by themselves gloo and NCCL listen on the interface that other machines reach this one by."""
LOCAL_PAGES = "http://localhost"
"""Of the origins that a server answers: every page that this machine serves, on any port, and programs that show pages
of their own (app://, tauri://, chrome-extension://). A page from elsewhere has http, https or null."""
LOCAL_PAGE = r"https?://((.+\.)?localhost|127\.0\.0\.1|\[::1\])(:\d+)?|(?!https?:)[a-z][a-z0-9+.-]*://.+"
_RANGE = range(20_000, 32_768)
"""Below Linux's ephemeral ports, which any connection may take before the service listens, and above Ray's workers'."""


class DownloadError(Exception):
    """Another machine did not answer as requested; the message says why."""


class TooLarge(Exception):
    """More bytes than may come; the message says how many were announced or had come."""


def pieces(response: httpx.Response, most: int) -> Iterator[bytes]:
    """The body of a streamed response, piece by piece. Raises TooLarge as soon as more than `most` bytes, after
    decoding, are announced or have come."""
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) > most:
        raise TooLarge(f"{announced} bytes are announced")
    received = 0
    for piece in response.iter_bytes():
        received += len(piece)
        if received > most:
            raise TooLarge(f"{received} bytes came and more would have")
        yield piece


def bypass_proxies(*further: str) -> None:
    """Have this process and its later children call loopback, and `further` hosts, without a proxy: where the
    environment names one (`http_proxy`), most clients ask it for this machine too. What `no_proxy` has is kept."""
    # Of two spellings a program that reads both lets one hide the other. "*" means every host only where it is alone.
    lower, upper = (os.environ.get(name, "") for name in ("no_proxy", "NO_PROXY"))
    for name, value in (("no_proxy", lower or upper), ("NO_PROXY", upper or lower)):
        hosts = [host.strip() for host in value.split(",") if host.strip()]
        if hosts != ["*"]:
            os.environ[name] = ",".join(dict.fromkeys([*hosts, "localhost", HOST, "::1", *further]))


def answers(url: str) -> bool:
    """Whether `url` answers 200."""
    import httpx

    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def free_ports(count: int) -> list[int]:
    """`count` ports that nothing on loopback listens on. OSError when there are fewer."""
    # Unseeded: two processes that look at the same time hardly find the same.
    candidates = random.SystemRandom().sample(_RANGE, len(_RANGE))
    found = list(islice(filter(_is_free, candidates), count))
    if len(found) < count:
        raise OSError(f"no {count} free ports from {_RANGE.start} to {_RANGE.stop - 1}")
    return found


def require_free_port(host: str, port: int, service: str, option: str | None = None) -> None:
    """Raise UserError if `port` cannot be listened on, with the process that has it if it is the user's, and the
    command's option for another one (None: --SERVICE-port)."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise UserError(f"no address {host!r} on this machine ({error.strerror}); use {HOST}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise UserError(
                f"{service} cannot listen on {host} port {port} ({error.strerror}{_owner(port)}): "
                f"stop what uses it, or choose another port with {option or f'--{service}-port'}"
            ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there. Raises UserError when this machine has no such address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(f"no address {host!r} on this machine ({error.strerror}); use {HOST}") from None
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def reachable(host: str) -> str:
    """The address to call a server by that listens on `host`."""
    wildcard = {"0.0.0.0": HOST, "::": "[::1]"}
    return wildcard.get(host, f"[{host}]" if ":" in host else host)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _owner(port: int) -> str:
    """ " by process N (name)" for a port one of the user's processes listens on; others' cannot be looked up."""
    import psutil

    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f", by process {connection.pid}, {psutil.Process(connection.pid).name()}"
    return ""
