"""What a sweep still misses, in which order it is drawn, and what it would cost at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from math import inf
from typing import Literal

import polars as pl

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, Limited, drive
from elastic_core.engines.memo import ContinuationMemo, MemoCounts
from elastic_core.models.special_tokens import Markers
from elastic_core.seeds import cell_seed, sample_seed
from elastic_core.statistics.estimates import sampled_tokens
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling, Strategy
from elastic_core.sweep.grid import Cell, Samples, samples_of
from elastic_core.sweep.table import Table
from elastic_core.trajectory import CELL, NAVIGATOR

Sharing = Literal["memo", "independent"]
"""Whether the cells of a sample share what they draw (`elastic_core.engines.memo`), or each draws its own."""

Lengths = Mapping[tuple[str, str], float]
"""Tokens that a sample is expected to take, by benchmark and problem."""


@dataclass(frozen=True)
class Work:
    """One unit of work: the cells of one sample of a problem, in the order in which they draw and are stored.

    They run side by side, and draw as if one came after the other (`elastic_core.engines.draw_order`). With the order
    fixed, what the memo knows before a cell is what the rows before it hold. So a run that stops in the middle and
    rebuilds the memo from the table goes on exactly as if nothing had happened.

    Attributes:
        cells: still missing, of one model and benchmark.
        resumed: whether the table holds rows of this sample.
    """

    problem: Problem
    number: int
    seed: int
    cells: tuple[Cell, ...]
    resumed: bool


@dataclass(frozen=True)
class SweepPlan:
    """What the sweep of one model has and misses; `num_rows` are both."""

    model: str
    work: tuple[Work, ...]
    num_rows: int
    sharing: Sharing = "memo"

    @property
    def num_missing(self) -> int:
        return sum(len(work.cells) for work in self.work)

    @property
    def num_present(self) -> int:
        return self.num_rows - self.num_missing


def plan_sweep(
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[Problem]],
    *,
    num_samples: Samples,
    seed: int,
    finished: pl.DataFrame,
    sharing: Sharing = "memo",
) -> SweepPlan:
    """The samples that the table lacks: sample by sample over all problems, so that a half-done table is a whole sweep
    of fewer samples. Needs no engine.

    Args:
        cells: of one model, largest budget first.
        problems: by benchmark.
        num_samples: per problem and cell; a larger number later adds samples and keeps those there are.
        finished: key columns of the table's rows.

    Raises:
        ValueError: on a benchmark without problems, or repeated problem ids.
    """
    _check(cells, problems)
    present = _present(finished, cells)
    of_benchmark = {name: tuple(cell for cell in cells if cell.benchmark == name) for name in problems}

    @cache
    def lacking(benchmark: str, there: frozenset[Cell]) -> tuple[Cell, ...]:
        """One tuple for all samples that miss the same."""
        return tuple(cell for cell in of_benchmark[benchmark] if cell not in there)

    work = []
    counts = {name: samples_of(num_samples, name) for name, wanted in of_benchmark.items() if wanted}
    for number in range(max(counts.values(), default=0)):
        for name in of_benchmark:
            for problem in problems[name] if number < counts.get(name, 0) else ():
                if missing := lacking(name, present.get((name, problem.id, number), frozenset())):
                    seed_here = sample_seed(seed, name, problem.id, number)
                    work.append(
                        Work(problem, number, seed_here, missing, sharing == "memo" and not finished.is_empty())
                    )
    if sharing == "independent":
        work = list(_apart(work, cells))
    num_rows = sum(len(problems[cell.benchmark]) * counts[cell.benchmark] for cell in cells)
    return SweepPlan(cells[0].model, tuple(work), num_rows, sharing)


def known_lengths(table: Table, model: str) -> dict[tuple[str, str], float]:
    """What a table tells of its problems: the longest row of a sample, on average over samples, of this model where it
    has any of the problem, else of the others."""
    sample = ["benchmark", "problem", "model", "sample"]
    longest = table.scan().group_by(sample).agg(tokens=sampled_tokens().max())
    own = pl.col("tokens").filter(pl.col("model") == model).mean()
    means = longest.group_by(sample[:2]).agg(own.fill_null(pl.col("tokens").mean())).collect()
    return {(benchmark, problem): tokens for benchmark, problem, tokens in means.iter_rows()}


def longest_first(plan: SweepPlan, lengths: Lengths) -> SweepPlan:
    """The plan in another order: its first rounds of samples stay rounds, in each of which long problems come first; in
    its last half the longest samples come first, whatever their round. So a half-done table is a whole sweep of fewer
    samples, and what is begun last is short.

    A problem of which nothing is known is as long as its benchmark's others are on average, and first where nothing is
    known of any. Cells that are units of their own have an order that knows more, by budgets.
    """
    if plan.sharing == "independent" or not plan.work:
        return plan
    of_benchmark: dict[str, list[float]] = {}
    for (benchmark, _), tokens in lengths.items():
        of_benchmark.setdefault(benchmark, []).append(tokens)
    means = {benchmark: sum(found) / len(found) for benchmark, found in of_benchmark.items()}
    rounds = sorted({unit.number for unit in plan.work})
    last_round = rounds[len(rounds) // 2]

    def place(index: int) -> tuple[int, float]:
        unit = plan.work[index]
        benchmark, problem = unit.problem.benchmark, unit.problem.id
        tokens = lengths.get((benchmark, problem), means.get(benchmark, inf))
        return min(unit.number, last_round), -tokens

    return replace(plan, work=tuple(plan.work[i] for i in sorted(range(len(plan.work)), key=place)))


@dataclass(frozen=True)
class Bound:
    """Most tokens that a plan can take: drawn with the memo, and drawn without it, which is also what its rows hold but
    for what is translated into them."""

    shared: int
    independent: int


def bound(
    plan: SweepPlan,
    prompt_ids: Callable[[Problem, str, Budget], tuple[int, ...]],
    markers: Markers,
    context: int,
    strategies: Mapping[str, Strategy] = STRATEGIES,
    max_response_tokens: int | None = None,
) -> Bound:
    """Upper bound of the tokens that a plan draws, found by running its cells on an engine that never stops by itself.

    A thought that ends early saves tokens in every strategy but one that prolongs it: "Wait" makes a second path beside
    the thought's own, so each such strategy is counted as if it shared with no other.

    Args:
        prompt_ids: of a problem under a strategy and budget.
        context: of the model in tokens.
        max_response_tokens: where a phase without a limit ends; None is the context's end.
    """
    known: dict[tuple[tuple[Cell, ...], int], Bound] = {}
    shared = independent = 0
    for unit in plan.work:
        first = unit.cells[0]
        # Only lengths count, so samples with prompts of one length are one run.
        key = unit.cells, len(prompt_ids(unit.problem, first.strategy, first.budget))
        if key not in known:
            prompts = {cell: prompt_ids(unit.problem, cell.strategy, cell.budget) for cell in unit.cells}
            given = markers, context, strategies, max_response_tokens
            known[key] = asyncio.run(_bound(unit.cells, prompts, *given))
        shared += known[key].shared
        independent += known[key].independent
    return Bound(shared, independent)


async def _bound(
    cells: Sequence[Cell],
    prompts: Mapping[Cell, tuple[int, ...]],
    markers: Markers,
    context: int,
    strategies: Mapping[str, Strategy],
    max_response_tokens: int | None,
) -> Bound:
    shared, independent = MemoCounts(), MemoCounts()
    memos: dict[str, ContinuationMemo] = {}
    special = {markers.think_start, markers.think_end, *markers.end_of_text}
    endless = _Endless(context, next(token for token in count() if token not in special), markers.think_end)
    for cell in cells:
        strategy = strategies[cell.strategy]
        others: dict[str, Engine] = {NAVIGATOR: _Silent()} if strategy.max_translated_tokens else {}
        group = str(cell) if not strategy.shares else cell.strategy if strategy.prolongs else ""
        memo = memos.setdefault(group, ContinuationMemo(endless, shared))
        for engine in (memo, ContinuationMemo(endless, independent)):
            rollout = strategy.decode(prompts[cell], cell.budget, markers, Sampling())
            limited = engine if max_response_tokens is None else Limited(engine, max_response_tokens)
            await drive(rollout, {"policy": limited, **others}, seed=0)
        independent.generated += strategy.max_translated_tokens
    # Drawn whole and once for all budgets.
    shared.generated += max(strategies[cell.strategy].max_translated_tokens for cell in cells)
    return Bound(shared.generated, independent.generated)


@dataclass(frozen=True)
class _Endless:
    """Writes up to every limit and never stops; it closes a thought where the engine is asked to."""

    context: int
    token: int
    think_end: int

    async def generate(self, request: Generate, seed: int) -> Completion:
        room = max(0, self.context - len(request.prefix))
        count = room if request.max_tokens is None else min(room, request.max_tokens)
        tokens = [self.token] * count
        think = None if request.budget is None else request.budget.think
        if think is not None and think < count:
            tokens[think] = self.think_end
        return Completion(tuple(tokens), Finish.LENGTH)


class _Silent:
    """Takes none of the budget and leaves it to the others."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        return Completion((), Finish.LENGTH)


def _apart(work: Sequence[Work], cells: Sequence[Cell]) -> Iterator[Work]:
    """Every cell a unit of its own, the largest first, with a seed of its own."""
    for cell in cells:
        for unit in work:
            if cell in unit.cells:
                seed = cell_seed(unit.seed, cell.strategy, str(cell.budget))
                yield Work(unit.problem, unit.number, seed, (cell,), resumed=False)


def _present(finished: pl.DataFrame, cells: Sequence[Cell]) -> dict[tuple[str, str, int], frozenset[Cell]]:
    """Cells that the table has of each (benchmark, problem, sample). A table has few sets of cells, mostly one."""
    schema = {name: finished.schema[name] for name in CELL}
    numbered = pl.DataFrame([cell.key for cell in cells], schema, orient="row").with_row_index("cell")
    sample = ["benchmark", "problem", "sample"]
    of_samples = (
        finished.lazy()
        .join(numbered.lazy(), on=CELL, nulls_equal=True)
        .group_by(sample)
        .agg(pl.col("cell").sort())
        .group_by("cell")
        .agg(sample)
        .collect()
    )
    found: dict[tuple[str, str, int], frozenset[Cell]] = {}
    for numbers, *samples in of_samples.iter_rows():
        there = frozenset(cells[number] for number in numbers)
        found |= dict.fromkeys(zip(*samples, strict=True), there)
    return found


def _check(cells: Sequence[Cell], problems: Mapping[str, Sequence[Problem]]) -> None:
    assert len({cell.model for cell in cells}) == 1, "a plan is of one model"
    for benchmark in {cell.benchmark for cell in cells}:
        ids = [problem.id for problem in problems.get(benchmark, ())]
        if not ids:
            raise ValueError(f'the sweep names the benchmark "{benchmark}", but it has no problems')
        if len(set(ids)) < len(ids):
            raise ValueError(f'the benchmark "{benchmark}" has two problems with one id')
