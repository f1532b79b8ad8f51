"""One source file, from the first place that has it: a mirror, earlier downloads, the network.

What a file must be is known from the registry or from the pins of an earlier fetch. What neither knows is taken as it
is found the first time, from a mirror or the network, and recorded: the first fetch is trusted, later ones are held.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from elastic_core.data.dataset import GitHub, Hub, Local, SourceFile
from elastic_core.data.download import Network, Pin
from elastic_core.errors import UserError
from elastic_core.system.files import impostor, write_text
from elastic_core.system.fingerprint import HashCache
from elastic_core.system.network import DownloadError

Stored = GitHub | Hub | Local  # sources that files lie at

_SIGNS = frozenset("*?[")
UNKNOWN = Pin(None, None)


@dataclass(frozen=True)
class Entry:
    """What is recorded of one source."""

    requested: str | None = None  # the revision that the data set names, such as "main"
    revision: str | None = None  # its commit; None when all files came from a mirror
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the files that each pattern stands for
    files: Mapping[str, Pin] = field(default_factory=dict)  # by path in the repository


_ENTRIES = TypeAdapter(dict[str, Entry])


class PinFile:
    """The pins of a directory of sources, `sources.lock.json`. Safe for several threads and processes. UserError when
    the file cannot be read."""

    def __init__(self, sources: Path) -> None:
        self.path = sources / "sources.lock.json"
        self._entries = self._read()

    def entry(self, key: str) -> Entry:
        return self._entries.get(key, Entry())

    def record(self, key: str, found: Entry) -> None:
        """Add what was found to what is recorded; a contradiction is a UserError, and nothing is written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(".sources.lock")):
            entries = self._read()  # Others may have written since.
            merged = self._merged(key, entries.get(key, Entry()), found)
            if merged != entries.get(key):
                entries[key] = merged
                text = json.dumps(_ENTRIES.dump_python(entries, mode="json"), indent=2, sort_keys=True)
                write_text(self.path, text + "\n")
            self._entries = entries

    def contradiction(self, key: str, what: str, recorded: object, found: object) -> UserError:
        """The error that says what differs from the recorded pins, and how to accept it."""
        return UserError(
            f"{self.path} records {what} of {key} as {recorded}, found {found}; "
            f'delete the entry "{key}" there to accept the new content'
        )

    def _merged(self, key: str, recorded: Entry, found: Entry) -> Entry:
        stated: list[tuple[str, str | None, str | None]] = [
            ("the requested revision", recorded.requested, found.requested),
            ("the commit", recorded.revision, found.revision),
        ]
        for pattern, names in found.patterns.items():
            old_names = recorded.patterns.get(pattern, names)
            stated.append((f"the files of {pattern}", ", ".join(old_names), ", ".join(names)))
        for what, old, new in stated:
            if None not in (old, new) and old != new:
                raise self.contradiction(key, what, old, new)
        for path, pin in found.files.items():
            if pin.contradicts(recorded.files.get(path, UNKNOWN)):
                raise self.contradiction(key, path, recorded.files[path], pin)
        requested, revision = recorded.requested or found.requested, recorded.revision or found.revision
        return Entry(requested, revision, {**recorded.patterns, **found.patterns}, {**recorded.files, **found.files})

    def _read(self) -> dict[str, Entry]:
        try:
            return _ENTRIES.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            what = f"not a record of sources ({where}: {first['msg']})"
            raise UserError(f"{self.path}: {what}; restore it, or delete it to record anew") from None


def source_key(source: GitHub | Hub | Local) -> str:
    """The source's name among the pins."""
    if isinstance(source, Local):
        return f"local:{source.directory}"
    return f"{'hub' if isinstance(source, Hub) else 'github'}:{source.repository}"


@dataclass(frozen=True)
class Fetched:
    """A verified file."""

    path: Path  # in the mirror, among the downloads, or where the user has it
    name: str  # path in the repository
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Wanted:
    """A file, or the files of a pattern, and the data sets that need it."""

    datasets: str
    source: Stored
    file: SourceFile


class _Known(NamedTuple):
    """What a file must be, and who says so."""

    pin: Pin
    by: str


class Missing(UserError):
    """No place has the file."""


class _Mismatch(UserError):
    """A file is not what it must be."""


class Store:
    """Where files may lie and what is known of them. Without a network it only looks at what is there and known, and
    records nothing."""

    def __init__(self, sources: Path, mirror: Path | None, network: Network | None) -> None:
        self.sources, self.mirror, self.network = sources, mirror, network
        self.pins = PinFile(sources)
        self.hashes = HashCache(sources / "hashes.json")

    def expand(self, want: Wanted) -> Sequence[str]:
        """Paths of the wanted file or files in the repository. A pattern that matches nothing, or other files than
        were recorded, is a UserError."""
        source, pattern = want.source, want.file.path
        if isinstance(source, Local) or not _is_pattern(source, pattern):
            return (pattern,)
        mirrored: tuple[str, ...] = ()
        if self.mirror is not None:
            base = _place(self.mirror, source, "")
            mirrored = tuple(file.relative_to(base).as_posix() for file in paths_below(self.mirror, source, pattern))
        recorded = self._held(source).patterns.get(pattern)
        if recorded is not None:
            if not set(mirrored) <= set(recorded):
                found = f"{', '.join(mirrored)} in {self.mirror}"
                raise self.pins.contradiction(source_key(source), f"the files of {pattern}", ", ".join(recorded), found)
            return recorded
        if self.network is None:
            raise Missing(f"{pattern} of {source} was never fetched")
        names, commit = (mirrored, None) if mirrored else self._matched_upstream(self.network, source, pattern)
        # Before any file is there: an interrupted fetch goes on at the same commit, with the same files.
        self.pins.record(source_key(source), Entry(source.revision, commit, {pattern: names}))
        return names

    def fetch(self, want: Wanted, name: str) -> Fetched:
        """A file from the first place that has it; none, or one that is not what it must be, is a UserError."""
        source, known, looked = want.source, self._known(want, name), []
        if isinstance(source, Local):
            places = [(source.directory / name, False)]
        else:
            mirrored = [(_place(self.mirror, source, name), False)] if self.mirror else []
            places = [*mirrored, (_place(self.sources, source, name), True)]
        for path, downloaded in places:
            if not path.is_file():
                looked.append(f"{path}: no such file")
            elif known.pin.sha256 is None and (downloaded or self.network is None):
                # Left behind by an interrupted fetch, or its entry was deleted in order to have new content.
                looked.append(f"{path}: neither the registry nor {self.pins.path} says what it must be")
            else:
                remedy = "delete it to have it fetched again" if downloaded else "put the right file there"
                return self._recorded(source, self._verified(source, name, path, known, remedy), known)
        if self.network is None or isinstance(source, Local):
            raise _missing(source, name, looked)
        try:
            return self._download(self.network, source, want, name)
        except DownloadError as error:
            address = source.url(name) if isinstance(source, GitHub) else str(source)
            raise _missing(source, name, [*looked, f"{address}: {error}"]) from error

    def _matched_upstream(self, network: Network, source: Stored, pattern: str) -> tuple[tuple[str, ...], str]:
        """Names that match on the hub, and the commit."""
        if not isinstance(source, Hub):
            raise Missing(f"{pattern} of {source}: a pattern needs a mirror that has files which match it")
        try:
            listing = network.listing(source, self._held(source).revision or source.revision)
        except DownloadError as error:
            looked = [f"{_place(self.mirror, source, pattern)}: nothing matches"] if self.mirror else []
            raise _missing(source, pattern, [*looked, f"{source}: {error}"]) from error
        # Like `Path.glob`: a star does not match a slash.
        depth, fits = pattern.count("/"), PurePosixPath.match
        names = tuple(sorted(n for n in listing.files if n.count("/") == depth and fits(PurePosixPath(n), pattern)))
        if not names:
            raise UserError(f"{source} has no file that matches {pattern} at commit {listing.commit}")
        return names, listing.commit

    def _download(self, network: Network, source: GitHub | Hub, want: Wanted, name: str) -> Fetched:
        parts = self.sources / ".partial"
        target = _place(self.sources, source, name)
        with network.alone(_place(parts, source, f"{name}.lock")):
            known = self._known(want, name)
            commit, listed = self._listed(network, source, name, known)
            expected = known if known.pin.sha256 else _Known(known.pin.completed(listed), "as the hub lists it")
            if target.is_file() and self.hashes.sha256(target) == expected.pin.sha256:
                # Brought by another process meanwhile, or recognised although its pin was deleted.
                return self._recorded(source, self._verified(source, name, target, expected, ""), known, commit)
            part = _place(parts, source, f"{commit}/{name}.part")
            while True:
                resumed = part.exists()
                network.download(source, name, commit, part, expected.pin.bytes)
                try:
                    found = self._verified(source, name, part, expected, "nothing of it was kept")
                    break
                except _Mismatch:
                    part.unlink()
                    if not resumed:  # Else the pieces may be of different files: one chance from scratch.
                        raise
            self._recorded(source, found, known, commit)
            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)
            self.hashes.renamed(part, target)
            return replace(found, path=target)

    def _listed(self, network: Network, source: GitHub | Hub, name: str, known: _Known) -> tuple[str, Pin]:
        """The commit to download from, and what the hub says of the file."""
        if isinstance(source, GitHub):
            return source.commit, UNKNOWN
        listing = network.listing(source, self._held(source).revision or source.revision)
        if name not in listing.files:
            raise UserError(f"{source} has no file {name} at commit {listing.commit}")
        self.pins.record(source_key(source), Entry(source.revision, listing.commit))
        listed = listing.files[name]
        if listed.contradicts(known.pin):
            raise _mismatch(source, name, f"upstream has {listed} at commit {listing.commit}", known, "")
        return listing.commit, listed

    def _held(self, source: Stored) -> Entry:
        """What is recorded of the source; a record for another revision is a UserError."""
        entry = self.pins.entry(source_key(source))
        if entry.requested not in (None, source.revision):
            raise self.pins.contradiction(source_key(source), "the revision", entry.requested, source.revision)
        return entry

    def _known(self, want: Wanted, name: str) -> _Known:
        """What the file must be; pins of an earlier fetch only add what the registry lacks."""
        source, file = want.source, want.file
        pinned = UNKNOWN if _is_pattern(source, file.path) else Pin(file.sha256, file.bytes)
        if pinned.sha256 is not None:
            return _Known(pinned, "as the registry has it")
        recorded = self._held(source).files.get(name, UNKNOWN)
        accept = f'as {self.pins.path} records (delete its entry "{source_key(source)}" to accept the new content)'
        return _Known(pinned.completed(recorded), accept if recorded.sha256 else "as the registry has it")

    def _verified(self, source: Stored, name: str, path: Path, known: _Known, remedy: str) -> Fetched:
        sha256, size = self.hashes.sha256(path), path.stat().st_size
        with path.open("rb") as file:
            what = impostor(file.read(256))
        found = Pin(sha256, size)
        if found.contradicts(known.pin) or (what and known.pin.sha256 is None):
            raise _mismatch(source, name, f"{path} has {found}" + (f" ({what})" if what else ""), known, remedy)
        return Fetched(path, name, sha256, size)

    def _recorded(self, source: Stored, fetched: Fetched, known: _Known, commit: str | None = None) -> Fetched:
        """The file, which later fetches will hold to."""
        if known.pin.sha256 is None:
            files = {fetched.name: Pin(fetched.sha256, fetched.bytes)}
            self.pins.record(source_key(source), Entry(source.revision, commit, files=files))
        return fetched


def _mismatch(source: Stored, name: str, found: str, known: _Known, remedy: str) -> _Mismatch:
    expected = f"expected {known.pin} {known.by}" if known.pin != UNKNOWN else "expected data"
    return _Mismatch("; ".join(filter(None, [f"{name} of {source}: {found}", expected, remedy])))


def _missing(source: Stored, name: str, looked: list[str]) -> Missing:
    return Missing("\n  ".join([f"{name} of {source} is missing; looked at", *looked]))


def _place(root: Path, source: GitHub | Hub, name: str) -> Path:
    """A file's path in a mirror or among the downloads. One outside is a UserError: others write the listings."""
    path = PurePosixPath(source.repository, name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{name} of {source}: not a path inside a repository")
    return root / path


def _is_pattern(source: Stored, path: str) -> bool:
    return not isinstance(source, Local) and not _SIGNS.isdisjoint(path)


def paths_below(root: Path, source: Stored, path: str) -> list[Path]:
    """The existing files that match."""
    base = source.directory if isinstance(source, Local) else _place(root, source, "")
    found = base.glob(path) if _is_pattern(source, path) else [base / path]
    return sorted(file for file in found if file.is_file())
