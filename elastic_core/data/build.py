"""Data sets, built: raw files → clean tables → verl's parquet, with a manifest that says what everything is.

<directory>/manifest.json       written last; without it nothing counts as built
            clean/<name>.parquet
            <name>.parquet      what training and benchmarks read
            removed.parquet     which rows were left out, and why

Its files are those of a store (`elastic_core.data.sets`), where each data set is built once for all that it depends on:
with another one beside it, what stays the same is taken from there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from elastic_core.data import decontaminate, tables
from elastic_core.data.dataset import Dataset
from elastic_core.data.manifest import Counts, DatasetRecord, Manifest, SourceRecord, TemplateRecord, write_manifest
from elastic_core.data.prompts import TEMPLATES
from elastic_core.data.sets import REMOVED, DataBuild, Sets
from elastic_core.files import replacing
from elastic_core.fingerprint import tokenizer_fingerprint

CLEAN = "clean"
STORE = "sets"


def build(
    plan: DataBuild,
    directory: Path,
    on_done: Callable[[str], None] = lambda name: None,
    store: Path | None = None,
) -> Manifest:
    """Build everything that the store lacks, and put it together.

    Args:
        on_done: called with a data set's name when its clean table is there, and when its final one is.
        store: of data sets built before and later; None is one of its own in the directory.

    Raises:
        UserError: a row that cannot be used, too few or too many rows, or a full disk.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tables.remove_leftovers(directory)
    sets = Sets(plan, directory / STORE if store is None else store)
    for entry in plan.datasets:
        sets.clean(entry)
        on_done(entry.name)
    removed, records = [pl.DataFrame(schema=decontaminate.REMOVED)], {}
    for entry in plan.datasets:
        built = sets.finished(entry)
        _place(sets.clean_file(entry), directory / CLEAN / f"{entry.name}.parquet")
        _place(built.file, directory / built.file.name)
        removed.append(pl.read_parquet(built.removed))
        records[entry.name] = _record(entry, plan, built.counts)
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


def _place(file: Path, target: Path) -> None:
    """The file under another name too: a link, where the file system has them."""
    with replacing(target) as temporary:
        try:
            os.link(file, temporary)
        except OSError:
            shutil.copyfile(file, temporary)


def _record(entry: Dataset, plan: DataBuild, counts: Counts) -> DatasetRecord:
    fetched = plan.fetched.get(entry.name)
    return DatasetRecord(
        file=f"{entry.name}.parquet",
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
        **counts,
    )


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
