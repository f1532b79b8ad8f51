"""Which data sets a run uses, where their files lie, and where they are built."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core import hub
from elastic_core.data.dataset import Dataset, Form, Generated
from elastic_core.data.fetch import FetchedDataset, is_present, located
from elastic_core.data.registry import all_datasets, select
from elastic_core.data.sets import DataBuild, code_fingerprint
from elastic_core.errors import UserError
from elastic_core.fingerprint import tokenizer_fingerprint
from elastic_core.miniature.warm_start import BASE
from elastic_core.reasonflux.sft import file_dataset
from elastic_core.rewards.sandbox import require_sandbox
from flows.run import FlowRun
from tasks.data import sources_directory
from tasks.stage import Stage

MIRROR_VARIABLE = "ELASTIC_DATA_MIRROR"


def own_directory(runs: Path) -> Path:
    """Records of the user's own data sets."""
    return runs / "datasets"


def mirror(run: FlowRun) -> Path | None:
    """Where source files are looked for first."""
    given = run.settings.data.mirror or os.environ.get(MIRROR_VARIABLE)
    return Path(given).resolve() if given else None


def chosen_datasets(run: FlowRun) -> list[Dataset]:
    """What training, validation and the sweep use, and what is asked for besides.

    Raises:
        UserError: an unknown name, a role that a data set cannot have, or a mirror that is not there.
    """
    settings, known, tree = run.settings.data, all_datasets(own_directory(run.runs)), mirror(run)
    if tree and not tree.is_dir():
        raise UserError(f"data.mirror: {tree} is not a directory")
    further = settings.datasets
    if further is None:
        further = [name for name, entry in known.items() if tree and entry.files and is_present(entry, tree)]
    chosen = select([*settings.train, *settings.validation, *settings.benchmarks, *further], known)
    if (imitated := _imitated(run, known)) and imitated not in chosen:
        chosen.append(imitated)
    measured = {"evaluation", "validation"}
    for role, allowed in (("train", {"train"}), ("validation", measured), ("benchmarks", measured)):
        for name in getattr(settings, role):
            _check_role(known[name], role, allowed)
    return chosen


def data_stage(run: FlowRun) -> Stage:
    """Everything that is built for a run, in one directory. Until every source file was fetched once, its key is one
    under which nothing is ever built."""
    chosen = chosen_datasets(run)
    fetched = located_datasets(run, chosen)
    generated = any(isinstance(entry.source, Generated) for entry in chosen)
    return run.stage(
        "data",
        {
            "sources": {entry.name: _contents(entry, fetched.get(entry.name)) for entry in chosen},
            "trained": sorted(run.settings.data.train),
            "max_prompt_tokens": _max_prompt_tokens(run),
            "common_ngrams": run.settings.data.common_ngrams,
            "miniature": run.settings.data.miniature.model_dump()
            if generated and run.settings.data.miniature
            else None,
            "tokenizer": _tokenizer_fingerprint(tokenizer(run)),
            "code": code_fingerprint(),
        },
    )


def require_graders(run: FlowRun, names: Iterable[str]) -> None:
    """Refuse to start what could not be graded on this machine.

    Raises:
        UserError: when programs would have to be run and there is no sandbox.
    """
    known = all_datasets(own_directory(run.runs))
    if any(known[name].grader == "code" for name in names):
        require_sandbox()


def located_datasets(run: FlowRun, chosen: Iterable[Dataset]) -> dict[str, FetchedDataset]:
    """Those of the data sets whose files are all there, without looking at the network."""
    found = {
        entry.name: located(entry, sources=sources_directory(run.runs), mirror=mirror(run))
        for entry in chosen
        if entry.files
    }
    return {name: dataset for name, dataset in found.items() if dataset is not None}


def data_build(run: FlowRun) -> DataBuild:
    """What `data_stage` is built from, once everything is fetched."""
    chosen = chosen_datasets(run)
    return DataBuild(
        datasets=chosen,
        fetched=located_datasets(run, chosen),
        tokenizer=tokenizer(run),
        max_prompt_tokens=_max_prompt_tokens(run),
        trained=frozenset(run.settings.data.train),
        common_ngrams=run.settings.data.common_ngrams,
        miniature=run.settings.data.miniature,
    )


def data_files(run: FlowRun, names: Iterable[str]) -> list[Path]:
    """Built files of data sets by name."""
    directory = data_stage(run).directory
    return [directory / f"{name}.parquet" for name in names]


class FineTuningData(NamedTuple):
    """The built conversations, and the source files that may hold more than is read of them."""

    conversations: Path
    sources: tuple[Path, ...]


def fine_tuning_data(run: FlowRun) -> FineTuningData:
    """What `warm_start.sft` imitates.

    Raises:
        UserError: when it has not been built.
    """
    entry = _imitated(run, all_datasets(own_directory(run.runs)))
    assert entry is not None, "there is a section sft"
    stage, fetched = data_stage(run), located_datasets(run, [entry])
    if not stage.marker.exists() or entry.name not in fetched:
        raise UserError(
            f"no data was built with these settings; run first: elastic run prepare-data --preset {run.preset}"
        )
    # Who added a data set named the fields that are read of it.
    sources = () if entry.chosen else tuple(file.path for file in fetched[entry.name].files)
    return FineTuningData(stage.directory / f"{entry.name}.parquet", sources)


def _imitated(run: FlowRun, known: dict[str, Dataset]) -> Dataset | None:
    """The data set of `warm_start.sft`, if there is that section: one that is known, or a file."""
    sft = run.settings.warm_start.sft
    if sft is None:
        return None
    entry = known[sft.data] if sft.data in known else file_dataset(Path(sft.data))
    if entry.form is not Form.CONVERSATIONS:
        conversations = ", ".join(name for name, other in known.items() if other.form is Form.CONVERSATIONS)
        raise UserError(f"warm_start.sft.data: {entry.name} holds no conversations; expected {conversations} or a file")
    return entry


def tokenizer(run: FlowRun) -> Path:
    """The directory whose tokenizer prompts are measured with: that of the model to train."""
    base = run.settings.base
    if base == "warm-start":  # It keeps its tokenizer.
        return initial_checkpoint(run, hub.TOKENIZER_FILES)
    return BASE if base == "shipped" else hub.locate(base, hub.TOKENIZER_FILES)


def initial_checkpoint(run: FlowRun, files: tuple[str, ...] = hub.MODEL_FILES) -> Path:
    """Where a warm start's initial model lies, or what has its tokenizer."""
    initial = run.settings.warm_start.initial
    return BASE if initial in ("random", "shipped") else hub.locate(initial, files)


def _max_prompt_tokens(run: FlowRun) -> int | None:
    return run.settings.train.prompt_tokens if run.settings.train else None


def _tokenizer_fingerprint(directory: Path) -> str:
    try:
        return tokenizer_fingerprint(directory)
    except ValueError as error:
        raise UserError(f'base: {error}, "shipped" or "warm-start"') from None


def _check_role(entry: Dataset, role: str, allowed: set[str]) -> None:
    if entry.form is Form.CONVERSATIONS:
        raise UserError(
            f"data.{role}: {entry.name} holds conversations to fine-tune on (warm_start.sft.data), no problems"
        )
    if entry.split not in allowed or entry.grader is None:
        raise UserError(
            f"data.{role}: {entry.name} is for {entry.split}; expected a set for {' or '.join(sorted(allowed))}"
        )


def _contents(entry: Dataset, fetched: FetchedDataset | None) -> Any:
    if not entry.files:
        return str(entry.source)
    if fetched is None:
        return None
    return {file.name: file.sha256 for file in fetched.files} | ({"chosen": entry.chosen} if entry.chosen else {})
