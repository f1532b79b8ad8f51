"""Source files of data sets: found in a mirror, among earlier downloads or on the network, and verified in each case.

A mirror and the downloads have one layout, `<owner>/<repository>/<path in repository>`, so downloads of one machine
are a mirror for another. Mirror files are read in place, never copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import cast

from elastic_core.data.dataset import Dataset, Generated, GitHub, Hub, Local, Source, SourceFile
from elastic_core.data.download import Entry, Network, Pin, read_pins, write_pins
from elastic_core.errors import UserError, no_space
from elastic_core.system.files import LockHeld, exclusive, impostor
from elastic_core.system.fingerprint import HashCache
from elastic_core.system.network import DownloadError

Stored = GitHub | Hub | Local  # sources that have files

NUM_THREADS = 4
WAIT_SECONDS = 3600.0  # for another process that fetches to the same directory
_HINT = (
    "Without a network, give a mirror by `--mirror DIR`, the setting data.mirror or ELASTIC_DATA_MIRROR: a directory "
    "laid out as <owner>/<repository>/<path in repository>."
)


@dataclass(frozen=True)
class Fetched:
    """A verified file."""

    path: Path  # in the mirror, among the downloads, or where the user has it
    name: str  # path in the repository
    sha256: str
    bytes: int


@dataclass(frozen=True)
class FetchedDataset:
    """A data set with all of its files."""

    files: tuple[Fetched, ...]  # by name
    revision: str | None  # the commit; None of generated sets, and where a mirror had files without a pin


class Missing(UserError):
    """No place has the file."""


class Mismatch(UserError):
    """A file with other content than its pin says."""


def fetch(datasets: Sequence[Dataset], *, sources: Path, mirror: Path | None = None) -> dict[str, FetchedDataset]:
    """Make every source file present and verified; `sources` is the directory of downloads, of their pins and of the
    cache of checksums. One UserError for all files that are missing, refused or different from their pins: files that
    could be fetched stay, so the next fetch goes on from there."""
    if mirror is not None and not mirror.is_dir():
        raise UserError(f"mirror {mirror}: not a directory; expected one laid out as <owner>/<repository>/<path>")
    try:
        with exclusive(sources, WAIT_SECONDS):
            return _fetched(Store(sources, mirror, Network()), datasets)
    except LockHeld as error:
        raise UserError(f"{sources}: {error} has been fetching for {WAIT_SECONDS:.0f} s") from None


def located(dataset: Dataset, *, sources: Path, mirror: Path | None) -> FetchedDataset | None:
    """A data set as an earlier fetch left it, without network; None when a file is missing or not as recorded."""
    try:
        return _fetched(Store(sources, mirror, None), [dataset])[dataset.name]
    except (UserError, OSError):
        return None


def bytes_present(dataset: Dataset, mirror: Path) -> int | None:
    """Size of a data set's files in a mirror (of a user's data set where they were added); None when one is missing."""
    source = cast(Stored, dataset.source)
    present = [_present(mirror, source, file.path) for file in dataset.files]
    return sum(path.stat().st_size for found in present for path in found.values()) if all(present) else None


def _fetched(store: Store, datasets: Sequence[Dataset]) -> dict[str, FetchedDataset]:
    """Every file of the data sets, or one UserError for all problems."""
    wanted: dict[tuple[str, Stored, str], Pin] = {}  # by data set, source and file
    problems: list[UserError] = []
    for dataset in datasets:
        source = cast(Stored, dataset.source)
        for file in dataset.files:
            try:
                wanted |= {(dataset.name, source, name): pin for name, pin in store.pins(source, file).items()}
            except (UserError, OSError) as error:
                problems.append(store.problem(dataset.name, source, file.path, error))
    shared = {(source, name): pin for (_, source, name), pin in wanted.items()}
    pool = ThreadPoolExecutor(NUM_THREADS)
    try:
        futures = {key: pool.submit(store.find, *key, pin) for key, pin in shared.items()}
        while wait(futures.values(), timeout=0.1).not_done:
            pass  # After polars' signal handler an unlimited wait would go on after Ctrl-C.
    except BaseException:  # Ctrl-C included: it shall not wait for transfers of gigabytes.
        if store.network is not None:
            store.network.stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        store.save()
    files: dict[str, list[Fetched]] = {dataset.name: [] for dataset in datasets}
    for name, source, path in wanted:
        try:
            files[name].append(futures[source, path].result())
        except (UserError, OSError) as error:
            problems.append(store.problem(name, source, path, error))
    if problems:
        hint = [_HINT] if any(isinstance(problem, Missing) for problem in problems) else []
        raise UserError("\n".join([*map(str, problems), *hint]))
    return {
        dataset.name: FetchedDataset(
            tuple(sorted(files[dataset.name], key=lambda file: file.name)), store.revision(dataset.source)
        )
        for dataset in datasets
    }


class Store:
    """Places of files, and records of them. Without a network it only checks, and records nothing."""

    def __init__(self, sources: Path, mirror: Path | None, network: Network | None) -> None:
        self.sources, self.mirror, self.network = sources, mirror, network
        self._record = sources / "sources.lock.json"
        self._entries = read_pins(self._record)
        self._hashes = HashCache(sources / "hashes.json")
        self._listings: dict[Hub, tuple[str, Mapping[str, Pin]]] = {}

    def save(self) -> None:
        self._hashes.save()
        if self.network is not None and self._entries:
            write_pins(self._record, self._entries)

    def problem(self, dataset: str, source: Stored, name: str, error: UserError | OSError) -> UserError:
        """Return what stands in a data set's way, for one report on all files."""
        if isinstance(error, UserError):
            return type(error)(f"{dataset}: {error}")
        full = f"the disk of {self.sources} is full; make room and fetch again to go on from there"
        return UserError(f"{dataset}: {name} of {source}: {full if no_space(error) else error}")

    def revision(self, source: Source) -> str | None:
        """Return the commit; None where all files came from a mirror, and of generated rows."""
        if isinstance(source, Hub):
            return self._entry(source).revision
        return None if isinstance(source, Generated) else source.revision

    def pins(self, source: Stored, file: SourceFile) -> Mapping[str, Pin]:
        """The pin of a file, or of each file of a pattern, by name. One that neither the registry nor the record has is
        recorded from a mirror, or else from the hub. UserError when no file matches, or others than are recorded."""
        if not isinstance(source, Hub) or file.sha256:
            return {file.path: Pin(file.sha256, file.bytes)}
        entry, path = self._entry(source), file.path
        mirrored = _present(self.mirror, source, path) if self.mirror else {}
        names = list(entry.patterns.get(path) or {path} & entry.files.keys())
        if names and not mirrored.keys() <= set(names):
            raise UserError(
                f"{self._record} records the files of {path} of {source} as {', '.join(names)}, found "
                f'{", ".join(mirrored)} in {self.mirror}; delete the entry "{_key(source)}" there to accept them'
            )
        if not names:
            if self.network is None:
                raise Missing(f"{path} of {source} was never fetched")
            seen = {name: self._verified(source, name, place, Pin()) for name, place in mirrored.items()}
            pins = {name: Pin(found.sha256, found.bytes) for name, found in seen.items()}
            pins = pins or self._listed(self.network, source, path)
            entry.files, names = {**pins, **entry.files}, sorted(pins)
            if _is_pattern(source, path):
                entry.patterns[path] = tuple(names)
            self.save()  # An interrupted fetch goes on at the same commit, with the same files.
        return {name: entry.files.get(name, Pin()) for name in names}

    def find(self, source: Stored, name: str, pin: Pin) -> Fetched:
        """Return a verified file from the first place that has it, the network last. UserError when none has it. A
        download that differs from its pin is fetched again; elsewhere such a file is a UserError."""
        tried, downloaded = [], _place(self.sources, source, name)
        for path in dict.fromkeys([*([_place(self.mirror, source, name)] if self.mirror else []), downloaded]):
            if not path.is_file():
                tried.append(f"{path}: no such file")
            elif pin.sha256 is None:  # Left behind by an interrupted fetch.
                tried.append(f"{path}: {self._record} does not say what it must be")
            else:
                try:
                    return self._verified(source, name, path, pin)
                except Mismatch as error:
                    if path != downloaded or isinstance(source, Local):
                        raise
                    tried.append(str(error))
        if self.network is None or isinstance(source, Local):
            raise _missing(source, name, tried)
        try:
            return self._download(self.network, source, name, pin)
        except DownloadError as error:
            address = source.url(name) if isinstance(source, GitHub) else source
            raise _missing(source, name, [*tried, f"{address}: {error}"]) from error

    def _download(self, network: Network, source: GitHub | Hub, name: str, pin: Pin) -> Fetched:
        revision = self.revision(source) or source.revision
        part = _place(self.sources / ".partial", source, f"{revision}/{name}.part")
        while True:
            resumed = part.exists()
            network.download(source, name, revision, part, pin.bytes)
            try:
                found = self._verified(source, name, part, pin)
                break
            except Mismatch:
                part.unlink()
                if not resumed:  # Else the pieces may be of different files: one chance from scratch.
                    raise
        if isinstance(source, Hub):
            self._entry(source).files[name] = Pin(found.sha256, found.bytes)
        target = _place(self.sources, source, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)
        self._hashes.renamed(part, target)
        return replace(found, path=target)

    def _verified(self, source: Stored, name: str, path: Path, pin: Pin) -> Fetched:
        """The file; Mismatch when it differs from the pin, or is plainly no data."""
        found = Fetched(path, name, self._hashes.sha256(path), path.stat().st_size)
        with path.open("rb") as stream:
            what = impostor(stream.read(256))
        as_pinned = pin.sha256 in (None, found.sha256) and pin.bytes in (None, found.bytes)
        if as_pinned and (pin.sha256 or not what):
            return found
        expected = "data" if as_pinned else str(pin)
        if isinstance(source, Hub) and not as_pinned:
            expected += f', as {self._record} records (delete its entry "{_key(source)}" to accept the new content)'
        is_other = f"{path} has {Pin(found.sha256, found.bytes)}" + (f" ({what})" if what else "")
        raise Mismatch(f"{name} of {source}: {is_other}; expected {expected}; put the right file there")

    def _listed(self, network: Network, source: Hub, path: str) -> dict[str, Pin]:
        """Return the files that match on the hub, and record the commit."""
        entry = self._entry(source)
        if source not in self._listings:
            try:
                self._listings[source] = network.listing(source, entry.revision or source.revision)
            except DownloadError as error:
                tried = [f"{_place(self.mirror, source, path)}: no such file"] if self.mirror else []
                raise _missing(source, path, [*tried, f"{source}: {error}"]) from error
        entry.revision, files = self._listings[source]
        # Like `Path.glob`: a star does not match a slash.
        depth, fits = path.count("/"), PurePosixPath.match
        found = {
            name: pin for name, pin in files.items() if name.count("/") == depth and fits(PurePosixPath(name), path)
        }
        if not found:
            matching = f"that matches {path}" if _is_pattern(source, path) else path
            raise UserError(f"{source} has no file {matching} at commit {entry.revision}")
        return found

    def _entry(self, source: Hub) -> Entry:
        return self._entries.setdefault(_key(source), Entry())


def _key(source: Hub) -> str:
    return f"hub:{source.repository}" + ("" if source.revision == "main" else f"@{source.revision}")


def _missing(source: Stored, name: str, tried: list[str]) -> Missing:
    return Missing("\n  ".join([f"{name} of {source} is missing; looked at", *tried]))


def _is_pattern(source: Stored, path: str) -> bool:
    return isinstance(source, Hub) and not {*"*?["}.isdisjoint(path)


def _place(root: Path, source: Stored, name: str) -> Path:
    """A file's path in a mirror, among the downloads, or where a user has it. UserError for one outside of the tree."""
    if isinstance(source, Local):
        return source.directory / name
    path = PurePosixPath(source.repository, name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{name} of {source}: not a path inside a repository")
    return root / path


def _present(root: Path, source: Stored, path: str) -> dict[str, Path]:
    """The existing files that match, by name."""
    base = _place(root, source, "")
    found = base.glob(path) if _is_pattern(source, path) else [_place(root, source, path)]
    return {file.relative_to(base).as_posix(): file for file in sorted(found) if file.is_file()}
