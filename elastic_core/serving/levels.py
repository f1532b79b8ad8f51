"""The file `budgets.json`: effort levels of a model, each a budget with its measurements.

`elastic plan budgets` writes it from a trajectory table; `elastic serve` and the playground read it.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from elastic_core.budget import Budget
from elastic_core.errors import UserError, first_fault
from elastic_core.statistics.frontier import Point
from elastic_core.stop_rule import StopRule
from elastic_core.strategies.variants import Closing
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import model_fingerprint

LEVELS = "budgets.json"  # File in a model's directory.
Effort = Literal["minimal", "low", "medium", "high"]
EFFORTS: tuple[Effort, ...] = ("minimal", "low", "medium", "high")
"""Names of levels from the cheapest to the dearest, as OpenAI's `reasoning_effort` has them."""

TemplateSettings = Mapping[str, bool | int | float | str]
"""What a chat template is told, by name."""


class _Document(BaseModel):
    """A part of the file: no key more, and no number that JSON has no name for."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Gain(_Document):
    """A paired difference of accuracy, in [-1, 1], with its bounds."""

    mean: float = Field(ge=-1, le=1)
    low: float = Field(ge=-1, le=1)
    high: float = Field(ge=-1, le=1)


class Level(_Document):
    """A budget and its measurements."""

    think: int | None = Field(ge=0)
    """Most tokens of the thought; None where only the rule ends it."""
    solution: int = Field(ge=1)
    """Most tokens of the solution."""
    rule: str | None = None
    """The stop rule that ends the thought (`elastic_core.stop_rule`), if there is one."""
    closing: str | None = None
    """How a cut is worded (`elastic_core.strategies.variants`); None for think-end alone."""
    effort: str | None = None
    """The effort that the model's chat template was told, by its family's name; None for the template's default."""
    template: TemplateSettings | None = None
    """What the chat template was told when it was measured, such as an effort in its words; None for its default."""
    accuracy: float = Field(ge=0, le=1)
    """avg@k: the mean over problems of the mean score of their samples; cross-fitted (`elastic_core.serving.choice`),
    so not that by which the budget was chosen."""
    accuracy_low: float = Field(ge=0, le=1)
    """Lower bound of its 95 % interval (`mean_score`)."""
    accuracy_high: float = Field(ge=0, le=1)
    """Upper bound of its 95 % interval."""
    gain: Gain | None = None
    """Accuracy over the level below, with its 95 % interval, simultaneous over all budgets; None of the lowest."""
    num_problems: int = Field(ge=1)
    num_samples: int = Field(ge=1)
    """Responses to each problem, the smallest number where they differ."""
    tokens_mean: float = Field(ge=0)
    """Tokens of a response, those that were forced upon the model included; the prompt is not."""
    tokens_p95: float = Field(ge=0)
    """95th percentile of these."""

    @property
    def budget(self) -> Budget:
        return Budget(self.think, self.solution)

    @property
    def shown(self) -> str:
        """The level in words."""
        words = (self.rule, self.closing and f"closing {self.closing}", self.effort and f"effort {self.effort}")
        return ", ".join([*filter(None, words), str(self.budget)])

    @field_validator("rule")
    @classmethod
    def _rule(cls, rule: str | None) -> str | None:
        if rule is not None:
            StopRule.parse(rule)
        return rule

    @field_validator("closing")
    @classmethod
    def _closing(cls, closing: str | None) -> str | None:
        if closing is not None:
            Closing.parse(closing)
        return closing

    @model_validator(mode="after")
    def _within(self) -> Level:
        if not self.accuracy_low <= self.accuracy <= self.accuracy_high:
            raise ValueError(
                f"accuracy {self.accuracy} lies outside its interval {self.accuracy_low} to {self.accuracy_high}"
            )
        return self


class Levels(_Document):
    """What `budgets.json` holds."""

    format: Literal[1] = 1
    """Version of the file's format; a file of another one is refused."""
    model: str
    """The model's name in the table."""
    weights: str
    """Its `model_fingerprint`, as in the table's manifest."""
    table: str
    """sha256 over the shards of the trajectory table, as a report of it records."""
    benchmarks: list[str] = Field(min_length=1)
    """What the levels were measured on; a problem of one counts as much as a problem of another."""
    strategy: str
    """That kept the budgets in the table."""
    temperature: float | None = None
    """That the table's responses were sampled at; None where its manifest does not say."""
    top_p: float | None = None
    """See `temperature`."""
    margin: float = Field(ge=0, le=1)
    """How far below responses without a limit `high` may be on each benchmark, where one is certified to be so near."""
    confidence: float | None = Field(None, ge=0, le=1)
    """That `high` is certified with to be so near; None where it is not."""
    calibration: str | None = None
    """sha256 as of `table`, of the table that it was certified on, if that is another."""
    loss: Gain | None = None
    """Accuracy of `high` over responses without a limit, with its 95 % interval, where it is the budget that the rule
    chooses (`elastic_core.statistics.which_budget`). None where that chooses none, and `high` is the most accurate
    budget that was measured."""
    reads: str = "math"
    """The kind of answer that a stop rule reads in its probes (`elastic_core.rewards`)."""
    date: datetime.date
    """When the levels were chosen."""
    levels: dict[Effort, Level] = Field(min_length=1)
    """By name, from the cheapest to the dearest."""
    measured: list[Point] = Field(default_factory=list)
    """All budgets of the thought that were compared, ascending, with the solution budget of `high`: by these a server
    under load chooses (`elastic_core.serving.load`)."""

    @model_validator(mode="after")
    def _ascending(self) -> Levels:
        given = [(name, self.levels[name]) for name in EFFORTS if name in self.levels]
        for (lower, below), (name, level) in pairwise(given):
            if not below.tokens_mean < level.tokens_mean:
                raise ValueError(
                    f"{name} takes {level.tokens_mean:g} tokens, and {lower} {below.tokens_mean:g}; expected more"
                )
        return self

    @property
    def budgets(self) -> dict[Effort, Budget]:
        """Budgets by the names of levels."""
        return {effort: level.budget for effort, level in self.levels.items()}

    @property
    def offered(self) -> dict[str, Any]:
        """The parts of a server's configuration."""
        rules = {effort: level.rule for effort, level in self.levels.items() if level.rule}
        template = {effort: level.template for effort, level in self.levels.items() if level.template}
        given = ("closing", "effort")
        worded, efforts = (
            {name: v for name, each in self.levels.items() if (v := getattr(each, key))} for key in given
        )
        wording = {"closings": worded, "efforts": efforts}
        return {"levels": self.budgets, "rules": rules, "reads": self.reads, "template": template, **wording}

    def budget(self, effort: str) -> Budget:
        """The budget of a level; raises UserError on an unknown level."""
        for name, level in self.levels.items():
            if name == effort:
                return level.budget
        raise UserError(f'no effort level "{effort}" was measured of this model; expected {", ".join(self.levels)}')

    def write(self, path: Path) -> None:
        write_text(path, self.model_dump_json(indent=2) + "\n")


def read_levels(path: Path) -> Levels:
    """Read the levels in a file. UserError where it is missing, or with the key, the value found and the one
    expected."""
    try:
        return Levels.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: no effort levels there ({error.strerror}); {_MAKE}") from None
    except ValidationError as error:
        raise UserError(f"{path}: {first_fault(error)}; restore it, or {_MAKE}") from None


def levels_beside(model: Path) -> Levels | None:
    """The levels in a model's directory, which were measured of it; None without a file. Raises as
    `read_levels`, and UserError when they are of other weights than those there."""
    path = model / LEVELS
    if not path.exists():
        return None
    found = read_levels(path)
    try:
        weights = model_fingerprint(model)
    except ValueError as error:
        raise UserError(f"{path} is beside no weights: {error}") from None
    if found.weights != weights:
        raise UserError(
            f"{path}: its levels are of other weights ({found.weights}, {found.model}) than those beside it "
            f"({weights}); delete it, or measure again: {_COMMAND} --output {shlex.quote(str(path))}"
        )
    return found


def no_levels(name: str, model: Path) -> str:
    """The error for a model without levels, with the command that makes them."""
    return f"no level of {name} was measured; to have them: {_COMMAND} --output {shlex.quote(str(model / LEVELS))}"


_COMMAND = "elastic plan budgets --from runs/PRESET/sweep/KEY/table"
_MAKE = f"measure them: {_COMMAND}"
