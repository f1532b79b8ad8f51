"""Answers from the network, no larger than they may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


class TooLarge(Exception):
    """More bytes than may come; the message says how many were announced or had come."""


def pieces(response: httpx.Response, most: int) -> Iterator[bytes]:
    """The body of a streamed response, piece by piece.

    Args:
        most: bytes that it may have, after decoding.

    Raises:
        TooLarge: as soon as more are announced, or have come; a server need not announce any number.
    """
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) > most:
        raise TooLarge(f"{announced} bytes are announced")
    received = 0
    for piece in response.iter_bytes():
        received += len(piece)
        if received > most:
            raise TooLarge(f"{received} bytes came and more would have")
        yield piece
