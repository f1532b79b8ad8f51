"""Data sets, models and stages of a run, found from its settings. The key of a stage is a hash of all that it is made
from; a stage is done when its marker exists (`tasks.records.stage_directory`)."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

import reports
from elastic_core.data.build import DataBuild
from elastic_core.data.dataset import Dataset, Form, Generated
from elastic_core.data.fetch import FetchedDataset, bytes_present, fetch, located
from elastic_core.data.problems import Problem, read_problems
from elastic_core.data.registry import REGISTRY, all_datasets, code_fingerprint, select
from elastic_core.engines.endpoint import Address, Endpoint, EndpointParameters
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import families
from elastic_core.models import files as model_files
from elastic_core.reasonflux.library import DATASET, load_library
from elastic_core.reasonflux.sft import file_dataset
from elastic_core.rewards import grader_of
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.statistics.estimates import without_seed
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO, TemplateParameters, Templates
from elastic_core.sweep.grid import checkpoint_names, first_problems, rows_of
from elastic_core.sweep.stopping import beyond_reach
from elastic_core.sweep.table import SweepTable
from elastic_core.system.fingerprint import (
    HashCache,
    hash_files,
    model_fingerprint,
    source_fingerprint,
    tokenizer_fingerprint,
)
from elastic_core.system.imported import code_of
from elastic_core.system.nested import leaves
from flows.runtime.endpoints import find_endpoints
from flows.runtime.settings import TRAINED, Settings
from reports.tables.codeforces import BENCHMARK
from tasks.cards import Cards
from tasks.records.stage_directory import (
    BEST,
    EMBEDDINGS,
    MODEL,
    RESOLVED,
    SOURCES,
    TABLE,
    USER_DATASETS,
    USER_TEMPLATES,
    Stage,
)

_ASSETS = {".js", ".css", ".j2", ".mplstyle", ".csv"}
"""Scripts, styles, templates and published numbers that a report is made with, besides code."""
_NOT_WRITING = (
    *("elastic_core.rewards", "elastic_core.rewards.as_published", "tasks.data"),
    *("tasks.records.terminal", "tasks.records.mlflow_tracker"),
)
"""What grades, what builds data and what records runs has no part in how a report is written."""
_SAMPLING = {"temperature", "top_p", "seed", "sharing", "max_response_tokens", "logprobs"}
"""Settings of a sweep that a sample depends on."""
_REQUEST = {"strategies", "strategies_of", "budgets", "samples", "until_ci", "max_samples", "grading"}
"""Settings of a sweep that say how many samples there are, and how they are graded."""
_TRAINING = ("elastic_core.training.sft",)
"""What runs a warm start has no part in its corpus, its architecture and its schedule."""


class Stages:
    """Data, models and stages of a run. Results are kept; a missing file is looked for again at the next read.

    Attributes:
        settings: the preset with its overrides.
        runs: directory of all results.
        given: the preset as the user gave it.
        overrides: settings that were replaced, by dotted key.
    """

    def __init__(
        self, settings: Settings, runs: Path, given: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.settings, self.runs, self.given, self.overrides = settings, runs, given, dict(overrides or {})

    @property
    def preset(self) -> str:
        """What --preset takes to have this run's settings."""
        return self.given or self.settings.preset

    @property
    def origin(self) -> str:
        """The preset that a report names: that of the run which resolved settings repeat."""
        return self.settings.preset if Path(self.preset).name == RESOLVED else self.preset

    def command(self, flow: str) -> str:
        """What runs a flow with the same settings."""
        words = ["elastic", "run", flow, "--preset", self.preset]
        for path, value in leaves(self.overrides):
            words += ["--set", f"{'.'.join(path)}={json.dumps(value)}"]
        return shlex.join(words)

    # The graph.

    def steps(self, flow: str) -> list[str]:
        """Flows of a single stage's name that a flow consists of, in order."""
        if flow != "pipeline":
            return [flow]
        made = {"warm-start": self.settings.base == "warm-start", "train": self.settings.train is not None}
        return ["prepare-data", *(name for name, needed in made.items() if needed), "sweep", "report"]

    def stages_of(self, flow: str) -> Iterator[Stage]:
        """Stages that a flow leaves done, in order: what one is made from is known when those before it are done. None
        of a flow that does more than its stages leave."""
        steps = self.steps(flow)
        if "report" in steps and BENCHMARK in self.settings.data.benchmarks:
            return  # Standings that could not be had yesterday are looked for again.
        if {"prepare-data", "train", "sweep"}.intersection(steps):
            yield self.data
        if "warm-start" in steps:
            yield self.warm_start
        if "train" in steps:
            yield from self.trainings.values()
        if {"sweep", "report"}.intersection(steps):
            yield self.sweep
        if "report" in steps:
            yield self.report()

    def stage(self, name: str, inputs: Mapping[str, Any], request: Mapping[str, Any] | None = None) -> Stage:
        return Stage(self.runs, self.settings.preset, name, dict(inputs), dict(request or {}))

    # Data.

    @cached_property
    def mirror(self) -> Path | None:
        return mirror_of(self.settings)

    @cached_property
    def known_datasets(self) -> dict[str, Dataset]:
        """Every data set there is, by name."""
        return all_datasets(self.runs / USER_DATASETS)

    @cached_property
    def datasets(self) -> list[Dataset]:
        """Data sets of training, validation and the sweep, and further ones to build. Raises UserError on an unknown
        name, a role that a data set cannot have, or a mirror that is not there."""
        settings, known, tree = self.settings.data, self.known_datasets, self.mirror
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
        """The data sets with all their files on this machine."""
        sources, filed = self.runs / SOURCES, [entry for entry in self.datasets if entry.files]
        found = {entry.name: located(entry, sources=sources, mirror=self.mirror) for entry in filed}
        return {name: dataset for name, dataset in found.items() if dataset is not None}

    @cached_property
    def data(self) -> Stage:
        """Everything that is built for a run, in one directory. Until every source file was fetched once, its key is
        one under which nothing is ever built."""
        settings = self.settings.data
        generated = any(isinstance(entry.source, Generated) for entry in self.datasets)
        try:
            tokenizer = tokenizer_fingerprint(self.tokenizer)
        except ValueError as error:
            raise UserError(f'base: {error}, "shipped" or "warm-start"') from None
        return self.stage(
            "data",
            {
                "sources": {entry.name: _contents(entry, self.fetched.get(entry.name)) for entry in self.datasets},
                "trained": sorted(settings.train),
                "max_prompt_tokens": self._max_prompt_tokens,
                "common_ngrams": settings.common_ngrams,
                **({} if settings.decontaminate else {"decontaminate": False}),
                **({} if settings.max_tests is None else {"max_tests": settings.max_tests}),
                "miniature": settings.miniature.model_dump() if generated and settings.miniature else None,
                **({"words": settings.words.model_dump()} if generated and settings.words else {}),
                "tokenizer": tokenizer,
                "code": code_fingerprint(),
            },
        )

    def forget_data(self) -> None:
        """Look again at what data is made from: source files were fetched."""
        for name in ("fetched", "data"):
            self.__dict__.pop(name, None)

    def require_data(self, flow: str = "prepare-data") -> None:
        """Raise UserError when nothing was built with these settings; `flow` builds it."""
        if not self.data.is_done:
            raise UserError(f"no data was built with these settings; run first: {self.command(flow)}")

    @property
    def build(self) -> DataBuild:
        """Parameters of the data's build, once everything is fetched."""
        settings = self.settings.data
        return DataBuild(
            datasets=self.datasets,
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

    def data_files(self, names: Iterable[str]) -> list[Path]:
        """Built files of data sets by name."""
        return [self.data.directory / f"{name}.parquet" for name in names]

    def require_graders(self, names: Iterable[str]) -> None:
        """Raise UserError when a grader cannot be imported, or programs would run and the sandbox does not work."""
        graders = {self.known_datasets[name].grader for name in names}
        for grader in filter(None, graders):
            grader_of(grader)
        if "code" in graders:
            require_sandbox()

    @property
    def conversations(self) -> tuple[Path, tuple[Path, ...]]:
        """The built data set of `warm_start.sft`, and its source files, which may hold more than is read. Raises
        UserError when it has not been built."""
        entry = self._imitated
        assert entry is not None, "there is a section sft"
        self.require_data()
        # A user's data set names the fields to read; a generated one has no files.
        unnamed = entry.files and not entry.chosen
        sources = tuple(file.path for file in self.fetched[entry.name].files) if unnamed else ()
        return self.data.directory / f"{entry.name}.parquet", sources

    @cached_property
    def tokenizer(self) -> Path:
        """The directory with the tokenizer that measures prompts: that of the model to train."""
        base = self.settings.base
        if base == "warm-start":  # It keeps its tokenizer.
            found = self._initial(model_files.TOKENIZER_FILES)
        else:
            found = BASE if base == "shipped" else model_files.locate(base, model_files.TOKENIZER_FILES)
        return self.with_family("base", found)

    @property
    def _max_prompt_tokens(self) -> int | None:
        return self.settings.train.prompt_tokens if self.settings.train else None

    @cached_property
    def _imitated(self) -> Dataset | None:
        """The data set of `warm_start.sft`: one that is known, or a file."""
        sft, known = self.settings.warm_start.sft, self.known_datasets
        if sft is None:
            return None
        entry = known.get(sft.data) or file_dataset(Path(sft.data))
        if entry.form is not Form.CONVERSATIONS:
            conversations = ", ".join(name for name, other in known.items() if other.form is Form.CONVERSATIONS)
            raise UserError(
                f"warm_start.sft.data: {entry.name} holds no conversations; expected {conversations} or a file"
            )
        return entry

    # Models.

    def with_family(self, model: str, checkpoint: Path, family: str | None = None) -> Path:
        """A model's checkpoint, with the marks of the family that is given, or set for it, if one is."""
        family = family or self.settings.family(model)
        return checkpoint if family is None else families.with_family(checkpoint, family, self.runs / "families")

    def fingerprint(self, checkpoint: Path) -> str:
        """`model_fingerprint`; the gigabytes of a real model are read once, and again when they have changed."""
        value = model_fingerprint(checkpoint, self._hashes.sha256)
        self._hashes.save()
        return value

    @cached_property
    def _hashes(self) -> HashCache:
        return HashCache(self.runs / "hashes.json")

    @cached_property
    def initial(self) -> Path:
        """The checkpoint that fine-tuning goes on from. Raises UserError when it is not there."""
        advice = 'warm_start.initial names it: give a directory, OWNER/NAME on the hub, or "shipped"'
        return self._present(self._initial(), advice)

    @cached_property
    def base(self) -> Path:
        """The checkpoint that training starts from. Raises UserError when it is not there."""
        base = self.settings.base
        if base == "warm-start":
            advice = f"run first: {self.command('warm-start')}"
            return self._present(self.warm_start.directory / MODEL, advice, "base")
        hub = 'OWNER/NAME on the hub, "shipped" or "warm-start"'
        advice = f"give --set base=DIRECTORY with a Hugging Face checkpoint, {hub}"
        return self._present(BASE if base == "shipped" else model_files.locate(base), advice, "base")

    def trained(self, name: str = "trained") -> Path:
        """The checkpoint that training left, by one of the names `TRAINED`, with its seed where there are several.
        Raises UserError when there is none."""
        known = [each for kind in TRAINED for each in self.settings.of_seeds(kind)]
        if name not in known:
            raise UserError(f'no trained model "{name}"; expected {", ".join(known)}')
        kind, seed = without_seed(name)
        stage = next(iter(self.trainings.values())) if seed is None else self.trainings[seed]
        if not stage.is_done:
            raise UserError(f"no trained checkpoint at {stage.directory}; run first: {self.command('train')}")
        directory = stage.directory / {"trained": MODEL, "best": BEST}[kind]
        if not directory.exists():
            raise UserError(f"{directory}: there is no {name} checkpoint, as none was validated (train.validate_every)")
        return directory

    @cached_property
    def checkpoints(self) -> dict[str, Path]:
        """Checkpoints that the sweep measures, by name, without those behind servers. UserError when one is missing."""
        names, behind = checkpoint_names(self.settings.measured), self.settings.sweep.endpoints
        return {name: self._checkpoint(name) for name in names if name not in behind}

    @cached_property
    def endpoints(self) -> dict[str, Endpoint]:
        """Models behind servers that the sweep measures, by name. Raises UserError as `find_endpoints` does."""
        served = self.settings.sweep.endpoints
        behind = {name: served[name] for name in checkpoint_names(self.settings.measured) if name in served}
        return self.find_endpoints(behind, self.settings.endpoint) if behind else {}

    def find_endpoints(
        self, behind: Mapping[str, tuple[Address, ...]], parameters: EndpointParameters
    ) -> dict[str, Endpoint]:
        """Models of the sweep at the addresses `behind`, by name; raises as `endpoints.find_endpoints`."""
        found = find_endpoints(behind, self.settings.sweep.tokenizers, parameters, self.runs)
        return {name: self.at_endpoint(name, endpoint) for name, endpoint in found.items()}

    def at_endpoint(self, model: str, endpoint: Endpoint, family: str | None = None) -> Endpoint:
        """`with_family` of an endpoint's tokenizer, if it has one."""
        if endpoint.tokenizer is None:
            return endpoint
        return replace(endpoint, tokenizer=self.with_family(model, endpoint.tokenizer, family))

    def _initial(self, files: tuple[str, ...] = model_files.MODEL_FILES) -> Path:
        """Directory of a warm start's initial model, or of its tokenizer."""
        initial = self.settings.warm_start.initial
        return BASE if initial in ("random", "shipped") else model_files.locate(initial, files)

    def _checkpoint(self, name: str) -> Path:
        if name == "base":
            return self.base
        if without_seed(name)[0] in TRAINED:
            return self.trained(name)
        advice = f"sweep.checkpoints.{name} names it: give a directory, or OWNER/NAME on the hub"
        return self._present(model_files.locate(self.settings.sweep.directories[name]), advice, name)

    def _present(self, checkpoint: Path, advice: str, name: str | None = None) -> Path:
        """The checkpoint, which must be there; with the family that is set for a model of this name."""
        try:
            self.fingerprint(checkpoint)
        except ValueError as error:
            raise UserError(f"{error}; {advice}") from None
        return self.with_family(name, checkpoint.resolve()) if name else checkpoint.resolve()

    # Stages after the data.

    @cached_property
    def warm_start(self) -> Stage:
        settings = self.settings.warm_start
        inputs: dict[str, Any] = {}
        if settings.initial != "random":
            inputs["initial"] = self.fingerprint(self.initial)
        if settings.sft is None:
            inputs["warm_start"] = settings.model_dump(exclude={"sft"})
            inputs["code"] = source_fingerprint("elastic_core.miniature.warm_start", without=_TRAINING)
        else:
            inputs["data"] = hash_files([self.conversations[0]])
            inputs["sft"] = settings.sft.model_dump(mode="json", exclude={"data"}, exclude_none=True)
        return self.stage("warm-start", inputs)

    @cached_property
    def trainings(self) -> dict[int, Stage]:
        """The training of each seed. Its resources do not change its result, and are not an input."""
        data = self.settings.data
        made_from = {
            "base": self.fingerprint(self.base),
            "train_data": hash_files(self.data_files(data.train)),
            "validation_data": hash_files(self.data_files(data.validation)),
        }
        stages = {}
        for seed, parameters in self.settings.training.by_seed.items():
            train = parameters.model_dump(mode="json", exclude_none=True, exclude=parameters.resources)
            stages[seed] = self.stage("train", {**made_from, "train": train})
        return stages

    @cached_property
    def benchmark_files(self) -> dict[str, Path]:
        names = self.settings.data.benchmarks
        return dict(zip(names, self.data_files(names), strict=True))

    @cached_property
    def problems(self) -> dict[str, list[Problem]]:
        """The problems that the sweep measures, by benchmark; they must have been built."""
        built = {name: read_problems(file) for name, file in self.benchmark_files.items()}
        return first_problems(built, self.settings.sweep.problems)

    def require_reachable(self) -> None:
        """UserError when `sweep.until_ci` is narrower than so few problems allow; they must have been built."""
        settings = self.settings.sweep
        if settings.until_ci is None:
            return
        counts = {name: len(problems) for name, problems in self.problems.items()}
        if found := beyond_reach(settings.until_ci, counts, settings.max_samples):
            raise UserError(f"sweep.until_ci is {settings.until_ci:g} points, but {'; '.join(found)}")

    @cached_property
    def measured_rows(self) -> pl.Expr:
        """Rows of the trajectory table that are of problems which the sweep measures: it may hold more."""
        if self.settings.sweep.problems is None:
            return pl.col("benchmark").is_in(self.settings.data.benchmarks)
        return rows_of({name: [problem.id for problem in given] for name, given in self.problems.items()})

    @cached_property
    def templates(self) -> Templates | None:
        """The thought templates of a sweep that uses any. Raises UserError as `load_templates` does."""
        settings = self.settings.sweep
        if REASONFLUX_ZERO not in settings.every_strategy:
            return None
        return load_templates(settings.templates, self.runs, self.mirror)

    @cached_property
    def sweep(self) -> Stage:
        """One trajectory table per set of models, benchmarks and sampling settings; cells, samples and problems may be
        added to it. Samples that it shares with another one are drawn once (`elastic_core.sweep.table`)."""
        settings, templates, endpoints = self.settings.sweep, self.templates, self.endpoints
        made_from = {REASONFLUX_ZERO: templates.fingerprint} if templates else {}
        made_from |= {name: code_of(name) for name in settings.every_strategy if ":" in name}
        models = {name: self.fingerprint(path) for name, path in self.checkpoints.items()}
        return self.stage(
            "sweep",
            {
                "models": models | {name: endpoint.fingerprint for name, endpoint in endpoints.items()},
                "benchmarks": {name: hash_files([file]) for name, file in self.benchmark_files.items()},
                **({"engine": self.settings.engine.fingerprint} if models else {}),
                **({"servers": {name: each.description for name, each in endpoints.items()}} if endpoints else {}),
                "sampling": settings.model_dump(include=_SAMPLING, exclude_none=True),
                **({"templates": made_from} if made_from else {}),
            },
            settings.model_dump(include=_REQUEST)
            | {"models": self.settings.measured}
            | ({} if settings.problems is None else {"problems": settings.problems}),
        )

    @property
    def cards(self) -> Cards:
        """Cards of the models that the sweep measured."""
        return Cards(self.sweep, self.measured_rows, self.settings.report.margin / 100, self.fingerprint)

    def report(self, standings: str | None = None) -> Stage:
        """The latest report of the sweep; `standings` is a hash of those that ratings are computed from, if any."""
        table, assets = SweepTable(self.sweep.directory / TABLE), Path(reports.__file__).parent
        return self.stage(
            "report",
            {},
            {
                "table": str(table.directory),
                "contents": hash_files(table.shards()),
                "codeforces": standings,
                "provenance": {"preset": self.origin, **self.sweep.inputs},
                "settings": self.settings.model_dump(mode="json"),
                "code": source_fingerprint("reports.build", "tasks.report", without=_NOT_WRITING),
                "assets": hash_files(file for file in assets.rglob("*") if file.suffix in _ASSETS),
            },
        )


def load_templates(parameters: TemplateParameters, runs: Path, mirror: Path | None) -> Templates:
    """The library of thought templates that the parameters name, fetched if need be. Raises UserError when there is
    none, or it is broken, or cannot be fetched."""

    def published() -> Path:
        return fetch([REGISTRY[DATASET]], sources=runs / SOURCES, mirror=mirror)[DATASET].files[0].path

    library = load_library(parameters.library, own=runs / USER_TEMPLATES, published=published)
    return Templates(library, parameters, runs / EMBEDDINGS)


def mirror_of(settings: Settings) -> Path | None:
    """The tree of source files that the settings name, or else the environment."""
    given = settings.data.mirror or os.environ.get("ELASTIC_DATA_MIRROR")
    return Path(given).resolve() if given else None


def _contents(entry: Dataset, fetched: FetchedDataset | None) -> Any:
    if isinstance(entry.source, Generated):
        return entry.source.module
    if fetched is None:
        return None
    return {file.name: file.sha256 for file in fetched.files} | ({"chosen": entry.chosen} if entry.chosen else {})
