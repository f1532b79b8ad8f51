"""The grid of a sweep: its cells (a strategy under a budget, for a model), the problems of each benchmark, and the
samples per problem.

Problems are taken in the order of a hash of their names, independent of the sweep's seed and of results. So a smaller
number of problems is a subset of a larger one, and raising the number keeps the rows there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import polars as pl

from elastic_core.budget import Budget, parse_grid
from elastic_core.errors import UserError, nearest
from elastic_core.seeds import problem_digest
from elastic_core.statistics.estimates import without_seed
from elastic_core.stop_rule import ADAPTIVE, StopRule
from elastic_core.strategies import STRATEGIES
from elastic_core.strategies.chat import EFFORTS
from elastic_core.strategies.variants import split_variant

if TYPE_CHECKING:
    from elastic_core.data.problems import Problem

UNLIMITED_BUDGET = Budget(None, None)

Samples = int | Mapping[str, int]
"""Samples per problem and cell: of every benchmark, or by its name and `OTHERS` for the rest."""
OTHERS = "default"

SWAP = ">"  # Between the two checkpoints of a model.
_WITHOUT_BUDGET = ("unconstrained", *EFFORTS)
_PAIR = ("navigator", "thinker", "solver")


@dataclass(frozen=True)
class Cell:
    """One point of a curve: all of a row's key but problem and sample."""

    model: str
    benchmark: str
    strategy: str
    budget: Budget

    @property
    def key(self) -> tuple[str, str, str, int | None, int | None]:
        return self.model, self.benchmark, self.strategy, self.budget.think, self.budget.solution

    def __str__(self) -> str:
        return f"{self.model} {self.benchmark} {self.strategy} {self.budget}"


def checkpoints(model: str) -> dict[str, str]:
    """Checkpoint by role. A model is one checkpoint, or "A>B": A thinks or navigates, B solves (the swap ablation:
    Elastic Reasoning, Table 2). A ValueError when the text is neither."""
    names = split_model(model)
    return {"policy": model} if len(names) == 1 else dict(zip(_PAIR, (names[0], *names), strict=True))


def split_model(model: str) -> list[str]:
    """Names of its one or two checkpoints; raises as `checkpoints`."""
    names = model.split(SWAP)
    if len(names) > 2 or not all(names):
        raise ValueError(f'"{model}" is not a model; expected a name, or THINKER{SWAP}SOLVER')
    return names


def checkpoint_names(models: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for model in models for name in checkpoints(model).values()))


def build_cells(
    models: Sequence[str],
    benchmarks: Sequence[str],
    strategies: Sequence[str],
    budgets: Sequence[Budget],
    strategies_of: Mapping[str, Sequence[str]] | None = None,
) -> list[Cell]:
    """Every combination; `unconstrained` and effort levels take the unlimited budget alone, and a pair of models takes
    the strategies with a thinker and a solver. Large budgets come first: their stragglers overlap with other work
    instead of ending the sweep, and their draws contain those of smaller budgets.

    Args:
        strategies_of: of models that differ from the others, by name; a training's are also its seeds'.

    Raises:
        ValueError: on an unknown strategy, a budget that a strategy refuses, a repeated entry or an empty list.
    """
    chosen = strategies_of or {}
    lists = {"models": models, "benchmarks": benchmarks, "strategies": strategies}
    lists |= {f"strategies of {model}": own for model, own in chosen.items()}
    for name, entries in lists.items():
        if not entries:
            raise ValueError(f"the sweep has no {name}; expected at least one")
        for i, entry in enumerate(entries):
            if entry in entries[:i]:
                raise ValueError(f'"{entry}" appears twice among the {name} of the sweep')
    known_strategies(every_strategy(strategies, chosen))
    cells = [
        Cell(model, benchmark, strategy, budget)
        for model in models
        for benchmark in benchmarks
        for strategy in _possible(model, chosen.get(model, chosen.get(without_seed(model)[0], strategies)))
        for budget in ([UNLIMITED_BUDGET] if split_variant(strategy)[0] in _WITHOUT_BUDGET else budgets)
    ]
    for cell in cells:
        if expected := STRATEGIES[cell.strategy].expected_budget(cell.budget):
            raise ValueError(f"{cell.strategy} cannot run under {cell.budget}; expected {expected}")
    return sorted(cells, key=_size, reverse=True)


def known_strategies(strategies: Sequence[str]) -> Sequence[str]:
    """The strategies; a ValueError on an unknown one."""
    for strategy in strategies:
        try:
            known = strategy in STRATEGIES
        except UserError as error:
            raise ValueError(str(error)) from None
        if not known:
            if strategy.startswith(f"{ADAPTIVE}_"):
                StopRule.parse(strategy)  # Its error names the fault of the rule.
            hint = nearest(strategy, STRATEGIES)
            others = f"a stop rule like {ADAPTIVE}_agree2_every16, or module:name"
            raise ValueError(f'no strategy "{strategy}"{hint}; expected one of {", ".join(STRATEGIES)}, {others}')
    return strategies


def request_cells(request: Mapping[str, Any], benchmarks: Sequence[str]) -> dict[str, list[Cell]]:
    """Cells of each model of a sweep's request; raises as `build_cells`."""
    grid = request["strategies"], parse_grid(request["budgets"]), request.get("strategies_of")
    return {name: build_cells([name], benchmarks, *grid) for name in request["models"]}


def every_strategy(strategies: Sequence[str], strategies_of: Mapping[str, Sequence[str]]) -> list[str]:
    return list(dict.fromkeys([*strategies, *(name for own in strategies_of.values() for name in own)]))


def _possible(model: str, strategies: Sequence[str]) -> list[str]:
    if "policy" in checkpoints(model):
        return list(strategies)
    possible = [strategy for strategy in strategies if len(STRATEGIES[strategy].roles) > 1]
    if not possible:
        raise ValueError(
            f'"{model}" is two models, and none of {", ".join(strategies)} asks thinker and solver apart; add separate'
        )
    return possible


def _size(cell: Cell) -> tuple[bool, float, float, float, bool]:
    """Sort key: larger budgets first. Among equal ones a strategy with one request comes first: its tokens hold those
    that others sample in several. One that probes comes after all budgets: most of its probes are their answers."""
    think, solution = (inf if limit is None else limit for limit in (cell.budget.think, cell.budget.solution))
    strategy = STRATEGIES[cell.strategy]
    return strategy.reads is None, think + solution, think, solution, strategy.roles == ("policy",)


def first_ids(benchmark: str, ids: Iterable[str], num: int | None) -> set[str]:
    """The first `num` of a benchmark's problems; all for None."""
    return set(sorted(ids, key=lambda problem: problem_digest(benchmark, problem))[:num])


def first_problems(problems: Mapping[str, Sequence[Problem]], num: int | None) -> dict[str, list[Problem]]:
    """The first `num` problems of each benchmark, in the given order."""
    found = {}
    for name, given in problems.items():
        chosen = first_ids(name, (problem.id for problem in given), num)
        found[name] = [problem for problem in given if problem.id in chosen]
    return found


def rows_of(ids: Mapping[str, Iterable[str]]) -> pl.Expr:
    """Whether a row of a trajectory table is of one of these problems, by benchmark."""
    wanted = [(pl.col("benchmark") == name) & pl.col("problem").is_in(sorted(chosen)) for name, chosen in ids.items()]
    return pl.any_horizontal(wanted) if wanted else pl.lit(False)


def samples_of(samples: Samples, benchmark: str) -> int:
    """Samples of a benchmark; a KeyError where neither it nor `OTHERS` has a number."""
    if isinstance(samples, int):
        return samples
    return samples[benchmark] if benchmark in samples else samples[OTHERS]


def within(samples: Samples) -> pl.Expr:
    """Whether a row of a trajectory table is one of these samples: the table may hold more."""
    if isinstance(samples, int):
        return pl.col("sample") < samples
    number = pl.col("benchmark").cast(pl.String).replace_strict(samples, default=samples.get(OTHERS, 0))
    return pl.col("sample") < number


def samples_text(samples: Samples) -> str:
    """ "16 samples", or "codeforces 8, others 16 samples"."""
    if isinstance(samples, int):
        return f"{samples} samples"
    named = [f"{'others' if name == OTHERS else name} {number}" for name, number in samples.items()]
    return f"{', '.join(named)} samples"
