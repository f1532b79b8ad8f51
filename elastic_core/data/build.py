"""Data sets, built: raw files → clean tables → verl's parquet, with a manifest; README.md lists the files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.data import decontaminate, problems, word_problems
from elastic_core.data.clean import Batches, file_batches, num_rows, remove_leftovers, write_clean, write_final
from elastic_core.data.dataset import ROW, Dataset, Form, Generated
from elastic_core.data.decontaminate import Questions
from elastic_core.data.fetch import FetchedDataset
from elastic_core.data.problems import CLEAN, MANIFEST, TEMPLATES, Counts, Manifest
from elastic_core.data.registry import code_fingerprint
from elastic_core.data.word_problems import WordParameters
from elastic_core.errors import UserError
from elastic_core.miniature.problems import MiniatureParameters, of_dataset
from elastic_core.system.files import LockHeld, exclusive, replacing, write_text
from elastic_core.system.fingerprint import hash_files, hash_value, tokenizer_fingerprint

STORE = "sets"
REMOVED = "removed.parquet"
RECORD = "record.json"
WAIT_SECONDS = 3600.0  # for another process that builds the same data set
_WITH_QUESTIONS = (Form.PROBLEMS, Form.CONVERSATIONS)


@dataclass(frozen=True)
class DataBuild:
    """What to build."""

    datasets: Sequence[Dataset]
    fetched: Mapping[str, FetchedDataset]  # verified files of every data set that has some
    tokenizer: Path  # directory of the tokenizer that prompts are measured with
    max_prompt_tokens: int | None  # longest prompt that training takes; None without training
    trained: frozenset[str] = frozenset()  # sets that training reads; over-long prompts are dropped from them
    common_ngrams: int | None = None  # 13-grams of more training rows do not count as overlap; None counts all
    decontaminate: bool = True  # leave out what overlaps; else it is only counted
    max_tests: int | None = None  # kept of a problem in trained sets with `Dataset.cuts_tests`; None keeps all
    miniature: MiniatureParameters | None = None
    words: WordParameters | None = None


def build(
    plan: DataBuild,
    directory: Path,
    on_done: Callable[[str], None] = lambda name: None,
    store: Path | None = None,
) -> Manifest:
    """Build everything that the store (by default one in the directory) lacks, and put it together. `on_done` is called
    with a data set's name when its clean table is there, and when its final one is. UserError for a row that cannot be
    used, too few or too many rows, or a full disk."""
    directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(directory)
    sets = Sets(plan, directory / STORE if store is None else store)
    for entry in plan.datasets:
        sets.clean(entry)
        on_done(entry.name)
    removed, records = [pl.DataFrame(schema=decontaminate.REMOVED)], {}
    for entry in plan.datasets:
        file, counts = sets.finished(entry)
        _place(sets.clean_file(entry), directory / CLEAN / file.name)
        _place(file, directory / file.name)
        removed.append(pl.read_parquet(file.with_name(REMOVED)))
        fetched = plan.fetched.get(entry.name)
        sources = fetched.files if fetched else ()
        records[entry.name] = problems.DatasetRecord(
            file=f"{entry.name}.parquet",
            split=entry.split,
            domain=entry.domain,
            form=entry.form,
            grader=entry.grader,
            prompt=entry.prompt,
            source=str(entry.source),
            revision=fetched.revision if fetched else None,
            licence=entry.licence,
            files=[problems.SourceRecord(file=each.name, sha256=each.sha256, bytes=each.bytes) for each in sources],
            **counts,
        )
        on_done(entry.name)
    with replacing(directory / REMOVED) as temporary:
        pl.concat(removed).write_parquet(temporary)
    used = {entry.prompt: TEMPLATES[entry.prompt] for entry in plan.datasets if entry.prompt}
    manifest = Manifest(
        tokenizer=tokenizer_fingerprint(plan.tokenizer),
        max_prompt_tokens=plan.max_prompt_tokens,
        common_ngrams=plan.common_ngrams,
        decontaminated=plan.decontaminate,
        max_tests=plan.max_tests,
        templates={name: template.record() for name, template in used.items()},
        datasets=records,
    )
    write_text(directory / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


@dataclass(frozen=True)
class Sets:
    """The data sets of a plan, in a store that other plans use too."""

    plan: DataBuild
    store: Path

    def clean(self, entry: Dataset) -> Path:
        """The clean table, written unless it is there; that of `entry.ids` must be. UserError as `build`, or for
        another process that builds it and does not come to an end."""
        target = self.clean_file(entry)
        with self._alone(entry):
            if not target.exists():
                named = next((other for other in self.plan.datasets if other.name == entry.ids), None)
                ids = pl.read_parquet(self.clean_file(named), columns=["id"])["id"] if named else None
                write_clean(entry, raw_batches(entry, self.plan.fetched.get(entry.name), self.plan), target, ids)
        return target

    def clean_file(self, entry: Dataset) -> Path:
        return self.store / entry.name / f"clean-{self._clean_keys[entry.name]}.parquet"

    def finished(self, entry: Dataset) -> tuple[Path, Counts]:
        """The data set's file, with `REMOVED` next to it, and the counts: built unless it is there as it was
        built. The clean tables of the plan must be. UserError as `clean`."""
        file = self.store / entry.name / self._key(entry) / f"{entry.name}.parquet"
        record = file.with_name(RECORD)
        with self._alone(entry):
            counts = json.loads(record.read_text()) if record.exists() else None
            if counts is None or not file.exists() or hash_files([file]) != counts["sha256"]:
                counts = self._finish(entry, file)
                write_text(record, json.dumps(counts, indent=2) + "\n")
        return file, counts

    @contextmanager
    def _alone(self, entry: Dataset) -> Iterator[None]:
        """No two processes build one data set at the same time; half-written files of a killed one are removed."""
        directory = self.store / entry.name
        try:
            with exclusive(directory, WAIT_SECONDS):
                remove_leftovers(directory)
                yield
        except LockHeld as error:
            raise UserError(f"{directory}: {error} has been building this data set for {WAIT_SECONDS:.0f} s") from None

    @cached_property
    def _clean_keys(self) -> dict[str, str]:
        keys: dict[str, str] = {}
        for entry in self.plan.datasets:  # The entry that another takes its ids from precedes it.
            if isinstance(entry.source, Generated):
                source: Any = _parameters(entry, self.plan).model_dump()
            else:
                source = {file.name: file.sha256 for file in self.plan.fetched[entry.name].files}
            ids = keys[entry.ids] if entry.ids else None
            inputs = [entry.name, entry.form, entry.rows, dict(entry.chosen), source, ids, code_fingerprint()]
            keys[entry.name] = hash_value(inputs)[:12]
        return keys

    def _key(self, entry: Dataset) -> str:
        plan = self.plan
        inputs: list[Any] = [self._clean_keys[entry.name], entry.split, entry.domain, entry.grader, entry.prompt]
        if entry.form is Form.PROBLEMS:
            inputs.append(tokenizer_fingerprint(plan.tokenizer))
        if _is_trained(entry):
            measured = [[other.name, self._clean_keys[other.name]] for other in self._measured]
            longest = plan.max_prompt_tokens if entry.name in plan.trained else None
            inputs += [measured, plan.common_ngrams, longest, *([] if plan.decontaminate else ["whole"])]
            inputs += [f"{max_tests} tests"] if (max_tests := self._max_tests(entry)) else []
        return hash_value(inputs)[:12]

    @property
    def _measured(self) -> list[Dataset]:
        measured = ("evaluation", "validation")
        return [each for each in self.plan.datasets if each.form in _WITH_QUESTIONS and each.split in measured]

    def _finish(self, entry: Dataset, target: Path) -> Counts:
        clean = self.clean_file(entry)
        left_out, overlap = pl.DataFrame(schema=decontaminate.REMOVED), dict[str, problems.OverlapRecord]()
        questions = _questions(entry, clean) if entry.form in _WITH_QUESTIONS else None
        if questions is not None and entry.form is Form.PROBLEMS:
            assert entry.prompt
            prompts = pl.scan_parquet(clean).select(prompt=TEMPLATES[entry.prompt].render()).collect()
            lengths = problems.prompt_lengths(self._tokenizer, prompts["prompt"].to_list())
            questions = replace(questions, lengths=lengths)
        if questions is not None and _is_trained(entry):
            measured = {other.name: self._questions[other.name] for other in self._measured}
            found, overlap = decontaminate.overlaps(entry.name, questions, measured, self.plan.common_ngrams)
            if self.plan.decontaminate:
                left_out = found
            if entry.name in self.plan.trained and self.plan.max_prompt_tokens is not None:
                left_out.extend(decontaminate.too_long(entry.name, questions, self.plan.max_prompt_tokens))
        write_final(entry, clean, target, left_out["id"].unique(), self._max_tests(entry))
        with replacing(target.with_name(REMOVED)) as temporary:
            left_out.write_parquet(temporary)
        return Counts(
            sha256=hash_files([target]),
            rows=num_rows(clean),
            kept_rows=num_rows(target),
            duplicates=decontaminate.count_duplicates(questions.text) if questions else 0,
            near_empty=decontaminate.count_near_empty(questions.text) if questions else 0,
            overlap=overlap,
            removed=decontaminate.by_reason(left_out),
            prompt_tokens=problems.summarize_lengths(questions.lengths) if questions else None,
        )

    def _max_tests(self, entry: Dataset) -> int | None:
        return self.plan.max_tests if entry.cuts_tests and entry.name in self.plan.trained else None

    @cached_property
    def _questions(self) -> dict[str, Questions]:
        """Questions of measured sets, which every training set is held against."""
        return {entry.name: _questions(entry, self.clean_file(entry)) for entry in self._measured}

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self.plan.tokenizer))


def _place(file: Path, target: Path) -> None:
    """The file under another name too: a link, where the file system has them."""
    with replacing(target) as temporary:
        try:
            os.link(file, temporary)
        except OSError:
            shutil.copyfile(file, temporary)


def _questions(entry: Dataset, clean: Path) -> Questions:
    """Read without truths, which may be large."""
    text = pl.col("question")
    if entry.form is Form.CONVERSATIONS:
        text = pl.col("messages").list.get(-2).struct.field("content")
    rows = pl.scan_parquet(clean).select("id", text=text).collect()
    return Questions(rows["id"], rows["text"])


def _is_trained(entry: Dataset) -> bool:
    return entry.form in _WITH_QUESTIONS and entry.split == "train"


def raw_batches(entry: Dataset, fetched: FetchedDataset | None, sizes: Any) -> Batches:
    """Raw rows of a data set's files, or of one that is generated: ROW, question and answer, of word problems also an
    exchange in the alpaca form. UserError for a file that cannot be read, and where the attribute of `sizes` that the
    set is generated from, `miniature` or `words`, is None."""
    if not isinstance(entry.source, Generated):
        assert fetched is not None, entry.name
        return file_batches(entry, [file.path for file in fetched.files])
    parameters = _parameters(entry, sizes)
    if isinstance(parameters, WordParameters):
        rows = [each.row() for each in word_problems.of_dataset(entry.name, parameters)]
    else:
        rows = [{"question": each.question, "answer": str(each.answer)} for each in of_dataset(entry.name, parameters)]
    return iter([(str(entry.source), pl.DataFrame(rows).with_row_index(ROW, 1))])


def _parameters(entry: Dataset, sizes: Any) -> MiniatureParameters:
    words = str(entry.source) == word_problems.MODULE
    section, model = ("words", WordParameters) if words else ("miniature", MiniatureParameters)
    if (parameters := getattr(sizes, section)) is None:
        keys = ", ".join(name for name, each in model.model_fields.items() if each.is_required())
        raise UserError(f"data.{section}: missing; {entry.name} is generated, and needs its settings {keys}")
    return parameters
