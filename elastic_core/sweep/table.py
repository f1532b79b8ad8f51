"""The trajectory table of a sweep: several stores read as one, under the names that the sweep gives its models.

A store holds the rows of one model, by fingerprint, on one benchmark under one sampling. So a sweep with one more
model, or with the same model under another name, finds the rows that were drawn before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl

from elastic_core.sweep.grid import checkpoints, split_model
from elastic_core.sweep.store import MANIFEST, Manifest, ManifestMismatch, TrajectoryStore, locked
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value

_NOT_OF_A_STORE = ("preset", "vllm")
"""Settings that are not part of a store's name: rows of another version of vLLM are refused, not drawn again."""


class SweepTable:
    """A directory whose manifest names the stores; one that names none is a store itself."""

    def __init__(self, directory: Path, added: Manifest | None = None) -> None:
        """Joins the manifest of what a sweep is about to write (`with_stores`) to the table's; None to read. Raises
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
        """`TrajectoryStore.writing` for all stores at once."""
        with ExitStack() as stack:
            stack.enter_context(locked(self.directory, wait_seconds))
            self._open(self.manifest)  # Another sweep may have added models meanwhile.
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
        """What is read of all stores, under the names of their models."""
        found = []
        for name, parts in self.manifest.stores.items():
            for rows in (read(self._stores[place]) for place in parts.values()):
                found.append(rows.with_columns(model=pl.lit(name).cast(rows.collect_schema()["model"])))
        return pl.concat(found or [read(self._stores["."])])

    def _manifest_of(self, place: str) -> Manifest:
        if place == ".":
            return self.manifest
        whole, told = self.manifest, self.manifest.template_settings
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
            template_settings={name: told[name] for name, _ in found if name in told},
        )


Table = TrajectoryStore | SweepTable  # Where rows of a sweep go to and come from.


def with_stores(manifest: Manifest, models: Sequence[str], table: Path, stores: Path) -> Manifest:
    """The manifest of a table's directory with a store, below `stores`, for each model (such as "A>B") on each
    benchmark. A strategy with thought templates has its own, because other templates make other rows."""
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
