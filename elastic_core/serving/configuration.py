"""The serve configuration: handed from the command that starts a server to the middleware inside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Stops

VARIABLE = "ELASTIC_SERVE"
"""Environment variable. vLLM's `additional_config` would not do: changing it compiles the model again."""


@dataclass(frozen=True)
class ServeConfiguration:
    """Budgets of one served model: `default` of a request that names none (None: unlimited), and `levels` by the value
    of `reasoning_effort`, empty when none was measured."""

    stops: Stops
    default: Budget | None
    levels: Mapping[str, Budget]

    def dump(self) -> str:
        """For the environment."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def load(cls, text: str) -> ServeConfiguration:
        """What `dump` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(ServeConfiguration)
