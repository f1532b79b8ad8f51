"""`elastic data`: look at data sets, fetch them, add your own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import polars as pl
from rich.console import Console
from rich.table import Table

from elastic_core.data import fetch, user_dataset
from elastic_core.data.build import raw_batches
from elastic_core.data.clean import clean_batches, file_batches, model_text
from elastic_core.data.dataset import Dataset
from elastic_core.data.readers import format_of
from elastic_core.data.registry import REGISTRY, all_datasets, select
from elastic_core.errors import UserError, printable
from elastic_core.models import files as model_files
from elastic_core.models.special_tokens import chat_prompt
from flows.commands.options import PATH, PRESET_FORMS, OneOf, mirror_option
from flows.presets import resolve
from flows.runtime.environment import make_runs_directory, runs_directory
from tasks.records.stage_directory import SOURCES, USER_DATASETS

_SHOWN = 1200  # Characters of a value.
_LISTED = 20  # Rows that are refused by name; of more there is the number.


@click.command()
def list_data() -> None:
    """List every data set: its use, its rows, its source."""
    columns = ("name", "split", "domain", "grader", "rows", "licence", "source", "description")
    table = Table(*columns, box=None, pad_edge=False)
    for entry in _known().values():
        values = (getattr(entry, column) for column in columns)
        table.add_row(*("-" if value is None else str(value) for value in values))
    width = None if sys.stdout.isatty() else 250  # A file gets every line uncut.
    Console(width=width, highlight=False, markup=False).print(table)


@click.command()
@click.argument("name")
@click.option("--rows", "num", default=3, help="How many rows.")
@click.option("--preset", default="embedded", help=f"It sizes generated data. {PRESET_FORMS}")
@mirror_option
def show_data(name: str, num: int, preset: str, mirror: Path | None) -> None:
    """Show the first rows of data set NAME, as a model sees them.

    Its files are fetched if they are not here.
    """
    known = _known()
    entry = select([name], known)[-1]
    rows = islice(_rows(_clean_frames(entry, known, preset, mirror)), num)
    total = f"{entry.rows} rows" if entry.rows else "rows not counted upstream"
    click.echo(f"{entry.name}: {entry.description}\n{entry.source} · {entry.licence} · {entry.split} · {total}")
    for number, row in enumerate(rows, 1):
        shortened = {column: value if isinstance(value, str) else repr(value) for column, value in row.items()}
        for column, text in shortened.items():
            if len(text) > _SHOWN:
                shortened[column] = f"{text[:_SHOWN]}… ({len(text)} characters)"
        click.echo("\n" + printable(_numbered(number, shortened)))


@click.command()
@click.argument("names", nargs=-1, required=True)
@mirror_option
def fetch_data(names: tuple[str, ...], mirror: Path | None) -> None:
    """Download and verify the files of data sets NAMES.

    `all` is every data set.
    """
    known = _known()
    entries = select(known if names == ("all",) else names, known)
    for name, dataset in _fetched((entry for entry in entries if entry.files), mirror).items():
        for file in dataset.files:
            click.echo(f"{name}\t{file.sha256}\t{file.path}")


@click.command()
@click.argument("file", type=PATH)
@click.option("--question", required=True, metavar="FIELD", help="Field that holds the question.")
@click.option(
    "--answer",
    required=True,
    metavar="FIELD",
    help="Field that holds the answer, without a box; or a rationale whose last line is `#### ANSWER`, as in GSM8K.",
)
@click.option("--id", metavar="FIELD", help="Field that names the row. Without it its position does.")
@click.option("--cluster", metavar="FIELD", help="Field that names a group of problems that are alike, as a template.")
@click.option("--name", help="Name of the data set. Without it the file's name.")
@click.option(
    "--for",
    "purpose",
    type=OneOf(["evaluation", "train", "sft"]),
    default="evaluation",
    help="A benchmark, problems to train on, or rationales to fine-tune on (warm_start.sft.data=NAME).",
)
@click.option("--prompt", default="boxed-v1", help="Prompt template.")
@click.option(
    "--map",
    "function",
    metavar="MODULE:FUNCTION",
    help="Your function that makes a row with these fields of each row of FILE, or None to leave it out.",
)
@click.option("--grader", default="math", metavar="MODULE:FUNCTION", help="Your grader, in place of mathematics.")
@click.option("--leave-out", is_flag=True, help="Leave out rows whose answer the grader does not accept.")
@click.option("--model", metavar="MODEL", help="Show prompts in its chat template: a directory, or OWNER/NAME.")
@click.option("--preset", help=f"Show prompts in the chat template of its model. {PRESET_FORMS}")
def add_data(
    file: Path,
    name: str | None,
    purpose: Any,
    function: str | None,
    leave_out: bool,
    model: str | None,
    preset: str | None,
    **fields: Any,
) -> None:
    """Add your own FILE of problems as a data set.

    FILE is CSV, TSV, JSON (a list of objects), JSONL or parquet, one problem a row, all but parquet compressed or not.
    It is copied into the runs directory.
    Every answer is graded against itself, and a file is refused if the grader does not accept one of them. Then it is a
    data set like every other: `elastic data show NAME`, --set data.benchmarks='["NAME"]'.
    """
    if model is not None and preset is not None:
        raise UserError("--model and --preset both name a chat template; give one of them")
    path, sha256 = user_dataset.describe(file)
    stem = re.split(r"\.\w+(?:\.(?:gz|bz2|zst))?$", file.name.lower())[0]
    name = name or re.sub(r"[^a-z0-9.]+", "-", stem).strip("-.")
    with TemporaryDirectory() as directory:
        origin = path
        if function is not None:
            user_dataset.mapped(file, function, made := Path(directory, f"{name}.jsonl"))
            path, sha256 = user_dataset.describe(made)
        entry = user_dataset.UserDataset(
            name,
            path,
            sha256,
            split="evaluation" if purpose == "evaluation" else "train",
            form="conversations" if purpose == "sft" else "problems",
            origin=origin,
            **fields,
        )
        click.echo(printable(record(entry, leave_out=leave_out, tokenizer=_model_tokenizer(model, preset))))


def record(entry: user_dataset.UserDataset, *, leave_out: bool, tokenizer: Path | None) -> str:
    """Check, copy and record a data set; return a message with its first rows as a model sees them, in the chat
    template of `tokenizer`. Raises UserError when the data set cannot be used, before it is recorded."""

    def clean(entry: user_dataset.UserDataset) -> Iterator[pl.DataFrame]:
        dataset = entry.dataset()
        return clean_batches(dataset, file_batches(dataset, [Path(entry.file)]))

    if entry.name in REGISTRY:
        raise UserError(f'"{entry.name}" is a data set of the registry; give another --name')
    entry = user_dataset.checked(entry)
    solved = list(clean(replace(entry, form="problems")))
    num, wrong = sum(rows.height for rows in solved), user_dataset.ungraded(solved) if entry.grader == "math" else []
    kind = "line" if format_of(Path(entry.file)) == ".jsonl" else "row"
    named = [f"{kind} {row} {answer}" for row, answer in wrong[:_LISTED]]
    listed = ", ".join([*named, *(["…"] if len(wrong) > _LISTED else [])])
    if wrong and not leave_out:
        raise UserError(
            f"{entry.file}: {len(wrong)} of {num} answers can never be given: the grader does not accept them as a "
            f"solver would write them in a box: {listed}; correct them, or give --leave-out to add the other rows"
        )
    if len(wrong) == num:
        raise UserError(f"{entry.file}: no row is left; the grader accepts none of the {num} answers as its own")
    entry = replace(entry, left_out=tuple(row for row, _ in wrong))
    # All rows, before anything is recorded: reading them finds their faults.
    shown = _as_prompts([model_text(entry.dataset(), rows) for rows in clean(entry)], tokenizer)
    records = make_runs_directory() / USER_DATASETS
    recorded = user_dataset.add(entry, records)
    left_out = f", {len(wrong)} left out ({listed})" if wrong else ""
    what = "graded against themselves" if entry.form == "problems" else "to fine-tune on, their answers graded"
    what = what if entry.grader == "math" else f"graded by {entry.grader}"
    if entry.form == "conversations":
        following = f"elastic run warm-start --preset P --set warm_start.sft.data={entry.name}"
    else:
        role = "benchmarks" if entry.split == "evaluation" else "train"
        following = f"elastic run prepare-data --preset P --set data.{role}='[\"{entry.name}\"]'"
    added = f"{entry.name}: {num - len(wrong)} rows, {what}{left_out}; copied to {records / recorded.file}"
    return "\n".join([*shown, added, f"next: {following}"])


def _as_prompts(frames: Sequence[pl.DataFrame], tokenizer: Path | None) -> list[str]:
    """The first three rows, their prompts under a model's chat template if its tokenizer is given."""
    rows = list(islice(_rows(frames), 3))
    if tokenizer is not None:
        from transformers import AutoTokenizer

        tokens = AutoTokenizer.from_pretrained(str(tokenizer))
        rows = [{**row, "prompt": tokens.decode(chat_prompt(tokens, row["prompt"]))} for row in rows]
    return [_numbered(number, row) for number, row in enumerate(rows, 1)]


def _model_tokenizer(model: str | None, preset: str | None) -> Path | None:
    if model is not None:
        directory = model_files.locate(model, model_files.TOKENIZER_FILES)
        if not directory.is_dir():
            raise UserError(f"--model {model}: no such directory")
        return directory
    if preset is None:
        return None
    from flows.runtime.run import FlowRun

    return FlowRun.begin(preset).tokenizer


def _known() -> dict[str, Dataset]:
    return all_datasets(runs_directory() / USER_DATASETS)


def _fetched(entries: Iterable[Dataset], mirror: Path | None) -> dict[str, fetch.FetchedDataset]:
    return fetch.fetch(list(entries), sources=make_runs_directory() / SOURCES, mirror=mirror)


def _clean_frames(
    entry: Dataset, known: dict[str, Dataset], preset: str, mirror: Path | None
) -> Iterator[pl.DataFrame]:
    fetched = _fetched([entry], mirror)[entry.name] if entry.files else None
    batches = raw_batches(entry, fetched, resolve(preset).data)
    ids = next(_clean_frames(known[entry.ids], known, preset, mirror))["id"] if entry.ids else None
    for rows in clean_batches(entry, batches, ids):
        yield model_text(entry, rows)


def _rows(frames: Iterable[pl.DataFrame]) -> Iterator[dict[str, Any]]:
    return (row for frame in frames for row in frame.iter_rows(named=True))


def _numbered(number: int, row: dict[str, Any]) -> str:
    return "\n".join([f"--- {number} " + "-" * 60, *(f"{name}: {value}" for name, value in row.items())])
