"""The keys of a table's rows while it is written: what is new is held against all of them in a time that does not grow
with the table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from elastic_core.trajectory import KEY, SCHEMA

_KEY = list(KEY)
_TEXT = [name for name in _KEY if SCHEMA[name] == pl.String]


def keys_of(rows: pl.DataFrame, shard: str) -> pl.DataFrame:
    """The key columns of one shard's rows and its name; texts as categories: they are all that stays in memory of a
    table however long."""
    texts = pl.col(_TEXT).cast(pl.Categorical)
    return rows.select(_KEY).with_columns(texts, shard=pl.lit(shard).cast(pl.Categorical))


class Keys:
    """Keys of all rows, and their hashes in sorted runs, each at least twice as long as the next: there are few."""

    def __init__(self, keys: Iterable[pl.DataFrame]) -> None:
        self._frames: list[pl.DataFrame] = [keys_of(pl.DataFrame(schema=SCHEMA), "")]
        self._hashes: list[np.ndarray] = []
        for frame in keys:
            self.add(frame)

    def frame(self) -> pl.DataFrame:
        """All of them, as `keys_of` has them."""
        self._frames = [pl.concat(self._frames)]
        return self._frames[0]

    def add(self, keys: pl.DataFrame) -> None:
        self._frames.append(keys)
        run = np.sort(_hashes(keys))
        while self._hashes and len(self._hashes[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._hashes.pop(), run]), kind="stable")
        self._hashes.append(run)

    def repeated(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Those of these keys that are known, or twice among them."""
        hashes = _hashes(keys)
        twice = keys.filter(keys.select(_KEY).is_duplicated())
        if not any((near == hashes).any() for near in self._near(hashes)):
            return twice
        return pl.concat([twice, keys.join(self.frame(), on=_KEY, how="semi", nulls_equal=True)])

    def _near(self, hashes: np.ndarray) -> Iterable[np.ndarray]:
        """Of each run the least that is no less than each of these hashes; its last, where all are less."""
        for run in filter(len, self._hashes):
            yield run[np.minimum(np.searchsorted(run, hashes), len(run) - 1)]


def _hashes(keys: pl.DataFrame) -> np.ndarray:
    """Equal keys have equal ones; others nearly always others. Shape (keys,)."""
    return keys.select(_KEY).with_columns(pl.col(_TEXT).cast(pl.String)).hash_rows().to_numpy()
