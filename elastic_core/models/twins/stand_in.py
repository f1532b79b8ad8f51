"""Rows that stand in for those of a data set in a rehearsal: made up, in upstream's format (stand_ins.toml).

Mapping, prompt and grader are those of the data set. Truths are answers of a twin (`ANSWERS` of twins).
"""

from __future__ import annotations

import base64
import json
import pickle
import tomllib
import zlib
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from elastic_core.data import mapping
from elastic_core.data.dataset import Dataset
from elastic_core.data.registry import stand_in_file
from elastic_core.errors import UserError
from elastic_core.system.files import replacing

ROWS = 16  # Of every data set.
_ROWS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("stand_ins.toml").read_text(encoding="utf-8"))
_DOCUMENTS: dict[Any, Any] = {
    mapping.ids: lambda rows: [row["id"] for row in rows],
    mapping.ratings: lambda rows: {row["rating"]: row["users"] for row in rows},
    mapping.template_library: lambda rows: {"Digits": {"One digit": rows}},
}
"""Documents of another shape than a list of objects."""


def write_stand_in(entry: Dataset, directory: Path) -> None:
    """Write stand-in rows of a data set below `directory`. Raises UserError when its rows' format is not known here."""
    clean: Any = getattr(entry.map, "clean", entry.map)
    form = _ROWS.get(f"{clean.__module__.rpartition('.')[2]}.{clean.__name__}")
    if form is None:
        raise UserError(
            f"{entry.name}: its files are not here, and we have no rows that could stand in; run first: elastic run "
            "prepare-data, or give a mirror that holds them (data.mirror)"
        )
    file = stand_in_file(entry, directory)
    rows = [_filled(form, _words(entry.name, i)) for i in range(ROWS)]
    with replacing(file) as temporary:
        if entry.map in _DOCUMENTS:
            temporary.write_text(json.dumps(_DOCUMENTS[entry.map](rows)))
        elif file.suffix == ".parquet":
            pl.DataFrame(rows).write_parquet(temporary)
        elif file.suffix == ".csv":
            pl.DataFrame(rows).write_csv(temporary)
        elif file.suffix == ".jsonl":
            temporary.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            temporary.write_text(json.dumps(rows))


def _words(name: str, i: int) -> dict[str, Any]:
    # No two questions share a phrase, or a training row would be removed as overlap with an evaluation set.
    tests = json.dumps([{"input": "", "output": f"{3 + i % 2}\n", "testtype": "stdin"}])
    packed = base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()
    words = {"name": name, "i": i, "ii": f"{i:02}", "question": f"{name} {i}: which digit?", "packed": packed}
    return words | {"number": 1 + i % 2, "printed": 3 + i % 2}


def _filled(value: Any, words: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, words) for each in value]
    return Template(value).substitute(words) if isinstance(value, str) else value
