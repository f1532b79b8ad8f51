"""Ports for services that are told which to listen on, rather than saying which they got."""

from __future__ import annotations

import random
import socket
from itertools import islice

from elastic_core.loopback import HOST

_RANGE = range(20_000, 32_768)
"""Below Linux's ephemeral ports, which any connection may take before the service listens, and above Ray's workers'."""


def free_ports(count: int) -> list[int]:
    """So many different ports that nothing on loopback listens on.

    Raises:
        OSError: when there are not so many.
    """
    # Unseeded, so that two processes that look at the same time hardly find the same.
    candidates = random.SystemRandom().sample(_RANGE, len(_RANGE))
    found = list(islice(filter(_is_free, candidates), count))
    if len(found) < count:
        raise OSError(f"no {count} free ports from {_RANGE.start} to {_RANGE.stop - 1}")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
