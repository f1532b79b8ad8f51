r"""A user's data set: a CSV, TSV, JSON, JSONL or parquet file, with its columns named by the user.

Its answers may be in GSM8K's form, a rationale and in its last line `#### N`. The rationale may hold calculator marks,
`2+2=<<2+2=4>>4`, which a person would not write.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import polars as pl

from elastic_core.data.dataset import CONVERSATIONS, ROW, BadRow, Dataset, Form, Local, SourceFile, bad_rows, reads
from elastic_core.data.problems import TEMPLATES
from elastic_core.data.readers import column_names, read_batches, rows
from elastic_core.errors import UserError, first_line
from elastic_core.rewards import Answer, grade_many, grader_of
from elastic_core.rewards.truth import THINK_END, MathTruth
from elastic_core.system.files import replacing, write_text
from elastic_core.system.fingerprint import sha256_file
from elastic_core.system.imported import declare, imported

_NOT_CHOSEN = ("name", "file", "sha256", "origin")
_RATIONALE = r"(?s)^(?:(.*)\n)?[ \t]*####[ \t]*([^\n]*)$"
_MARKS = r"<<[^<>]*>>"
_NEVER_WRITTEN = re.compile(
    r"""(?is)^([\[{]\s*["']|b?(["']).*\2$|<(\w+)>.*</\3>$|(array|tensor)\(|[+-]?(nan|inf)$)|[\x00-\x08\x0e-\x1f]"""
)
"""Notations of data files that no solver uses: lists of texts and objects in JSON or Python, quoted text, tags, arrays,
NaN, infinity and control characters."""
_THOUSANDS = r"^[-+]?\$?\d{1,3}(?:,\d{3})+(?:\.\d+)?$"


@dataclass(frozen=True)
class UserDataset:
    """What `elastic data add` records."""

    name: str
    file: str  # path; relative to the directory of the records once it is recorded
    sha256: str  # of the file as it was added; a changed file is refused until it is added again
    question: str  # name of the field, as of the next two
    answer: str
    id: str | None = None  # without it a row is called by its position
    cluster: str | None = None  # problems of one value are alike, as of one template
    split: Literal["train", "evaluation"] = "evaluation"
    prompt: str = "boxed-v1"
    grader: str = "math"  # or one of the user's, by import path
    licence: str = "the user's own"
    form: Literal["problems", "conversations"] = "problems"  # to fine-tune on, from the answers' rationales
    rationales: bool = False  # whether the answers are in GSM8K's form
    left_out: tuple[int, ...] = ()  # positions of the rows that are not used, counted from 1
    origin: str = ""  # where the user had the file

    def dataset(self, directory: Path = Path()) -> Dataset:
        """The data set as an entry of the registry; `directory` is that of the records."""
        file = directory / self.file
        read = reads(*filter(None, (self.question, self.answer, self.id, self.cluster)))
        solved = self.form == "problems"
        return Dataset(
            name=self.name,
            description=f"added from {self.origin}" if self.origin else "added by the user",
            source=Local(file.parent),
            files=(SourceFile(file.name, self.sha256),),
            licence=self.licence,
            split=self.split,
            domain="math",
            map=read(self._problems if solved else self._conversations),
            form=Form(self.form),
            grader=self.grader if solved else None,
            prompt=self.prompt,
            chosen={name: value for name, value in asdict(self).items() if name not in _NOT_CHOSEN},
        )

    def _used(self, raw: pl.DataFrame) -> pl.DataFrame:
        """Rows that are used; the answers of all rows have one form."""
        if self.rationales:
            odd, what = ~_is_rationale(self.answer), "no last line `#### N`, which the first row has"
        else:
            odd, what = _is_rationale(self.answer), "a last line `#### N`, which the first row lacks"
        bad_rows(raw, odd, f"{self.answer}: {what}; expected it in every row")
        return raw.filter(~pl.col(ROW).is_in(list(self.left_out)))

    def _problems(self, raw: pl.DataFrame) -> pl.DataFrame:
        truth = _truth(self.answer) if self.rationales else pl.col(self.answer)
        columns = {"question": pl.col(self.question), "truth": truth}
        columns |= {name: pl.col(field) for name in ("id", "cluster") if (field := getattr(self, name))}
        rows = self._used(raw)
        bad_rows(rows, pl.col(self.question).str.strip_chars() == "", f"{self.question}: is empty; expected a question")
        return rows.select(ROW, **{name: column.str.strip_chars() for name, column in columns.items()})

    def _conversations(self, raw: pl.DataFrame) -> pl.DataFrame:
        rows = self._used(raw)
        thought = pl.col(self.answer).str.strip_chars().str.extract(_RATIONALE, 1).str.strip_chars()
        missing = f"{self.answer}: nothing before `#### N`; expected a rationale"
        bad_rows(rows.select(ROW, self.answer), thought.fill_null("") == "", missing)
        # The question, and as response the rationale in think tags and then `The answer is \boxed{N}.`
        thought = thought.str.replace_all(_MARKS, "").str.strip_chars()
        end = pl.lit("\n</think>\n\nThe answer is \\boxed{")
        response = pl.concat_str(pl.lit("<think>\n"), thought, end, _truth(self.answer), pl.lit("}."))
        messages = pl.concat_list(
            pl.struct(role=pl.lit("user"), content=pl.col(self.question).str.strip_chars()),
            pl.struct(role=pl.lit("assistant"), content=response),
        )
        identifier = pl.col(self.id or ROW).cast(pl.String).alias("id")
        return rows.select(identifier, messages.alias("messages"), ROW).cast(CONVERSATIONS)


def checked(dataset: UserDataset) -> UserDataset:
    """Return the data set with the form of answers of its first row. UserError for an unusable name or template, a file
    that cannot be read or lacks a field, and fine-tuning data without rationales."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", dataset.name):
        raise UserError(f'--name "{dataset.name}": expected lower-case letters, digits, dots and dashes')
    if dataset.prompt not in TEMPLATES:
        raise UserError(f'unknown prompt template "{dataset.prompt}"; there are: {", ".join(TEMPLATES)}')
    try:
        grader_of(declare(dataset.grader))
    except ValueError as error:
        raise UserError(str(error)) from None
    file = Path(dataset.file)
    try:
        present = column_names(file)
        for option in ("question", "answer", "id", "cluster"):
            if (name := getattr(dataset, option)) and name not in present:
                raise UserError(f"--{option} {name}: {file} has no such field; there are: {', '.join(present)}")
        first = next(read_batches(file, {dataset.answer: pl.String()}), pl.DataFrame())
    except BadRow as error:
        raise UserError(error.at(file)) from None
    if first.is_empty():
        raise UserError(f"{file}: holds no rows; expected at least one")
    rationales = bool(first[:1].select(_is_rationale(dataset.answer)).item())
    if dataset.form == "conversations" and not rationales:
        raise UserError(
            f"{file}: {dataset.answer}: the first row's answer holds no rationale; to fine-tune on it, "
            "expected GSM8K's form (a rationale, and as last line `#### N`); a file in the alpaca form needs no "
            "adding, give it as warm_start.sft.data"
        )
    return replace(dataset, rationales=rationales)


def ungraded(clean: Iterable[pl.DataFrame]) -> list[tuple[int, str]]:
    """Return position and answer (with a reason, where one is known) of the rows that no response could win: a solver
    would write the answer differently, or the grader does not accept it in a box."""
    truths = [row for rows in clean for row in rows.select(ROW, "truth").iter_rows()]
    boxed, reasons = list[Answer](), dict[str, str]()
    for _, truth in truths:
        try:
            known = MathTruth.decode(truth)
            if any(map(_NEVER_WRITTEN.search, known.answers)):
                raise ValueError("a notation of data, such as a list, quotes, NaN; expected mathematics or words")
            content = ", ".join(known.answers) if known.match == "all" else known.answers[0]
            boxed.append(Answer("math", f"{THINK_END}\\boxed{{{content}}}", truth))
        except ValueError as error:
            reasons[truth] = f" ({error})"
    right = {answer.truth for answer, graded in zip(boxed, grade_many(boxed), strict=True) if graded.score == 1}
    return [(row, f"{truth[:40]!r}{reasons.get(truth, '')}") for row, truth in truths if truth not in right]


def add(dataset: UserDataset, directory: Path) -> UserDataset:
    """Copy the file, called by its content, and record the data set below `directory`, in place of one of the same
    name; returns the record. UserError when the file changed since it was described."""
    origin = Path(dataset.file)
    copy = Path("files", dataset.sha256[:12], origin.name)
    if not (directory / copy).exists():
        with replacing(directory / copy) as temporary:
            shutil.copyfile(origin, temporary)
            if sha256_file(temporary) != dataset.sha256:
                raise UserError(f"{origin}: changed while it was added; add it again")
    recorded = replace(dataset, file=str(copy), origin=dataset.origin or str(origin))
    write_text(directory / f"{dataset.name}.json", json.dumps(asdict(recorded), indent=2) + "\n")
    return recorded


def load(file: Path) -> Dataset:
    """The data set of a record; declares its grader. UserError where `add` did not write it."""
    try:
        values = json.loads(file.read_text())
        recorded = UserDataset(**{**values, "left_out": tuple(values.get("left_out", ()))})
        declare(recorded.grader)
        return recorded.dataset(file.parent)
    except (TypeError, ValueError) as error:
        reason = f"not a data set of `elastic data add` ({error}); delete it and add it again"
        raise UserError(f"{file}: {reason}") from None


def mapped(file: Path, path: str, target: Path) -> None:
    """Write the rows that a user's function, by import path, makes of those of a file, as JSONL: of a row's fields
    those of a problem, or None to leave it out. UserError with the row where it fails, or for a file that cannot be
    read."""
    function = imported(declare(path))
    try:
        with target.open("w", encoding="utf-8") as stream:
            for number, row in rows(file):
                try:
                    made = function(row)
                    stream.write("" if made is None else f"{json.dumps(dict(made))}\n")
                except Exception as error:  # The user's function may raise anything.
                    raise BadRow(number, f"{path}: {type(error).__name__}: {first_line(error)}") from error
    except BadRow as error:
        raise UserError(error.at(file)) from None


def describe(file: Path) -> tuple[str, str]:
    """Absolute path and sha256 of a user's file; UserError when there is none."""
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    return str(file.resolve()), sha256_file(file)


def _is_rationale(answer: str) -> pl.Expr:
    return pl.col(answer).str.strip_chars().str.contains(_RATIONALE)


def _truth(answer: str) -> pl.Expr:
    """The answer of the last line, a number without commas between its thousands."""
    given = pl.col(answer).str.strip_chars().str.extract(_RATIONALE, 2).str.strip_chars()
    return pl.when(given.str.contains(_THOUSANDS)).then(given.str.replace_all(",", "")).otherwise(given)
