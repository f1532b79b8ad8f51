"""Settings of every flow. A preset fills them; each field's docstring is its description, with unit and bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from elastic_core.budget import Budget, parse_grid
from elastic_core.data.word_problems import WordParameters
from elastic_core.engines.endpoint import CHAT, EXAMPLE, Address, EndpointParameters, is_endpoint, parse_addresses
from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError, first_fault, nearest
from elastic_core.miniature.corpus import RECIPES
from elastic_core.miniature.problems import MiniatureParameters
from elastic_core.miniature.warm_start import shortened
from elastic_core.models.families import read_thought
from elastic_core.statistics.estimates import seed_name, without_seed
from elastic_core.strategies import SERVED, STRATEGIES
from elastic_core.strategies.chat import CHAT_STRATEGIES, EFFORT, EFFORTS
from elastic_core.strategies.reasonflux_zero import TemplateParameters
from elastic_core.strategies.variants import expanded
from elastic_core.sweep.grid import (
    OTHERS,
    build_cells,
    checkpoint_names,
    checkpoints,
    every_strategy,
    known_strategies,
    split_model,
)
from elastic_core.system.imported import declare
from elastic_core.system.ray_cluster import RayCluster
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.sft_parameters import SftParameters
from reports.content import ReportParameters

TRAINED = ("trained", "best")
"""What training leaves: its last checkpoint, and the one with the highest validation accuracy."""


def _listed(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_listed)]
"""A list of words, which --set also takes as one text: "48+32, 96+32"."""


def with_levels(strategies: Sequence[str]) -> list[str]:
    """Strategies by name, "effort" in its levels; declares those by import path."""
    return [declare(each) for name in strategies for each in (EFFORTS if name == EFFORT else [name])]


Strategies = Annotated[Names, AfterValidator(with_levels), AfterValidator(known_strategies)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class DataSettings(Section):
    """What `prepare-data` builds, and for what. `elastic data list` shows every data set."""

    train: Names = []
    """Data sets that training reads."""
    validation: Names = []
    """Data sets that training is watched on."""
    benchmarks: Names = Field(min_length=1)
    """Data sets that the sweep measures."""
    datasets: list[str] | None = None
    """Further data sets to build; none is all that lie in the mirror."""
    mirror: Path | None = None
    """Local tree of source files, OWNER/REPOSITORY/PATH, where files are looked for first; none takes
    ELASTIC_DATA_MIRROR."""
    common_ngrams: int | None = Field(None, ge=1)
    """Training rows that a 13-gram may occur in before it is a common phrase and no overlap with an evaluation set
    (GPT-3 used 10); none counts every 13-gram."""
    decontaminate: bool = Field(True, exclude_if=operator.truth)
    """Leave out training rows that overlap with an evaluation set; false only counts them."""
    max_tests: int | None = Field(None, ge=1)
    """Tests of a program that training rewards, the longest inputs first (DeepCoder takes 15); none is all."""
    miniature: MiniatureParameters | None = None
    """Sizes and seeds of the miniature's data sets."""
    words: WordParameters | None = Field(None, exclude_if=lambda given: given is None)
    """Sizes and seeds of the data sets of word problems."""


class WarmStartSettings(Section):
    """Supervised fine-tuning of a base model: the miniature on its warm-start corpus, or any model on conversations."""

    initial: str = "random"
    """"random" weights of the miniature, the "shipped" base, a checkpoint directory, or with `sft` also OWNER/NAME on
    the hub."""
    sft: SftParameters | None = None
    """Fine-tune on conversations; none makes the miniature, by the settings that follow."""
    recipe: Literal["curriculum", "consolidation", "effort"] = "curriculum"
    """Part of the miniature's corpus; the shipped base saw the first two, one after the other. "effort" teaches it to
    think short or long as the chat template is told."""
    seed: int = 0
    """Seed of the miniature's corpus and initial weights."""
    steps: int | None = Field(None, gt=0)
    """Optimiser steps; none is the whole recipe."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate; none is the recipe's."""
    save_every: int = Field(500, gt=0)
    """Steps between checkpoints: what a crash can cost."""

    @model_validator(mode="after")
    def _settings_have_an_effect(self) -> WarmStartSettings:
        if self.sft is None:
            if self.initial not in ("random", "shipped") and not Path(self.initial).is_dir():
                raise ValueError(f'initial = "{self.initial}" is neither "random", "shipped" nor a directory')
            if self.steps is not None:
                shortened(RECIPES[self.recipe](self.seed), self.steps)  # It refuses too few.
            return self
        if self.initial == "random":
            raise ValueError('sft goes on from a model; give initial = a checkpoint directory, OWNER/NAME or "shipped"')
        if idle := self.model_fields_set & {"recipe", "seed", "steps", "learning_rate", "save_every"}:
            raise ValueError(f"{min(idle)} has no effect beside sft; see those of sft")
        return self


class TrainSettings(GrpoParameters):
    """GRPO under a budget, once or again with other seeds."""

    seeds: tuple[int, ...] = ()
    """Train with each of these in place of `seed`, 0 or more each. The sweep measures every one: trained@1, trained@2
    and so on, which are one model in a report."""

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{list(seeds)} has a seed twice")
        if wrong := [seed for seed in seeds if not 0 <= seed < 2**31]:
            raise ValueError(f"{wrong[0]} is not a seed; expected 0 or more, and less than 2**31")
        return seeds

    @property
    def by_seed(self) -> dict[int, GrpoParameters]:
        """Every training; each is the same whether there are others or not."""
        return {seed: self.changed({"seed": seed}) for seed in self.seeds or [self.seed]}

    def changed(self, changes: Mapping[str, Any]) -> GrpoParameters:
        """One training, with other settings in place of these; pydantic's ValidationError where they do not fit."""
        return GrpoParameters.model_validate({**self.model_dump(exclude={"seeds"}), **changes})


class SweepSettings(Section):
    """The grid: strategies × budgets × benchmarks × models."""

    models: Names = Field(["base", "trained"], min_length=1)
    """Models to measure: "base", "trained" (the last checkpoint), "best" (by validation accuracy), a name of
    `checkpoints`, or a pair "A>B", where A thinks and B solves."""
    checkpoints: dict[str, str | list[str]] = {}
    """Further models by name: checkpoint directories, OWNER/NAME on the hub, or a server's address and model,
    "http://host:8000/v1#model"; a list of these are replicas. "mine@1" and "mine@2" are seeds of one training, and one
    model in a report."""
    tokenizers: dict[str, str] = Field({}, exclude_if=operator.not_)
    """The tokenizer of each model behind a server, by its name in `checkpoints`: a directory, or OWNER/NAME on the hub.
    The server must have the same one."""
    closings: Names = Field(["bare"], exclude_if=["bare"].__eq__)
    """How cuts of `separate` are worded, further than by think-end alone, "bare", which is always measured: "soft",
    "soft-K-topN", "answer-now", "qwen3" or a sentence. The thoughts are the same up to the cut (docs/closings.md)."""
    efforts: Names = Field([], exclude_if=operator.not_)
    """Efforts that the model's chat template is told, by its family's names: every strategy is measured with each, and
    without any."""
    strategies: Strategies = Field(min_length=1)
    """Decoding strategies by name, or your own by import path, "module:name"; `unconstrained` gives one cell, the
    others one per budget. "effort", for models behind a chat API, stands for its four levels."""
    strategies_of: dict[str, Strategies] = Field({}, exclude_if=operator.not_)
    """Strategies of single models, by a name in `models` or of the ablation, where they are not `strategies`."""
    budgets: Names = Field(min_length=1)
    """THINK+SOLUTION in tokens, like "48+32" or "1k+1k"."""
    samples: int | dict[str, int]
    """Samples per problem and cell, the k of avg@k: a number, or one for each benchmark, like { codeforces = 8,
    default = 16 }, where `default` is for all others."""
    problems: int | None = Field(None, gt=0)
    """Problems of each benchmark to measure, drawn by a hash of their names, so that a smaller number is a subset of a
    larger one; none is all."""
    max_response_tokens: int | None = Field(None, ge=1)
    """Tokens after which a response or a phase without a budget ends; none is where the context ends
    (`engine.max_model_len`, prompt included)."""
    temperature: float = Field(0.6, ge=0, le=2)
    """Sampling temperature."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling."""
    seed: int = 0
    """Every sample's seed derives from this one."""
    sharing: Literal["memo", "independent"] = "memo"
    """"memo": the cells of a sample share what they draw, exactly. "independent": every cell draws its own."""
    logprobs: bool = Field(False, exclude_if=operator.not_)
    """Store how probable each solution was to the model (`solution_logprob`), for stop rules with `sure`. A resumed
    sweep draws unfinished samples anew."""
    grading: Literal["ours", "elastic-reasoning"] = Field("ours", exclude_if="ours".__eq__)
    """"elastic-reasoning": grade by the rules of the authors' programs too, in a column of its own; rows that are there
    already are graded, and not drawn again."""
    templates: TemplateParameters = TemplateParameters()
    """What the strategy `reasonflux_zero` searches, and in which words it asks."""
    until_ci: float | None = Field(None, gt=0, le=50)
    """Go on sampling until the 95 % interval of every cell's accuracy is at most this wide to either side, in points
    (percent); refused where the problems are too few (`elastic_core.sweep.stopping`)."""
    max_samples: int = Field(256, gt=0)
    """Most samples per problem and cell that `until_ci` leads to."""

    @field_validator("strategies", "strategies_of")
    @classmethod
    def _variants(cls, given: Any, info: ValidationInfo) -> Any:
        """Strategies with those that closings and efforts make of them."""
        axes = info.data.get("closings", []), info.data.get("efforts", []), SERVED
        if isinstance(given, dict):
            return {name: expanded(own, *axes) for name, own in given.items()}
        return expanded(given, *axes)

    @field_validator("budgets")
    @classmethod
    def _budgets(cls, budgets: list[str]) -> list[str]:
        return [str(budget) for budget in parse_grid(budgets)]

    @field_validator("models")
    @classmethod
    def _models(cls, models: list[str]) -> list[str]:
        checkpoint_names(models)  # It refuses what names no model.
        return models

    @field_validator("samples", mode="before")
    @classmethod
    def _positive(cls, samples: Any) -> Any:
        # Before the union is tried: of what fits neither, pydantic would speak twice.
        of_benchmarks = isinstance(samples, dict)
        named = {f" for {name}": number for name, number in samples.items()} if of_benchmarks else {"": samples}
        for where, number in named.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(f"input should be an integer{where}, or one for each benchmark")
            if number < 1:
                raise ValueError(f"input should be greater than 0{where}")
        return samples

    @model_validator(mode="after")
    def _grid(self) -> SweepSettings:
        build_cells(self.models, ["benchmark"], self.strategies, self.grid, self.strategies_of)
        known = {"base", *TRAINED, *self.checkpoints}
        if unknown := [name for name in checkpoint_names(self.models) if name not in known]:
            raise ValueError(f'no model "{unknown[0]}"; expected {", ".join(sorted(known))}, or a pair of them "A>B"')
        own = self.strategies_of
        chosen = {name: own.get(name, own.get(without_seed(name)[0], self.strategies)) for name in self.models}
        _check_endpoints(self.endpoints, self.tokenizers, chosen)
        for name in self.checkpoints:
            model, seed = without_seed(name)
            if seed is not None and model in known:
                raise ValueError(f'"{name}" is a seed of "{model}", which is a model of its own; rename one of them')
        if reserved := {"base", *TRAINED} & self.checkpoints.keys():
            raise ValueError(f'"{reserved.pop()}" is a name of its own; call the checkpoint something else')
        most = self.samples if isinstance(self.samples, int) else max(self.samples.values(), default=0)
        if self.until_ci is not None and self.max_samples < most:
            raise ValueError(f"max_samples is {self.max_samples}, fewer than the {most} samples to begin with")
        return self

    @property
    def endpoints(self) -> dict[str, tuple[Address, ...]]:
        """Those of `checkpoints` that are behind servers."""
        return _endpoints_of(self.checkpoints)

    @property
    def directories(self) -> dict[str, str]:
        """Those that are not: directories and names on the hub."""
        return {name: str(place) for name, place in self.checkpoints.items() if name not in self.endpoints}

    @property
    def every_strategy(self) -> list[str]:
        """Those of all models and those of single ones, each once."""
        return every_strategy(self.strategies, self.strategies_of)

    @property
    def grid(self) -> list[Budget]:
        return parse_grid(self.budgets)


class ModelSettings(Section):
    """Facts about a model that its files do not hold."""

    family: str
    """Its family of think markers, where its files do not say it: a family (`docs/models.md`), or a TOML file."""

    @field_validator("family")
    @classmethod
    def _known(cls, family: str) -> str:
        try:
            read_thought(family)
        except UserError as error:
            raise ValueError(str(error)) from None
        return family


class Variant(Section):
    """A training of the ablation."""

    after: str | None = None
    """The variant whose checkpoint it starts from; none is the base."""
    measure: bool = Field(True, exclude_if=operator.truth)
    """Measure it in the sweep; false where another variant only goes on from it."""
    train: dict[str, Any]
    """Settings of `train` that it replaces."""


class RaySettings(Section):
    """The Ray cluster that training and engines run on."""

    address: str | None = None
    """Address of a running cluster, like "10.0.0.1:6379"; none starts a local cluster and stops it."""
    dashboard: str | None = None
    """Address of its dashboard, which takes jobs, like "http://10.0.0.1:8265"."""

    @model_validator(mode="after")
    def _both_or_none(self) -> RaySettings:
        if (self.address is None) != (self.dashboard is None):
            raise ValueError("a running cluster needs both ray.address and ray.dashboard")
        return self

    @property
    def running(self) -> RayCluster | None:
        """The cluster to join, if any."""
        return RayCluster(self.dashboard, self.address) if self.dashboard and self.address else None


class MlflowSettings(Section):
    """The MLflow server or database that records runs."""

    tracking_uri: str | None = None
    """MLflow server or database; none takes MLFLOW_TRACKING_URI, and without it SQLite below the runs directory."""

    @model_validator(mode="after")  # Of the section, as the message about a field would repeat it.
    def _holds_no_password(self) -> MlflowSettings:
        if urlsplit(self.tracking_uri or "").password:
            raise ValueError(
                "tracking_uri must hold no password, as settings are written into every result; give a server's in "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, a database's in MLFLOW_TRACKING_URI"
            )
        return self


class Settings(Section):
    """Everything a pipeline depends on."""

    preset: str
    """Name of the preset; also of the MLflow experiment and the directory below the runs directory."""
    base: str
    """The model to start from: "shipped" (the embedded miniature), "warm-start" (what that flow leaves), a Hugging Face
    checkpoint directory, or OWNER/NAME on the hub."""
    models: dict[str, ModelSettings] = Field({}, exclude_if=operator.not_)
    """Of the base and of those in `sweep.checkpoints`, by name. What is trained has its base's."""
    data: DataSettings
    warm_start: WarmStartSettings = WarmStartSettings()
    train: TrainSettings | None = None
    """GRPO under a budget; without it there is no training, and the sweep measures what others trained."""
    ablation: dict[str, Variant] = {}
    """Trainings that differ in a setting, by name: `elastic run ablation` trains and measures them all."""
    engine: EngineParameters
    endpoint: EndpointParameters = Field(EndpointParameters(), exclude_if=lambda given: given == EndpointParameters())
    """How servers of models that are not run here are asked."""
    sweep: SweepSettings
    report: ReportParameters = ReportParameters()
    ray: RaySettings = RaySettings()
    mlflow: MlflowSettings = MlflowSettings()

    @model_validator(mode="after")
    def _trains_on_data(self) -> Settings:
        if self.train and not (self.data.train and self.data.validation):
            raise ValueError("training needs data.train and data.validation, at least one data set each")
        if not self.train and (self.data.train or self.data.validation):
            raise ValueError("data.train and data.validation are read by training, and there is no section train")
        if not self.train and (needed := {*TRAINED} & {*checkpoint_names(self.sweep.models)}):
            raise ValueError(f'sweep.models: "{needed.pop()}" needs a section train')
        return self

    @model_validator(mode="after")
    def _variants(self) -> Settings:
        known = {"base", *TRAINED, *self.sweep.checkpoints}
        for i, (name, variant) in enumerate(self.ablation.items()):
            earlier = list(self.ablation)[:i]
            if name in known or checkpoints(name) != {"policy": name}:
                raise ValueError(f'ablation.{name}: "{name}" is another model\'s name; call the variant something else')
            if variant.after is not None and variant.after not in earlier:
                raise ValueError(
                    f'ablation.{name}: after = "{variant.after}", expected an earlier variant '
                    f"({', '.join(earlier) or 'there is none'})"
                )
            if "seed" in variant.train and self.training.seeds:
                raise ValueError(f"ablation.{name}.train.seed has no effect beside train.seeds")
            try:
                self.training.changed(variant.train)
            except ValidationError as error:
                raise ValueError(first_fault(error, "ablation", name, "train")) from None
        return self

    @model_validator(mode="after")
    def _pairs(self) -> Settings:
        measured = [*self.sweep.models, *(name for name, variant in self.ablation.items() if variant.measure)]
        known = {*measured, *(without_seed(model)[0] for model in measured)}  # A report shows seeds as one model.
        named = [("report.pairs", name) for pair in self.report.pairs for name in pair]
        named += [("sweep.strategies_of", name) for name in self.sweep.strategies_of]
        for setting, name in named:
            if name not in known:
                raise ValueError(f'{setting}: no model "{name}" is measured; expected {", ".join(measured)}')
        return self

    @model_validator(mode="after")
    def _named_models(self) -> Settings:
        known = ["base", *self.sweep.checkpoints]
        for name in self.models:
            if name not in known:
                raise ValueError(f"models.{name}: no such model{nearest(name, known)}; expected {', '.join(known)}")
        return self

    @model_validator(mode="after")
    def _samples_of_benchmarks(self) -> Settings:
        samples, benchmarks = self.sweep.samples, self.data.benchmarks
        if not isinstance(samples, dict):
            return self
        if unknown := [name for name in samples if name not in [*benchmarks, OTHERS]]:
            hint = nearest(unknown[0], benchmarks)
            raise ValueError(
                f'sweep.samples: no benchmark "{unknown[0]}" is measured{hint}; expected {", ".join(benchmarks)}, or '
                f"{OTHERS} for all others"
            )
        if missing := [name for name in benchmarks if name not in samples and OTHERS not in samples]:
            raise ValueError(f"sweep.samples: no number for {missing[0]}; give it, or {OTHERS} for all others")
        return self

    @property
    def thinks(self) -> bool:
        """Whether the models need think markers: training does, and every strategy that puts a budget on a thought."""
        return self.train is not None or any(STRATEGIES[name].thinks for name in self.sweep.every_strategy)

    @property
    def training(self) -> TrainSettings:
        """The section `train`. Raises UserError when there is none."""
        if self.train is None:
            raise UserError(f"preset {self.preset} trains nothing: it has no section train")
        return self.train

    @property
    def measured(self) -> list[str]:
        """The sweep's models, by the names that they have in its table: one for each seed of a training."""
        return [each for model in self.sweep.models for each in self.of_seeds(model)]

    def family(self, model: str) -> str | None:
        """The family that is set for a model, if any."""
        return self.models[model].family if model in self.models else None

    def of_seeds(self, model: str) -> list[str]:
        """Names of a model where training had several seeds: "trained@1", "trained@2"; else its name."""
        names = split_model(model)
        if self.train is None or len(self.train.seeds) < 2 or not {*TRAINED} & {*names}:
            return [model]
        seeds = self.train.seeds
        return [">".join(seed_name(name, seed) if name in TRAINED else name for name in names) for seed in seeds]


def _endpoints_of(places: Mapping[str, str | list[str]]) -> dict[str, tuple[Address, ...]]:
    """Addresses of those places that are servers, by name. Raises ValueError when one cannot be read."""
    found = {}
    for name, place in places.items():
        if isinstance(place, list) or is_endpoint(place):
            try:
                found[name] = parse_addresses(place)
            except ValueError as error:
                raise ValueError(f"checkpoints.{name}: {error}") from None
    return found


def _check_endpoints(
    endpoints: Mapping[str, Sequence[Address]], tokenizers: Collection[str], strategies: Mapping[str, Sequence[str]]
) -> None:
    """Raise ValueError when a model cannot be measured by these settings; `strategies` are those of each model."""
    chat = {name for name, addresses in endpoints.items() if addresses[0].chat}
    with_ids = endpoints.keys() - chat
    for name in sorted(with_ids.difference(tokenizers)):
        raise ValueError(
            f"tokenizers.{name} is missing; expected the directory of the tokenizer that the server has for {name}, or "
            "OWNER/NAME on the hub"
        )
    for name in sorted(set(tokenizers) - with_ids):
        raise ValueError(
            f"tokenizers.{name} has no effect: checkpoints has no server of that name that takes token ids"
        )
    for model, chosen in strategies.items():
        names = set(split_model(model))
        in_text = names & chat
        if len(names) > 1 and (in_text or len(names & with_ids) == 1):
            raise ValueError(
                f'"{model}" is two models of different kinds; expected both behind servers that take token ids'
            )
        if in_text and (refused := [name for name in chosen if name not in CHAT_STRATEGIES]):
            raise ValueError(
                f"{refused[0]} works on token ids, and {model} is asked in text; expected vanilla, unconstrained or "
                f"{EFFORT}: give it its own in strategies_of.{model}"
            )
        if not in_text and (refused := [name for name in chosen if name in EFFORTS]):
            raise ValueError(
                f"{refused[0]} is for models behind a chat API ({CHAT}{EXAMPLE}), and {model} is none; give those that "
                "are strategies_of of their own"
            )
