"""Ports are chosen where no connection can take them before their service does."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from elastic_core.system.network import free_ports


def test_ports_differ_can_be_listened_on_and_are_given_to_no_connection() -> None:
    ports = free_ports(9)
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
    assert len(set(ports)) == 9
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(free_ports(100)) < int(first), "no connection gets such a port"


def test_a_port_that_is_listened_on_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr("elastic_core.system.network._RANGE", range(number, number + 1))
        with pytest.raises(OSError, match="no 1 free ports"):
            free_ports(1)
