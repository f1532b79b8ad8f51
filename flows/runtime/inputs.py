"""What each stage of a run is made from: its models, its data, and the key of every stage. A stage is done when its
marker exists (`tasks.records.stage_directory`), whose place is a hash of all that is named here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import reports
from elastic_core.data.fetch import fetch
from elastic_core.data.problems import Problem, read_problems
from elastic_core.data.registry import REGISTRY
from elastic_core.engines.endpoint import Endpoint
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.reasonflux.library import DATASET, load_library
from elastic_core.statistics.estimates import without_seed
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO, TemplateParameters, Templates
from elastic_core.sweep.grid import checkpoint_names, first_problems, rows_of
from elastic_core.sweep.stopping import beyond_reach
from elastic_core.sweep.table import SweepTable
from elastic_core.system.fingerprint import HashCache, hash_files, model_fingerprint, source_fingerprint
from flows.runtime.data_inputs import DataInputs
from flows.runtime.settings import TRAINED
from tasks.cards import Cards
from tasks.records.stage_directory import BEST, EMBEDDINGS, MODEL, SOURCES, TABLE, USER_TEMPLATES, Stage

if TYPE_CHECKING:
    from flows.runtime.run import FlowRun

_ASSETS = {".js", ".css", ".j2", ".mplstyle", ".csv"}
"""Of reports, beside their code: scripts, styles, templates and published numbers."""
_NOT_WRITING = (
    *("elastic_core.rewards", "elastic_core.rewards.as_published", "tasks.data"),
    *("tasks.records.prefect_artifacts", "tasks.records.mlflow_tracker"),
)
"""What grades, what builds data and what records runs has no part in how a report is written."""
_SAMPLING = {"temperature", "top_p", "seed", "sharing", "max_response_tokens", "logprobs"}
"""Settings of a sweep that a sample depends on."""
_REQUEST = {"strategies", "strategies_of", "budgets", "samples", "until_ci", "max_samples", "grading"}
"""Those that say how many there are, and how they are graded."""
_TRAINING = ("elastic_core.training.sft",)
"""What runs a warm start has no part in its corpus, its architecture and its schedule."""


@dataclass(frozen=True)
class Inputs:
    """Models, data and stages of a run. What is found is kept; what is missing is looked for again when it is read."""

    run: FlowRun

    @cached_property
    def data(self) -> DataInputs:
        return DataInputs(self.run)

    @cached_property
    def initial(self) -> Path:
        """The checkpoint that fine-tuning goes on from. Raises UserError when it is not there."""
        advice = 'warm_start.initial names it: give a directory, OWNER/NAME on the hub, or "shipped"'
        return self._present(self.data.initial_checkpoint(), advice)

    @cached_property
    def warm_start(self) -> Stage:
        settings = self.run.settings.warm_start
        inputs: dict[str, Any] = {}
        if settings.initial != "random":
            inputs["initial"] = self.fingerprint(self.initial)
        if settings.sft is None:
            inputs["warm_start"] = settings.model_dump(exclude={"sft"})
            inputs["code"] = source_fingerprint("elastic_core.miniature.warm_start", without=_TRAINING)
        else:
            inputs["data"] = hash_files([self.data.conversations[0]])
            inputs["sft"] = settings.sft.model_dump(mode="json", exclude={"data"}, exclude_none=True)
        return self.run.stage("warm-start", inputs)

    @cached_property
    def base(self) -> Path:
        """The checkpoint that training starts from. Raises UserError when it is not there."""
        base = self.run.settings.base
        if base == "warm-start":
            advice = f"run first: {self.run.command('warm-start')}"
            return self._present(self.warm_start.directory / MODEL, advice, "base")
        hub = 'OWNER/NAME on the hub, "shipped" or "warm-start"'
        advice = f"give --set base=DIRECTORY with a Hugging Face checkpoint, {hub}"
        return self._present(BASE if base == "shipped" else model_files.locate(base), advice, "base")

    @cached_property
    def trainings(self) -> dict[int, Stage]:
        """The training of each seed. What it runs on does not change what it learns, and is not an input."""
        data = self.run.settings.data
        made_from = {
            "base": self.fingerprint(self.base),
            "train_data": hash_files(self.data.files(data.train)),
            "validation_data": hash_files(self.data.files(data.validation)),
        }
        stages = {}
        for seed, parameters in self.run.settings.training.by_seed.items():
            train = parameters.model_dump(mode="json", exclude_none=True, exclude=parameters.resources)
            stages[seed] = self.run.stage("train", {**made_from, "train": train})
        return stages

    def trained(self, name: str = "trained") -> Path:
        """The checkpoint that training left, by one of the names `TRAINED`, with its seed where there are several.
        Raises UserError when there is none."""
        known = [each for kind in TRAINED for each in self.run.settings.of_seeds(kind)]
        if name not in known:
            raise UserError(f'no trained model "{name}"; expected {", ".join(known)}')
        kind, seed = without_seed(name)
        stage = next(iter(self.trainings.values())) if seed is None else self.trainings[seed]
        if not stage.marker.exists():
            raise UserError(f"no trained checkpoint at {stage.directory}; run first: {self.run.command('train')}")
        directory = stage.directory / {"trained": MODEL, "best": BEST}[kind]
        if not directory.exists():
            raise UserError(f"{directory}: there is no {name} checkpoint, as none was validated (train.validate_every)")
        return directory

    @cached_property
    def checkpoints(self) -> dict[str, Path]:
        """Checkpoints that the sweep measures, by name, without those behind servers. UserError when one is missing."""
        names, behind = checkpoint_names(self.run.settings.measured), self.run.settings.sweep.endpoints
        return {name: self._checkpoint(name) for name in names if name not in behind}

    @cached_property
    def endpoints(self) -> dict[str, Endpoint]:
        """Models behind servers that the sweep measures, by name. Raises UserError as `find_endpoints` does."""
        settings, served = self.run.settings, self.run.settings.sweep.endpoints
        behind = {name: served[name] for name in checkpoint_names(settings.measured) if name in served}
        return self.run.find_endpoints(behind, settings.endpoint)

    @cached_property
    def benchmark_files(self) -> dict[str, Path]:
        names = self.run.settings.data.benchmarks
        return dict(zip(names, self.data.files(names), strict=True))

    @cached_property
    def problems(self) -> dict[str, list[Problem]]:
        """The problems that the sweep measures, by benchmark; they must have been built."""
        built = {name: read_problems(file) for name, file in self.benchmark_files.items()}
        return first_problems(built, self.run.settings.sweep.problems)

    def require_reachable(self) -> None:
        """UserError when `sweep.until_ci` is narrower than so few problems allow; they must have been built."""
        settings = self.run.settings.sweep
        if settings.until_ci is None:
            return
        counts = {name: len(problems) for name, problems in self.problems.items()}
        if found := beyond_reach(settings.until_ci, counts, settings.max_samples):
            raise UserError(f"sweep.until_ci is {settings.until_ci:g} points, but {'; '.join(found)}")

    @cached_property
    def measured_rows(self) -> pl.Expr:
        """Rows of the trajectory table that are of problems which the sweep measures: it may hold more."""
        if self.run.settings.sweep.problems is None:
            return pl.col("benchmark").is_in(self.run.settings.data.benchmarks)
        return rows_of({name: [problem.id for problem in given] for name, given in self.problems.items()})

    @cached_property
    def templates(self) -> Templates | None:
        """The thought templates of a sweep that uses any. Raises UserError as `load_templates` does."""
        settings = self.run.settings.sweep
        if REASONFLUX_ZERO not in settings.every_strategy:
            return None
        return load_templates(settings.templates, self.run.runs, self.data.mirror)

    @cached_property
    def sweep(self) -> Stage:
        """One trajectory table per set of models, benchmarks and sampling settings; cells, samples and problems may be
        added to it. What it shares with another one is drawn once (`elastic_core.sweep.table`)."""
        settings, templates, endpoints = self.run.settings.sweep, self.templates, self.endpoints
        models = {name: self.fingerprint(path) for name, path in self.checkpoints.items()}
        return self.run.stage(
            "sweep",
            {
                "models": models | {name: endpoint.fingerprint for name, endpoint in endpoints.items()},
                "benchmarks": {name: hash_files([file]) for name, file in self.benchmark_files.items()},
                **({"engine": self.run.settings.engine.fingerprint} if models else {}),
                **({"servers": {name: each.description for name, each in endpoints.items()}} if endpoints else {}),
                "sampling": settings.model_dump(include=_SAMPLING, exclude_none=True),
                **({"templates": {REASONFLUX_ZERO: templates.fingerprint}} if templates else {}),
            },
            settings.model_dump(include=_REQUEST)
            | {"models": self.run.settings.measured}
            | ({} if settings.problems is None else {"problems": settings.problems}),
        )

    @property
    def cards(self) -> Cards:
        """What the sweep measured of models."""
        return Cards(self.sweep, self.measured_rows, self.run.settings.report.margin / 100, self.fingerprint)

    def report(self, standings: str | None = None) -> Stage:
        """The latest report of the sweep; `standings` is a hash of those that ratings are computed from, if any."""
        table, assets = SweepTable(self.sweep.directory / TABLE), Path(reports.__file__).parent
        return self.run.stage(
            "report",
            {},
            {
                "table": str(table.directory),
                "contents": hash_files(table.shards()),
                "codeforces": standings,
                "provenance": {"preset": self.run.origin, **self.sweep.inputs},
                "settings": self.run.settings.model_dump(mode="json"),
                "code": source_fingerprint("reports.build", "tasks.report", without=_NOT_WRITING),
                "assets": hash_files(file for file in assets.rglob("*") if file.suffix in _ASSETS),
            },
        )

    def fingerprint(self, checkpoint: Path) -> str:
        """`model_fingerprint`; the gigabytes of a real model are read once, and again when they have changed."""
        value = model_fingerprint(checkpoint, self._hashes.sha256)
        self._hashes.save()
        return value

    @cached_property
    def _hashes(self) -> HashCache:
        return HashCache(self.run.runs / "hashes.json")

    def _checkpoint(self, name: str) -> Path:
        if name == "base":
            return self.base
        if without_seed(name)[0] in TRAINED:
            return self.trained(name)
        advice = f"sweep.checkpoints.{name} names it: give a directory, or OWNER/NAME on the hub"
        return self._present(model_files.locate(self.run.settings.sweep.directories[name]), advice, name)

    def _present(self, checkpoint: Path, advice: str, name: str | None = None) -> Path:
        """The checkpoint, which must be there; with the family that is set for a model of this name."""
        try:
            self.fingerprint(checkpoint)
        except ValueError as error:
            raise UserError(f"{error}; {advice}") from None
        return self.run.with_family(name, checkpoint.resolve()) if name else checkpoint.resolve()


def load_templates(parameters: TemplateParameters, runs: Path, mirror: Path | None) -> Templates:
    """The library of thought templates that the parameters name, fetched if need be. Raises UserError when there is
    none, or it is broken, or cannot be fetched."""

    def published() -> Path:
        return fetch([REGISTRY[DATASET]], sources=runs / SOURCES, mirror=mirror)[DATASET].files[0].path

    library = load_library(parameters.library, own=runs / USER_TEMPLATES, published=published)
    return Templates(library, parameters, runs / EMBEDDINGS)
