"""The trajectory table of a sweep: several stores read as one, under the names that the sweep gives its models.

A store holds the rows of one model, by fingerprint, on one benchmark under one sampling. So who measures one more
model, or the same one under another name, finds what was drawn before.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from elastic_core.sweep.grid import checkpoints, split_model
from elastic_core.sweep.store import MANIFEST, Manifest, ManifestMismatch, TrajectoryStore, locked
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value

_NOT_OF_A_STORE = ("preset", "vllm")
"""Settings that make no store of their own: rows of another version of vLLM are refused, not drawn once more."""


class SweepTable:
    """A directory whose manifest names the stores; one that names none is a store itself.

    Attributes:
        manifest: of what is there, and of what is about to be added.
    """

    def __init__(self, directory: Path, added: Manifest | None = None) -> None:
        """Args:
            added: what a sweep is about to write, as `with_stores` returns it; None to read.

        Raises:
            ManifestMismatch: when the table's rows were made from something else, or its manifest is broken.
            FileNotFoundError: without a manifest, when none is added.
        """
        self.directory = directory
        self._open(added)

    def shards(self) -> list[Path]:
        """Files of the rows there are now."""
        return sorted(shard for store in self._stores.values() for shard in store.shards())

    def scan(self, shards: Iterable[str] | None = None) -> pl.LazyFrame:
        """As `TrajectoryStore.scan`."""
        wanted = None if shards is None else list(shards)
        return pl.concat([_called(store.scan(wanted), name) for name, store in self._named()])

    def read(self) -> pl.DataFrame:
        """As `scan`, in memory."""
        return self.scan().collect()

    def finished(self) -> pl.DataFrame:
        """As `TrajectoryStore.finished`."""
        return pl.concat([_called(store.finished().lazy(), name) for name, store in self._named()]).collect()

    def check(self) -> None:
        """Raises:
        ManifestMismatch: when a store's rows were made by another version of vLLM.
        """
        for place, store in self._stores.items():
            store.joined_with(self._manifest_of(place))

    @contextmanager
    def writing(self, wait_seconds: float = 0) -> Iterator[None]:
        """As `TrajectoryStore.writing`, for all stores at once."""
        with ExitStack() as stack:
            stack.enter_context(locked(self.directory, wait_seconds))
            self._open(self.manifest)  # Another sweep may have added models meanwhile.
            # Sorted, so that two sweeps with stores in common never wait for each other in a circle.
            for place, store in sorted(self._stores.items()):
                stack.enter_context(store.writing(self._manifest_of(place), wait_seconds))
            write_text(self.directory / MANIFEST, self.manifest.dumps(), durable=True)
            yield

    def append(self, rows: pl.DataFrame) -> None:
        """As `TrajectoryStore.append`: a shard in each store that rows belong to."""
        benchmark, strategy = pl.col("benchmark"), pl.col("strategy")
        part = pl.when(strategy.is_in(list(self.manifest.templates))).then(pl.format("{}/{}", benchmark, strategy))
        parts = rows.with_columns(part=part.otherwise(benchmark)).partition_by("model", "part", as_dict=True)
        for (model, name), some in parts.items():
            store = self._stores[self.manifest.stores[str(model)][str(name)]]
            store.append(some.drop("part").with_columns(model=pl.lit(_fingerprint(self.manifest, str(model)))))

    def rewrite(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """As `TrajectoryStore.rewrite`; the rows that `change` sees have fingerprints for names of models."""
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
        # One object for each: two names of one model share what is held in memory of its store.
        self._stores = {place: TrajectoryStore(_at(self.directory, place)) for place in places or ["."]}

    def _named(self) -> list[tuple[str | None, TrajectoryStore]]:
        named = [
            (name, self._stores[place]) for name, parts in self.manifest.stores.items() for place in parts.values()
        ]
        return [*named] or [(None, self._stores["."])]

    def _manifest_of(self, place: str) -> Manifest:
        """What the rows of one store have in common."""
        if place == ".":
            return self.manifest
        whole = self.manifest
        found = [(name, part) for name, parts in whole.stores.items() for part, at in parts.items() if at == place]
        benchmark, _, strategy = found[0][1].partition("/")
        served = [checkpoint for name, _ in found for checkpoint in checkpoints(name).values()]
        servers = {name: whole.servers[name] for name in served if name in whole.servers}
        # Rows of a server are the same whatever engines of ours measure beside it.
        settings = {name: value for name, value in whole.settings.items() if name != "vllm" or not servers}
        return Manifest(
            models={name: _fingerprint(whole, name) for name, _ in found},
            engines={name: _engine(whole, name) for name, _ in found},
            benchmarks={benchmark: whole.benchmarks[benchmark]},
            settings=settings,
            templates={strategy: whole.templates[strategy]} if strategy else {},
            servers=servers,
        )


Table = TrajectoryStore | SweepTable
"""Where rows of a sweep go to and come from."""


def with_stores(manifest: Manifest, models: Sequence[str], table: Path, stores: Path) -> Manifest:
    """The manifest with a store for each of the models, on each benchmark. A strategy with thought templates has stores
    of its own, as other templates would be other rows.

    Args:
        models: as in the table, two that think and solve for each other among them.
        table: the directory of the table.
        stores: the directory of all stores.
    """
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


def _at(directory: Path, place: str) -> Path:
    return Path(os.path.normpath(directory / place))


def _called(rows: pl.LazyFrame, name: str | None) -> pl.LazyFrame:
    if name is None:
        return rows
    return rows.with_columns(model=pl.lit(name).cast(rows.collect_schema()["model"]))


def _fingerprint(manifest: Manifest, model: str) -> str:
    """Of a checkpoint, or of two, thinker first."""
    return ">".join(manifest.models[name] for name in split_model(model))


def _engine(manifest: Manifest, model: str) -> str:
    return manifest.engines[next(iter(checkpoints(model).values()))]


class Throughput(NamedTuple):
    """Of one model on one engine.

    Attributes:
        model, engine: fingerprints.
        replicas: engines side by side.
        tokens_per_second: tokens that the engines drew, all together.
        bytes_per_token: of the table, over tokens in its rows.
        latency: seconds of a turn, an input and an output token for one request at a time (`measure_latency`); None of
            two models that share a response.
    """

    model: str
    engine: str
    replicas: int
    tokens_per_second: float
    bytes_per_token: float
    latency: tuple[float, float, float] | None = None

    def write(self, stage: Path, name: str) -> None:
        """Into the directory of a sweep, for the model of this name."""
        write_text(throughput_file(stage, name), json.dumps(self._asdict(), indent=2) + "\n")

    @classmethod
    def read(cls, file: Path) -> Throughput:
        return cls(**json.loads(file.read_text()))


def throughput_file(stage: Path, name: str) -> Path:
    """Where a sweep's directory holds the throughput of a model that drew tokens."""
    return stage / f"throughput-{re.sub('[^0-9A-Za-z]+', '-', name)}.json"


def bytes_per_token(store: Table) -> float:
    """Size of a table over the tokens in its rows; 0 without rows."""
    tokens = store.scan().select("think_tokens", "solution_tokens", "forced_tokens").sum().collect().sum_horizontal()[0]
    return sum(shard.stat().st_size for shard in store.shards()) / tokens if tokens else 0.0


def measured(stages: Iterable[Path], model: str, engine: str) -> Throughput | None:
    """The latest measurement of this model on this engine, among directories of sweeps."""
    files = [file for stage in stages for file in stage.glob("throughput-*.json")]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        found = Throughput.read(file)
        if (found.model, found.engine) == (model, engine):
            return found
    return None
