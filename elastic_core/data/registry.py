"""Every data set that we know, from registry.toml, and the user's. To add one: a table there, and a mapping
function unless one fits."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastic_core.data import mapping, mapping_code, user_dataset
from elastic_core.data.dataset import Dataset, Form, Generated, GitHub, Hub, Local, Source, SourceFile
from elastic_core.errors import UserError, nearest
from elastic_core.system.fingerprint import hash_files, hash_value, sha256_file, source_fingerprint

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_MAPPINGS = {"mapping": mapping, "mapping_code": mapping_code}


def _entry(name: str, table: dict[str, Any]) -> Dataset:
    values = _TABLES["kinds"][table.pop("kind")] | table
    if "github" in values:
        source: Source = GitHub(**_TABLES["github"][values.pop("github")])
    else:
        source = Hub(values.pop("hub")) if "hub" in values else Generated(values.pop("module"))
    files = [SourceFile(**(file if isinstance(file, dict) else {"path": file})) for file in values.pop("files", ())]
    module, _, function = values.pop("map").partition(".")
    form, needs = Form(values.pop("form", Form.PROBLEMS)), tuple(values.pop("needs", ()))
    mapper = getattr(_MAPPINGS[module], function)
    return Dataset(name, source=source, files=tuple(files), map=mapper, form=form, needs=needs, **values)


REGISTRY = {name: _entry(name, table) for name, table in _TABLES["sets"].items()}  # data sets by name

STAND_INS = "stand-ins"
"""Below the directory of the user's data sets, in the runs directory of a rehearsal: files that are read in place
of those of the registry's data sets."""


def all_datasets(user_directory: Path) -> dict[str, Dataset]:
    """The registry, and what `elastic data add` recorded below `user_directory`. UserError for a name that both
    have."""
    recorded = map(user_dataset.load, sorted(user_directory.glob("*.json")))
    users = {entry.name: entry for entry in recorded}
    for name in users.keys() & REGISTRY.keys():
        raise UserError(f'{user_directory / name}.json: "{name}" is a data set of the registry; choose another name')
    known, directory = dict(REGISTRY), user_directory / STAND_INS
    for name, entry in REGISTRY.items():
        if entry.files and (file := stand_in_file(entry, directory)).exists():
            files = (SourceFile(file.name, sha256_file(file)),)
            known[name] = replace(entry, source=Local(directory), files=files, rows=None)
    return known | users


def stand_in_file(entry: Dataset, directory: Path) -> Path:
    """File of the rows that stand in for those of a data set with files."""
    return directory / f"{entry.name}{Path(entry.files[0].path).suffix}"


def select(names: Iterable[str], known: dict[str, Dataset]) -> list[Dataset]:
    """Data sets by name, in this order, with those they refer to. UserError for an unknown name, with the nearest."""
    chosen: dict[str, Dataset] = {}
    for name in names:
        if name not in known:
            raise UserError(f'unknown data set "{name}"{nearest(name, known)}; `elastic data list` shows them all')
        entry = known[name]
        for needed in (*entry.needs, *([entry.ids] if entry.ids else [])):
            chosen[needed] = known[needed]
        chosen[name] = entry
    return list(chosen.values())


def code_fingerprint() -> str:
    """sha256 of the code and the tables that data sets are built by. Graders only read the truths of an added set."""
    code = source_fingerprint("elastic_core.data.build", without=("elastic_core.rewards",))
    return hash_value([code, hash_files(Path(__file__).parent.glob("*.toml"))])
