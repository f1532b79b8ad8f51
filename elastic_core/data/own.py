"""A user's own data set: a CSV, JSON, JSONL or parquet file whose columns they name."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from elastic_core.atomic import replacing
from elastic_core.data.dataset import ROW, BadRow, Dataset, Local, Mapper, SourceFile
from elastic_core.data.prompts import TEMPLATES
from elastic_core.data.raw import column_names
from elastic_core.errors import UserError
from elastic_core.fingerprint import sha256_file


@dataclass(frozen=True)
class OwnDataset:
    """What `elastic data add` records.

    Attributes:
        file: absolute path.
        sha256: of the file as it was added; a changed file is refused until it is added again.
        question, answer, id: names of its fields; without `id` a row is called by its position.
    """

    name: str
    file: str
    sha256: str
    question: str
    answer: str
    id: str | None = None
    split: Literal["train", "evaluation"] = "evaluation"
    prompt: str = "boxed-v1"
    licence: str = "the user's own"

    def dataset(self) -> Dataset:
        file = Path(self.file)
        fields = {name: pl.String() for name in (self.question, self.answer, self.id) if name}
        return Dataset(
            name=self.name,
            description="added by the user",
            source=Local(file.parent),
            files=(SourceFile(file.name, self.sha256),),
            licence=self.licence,
            split=self.split,
            domain="math",
            rows=None,
            map=self._map(),
            fields=fields,
            grader="math",
            prompt=self.prompt,
        )

    def _map(self) -> Mapper:
        columns = {"question": self.question, "truth": self.answer} | ({"id": self.id} if self.id else {})
        return lambda raw: raw.select(
            ROW, **{ours: pl.col(theirs).str.strip_chars() for ours, theirs in columns.items()}
        )


def validate(own: OwnDataset) -> None:
    """Check what can be checked without reading the rows.

    Raises:
        UserError: when the file lacks a field, or name or template are not usable.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", own.name):
        raise UserError(f'data set name "{own.name}"; expected lower-case letters, digits, dots and dashes')
    if own.prompt not in TEMPLATES:
        raise UserError(f'unknown prompt template "{own.prompt}"; there are: {", ".join(TEMPLATES)}')
    try:
        present = column_names(Path(own.file))
    except BadRow as error:
        raise UserError(f"{own.file}: {error.reason}") from None
    for option, name in (("question", own.question), ("answer", own.answer), ("id", own.id)):
        if name and name not in present:
            raise UserError(f"--{option} {name}: {own.file} has no such field; there are: {', '.join(present)}")


def add(own: OwnDataset, directory: Path) -> None:
    """Record a data set below `directory`; one of the same name is replaced."""
    with replacing(directory / f"{own.name}.json") as temporary:
        temporary.write_text(json.dumps(asdict(own), indent=2) + "\n")


def load(directory: Path) -> dict[str, Dataset]:
    """Data sets recorded below `directory`, by name.

    Raises:
        UserError: when a record is not what `add` wrote.
    """
    return {dataset.name: dataset for dataset in map(_read, sorted(directory.glob("*.json")))}


def describe(file: Path) -> tuple[str, str]:
    """Absolute path and sha256 of a user's file.

    Raises:
        UserError: when there is none.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    return str(file.resolve()), sha256_file(file)


def _read(file: Path) -> Dataset:
    try:
        return OwnDataset(**json.loads(file.read_text())).dataset()
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: not a data set of `elastic data add` ({error}); delete it and add it again") from None
