"""Which data sets a flow uses, where their files lie, and where they are built."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_core.data.build import DataBuild, code_fingerprint
from elastic_core.data.dataset import Dataset, Form, Generated
from elastic_core.data.fetch import FetchedDataset, bytes_present, located
from elastic_core.data.registry import all_datasets, select
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.reasonflux.sft import file_dataset
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.system.fingerprint import tokenizer_fingerprint
from flows.runtime.settings import Settings
from tasks.records.stage_directory import SOURCES, USER_DATASETS, Stage

if TYPE_CHECKING:
    from flows.runtime.run import FlowRun


@dataclass(frozen=True)
class DataInputs:
    """The data of a run. Each property is found out once: `FlowRun.forget_inputs`, after files were fetched."""

    run: FlowRun

    @cached_property
    def mirror(self) -> Path | None:
        return mirror_of(self.run.settings)

    @cached_property
    def known(self) -> dict[str, Dataset]:
        """Every data set there is, by name."""
        return all_datasets(self.run.runs / USER_DATASETS)

    @cached_property
    def chosen(self) -> list[Dataset]:
        """What training, validation and the sweep use, and what is asked for besides. Raises UserError on an unknown
        name, a role that a data set cannot have, or a mirror that is not there."""
        settings, known, tree = self.run.settings.data, self.known, self.mirror
        if tree and not tree.is_dir():
            raise UserError(f"data.mirror: {tree} is not a directory")
        further = settings.datasets
        if further is None:
            further = [name for name, entry in known.items() if tree and bytes_present(entry, tree)]
        chosen = select([*settings.train, *settings.validation, *settings.benchmarks, *further], known)
        if self._imitated and self._imitated not in chosen:
            chosen.append(self._imitated)
        measured = {"evaluation", "validation"}
        for role, allowed in (("train", {"train"}), ("validation", measured), ("benchmarks", measured)):
            for name in getattr(settings, role):
                entry = known[name]
                if entry.form is Form.CONVERSATIONS:
                    holds = "holds conversations to fine-tune on (warm_start.sft.data), no problems"
                    raise UserError(f"data.{role}: {entry.name} {holds}")
                if entry.split not in allowed or entry.grader is None:
                    wanted = " or ".join(sorted(allowed))
                    raise UserError(f"data.{role}: {entry.name} is for {entry.split}; expected a set for {wanted}")
        return chosen

    @cached_property
    def fetched(self) -> dict[str, FetchedDataset]:
        """Those of the data sets whose files are all there, without looking at the network."""
        sources, filed = self.run.runs / SOURCES, [entry for entry in self.chosen if entry.files]
        found = {entry.name: located(entry, sources=sources, mirror=self.mirror) for entry in filed}
        return {name: dataset for name, dataset in found.items() if dataset is not None}

    @cached_property
    def stage(self) -> Stage:
        """Everything that is built for a run, in one directory. Until every source file was fetched once, its key is
        one under which nothing is ever built."""
        settings = self.run.settings.data
        generated = any(isinstance(entry.source, Generated) for entry in self.chosen)
        return self.run.stage(
            "data",
            {
                "sources": {entry.name: _contents(entry, self.fetched.get(entry.name)) for entry in self.chosen},
                "trained": sorted(settings.train),
                "max_prompt_tokens": self._max_prompt_tokens,
                "common_ngrams": settings.common_ngrams,
                **({} if settings.decontaminate else {"decontaminate": False}),
                **({} if settings.max_tests is None else {"max_tests": settings.max_tests}),
                "miniature": settings.miniature.model_dump() if generated and settings.miniature else None,
                **({"words": settings.words.model_dump()} if generated and settings.words else {}),
                "tokenizer": self._tokenizer_fingerprint,
                "code": code_fingerprint(),
            },
        )

    @property
    def is_built(self) -> bool:
        return self.stage.marker.exists()

    def require_built(self, flow: str = "prepare-data") -> None:
        """Raise UserError when nothing was built with these settings; `flow` builds it."""
        if not self.is_built:
            raise UserError(f"no data was built with these settings; run first: {self.run.command(flow)}")

    @property
    def build(self) -> DataBuild:
        """What the stage is built from, once everything is fetched."""
        settings = self.run.settings.data
        return DataBuild(
            datasets=self.chosen,
            fetched=self.fetched,
            tokenizer=self.tokenizer,
            max_prompt_tokens=self._max_prompt_tokens,
            trained=frozenset(settings.train),
            common_ngrams=settings.common_ngrams,
            decontaminate=settings.decontaminate,
            max_tests=settings.max_tests,
            miniature=settings.miniature,
            words=settings.words,
        )

    def files(self, names: Iterable[str]) -> list[Path]:
        """Built files of data sets by name."""
        return [self.stage.directory / f"{name}.parquet" for name in names]

    def require_graders(self, names: Iterable[str]) -> None:
        """Raise UserError when programs would have to be run and there is no sandbox."""
        if any(self.known[name].grader == "code" for name in names):
            require_sandbox()

    @property
    def conversations(self) -> tuple[Path, tuple[Path, ...]]:
        """The built data set of `warm_start.sft`, and its source files, which may hold more than is read. Raises
        UserError when it has not been built."""
        entry = self._imitated
        assert entry is not None, "there is a section sft"
        self.require_built()
        # Who added a data set named the fields that are read of it, and what is generated has no files.
        unnamed = entry.files and not entry.chosen
        sources = tuple(file.path for file in self.fetched[entry.name].files) if unnamed else ()
        return self.stage.directory / f"{entry.name}.parquet", sources

    @cached_property
    def tokenizer(self) -> Path:
        """The directory whose tokenizer prompts are measured with: that of the model to train."""
        base = self.run.settings.base
        if base == "warm-start":  # It keeps its tokenizer.
            found = self.initial_checkpoint(model_files.TOKENIZER_FILES)
        else:
            found = BASE if base == "shipped" else model_files.locate(base, model_files.TOKENIZER_FILES)
        return self.run.with_family("base", found)

    def initial_checkpoint(self, files: tuple[str, ...] = model_files.MODEL_FILES) -> Path:
        """Where a warm start's initial model lies, or what has its tokenizer."""
        initial = self.run.settings.warm_start.initial
        return BASE if initial in ("random", "shipped") else model_files.locate(initial, files)

    @property
    def _tokenizer_fingerprint(self) -> str:
        try:
            return tokenizer_fingerprint(self.tokenizer)
        except ValueError as error:
            raise UserError(f'base: {error}, "shipped" or "warm-start"') from None

    @property
    def _max_prompt_tokens(self) -> int | None:
        return self.run.settings.train.prompt_tokens if self.run.settings.train else None

    @cached_property
    def _imitated(self) -> Dataset | None:
        """The data set of `warm_start.sft`: one that is known, or a file."""
        sft, known = self.run.settings.warm_start.sft, self.known
        if sft is None:
            return None
        entry = known.get(sft.data) or file_dataset(Path(sft.data))
        if entry.form is not Form.CONVERSATIONS:
            conversations = ", ".join(name for name, other in known.items() if other.form is Form.CONVERSATIONS)
            raise UserError(
                f"warm_start.sft.data: {entry.name} holds no conversations; expected {conversations} or a file"
            )
        return entry


def mirror_of(settings: Settings) -> Path | None:
    """The tree of source files that the settings name, or else the environment."""
    given = settings.data.mirror or os.environ.get("ELASTIC_DATA_MIRROR")
    return Path(given).resolve() if given else None


def _contents(entry: Dataset, fetched: FetchedDataset | None) -> Any:
    if not entry.files:
        return str(entry.source)
    if fetched is None:
        return None
    return {file.name: file.sha256 for file in fetched.files} | ({"chosen": entry.chosen} if entry.chosen else {})
