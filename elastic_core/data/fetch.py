"""Source files of data sets: found in a mirror, among earlier downloads or on the network, and verified in each case.

A mirror and the downloads have one layout, `<owner>/<repository>/<path in repository>`, so downloads of one machine
are a mirror for another. Mirror files are read in place, never copied.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from elastic_core.data.dataset import Dataset, Generated, Local, SourceFile
from elastic_core.data.download import Network
from elastic_core.data.source_files import Fetched, Missing, Store, Stored, Wanted, paths_below, source_key
from elastic_core.errors import UserError

T = TypeVar("T")

NUM_THREADS = 4
_HINT = (
    "Without a network, give a mirror by `--mirror DIR`, the setting data.mirror or ELASTIC_DATA_MIRROR: a directory "
    "laid out as <owner>/<repository>/<path in repository>."
)


@dataclass(frozen=True)
class FetchedDataset:
    """A data set whose files are all there."""

    files: tuple[Fetched, ...]  # by name
    revision: str | None  # the commit; None of generated sets, and where a mirror has what the registry does not pin


def fetch(datasets: Sequence[Dataset], *, sources: Path, mirror: Path | None = None) -> dict[str, FetchedDataset]:
    """Make every source file present and verified; `sources` is the directory of downloads, of their pins and of the
    cache of checksums. One UserError for all files that are missing, refused or not what they must be: files that could
    be fetched stay, so the next fetch goes on from there."""
    if mirror is not None and not mirror.is_dir():
        raise UserError(f"mirror {mirror}: not a directory; expected one laid out as <owner>/<repository>/<path>")
    network = Network()
    store = Store(sources, mirror, network)
    pool = ThreadPoolExecutor(NUM_THREADS)
    try:
        return _fetched(store, datasets, partial(_run, pool))
    except BaseException:  # Ctrl-C included: it shall not wait for transfers of gigabytes.
        network.stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        store.hashes.save()


def located(dataset: Dataset, *, sources: Path, mirror: Path | None) -> FetchedDataset | None:
    """A data set as an earlier fetch left it, without network; None when a file is missing, contradicts the registry or
    the pins, or was never fetched."""
    try:
        store = Store(sources, mirror, None)
        found = _fetched(store, [dataset], map)[dataset.name]
    except (UserError, OSError):
        return None
    store.hashes.save()
    return found


def is_present(dataset: Dataset, mirror: Path) -> bool:
    """Whether all files lie in a mirror (a user's own where they were added), whatever their content."""
    source = dataset.source
    return isinstance(source, Generated) or all(paths_below(mirror, source, file.path) for file in dataset.files)


def bytes_present(dataset: Dataset, mirror: Path) -> int | None:
    """Size of a data set's files in a mirror; None when one is missing, or they are not fetched."""
    source = dataset.source
    if isinstance(source, Generated | Local) or not is_present(dataset, mirror):
        return None
    return sum(path.stat().st_size for file in dataset.files for path in paths_below(mirror, source, file.path))


def _run(pool: ThreadPoolExecutor, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """Like `pool.map`, but Ctrl-C ends it: after polars' signal handler an unlimited wait goes on."""
    for future in [pool.submit(function, item) for item in items]:
        while not future.done():
            wait([future], timeout=0.1)
        yield future.result()


def _fetched(store: Store, datasets: Sequence[Dataset], run: Callable[..., Iterable[Any]]) -> dict[str, FetchedDataset]:
    """Every file of the data sets, or one UserError for all problems; `run` is a `map`, of a pool or Python's own."""
    users: dict[tuple[Stored, SourceFile], list[str]] = {}  # Several data sets may share a file.
    for dataset in datasets:
        if not isinstance(dataset.source, Generated):
            for file in dataset.files:
                users.setdefault((dataset.source, file), []).append(dataset.name)
    wanted = [Wanted(", ".join(names), source, file) for (source, file), names in users.items()]
    expanded = list(run(lambda want: _outcome(store, store.expand, want), wanted))
    calls = [
        (want, name)
        for want, names in zip(wanted, expanded, strict=True)
        if not isinstance(names, UserError)
        for name in names
    ]
    fetched = list(run(lambda call: _outcome(store, store.fetch, *call), calls))
    if problems := [outcome for outcome in (*expanded, *fetched) if isinstance(outcome, UserError)]:
        hint = [_HINT] if any(isinstance(problem, Missing) for problem in problems) else []
        raise UserError("\n".join([*dict.fromkeys(map(str, problems)), *hint]))
    files: dict[tuple[Stored, SourceFile], list[Fetched]] = {(want.source, want.file): [] for want in wanted}
    for (want, _), found in zip(calls, fetched, strict=True):
        files[want.source, want.file].append(found)
    assembled = {}
    for dataset in datasets:
        source, revision, mine = dataset.source, None, dict[str, Fetched]()
        if not isinstance(source, Generated):
            mine = {each.name: each for file in dataset.files for each in files[source, file]}
            pinned = all(file.sha256 for file in dataset.files) and re.fullmatch("[0-9a-f]{40}", source.revision)
            is_fixed = isinstance(source, Local) or pinned
            revision = source.revision if is_fixed else store.pins.entry(source_key(source)).revision
        assembled[dataset.name] = FetchedDataset(tuple(mine[name] for name in sorted(mine)), revision)
    return assembled


def _outcome(store: Store, function: Callable[..., T], want: Wanted, *args: str) -> T | UserError:
    """What the function returns; or what stood in its way, for one report on all files."""
    try:
        return function(want, *args)
    except UserError as error:
        return type(error)(f"{want.datasets}: {error}")
    except OSError as error:
        what = f"{want.datasets}: {args[0] if args else want.file.path} of {want.source}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error = OSError(f"the disk of {store.sources} is full; make room and fetch again to go on from there")
        return UserError(f"{what}: {error}")
