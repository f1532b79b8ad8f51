"""What a report is told beside its table."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from elastic_core.statistics.budgets import Distribution
from elastic_core.statistics.cost import CostModel


class ReportParameters(BaseModel):
    """The section `report` of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    prices: CostModel | None = None
    """Of a million input, cached input and output tokens, and of a million turns, in any currency; without them budgets
    are compared by the tokens that they take."""
    latency: CostModel | None = None
    """Seconds of an input, a cached input and an output token, and of a turn; without them no times are shown."""
    distribution: Distribution = "log-uniform"
    """Of the thinking budgets that anytime accuracy stands for: "log-uniform" or "uniform"."""
