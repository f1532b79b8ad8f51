"""Data sets, built: raw files → clean tables → verl's parquet, with a manifest that says what everything is.

<directory>/manifest.json       written last; without it nothing counts as built
            clean/<name>.parquet
            <name>.parquet      what training and benchmarks read
            removed.parquet     which rows were left out, and why
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.atomic import replacing
from elastic_core.data import hygiene, tables
from elastic_core.data.clean import Batches, file_batches, write_clean
from elastic_core.data.dataset import CONVERSATIONS, Dataset, Form, Generated
from elastic_core.data.fetch import FetchedDataset
from elastic_core.data.hygiene import Questions
from elastic_core.data.lengths import prompt_lengths, summarize_lengths
from elastic_core.data.manifest import (
    DatasetRecord,
    Manifest,
    OverlapRecord,
    SourceRecord,
    TemplateRecord,
    write_manifest,
)
from elastic_core.data.miniature import MiniatureParameters, generate
from elastic_core.data.problems import VERL_SCHEMA, to_verl
from elastic_core.data.prompts import TEMPLATES
from elastic_core.errors import UserError
from elastic_core.fingerprint import hash_files, tokenizer_fingerprint

CLEAN = "clean"
REMOVED = "removed.parquet"
MESSAGES = pl.Schema({"messages": CONVERSATIONS["messages"]})
"""What verl's supervised fine-tuning reads."""


@dataclass(frozen=True)
class DataBuild:
    """What to build.

    Attributes:
        fetched: verified files of every data set that has some.
        trained: names of the sets that training reads; over-long prompts are dropped from them.
        max_prompt_tokens: longest prompt that training takes; None when there is no training.
        common_ngrams: 13-grams of more training rows than this do not count as overlap; None counts all.
        tokenizer: directory of the tokenizer that prompts are measured with.
    """

    datasets: Sequence[Dataset]
    fetched: Mapping[str, FetchedDataset]
    tokenizer: Path
    max_prompt_tokens: int | None
    trained: frozenset[str] = frozenset()
    common_ngrams: int | None = None
    miniature: MiniatureParameters | None = None


def build(plan: DataBuild, directory: Path, on_done: Callable[[str], None] = lambda name: None) -> Manifest:
    """Build everything; clean tables that an interrupted build left are used again.

    Args:
        on_done: called with a data set's name when its clean table is there, and when its final one is.

    Raises:
        UserError: a row that cannot be used, too few or too many rows, or a full disk.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tables.remove_leftovers(directory)
    for entry in plan.datasets:
        clean_dataset(entry, plan, directory)
        on_done(entry.name)
    tokenizer = _tokenizer(plan.tokenizer)
    questions = {
        entry.name: _questions(entry, tokenizer, directory) for entry in plan.datasets if entry.form in _ASKING
    }
    removed, records = [pl.DataFrame(schema=hygiene.REMOVED)], {}
    for entry in plan.datasets:
        left_out, records[entry.name] = _finish(entry, plan, questions, directory)
        removed.append(left_out)
        on_done(entry.name)
    with replacing(directory / REMOVED) as temporary:
        pl.concat(removed).write_parquet(temporary)
    manifest = Manifest(
        tokenizer=tokenizer_fingerprint(plan.tokenizer),
        max_prompt_tokens=plan.max_prompt_tokens,
        common_ngrams=plan.common_ngrams,
        templates=_templates(plan.datasets),
        datasets=records,
    )
    write_manifest(directory, manifest)
    return manifest


def clean_dataset(entry: Dataset, plan: DataBuild, directory: Path) -> Path:
    """The clean table of a data set, written unless it is there.

    Raises:
        UserError: as `build`.
    """
    target = directory / CLEAN / f"{entry.name}.parquet"
    if not target.exists():
        ids = None
        if entry.ids:
            ids = pl.read_parquet(directory / CLEAN / f"{entry.ids}.parquet", columns=["id"])["id"]
        write_clean(entry, _raw(entry, plan), target, ids)
    return target


def write_problems(entry: Dataset, clean: Path, target: Path, left_out: pl.Series) -> None:
    """verl's parquet from the clean table, without the rows with these ids."""
    assert entry.prompt and entry.grader, "every problem has a prompt and is graded"
    with tables.writing(target, VERL_SCHEMA) as table:
        for kept in _kept(clean, left_out):
            table.write(
                to_verl(
                    kept,
                    name=entry.name,
                    split=entry.split,
                    domain=entry.domain,
                    grader=entry.grader,
                    template=TEMPLATES[entry.prompt],
                    first_index=table.rows,
                )
            )


_ASKING = (Form.PROBLEMS, Form.CONVERSATIONS)


def _raw(entry: Dataset, plan: DataBuild) -> Batches:
    if isinstance(entry.source, Generated):
        if plan.miniature is None:
            raise UserError(f"data.miniature: missing; the data set {entry.name} is generated from it")
        return iter([(str(entry.source), generate(entry.name, plan.miniature))])
    return file_batches(entry, [file.path for file in plan.fetched[entry.name].files])


def _questions(entry: Dataset, tokenizer: Any, directory: Path) -> Questions:
    """Read without truths, which may be large."""
    clean = pl.scan_parquet(directory / CLEAN / f"{entry.name}.parquet")
    if entry.form is Form.CONVERSATIONS:
        rows = clean.select("id", text=pl.col("messages").list.first().struct.field("content")).collect()
        return Questions(rows["id"], rows["text"])
    assert entry.prompt
    rows = clean.select("id", text="question", prompt=TEMPLATES[entry.prompt].render()).collect()
    return Questions(rows["id"], rows["text"], prompt_lengths(tokenizer, rows["prompt"].to_list()))


def _tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(directory))


def _finish(
    entry: Dataset, plan: DataBuild, questions: Mapping[str, Questions], directory: Path
) -> tuple[pl.DataFrame, DatasetRecord]:
    """Write what later stages read; returns what was left out and the manifest's entry."""
    clean, target = directory / CLEAN / f"{entry.name}.parquet", directory / f"{entry.name}.parquet"
    left_out, overlap = pl.DataFrame(schema=hygiene.REMOVED), dict[str, OverlapRecord]()
    asked = questions.get(entry.name)
    if asked is not None and entry.split == "train":
        measured = {e.name: questions[e.name] for e in plan.datasets if e.split in ("evaluation", "validation")}
        left_out, overlap = hygiene.overlaps(entry.name, asked, measured, plan.common_ngrams)
        if entry.name in plan.trained and plan.max_prompt_tokens is not None:
            left_out.extend(hygiene.too_long(entry.name, asked, plan.max_prompt_tokens))
    ids = left_out["id"].unique()
    if entry.form is Form.PROBLEMS:
        write_problems(entry, clean, target, ids)
    else:
        _write_others(entry, clean, target, ids)
    duplicates, near_empty = asked.counts() if asked else (0, 0)
    fetched = plan.fetched.get(entry.name)
    return left_out, DatasetRecord(
        file=target.name,
        split=entry.split,
        domain=entry.domain,
        form=entry.form,
        grader=entry.grader,
        prompt=entry.prompt,
        source=str(entry.source),
        revision=fetched.revision if fetched else None,
        licence=entry.licence,
        files=[SourceRecord(file=file.name, sha256=file.sha256, bytes=file.bytes) for file in fetched.files]
        if fetched
        else [],
        sha256=hash_files([target]),
        rows=tables.num_rows(clean),
        kept_rows=tables.num_rows(target),
        duplicates=duplicates,
        near_empty=near_empty,
        overlap=overlap,
        removed=_by_reason(left_out),
        prompt_tokens=None if asked is None or asked.lengths is None else summarize_lengths(asked.lengths),
    )


def _write_others(entry: Dataset, clean: Path, target: Path, left_out: pl.Series) -> None:
    with tables.writing(target, MESSAGES) as table:
        for kept in _kept(clean, left_out):
            table.write(_messages(entry, kept) if entry.form is Form.CONVERSATIONS else kept)


def model_text(entry: Dataset, clean: pl.DataFrame) -> pl.DataFrame:
    """Clean rows as a model sees them: columns id, prompt and truth, or response; of reference data the rows."""
    if entry.form is Form.CONVERSATIONS:
        content = _messages(entry, clean)["messages"].list
        return clean.select(
            "id",
            prompt=content.first().struct.field("content"),
            response=content.last().struct.field("content"),
        )
    if entry.prompt is None:
        return clean
    return clean.select("id", TEMPLATES[entry.prompt].render().alias("prompt"), "truth")


def _messages(entry: Dataset, clean: pl.DataFrame) -> pl.DataFrame:
    """Conversations, the question of each as the prompt that the model will be given."""
    messages = pl.col("messages")
    if entry.prompt is None:
        return clean.select(messages)
    question = messages.list.first().struct.field("content")
    columns = clean.with_columns(question=question, starter_code=pl.lit(None, pl.String))
    asked = pl.struct(role=pl.lit("user"), content=TEMPLATES[entry.prompt].render())
    return columns.select(messages=pl.concat_list(asked, messages.list.slice(1)))


def _kept(clean: Path, left_out: pl.Series) -> Iterator[pl.DataFrame]:
    """The clean table piece by piece, without the rows with these ids."""
    for rows in tables.read_pieces(clean):
        yield rows.filter(~pl.col("id").is_in(left_out.implode())) if left_out.len() else rows


def _by_reason(left_out: pl.DataFrame) -> dict[str, int]:
    """Rows left out, each counted once: an equal question before a 13-gram, overlap before length."""
    first = left_out.sort(
        pl.col("reason").replace_strict({"exact": 0, "13-gram": 1, "too long": 2}), maintain_order=True
    )
    counts = first.unique("id", keep="first")["reason"].value_counts()
    return dict(sorted(counts.iter_rows()))


def _templates(datasets: Sequence[Dataset]) -> dict[str, TemplateRecord]:
    used = {entry.prompt: TEMPLATES[entry.prompt] for entry in datasets if entry.prompt}
    return {
        name: TemplateRecord(
            sha256=template.sha256,
            text=template.text,
            with_starter_code=template.with_starter_code,
            source=template.source,
        )
        for name, template in used.items()
    }
