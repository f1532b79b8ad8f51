"""Results in the formats of others: records of Every Eval Ever, and evaluation results of the Hugging Face Hub.

Neither knows a budget of thinking and solution. What they have a field for stands there, the rest in their notes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from elastic_core.budget import Budget
from reports.content import ReportSources
from reports.wording import plain

_HUB = "huggingface.co/datasets/"


def file_name(name: str) -> str:
    """A name as part of a path; one that had to be changed is told from all others by a hash."""
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", name).strip(".") or "_"
    return safe if safe == name else f"{safe[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def hub_data(sources: ReportSources) -> dict[str, tuple[str, str | None]]:
    """The benchmarks that were fetched from the Hub, as far as the manifests of the data say: repository, revision."""
    found = {}
    for name, document in sources.documents.items():
        built = document.get("datasets", {}) if name.startswith("data of ") and isinstance(document, Mapping) else {}
        for benchmark, about in built.items():
            if str(about.get("source", "")).startswith(_HUB):
                found[benchmark] = (about["source"].removeprefix(_HUB), about.get("revision"))
    return found


def setup(cell: Mapping[str, Any]) -> str:
    """How a cell was measured, for a field of notes."""
    budget = Budget(cell["think_budget"], cell["solution_budget"])
    limits = (
        "no token limit"
        if budget == Budget(None, None)
        else f"at most {_tokens(budget.think)} of thinking and {_tokens(budget.solution)} of solution"
    )
    return (
        f"{plain(cell['strategy'])}, {limits}; avg@{cell['num_samples']} of {cell['num_problems']} problems, 95 % "
        f"interval {100 * cell['ci_low']:.1f} to {100 * cell['ci_high']:.1f} %; {cell['tokens_mean']:.1f} tokens "
        "sampled per response"
    )


def _tokens(limit: int | None) -> str:
    return "unlimited tokens" if limit is None else f"{limit} tokens"
