"""`elastic data add`: what is checked, and what is shown, before a user's file is a data set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from elastic_core.data import user_dataset
from elastic_core.data.clean import clean_batches, file_batches, model_text
from elastic_core.data.registry import REGISTRY
from elastic_core.data.user_dataset import UserDataset
from elastic_core.errors import UserError
from elastic_core.models import files as model_files
from elastic_core.models.special_tokens import chat_prompt
from flows.runtime import environment
from tasks.records.stage_directory import USER_DATASETS

_SHOWN = 3
_LISTED = 20
"""Rows that are refused by name; of more there is the number."""


def add(entry: UserDataset, *, leave_out: bool, tokenizer: Path | None) -> str:
    """Check, copy and record a data set.

    Args:
        entry: as the user described it.
        leave_out: go on without the rows whose answer the grader does not accept as its user_dataset.
        tokenizer: directory of the model's; None shows the prompts without its chat template.

    Returns:
        What was added, and its first rows as a model sees them.

    Raises:
        UserError: when it cannot be used; nothing is recorded then.
    """
    if entry.name in REGISTRY:
        raise UserError(f'"{entry.name}" is a data set of the registry; give another --name')
    user_dataset.validate(entry)
    entry = user_dataset.recognised(entry)
    solved = list(_clean(replace(entry, form="problems")))
    num, wrong = sum(rows.height for rows in solved), user_dataset.ungraded(solved)
    if wrong and not leave_out:
        raise UserError(
            f"{entry.file}: {len(wrong)} of {num} answers are not accepted by the grader even when a response repeats "
            f"them in its box: {_listed(entry, wrong)}; correct them, or give --leave-out to add the other rows"
        )
    if len(wrong) == num:
        raise UserError(f"{entry.file}: no row is left; the grader accepts none of the {num} answers as its own")
    entry = replace(entry, left_out=tuple(row for row, _ in wrong))
    shown = _shown(entry, tokenizer)  # Reading all of it now says now what is wrong with it.
    records = environment.runs_directory() / USER_DATASETS
    recorded = user_dataset.add(entry, records)
    left_out = f", {len(wrong)} left out ({_listed(entry, wrong)})" if wrong else ""
    what = "graded against themselves" if entry.form == "problems" else "to fine-tune on, their answers graded"
    return "\n".join(
        [
            *shown,
            f"{entry.name}: {num - len(wrong)} rows, {what}{left_out}; copied to {records / recorded.file}",
            f"next: {_next(entry)}",
        ]
    )


def _clean(entry: UserDataset) -> Iterator[pl.DataFrame]:
    dataset = entry.dataset()
    return clean_batches(dataset, file_batches(dataset, [Path(entry.file)]))


def _listed(entry: UserDataset, wrong: Sequence[tuple[int, str]]) -> str:
    kind = "line" if Path(entry.file).suffix in (".jsonl", ".ndjson") else "row"
    named = [f"{kind} {row} {answer[:40]!r}" for row, answer in wrong[:_LISTED]]
    return ", ".join([*named, *(["…"] if len(wrong) > _LISTED else [])])


def _shown(entry: UserDataset, tokenizer: Path | None) -> list[str]:
    """The first rows, every one having been read."""
    frames = [model_text(entry.dataset(), rows) for rows in _clean(entry)]
    rows = list(itertools.islice((row for frame in frames for row in frame.iter_rows(named=True)), _SHOWN))
    if tokenizer is not None:
        from transformers import AutoTokenizer

        tokens = AutoTokenizer.from_pretrained(str(tokenizer))
        try:
            rows = [{**row, "prompt": tokens.decode(chat_prompt(tokens, row["prompt"]))} for row in rows]
        except ValueError as error:
            raise UserError(str(error)) from None
    lines = []
    for number, row in enumerate(rows, 1):
        lines += [f"--- {number} " + "-" * 60, *(f"{name}: {value}" for name, value in row.items())]
    return lines


def model_tokenizer(model: str | None, preset: str | None) -> Path | None:
    """Where the tokenizer lies that prompts are shown with. Raises UserError when it is not there."""
    if model is not None:
        directory = model_files.locate(model, model_files.TOKENIZER_FILES)
        if not directory.is_dir():
            raise UserError(f"--model {model}: no such directory")
        return directory
    if preset is None:
        return None
    from flows.runtime.data_inputs import DataInputs
    from flows.runtime.run import FlowRun

    return DataInputs(FlowRun.begin(preset, {})).tokenizer


def _next(entry: UserDataset) -> str:
    if entry.form == "conversations":
        return f"elastic run warm-start --preset P --set warm_start.sft.data={entry.name}"
    role = "benchmarks" if entry.split == "evaluation" else "train"
    return f"elastic run prepare-data --preset P --set data.{role}='[\"{entry.name}\"]'"
