"""The trajectory table on disk: append-only parquet shards that a reader may open at any moment, and a manifest of the
provenance that its rows share. Rows of another origin are refused.

A `TrajectoryStore` holds the rows of one model, by fingerprint, on one benchmark under one sampling. A `SweepTable`
reads several as one, under the names that a sweep gives its models: a sweep with one more model, or with the same model
under another name, finds the rows that were drawn before.

Promised: a shard is there in full or not at all, also after a kill or a power cut; a key never appears twice; one
writer at a time. Not promised: an order of rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ConfigDict, TypeAdapter, ValidationError

from elastic_core.errors import UserError, first_fault
from elastic_core.sweep.grid import checkpoints, split_model
from elastic_core.system.files import LockHeld, exclusive, replacing, write_text
from elastic_core.system.fingerprint import hash_value
from elastic_core.trajectory import KEY, SCHEMA

MANIFEST = "manifest.json"  # File in the table's directory.

_SHARDS = "rows-*.parquet"
_KEY = list(KEY)
_TEXT = [name for name in _KEY if SCHEMA[name] == pl.String]
_NOT_OF_A_STORE = ("preset", "vllm")
"""Settings that are not part of a store's name: rows of another version of vLLM are refused, not drawn again."""


class ManifestMismatch(UserError):
    """The table on disk was made from something else."""


@dataclass(frozen=True)
class Manifest:
    """Provenance of a trajectory table."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    models: dict[str, str]  # Name → fingerprint of its checkpoint.
    engines: dict[str, str]  # Name of a model → fingerprint of the engine that ran it.
    benchmarks: dict[str, str]  # Name → hash of its file.
    settings: dict[str, Any]
    """Temperature, top_p, seed and what else changes a row without being part of its key."""
    templates: dict[str, str] = field(default_factory=dict)
    """Strategy → fingerprint of the thought templates that it searches, or of the code of a user's."""
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)  # Model → the server that ran it.
    template_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Model → what its chat template was told."""
    written_by: dict[str, str] = field(default_factory=dict)
    """Version and commit of each code that wrote to it → hash of its lock. Not compared: any code may go on."""
    stores: dict[str, dict[str, str]] = field(default_factory=dict)
    """Model → benchmark (benchmark/strategy for those of `templates`) → directory of the `TrajectoryStore`, relative to
    the table's. Empty where the table holds the rows itself."""

    def joined_with(self, new: Manifest, table: Path) -> Manifest:
        """Both together: a table may gain models, benchmarks and strategies. ManifestMismatch names other changes."""
        for section in asdict(self):
            before, now = getattr(self, section), getattr(new, section)
            names = before.keys() | now.keys() if section == "settings" else before.keys() & now.keys()
            for name in sorted(names) if section != "written_by" else ():
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
            return TypeAdapter(cls).validate_python(json.loads(file.read_text()))
        except ValidationError as error:
            why = first_fault(error)
        except (ValueError, RecursionError) as error:
            why = str(error)
        raise ManifestMismatch(f"{file}: not the manifest of a trajectory table ({why})")


class TableLocked(UserError):
    """Another process writes this table."""


class DuplicateKey(RuntimeError):
    """A key came a second time: a defect of the caller."""


class TrajectoryStore:
    """A directory with the table's shards, its manifest and its lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._keys: pl.DataFrame | None = None  # Held while writing.

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
        return self._read_keys() if self._keys is None else self._keys

    def _read_keys(self) -> pl.DataFrame:
        none = _keys_of(pl.DataFrame(schema=SCHEMA), "")
        found = (_keys_of(pl.read_parquet(file, columns=_KEY), str(file)) for file in self.shards())
        return pl.concat([none, *found])

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
        known = self._keys.join(new, on=_KEY, how="semi", nulls_equal=True)
        repeated = pl.concat([new.filter(new.select(_KEY).is_duplicated()), known])
        if not repeated.is_empty():
            raise DuplicateKey(f"{self.directory}: {repeated.height} rows have a key twice, such as {repeated.row(0)}")
        self._write(rows, target)
        self._keys = pl.concat([self._keys, new])

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


class SweepTable:
    """A directory with a manifest that names the stores; one that names none is a store itself."""

    def __init__(self, directory: Path, added: Manifest | None = None) -> None:
        """Join the manifest of a sweep that is about to write (`with_stores`) with the table's; None to read. Raises
        ManifestMismatch when the table's rows were made from something else, or its manifest is broken, and
        FileNotFoundError without any."""
        self.directory = directory
        self._open(added)

    def shards(self) -> list[Path]:
        return sorted(shard for store in self._stores.values() for shard in store.shards())

    def scan(self, shards: Iterable[str] | None = None) -> pl.LazyFrame:
        wanted = None if shards is None else list(shards)
        return self._joined(lambda store: store.scan(wanted))

    def read(self) -> pl.DataFrame:
        return self.scan().collect()

    def finished(self) -> pl.DataFrame:
        return self._joined(lambda store: store.finished().lazy()).collect()

    def check(self) -> None:
        """Raises ManifestMismatch when a store's rows were made by another version of vLLM."""
        for place, store in self._stores.items():
            store.joined_with(self._manifest_of(place))

    @contextmanager
    def writing(self, wait_seconds: float = 0) -> Iterator[None]:
        """`TrajectoryStore.writing` for all stores together."""
        with ExitStack() as stack:
            stack.enter_context(locked(self.directory, wait_seconds))
            self._open(self.manifest)  # Another sweep may have added models since.
            # Sorted, so that two sweeps with stores in common cannot deadlock.
            for place, store in sorted(self._stores.items()):
                stack.enter_context(store.writing(self._manifest_of(place), wait_seconds))
            write_text(self.directory / MANIFEST, self.manifest.dumps(), durable=True)
            yield

    def append(self, rows: pl.DataFrame) -> None:
        """`TrajectoryStore.append`: a shard in each store."""
        benchmark, strategy = pl.col("benchmark"), pl.col("strategy")
        part = pl.when(strategy.is_in(list(self.manifest.templates))).then(pl.format("{}/{}", benchmark, strategy))
        parts = rows.with_columns(part=part.otherwise(benchmark)).partition_by("model", "part", as_dict=True)
        for (model, name), some in parts.items():
            store = self._stores[self.manifest.stores[str(model)][str(name)]]
            store.append(some.drop("part").with_columns(model=pl.lit(_fingerprint(self.manifest, str(model)))))

    def rewrite(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """`TrajectoryStore.rewrite`; the rows that `change` sees have fingerprints for names of models."""
        for store in self._stores.values():
            store.rewrite(change)

    def _open(self, added: Manifest | None) -> None:
        file = self.directory / MANIFEST
        if added is not None and not file.exists():
            self.manifest = added
        else:
            found = Manifest.load(file)
            if added is not None and not found.stores:
                raise ManifestMismatch(
                    f"{self.directory}: holds rows itself; a sweep adds none to it, read it as it is"
                )
            self.manifest = found if added is None else found.joined_with(added, self.directory)
        places = [place for parts in self.manifest.stores.values() for place in parts.values()]
        # One object for each: two names of one model share a store's keys in memory.
        self._stores = {
            place: TrajectoryStore(Path(os.path.normpath(self.directory / place))) for place in places or ["."]
        }

    def _joined(self, read: Callable[[TrajectoryStore], pl.LazyFrame]) -> pl.LazyFrame:
        """Rows of all stores, under the names of their models."""
        found = []
        for name, parts in self.manifest.stores.items():
            for rows in (read(self._stores[place]) for place in parts.values()):
                found.append(rows.with_columns(model=pl.lit(name).cast(rows.collect_schema()["model"])))
        return pl.concat(found or [read(self._stores["."])])

    def _manifest_of(self, place: str) -> Manifest:
        if place == ".":
            return self.manifest
        whole, templates = self.manifest, self.manifest.template_settings
        found = [(name, part) for name, parts in whole.stores.items() for part, at in parts.items() if at == place]
        benchmark, _, strategy = found[0][1].partition("/")
        served = [checkpoint for name, _ in found for checkpoint in checkpoints(name).values()]
        servers = {name: whole.servers[name] for name in served if name in whole.servers}
        # Our engines' vLLM does not concern rows from a server.
        settings = {name: value for name, value in whole.settings.items() if name != "vllm" or not servers}
        return Manifest(
            models={name: _fingerprint(whole, name) for name, _ in found},
            engines={name: _engine(whole, name) for name, _ in found},
            benchmarks={benchmark: whole.benchmarks[benchmark]},
            settings=settings,
            templates={strategy: whole.templates[strategy]} if strategy else {},
            servers=servers,
            template_settings={name: templates[name] for name, _ in found if name in templates},
            written_by=whole.written_by,
        )


Table = TrajectoryStore | SweepTable  # Both hold rows of a sweep.


def with_stores(manifest: Manifest, models: Sequence[str], table: Path, stores: Path) -> Manifest:
    """The manifest of a table's directory with a store, below `stores`, for each model (such as "A>B") on each
    benchmark. A strategy of `templates` has a further one, because other templates, or other code, make other rows."""
    parts = [(name, strategy) for name in manifest.benchmarks for strategy in (None, *manifest.templates)]
    settings = {name: value for name, value in manifest.settings.items() if name not in _NOT_OF_A_STORE}
    root = os.path.relpath(stores, table)
    places: dict[str, dict[str, str]] = {}
    for model in models:
        for benchmark, strategy in parts:
            made_from = {
                "model": _fingerprint(manifest, model),
                "engine": _engine(manifest, model),
                "benchmark": (benchmark, manifest.benchmarks[benchmark]),
                "settings": settings,
                "templates": manifest.templates.get(strategy or ""),
            }
            part = f"{benchmark}/{strategy}" if strategy else benchmark
            places.setdefault(model, {})[part] = f"{root}/{benchmark}-{hash_value(made_from)[:12]}"
    return replace(manifest, stores=places)


def _fingerprint(manifest: Manifest, model: str) -> str:
    return ">".join(manifest.models[name] for name in split_model(model))


def _engine(manifest: Manifest, model: str) -> str:
    return manifest.engines[next(iter(checkpoints(model).values()))]
