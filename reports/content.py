"""Sources and settings of a report, and its parts: claims, tables, figures, and which budget to set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.data.problems import Problem
from elastic_core.statistics.at_k import Parallel
from elastic_core.statistics.budgets import Distribution
from elastic_core.statistics.certificates import MARGIN
from elastic_core.statistics.cost import CostModel
from elastic_core.sweep.grid import Cell, Samples
from elastic_core.sweep.table import Manifest
from elastic_core.trajectory import CELL, SCHEMA
from reports.wording import number, sentence

RATINGS = pl.Schema(
    {
        **{name: SCHEMA[name] for name in CELL},
        **{name + end: pl.Float64() for name in ("rating", "percentile") for end in ("", "_low", "_high")},
        "num_contests": pl.Int64(),
    }
)
"""A row per cell that has a rating: with its percentile among users (0 to 100), both with their 95 % intervals, and the
number of contests that it is the mean of. The section "ratings" of `summary.json`."""

LOW, HIGH = " low", " high"  # Suffixes of the columns that hold the 95 % interval of the column before them.


class Expectations(BaseModel):
    """Least sizes of effects: by default the least published of models trained under 1024+1024, on AIME 2024, less
    about a point (Elastic Reasoning's model cards and Table 2, in `reports/published/results.csv`); the published
    tables meet them. Presets add those published of their models alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    gain: float = Field(7, ge=0, le=100)
    """Points of accuracy that training gains under separate budgeting, on average over the tight and middle thinking
    budgets; published are 8.4 and 12.1 (1.5B, model card and Table 2) and 17.8 (7B)."""
    free_loss: float = Field(7, ge=0, le=100)
    """Most points of accuracy that it costs without a budget; published are 6.0 for 1.5B (from 41.0 to 35.0)
    and a gain of 1.3 for 7B."""
    tokens_saved: float = Field(14, ge=0, le=100)
    """Percent of the tokens that it saves without a budget; published are 14.7 for 7B, and by presets 32.1 for 1.5B,
    37.4 for code and 35.2 for AceReason."""
    thinking_share: float = Field(90, ge=0, le=100)
    """Percent of the tokens of untrained models that are thinking, without a budget, as the paper says."""
    most_when_scarce: dict[str, float] = {}
    """Percent that an untrained model solves at most under fewer than 4K tokens, by benchmark."""
    rating_gain: float | None = None
    """Of the Codeforces rating without a budget."""
    best_fixed: str | None = None
    """Which of an ablation's trainings at a fixed t* is best."""


class ReportParameters(BaseModel):
    """The section `report` of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    pairs: list[tuple[str, str]] = []
    """Models to hold against each other, as [REFERENCE, MODEL]; none is every model against "base"."""
    expectations: Expectations = Expectations()
    """How large effects should be; the paper's by default."""
    margin: float = Field(100 * MARGIN, gt=0, le=100)
    """Points of accuracy that the budget to set may be below unconstrained. The fewer, the more problems it takes to
    tell: where nothing is lost at one sample each, it takes 86 problems for 5 points, 144 for 3 and 216 for 2."""
    prices: CostModel | None = None
    """Of a million input, cached input and output tokens, and of a million turns, in any currency; without them budgets
    are compared by the tokens that they take."""
    latency: CostModel | None = None
    """Seconds of an input, a cached input and an output token, and of a turn; without them those that the sweep
    measured of each model's engine, one request at a time."""
    parallel: list[str] = []
    """Thinking in parallel to show beside separate budgeting at equal tokens: majority_N, and short_M_at_N, where the M
    shortest of N thoughts vote. Nothing is drawn for it; the sweep needs N samples."""
    distribution: Distribution = "log-uniform"
    """Of the thinking budgets that anytime accuracy stands for: "log-uniform" or "uniform"."""
    latex: bool = False
    """Write each table as LaTeX too, for a paper with the package booktabs."""

    @field_validator("parallel")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            Parallel.parse(name)
        return names


@dataclass(frozen=True)
class Training:
    """How a model of the table was trained, as far as its training left a record.

    Attributes:
        asks_length: whether prompts requested a length, and rewards measured it (L1).
        base: the name, in the table, of the model that it began with; None when that is not measured.
        metrics: columns step, name, value.
        num_validation: problems that it was validated on.
        cuts: whether each thought was cut at several budgets up to this one (algorithms other than GRPO).
    """

    budget: TrainingBudget
    asks_length: bool
    base: str | None
    metrics: pl.DataFrame | None
    num_validation: int | None = None
    cuts: bool = False

    @property
    def fixed_budget(self) -> Budget | None:
        """The one (t*, s*) that was trained under; None for several, a sampled one, or a requested length."""
        return None if self.asks_length or self.cuts else self.budget.fixed

    def idle(self, name: str) -> str:
        """A sentence when most steps of the training of `name` could teach nothing, else "": where all rollouts of a
        problem have the same reward, their advantages are 0."""
        if self.metrics is None:
            return ""
        groups, equal = (
            dict(self.metrics.filter(name=f"rollout/{each}").select("step", "value").iter_rows())
            for each in ("groups", "groups_without_variance")
        )
        idle, steps = sum(equal.get(step) == count for step, count in groups.items()), len(groups)
        return sentence("idle", idle=idle, steps=steps, model=name) if 2 * idle > steps else ""

    @property
    def shown(self) -> str:
        """ "48+32", "24..144+32", "160+32, L1", "144+32, cut"."""
        return f"{self.budget}{', L1' if self.asks_length else ', cut' if self.cuts else ''}"


@dataclass(frozen=True)
class Asked:
    """The request of a sweep: problems of each benchmark, and samples per problem and cell, by benchmark where they
    differ. `chosen`: these are not all problems of the benchmarks."""

    cells: list[Cell]
    num_problems: Mapping[str, int]
    num_samples: Samples
    chosen: bool = False


@dataclass(frozen=True)
class ReportSources:
    """Sources of a report.

    Attributes:
        rows: the trajectory table, maybe half done, without problems that were not requested; its models are named
            "base" and "trained" where the two are to be compared.
        latency: seconds of the work of a response, by model, as its engine was measured.
        manifest: the record of the inputs of the rows.
        provenance: origin of the numbers, name → value; `documents` are longer ones, as JSON.
        remarks: Markdown for the part of a benchmark, by its name.
        ratings: of the Codeforces cells, in schema `RATINGS`.
        preset: that the table belongs to, by which published numbers are found; "" where it is not known.
        places: of models that the preset does not make, by name: a directory, OWNER/NAME on the hub, or servers.
    """

    rows: pl.LazyFrame
    trainings: Mapping[str, Training] = field(default_factory=dict)
    asked: Asked | None = None
    problems: Mapping[tuple[str, str], Problem] = field(default_factory=dict)
    parameters: ReportParameters = field(default_factory=ReportParameters)
    latency: Mapping[str, CostModel] = field(default_factory=dict)
    manifest: Manifest | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    ratings: pl.DataFrame = field(default_factory=RATINGS.to_frame)
    preset: str = ""
    places: Mapping[str, str | list[str]] = field(default_factory=dict)


class Verdict(StrEnum):
    """The verdict of a table on an expectation, the worse the later."""

    HOLDS = "holds"
    MEASURED = "holds as measured"  # a size that the estimate reaches and the interval does not show
    NOT_REFUTED = "not refuted"  # by a test that could have refuted it, and cannot show it
    UNDECIDED = "undecided"  # more problems are needed
    FAILS = "does not hold"
    NOT_MEASURED = "not measured"  # the table lacks the cells


class Claim(NamedTuple):
    """An expectation about one benchmark, its verdict, the numbers that decide it, and the models compared."""

    benchmark: str
    statement: str
    verdict: Verdict
    evidence: str
    models: tuple[str, ...] = ()


class Shown(NamedTuple):
    """A place of a table: its text, and the value that it is sorted by (None: nothing is there)."""

    text: str
    value: float | str | None


@dataclass(frozen=True)
class ReportTable:
    """A small table: `name` is the stem of its CSV file, title and caption are plain text.

    `frame` has a row per line, in display units. A column "x" with "x low" and "x high" is an estimate, shown as one
    place "x [low, high]"; bounds may be infinite, and are null for a number that came without. Texts may be written by
    anyone and are escaped by the renderer. Numbers of `signed` columns are shown with their sign.
    """

    name: str
    title: str
    caption: str
    frame: pl.DataFrame
    signed: frozenset[str] = frozenset()

    @cached_property
    def header(self) -> list[str]:
        bounds = {name + suffix for name in self.frame.columns for suffix in (LOW, HIGH)}
        return [name for name in self.frame.columns if name not in bounds]

    @cached_property
    def numeric(self) -> list[bool]:
        return [self.frame.schema[name].is_numeric() for name in self.header]

    @cached_property
    def lines(self) -> list[list[Shown]]:
        return [[self._shown(name, row) for name in self.header] for row in self.frame.iter_rows(named=True)]

    def _shown(self, name: str, row: Mapping[str, Any]) -> Shown:
        value, low, high = row[name], row.get(name + LOW), row.get(name + HIGH)
        if value is None:
            return Shown("", None)
        text, *bounds = (_number(each, name in self.signed) for each in (value, low, high) if each is not None)
        return Shown(f"{text} [{', '.join(bounds)}]" if len(bounds) == 2 else text, value)


@dataclass(frozen=True)
class ReportFigure:
    """A figure as PNG, SVG and PDF, `name` being the stem of its files; the numbers in it as CSV; and the LaTeX that
    shows it with its caption. The caption is plain text: its marks, and the number of problems behind them."""

    name: str
    title: str
    caption: str
    png: Path
    svg: Path
    pdf: Path
    data: Path
    tex: Path

    @property
    def files(self) -> list[Path]:
        return [self.png, self.svg, self.pdf, self.data, self.tex]


@dataclass(frozen=True)
class Setting:
    """What to set for production on tasks like a benchmark's.

    Attributes:
        budget: for `elastic serve --budget`; None where none is advised, for a `reason`.
        nearest: then the budget that more problems might confirm, and about how many `needed` would decide it.
        told: the numbers behind it in words, or the action that replaces a budget.
        margin: points below `unlimited` thinking, at most.
        command: what to run next; "" where there is nothing.
    """

    benchmark: str
    model: str
    margin: str
    told: str = ""
    budget: Budget | None = None
    reason: str = ""
    nearest: Budget | None = None
    needed: int | None = None
    unlimited: str = "unlimited thinking"
    command: str = ""


def _number(value: Any, sign: bool) -> str:
    """Integers as they are, others to one decimal; thousands apart. Text as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return number(value, f"{'+' if sign else ''},{'d' if isinstance(value, int) else '.1f'}")
