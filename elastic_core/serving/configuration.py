"""What a server offers, handed from the command that starts it to the middleware inside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Stops

VARIABLE = "ELASTIC_SERVE"
"""Environment variable. Not vLLM's `additional_config`, a change of which compiles the model anew."""


@dataclass(frozen=True)
class Offer:
    """Budgets of one served model.

    Attributes:
        default: for a request that says nothing; None leaves it unlimited.
        levels: by the value of `reasoning_effort`; empty when none was measured.
    """

    stops: Stops
    default: Budget | None
    levels: Mapping[str, Budget]

    def dump(self) -> str:
        """As the environment has it."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def load(cls, text: str) -> Offer:
        """What `dump` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Offer)
