"""What a report is told beside its table."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from elastic_core.statistics.at_k import Parallel
from elastic_core.statistics.budgets import Distribution
from elastic_core.statistics.cost import CostModel
from elastic_core.statistics.which_budget import MARGIN


class Expectations(BaseModel):
    """By default the least that was published of models trained under 1024+1024, on AIME 2024, less about a point
    (Elastic Reasoning, Tables 1 and 2, in `reports/published/results.csv`); the published tables meet them."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    gain: float = Field(7, ge=0, le=100)
    """Points of accuracy that training gains under separate budgeting, on average over the tight and middle thinking
    budgets; published are 8.4 and 12.1 (1.5B, Tables 1 and 2) and 17.8 (7B)."""
    free_loss: float = Field(7, ge=0, le=100)
    """Most points of accuracy that it costs without a budget; published are 6.0 for 1.5B (from 41.0 to 35.0)
    and a gain of 1.3 for 7B."""
    tokens_saved: float = Field(14, ge=0, le=100)
    """Percent of the tokens that it saves without a budget; published are 32.1 for 1.5B and 14.7 for 7B."""


class ReportParameters(BaseModel):
    """The section `report` of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    pairs: list[tuple[str, str]] = []
    """Models to hold against each other, as [REFERENCE, MODEL]; none is every model against "base"."""
    expectations: Expectations = Expectations()
    """How large effects should be; the paper's by default."""
    margin: float = Field(100 * MARGIN, gt=0, le=100)
    """Points of accuracy that the budget to set may be below unconstrained. The fewer, the more problems it takes to
    tell: 100 problems without a difference tell 3 points, and about 160 tell 2."""
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

    @field_validator("parallel")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            Parallel.parse(name)
        return names
