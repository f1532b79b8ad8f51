"""The trajectory table on disk: append-only parquet shards that a reader may open at any moment, and a manifest of what
its rows have in common. Rows of another origin are refused.

Promised: a shard is there whole or not at all, also after a kill or a power cut; a key never appears twice; one
writer at a time. Not promised: an order of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from elastic_core.errors import UserError
from elastic_core.system.files import LockHeld, exclusive, replacing, write_text
from elastic_core.trajectory import KEY, SCHEMA

MANIFEST = "manifest.json"  # File in the table's directory.

_SHARDS = "rows-*.parquet"
_KEY = list(KEY)
_TEXT = [name for name in _KEY if SCHEMA[name] == pl.String]


class ManifestMismatch(UserError):
    """The table on disk was made from something else."""


@dataclass(frozen=True)
class Manifest:
    """Provenance of a trajectory table."""

    models: dict[str, str]  # Name → fingerprint of its checkpoint.
    engines: dict[str, str]  # Name of a model → fingerprint of the engine that ran it.
    benchmarks: dict[str, str]  # Name → hash of its file.
    settings: dict[str, Any]
    """Temperature, top_p, seed and what else changes a row without being part of its key."""
    templates: dict[str, str] = field(default_factory=dict)
    """Strategy → fingerprint of the thought templates that it searches."""
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)  # Model → the server that ran it.
    template_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Model → what its chat template was told."""
    stores: dict[str, dict[str, str]] = field(default_factory=dict)
    """Model → benchmark (or benchmark/strategy, with templates) → directory of the `TrajectoryStore`, relative to the
    table's. Empty where the table holds the rows itself."""

    def joined_with(self, new: Manifest, table: Path) -> Manifest:
        """Both together: a table may gain models, benchmarks and strategies. ManifestMismatch names other changes."""
        for section in asdict(self):
            before, now = getattr(self, section), getattr(new, section)
            names = before.keys() | now.keys() if section == "settings" else before.keys() & now.keys()
            for name in sorted(names):
                if before.get(name) != now.get(name):
                    raise ManifestMismatch(
                        f"{table}: its rows were made with {section[:-1]} {name} = {before.get(name)}, now it is "
                        f"{now.get(name)}; restore that, write to another directory, or delete this one to start over"
                    )
        return Manifest(**{section: getattr(self, section) | getattr(new, section) for section in asdict(self)})

    def dumps(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def load(cls, file: Path) -> Manifest:
        """Raises ManifestMismatch when the file is not a manifest."""
        try:
            return cls(**json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise ManifestMismatch(f"{file}: not the manifest of a trajectory table ({error})") from error


class TableLocked(UserError):
    """Another process writes this table."""


class DuplicateKey(RuntimeError):
    """A row came whose key the table has: a defect of the caller."""


class TrajectoryStore:
    """A directory with the table's shards, its manifest and its lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._keys: _Keys | None = None  # Held while writing.

    def shards(self) -> list[Path]:
        return sorted(self.directory.glob(_SHARDS))

    def scan(self, shards: Iterable[str] | None = None) -> pl.LazyFrame:
        """All rows there are now, or those of some shards (as `finished` names them; others are ignored)."""
        files = self.shards()
        if shards is not None:
            wanted = set(shards)
            files = [file for file in files if str(file) in wanted]
        if not files:
            return pl.LazyFrame(schema=SCHEMA)
        # Shards of an earlier version lack columns that may be null.
        return pl.scan_parquet(files, glob=False, schema=SCHEMA, missing_columns="insert")

    def read(self) -> pl.DataFrame:
        return self.scan().collect()

    def finished(self) -> pl.DataFrame:
        """The key columns of every row there is, texts as categories, and the path of its shard."""
        return (self._read_keys() if self._keys is None else self._keys).frame()

    def _read_keys(self) -> _Keys:
        return _Keys(_keys_of(pl.read_parquet(file, columns=_KEY), str(file)) for file in self.shards())

    def joined_with(self, manifest: Manifest) -> Manifest:
        """The table's manifest with this one; raises as `Manifest.joined_with`."""
        file = self.directory / MANIFEST
        return Manifest.load(file).joined_with(manifest, self.directory) if file.exists() else manifest

    @contextmanager
    def writing(self, manifest: Manifest, wait_seconds: float = 0) -> Iterator[None]:
        """Hold the table for appending; half-written files of a killed writer are removed. Queues up to `wait_seconds`
        behind another writer, negative without end, then raises TableLocked; the lock of a killed process is free.
        Raises ManifestMismatch when the table's rows were made from something else."""
        with locked(self.directory, wait_seconds):
            for leftover in self.directory.glob("*.tmp"):
                leftover.unlink()
            write_text(self.directory / MANIFEST, self.joined_with(manifest).dumps(), durable=True)
            self._keys = self._read_keys()
            try:
                yield
            finally:
                self._keys = None

    def append(self, rows: pl.DataFrame) -> None:
        """Write one shard, inside `writing`. After return the rows survive a power cut. Raises DuplicateKey, and writes
        nothing, when a key is in the table or twice in `rows`."""
        assert self._keys is not None, "append needs `with store.writing(manifest)`"
        if rows.schema != SCHEMA:
            raise ValueError(f"rows have the columns {dict(rows.schema)}; expected {dict(SCHEMA)}")
        if rows.is_empty():
            return
        last = max((int(shard.stem.rpartition("-")[2]) for shard in self.shards()), default=-1)
        target = self.directory / f"rows-{last + 1:06d}.parquet"
        new = _keys_of(rows, str(target))
        repeated = self._keys.repeated(new)
        if not repeated.is_empty():
            raise DuplicateKey(f"{self.directory}: {repeated.height} rows have a key twice, such as {repeated.row(0)}")
        self._write(rows, target)
        self._keys.add(new)

    def rewrite(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Replace every shard by `change` of it, one after the other, where that differs; keys stay. Raises as
        `locked`, but inside `writing`, which holds the lock."""
        with locked(self.directory) if self._keys is None else nullcontext():
            for shard in self.shards():
                before = self.scan([str(shard)]).collect()
                rows = change(before)
                assert rows.schema == SCHEMA and rows.select(_KEY).equals(before.select(_KEY))
                if not rows.equals(before):
                    self._write(rows, shard)

    def _write(self, rows: pl.DataFrame, target: Path) -> None:
        with replacing(target, durable=True) as temporary:
            rows.write_parquet(temporary)


@contextmanager
def locked(directory: Path, wait_seconds: float = 0) -> Iterator[None]:
    """Hold a table alone; raises TableLocked when another process holds it."""
    try:
        with exclusive(directory, wait_seconds):
            yield
    except LockHeld as holder:
        raise TableLocked(
            f"{directory}: {holder} is writing this table; wait for it, stop it, or use another directory"
        ) from None


def _keys_of(rows: pl.DataFrame, shard: str) -> pl.DataFrame:
    """The key columns of one shard's rows, texts as categories, and the shard's name: all that stays in memory."""
    texts = pl.col(_TEXT).cast(pl.Categorical)
    return rows.select(_KEY).with_columns(texts, shard=pl.lit(shard).cast(pl.Categorical))


class _Keys:
    """Keys of all rows while a table is written, and their hashes, sorted, so that new keys are looked up quickly."""

    def __init__(self, keys: Iterable[pl.DataFrame]) -> None:
        self._frames = [_keys_of(pl.DataFrame(schema=SCHEMA), ""), *keys]
        self._hashes = np.sort(_hashes(self.frame()))

    def frame(self) -> pl.DataFrame:
        self._frames = [pl.concat(self._frames)]
        return self._frames[0]

    def add(self, keys: pl.DataFrame) -> None:
        self._frames.append(keys)
        # Stable sorting merges two sorted runs in one pass.
        self._hashes = np.sort(np.concatenate([self._hashes, np.sort(_hashes(keys))]), kind="stable")

    def repeated(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Those of these keys that are known, or twice among them."""
        hashes = _hashes(keys)
        twice = keys.filter(keys.select(_KEY).is_duplicated())
        found = np.searchsorted(self._hashes, hashes, "right") > np.searchsorted(self._hashes, hashes, "left")
        if not found.any():
            return twice
        return pl.concat([twice, keys.join(self.frame(), on=_KEY, how="semi", nulls_equal=True)])


def _hashes(keys: pl.DataFrame) -> np.ndarray:
    """Equal for equal keys, and nearly always different for others. Shape (keys,)."""
    return keys.select(_KEY).with_columns(pl.col(_TEXT).cast(pl.String)).hash_rows().to_numpy()
