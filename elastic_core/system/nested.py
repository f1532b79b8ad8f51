"""Tables within tables, as settings are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that is not a table, or an empty one, with its keys from the outermost on."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, *above, key)
        else:
            yield (*above, key), value
