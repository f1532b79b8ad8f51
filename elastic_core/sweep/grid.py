"""The cells of a sweep: which strategy runs under which budget."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elastic_core.budget import Budget
from elastic_core.strategies import STRATEGIES

UNLIMITED_BUDGET = Budget(None, None)


@dataclass(frozen=True)
class Cell:
    """One point of a curve: everything but problem and sample."""

    model: str
    benchmark: str
    strategy: str
    budget: Budget

    def __str__(self) -> str:
        return f"{self.model} {self.benchmark} {self.strategy} {self.budget}"


def build_cells(
    models: Sequence[str], benchmarks: Sequence[str], strategies: Sequence[str], budgets: Sequence[Budget]
) -> list[Cell]:
    """Every combination, largest budget first; `unconstrained` takes the unlimited budget alone.

    Large budgets come first because their stragglers then overlap with other work instead of ending the sweep, and
    because what they sample contains what smaller budgets would.

    Raises:
        ValueError: on an unknown strategy, a repeated entry or an empty list.
    """
    for name, entries in (("models", models), ("benchmarks", benchmarks), ("strategies", strategies)):
        _check_distinct(name, entries)
    for strategy in strategies:
        _check_known(strategy)
    if set(strategies) != {"unconstrained"}:
        _check_distinct("budgets", [str(budget) for budget in budgets])
    cells = [
        Cell(model, benchmark, strategy, budget)
        for model in models
        for benchmark in benchmarks
        for strategy in strategies
        for budget in ([UNLIMITED_BUDGET] if strategy == "unconstrained" else budgets)
    ]
    return sorted(cells, key=lambda cell: _size(cell.budget), reverse=True)


def _size(budget: Budget) -> tuple[float, float, float]:
    think, solution = (float("inf") if limit is None else limit for limit in (budget.think, budget.solution))
    return think + solution, think, solution


def _check_known(strategy: str) -> None:
    if strategy in STRATEGIES:
        return
    nearest = difflib.get_close_matches(strategy, STRATEGIES, n=1)
    hint = f'did you mean "{nearest[0]}"?' if nearest else f"expected one of {', '.join(STRATEGIES)}"
    raise ValueError(f'no strategy "{strategy}"; {hint}')


def _check_distinct(name: str, entries: Iterable[str]) -> None:
    entries = list(entries)
    if not entries:
        raise ValueError(f"the sweep has no {name}; expected at least one")
    for i, entry in enumerate(entries):
        if entry in entries[:i]:
            raise ValueError(f'"{entry}" appears twice among the {name} of the sweep')
