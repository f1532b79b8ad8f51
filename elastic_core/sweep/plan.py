"""The plan of a sweep: the samples that its table lacks (`plan_sweep`) and their order (`longest_first`). The rows of
unfinished samples rebuild the memo of a resumed run (`StoredRows`, `learn`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, Literal

import polars as pl

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.seeds import cell_seed, sample_seed
from elastic_core.statistics.estimates import sampled_tokens
from elastic_core.strategies import Sampling
from elastic_core.sweep.grid import Cell, Samples, checkpoints, samples_of
from elastic_core.sweep.models import Prompts, Questions
from elastic_core.sweep.table import Table
from elastic_core.trajectory import CELL, SCHEMA

Sharing = Literal["memo", "independent"]
"""Whether the cells of a sample share what they draw (`elastic_core.engines.memo`), or each draws its own."""

BLOCK = 256
"""Samples whose rows a resumed run reads at a time: few reads, and memory that does not grow with the table."""

_SAMPLE = ["benchmark", "problem", "sample"]
_RESUMED_COLUMNS = [
    *_SAMPLE, "model", "strategy", "think_budget", "solution_budget", "think_tokens", "response_ids", "forced",
    "dropped", "turns", "probes",
]  # fmt: skip


@dataclass(frozen=True)
class Work:
    """One unit of work: the missing cells of one sample of a problem, of one model and benchmark, in the order in which
    they draw and are stored. `resumed` is whether the table holds rows of this sample.

    They run side by side, and draw as if one came after the other (`elastic_core.engines.memo`). So before a cell the
    memo knows the tokens of the rows before it, and a run that rebuilds it from the table draws the same.
    """

    problem: Problem
    number: int
    seed: int
    cells: tuple[Cell, ...]
    resumed: bool

    @property
    def key(self) -> tuple[str, str, int]:
        return self.problem.benchmark, self.problem.id, self.number


@dataclass(frozen=True)
class SweepPlan:
    """The missing work of one model's sweep. `num_rows` counts the rows there are, too."""

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
    """The samples that the table lacks, sample by sample over all problems: a half-done table is a complete sweep of
    fewer samples. A larger `num_samples` later adds samples and keeps those there are. A ValueError on a benchmark
    without problems, or repeated problem ids.

    Args:
        cells: of one model, largest budget first.
        problems: by benchmark.
        finished: key columns of the table's rows.
    """
    assert len({cell.model for cell in cells}) == 1, "a plan is of one model"
    for benchmark in {cell.benchmark for cell in cells}:
        ids = [problem.id for problem in problems.get(benchmark, ())]
        if not ids:
            raise ValueError(f'the sweep names the benchmark "{benchmark}", but it has no problems')
        if len(set(ids)) < len(ids):
            raise ValueError(f'the benchmark "{benchmark}" has two problems with one id')
    present = _present(finished, cells)
    of_benchmark = {name: tuple(cell for cell in cells if cell.benchmark == name) for name in problems}

    @cache  # One tuple for all samples that miss the same.
    def lacking(benchmark: str, there: frozenset[Cell]) -> tuple[Cell, ...]:
        return tuple(cell for cell in of_benchmark[benchmark] if cell not in there)

    work: list[Work] = []
    resumed = sharing == "memo" and not finished.is_empty()
    counts = {name: samples_of(num_samples, name) for name, wanted in of_benchmark.items() if wanted}
    for number in range(max(counts.values(), default=0)):
        for name in of_benchmark:
            for problem in problems[name] if number < counts.get(name, 0) else ():
                if missing := lacking(name, present.get((name, problem.id, number), frozenset())):
                    seed_here = sample_seed(seed, name, problem.id, number)
                    work.append(Work(problem, number, seed_here, missing, resumed))
    if sharing == "independent":  # Every cell is a unit with another seed, the largest first.
        work = [
            replace(unit, seed=cell_seed(unit.seed, cell.strategy, str(cell.budget)), cells=(cell,))
            for cell in cells
            for unit in work
            if cell in unit.cells
        ]
    num_rows = sum(len(problems[cell.benchmark]) * counts[cell.benchmark] for cell in cells)
    return SweepPlan(cells[0].model, tuple(work), num_rows, sharing)


def known_lengths(table: Table, model: str) -> dict[tuple[str, str], float]:
    """Tokens of the longest row of a sample, the mean over a table's samples of this model or else of others, by
    benchmark and problem."""
    sample = ["benchmark", "problem", "model", "sample"]
    longest = table.scan().group_by(sample).agg(tokens=sampled_tokens().max())
    own = pl.col("tokens").filter(pl.col("model") == model).mean()
    means = longest.group_by(sample[:2]).agg(own.fill_null(pl.col("tokens").mean())).collect()
    return {(benchmark, problem): tokens for benchmark, problem, tokens in means.iter_rows()}


def longest_first(plan: SweepPlan, lengths: Mapping[tuple[str, str], float]) -> SweepPlan:
    """The plan in another order, by the tokens that a sample of a benchmark's problem is expected to take. In the first
    half the rounds of samples stay apart, and long problems come first in each; in the last half the longest samples
    come first, whatever their round. So a half-done table is a sweep of fewer samples, and the last ones are short.

    A problem of unknown length counts as long as its benchmark's others on average, and comes first where none is
    known. Plans without sharing keep their order, by budgets.
    """
    if plan.sharing == "independent" or not plan.work:
        return plan
    of_benchmark: dict[str, list[float]] = {}
    for (benchmark, _), tokens in lengths.items():
        of_benchmark.setdefault(benchmark, []).append(tokens)
    means = {benchmark: sum(found) / len(found) for benchmark, found in of_benchmark.items()}
    rounds = sorted({unit.number for unit in plan.work})
    last_round = rounds[len(rounds) // 2]

    def place(unit: Work) -> tuple[int, float]:
        benchmark, problem = unit.problem.benchmark, unit.problem.id
        return min(unit.number, last_round), -lengths.get((benchmark, problem), means.get(benchmark, inf))

    return replace(plan, work=tuple(sorted(plan.work, key=place)))


def _present(finished: pl.DataFrame, cells: Sequence[Cell]) -> dict[tuple[str, str, int], frozenset[Cell]]:
    """Cells that the table has of each (benchmark, problem, sample). A table has few sets of cells, mostly one."""
    schema = {name: finished.schema[name] for name in CELL}
    numbered = pl.DataFrame([cell.key for cell in cells], schema, orient="row").with_row_index("cell")
    sets = finished.lazy().join(numbered.lazy(), on=CELL, nulls_equal=True).group_by(_SAMPLE).agg(pl.col("cell").sort())
    found: dict[tuple[str, str, int], frozenset[Cell]] = {}
    for numbers, *samples in sets.group_by("cell").agg(_SAMPLE).collect().iter_rows():
        there = frozenset(cells[number] for number in numbers)
        found |= dict.fromkeys(zip(*samples, strict=True), there)
    return found


class StoredRows:
    """The table's rows of unfinished samples, read in blocks, in the order of the plan."""

    def __init__(self, store: Table, plan: SweepPlan) -> None:
        self._store = store
        coming = [unit for unit in plan.work if unit.resumed]
        self._blocks = enumerate(coming[at : at + BLOCK] for at in range(0, len(coming), BLOCK))
        self._rows: dict[tuple[Any, ...], pl.DataFrame] = {}
        # Rows of every model that shares a checkpoint with this one.
        mine = set(checkpoints(plan.model).values())
        keys = store.finished()
        related = [name for name in keys["model"].unique() if mine & set(checkpoints(name).values())]
        blocks = _samples(coming).with_row_index("block").with_columns(pl.col("block") // BLOCK)
        blocks = blocks.cast({name: keys.schema[name] for name in _SAMPLE})
        # All blocks in one query: the keys of a large table take seconds to go through.
        found = keys.lazy().filter(pl.col("model").is_in(related)).join(blocks.lazy(), on=_SAMPLE)
        self._shards = found.select("block", "shard").unique().collect()

    def rows(self, unit: Work) -> pl.DataFrame:
        """The table's rows of a unit; units must come in the plan's order."""
        if unit.key not in self._rows:
            number, units = next(self._blocks)
            rows = self._store.scan(self._shards.filter(block=number)["shard"]).select(_RESUMED_COLUMNS)
            mine = rows.join(_samples(units).lazy(), on=_SAMPLE, how="semi").collect()
            self._rows = {each.key: mine.clear() for each in units}
            self._rows |= mine.partition_by(_SAMPLE, as_dict=True)
        return self._rows.pop(unit.key)


def learn(
    memos: Mapping[str, ContinuationMemo],
    rows: pl.DataFrame,
    prompts: Prompts | Questions,
    problem: Problem,
    sampling: Sampling,
) -> None:
    """Enter the rows of one sample into the memos of the checkpoints that drew them, by name."""
    for row in rows.iter_rows(named=True):
        strategy = row["strategy"]
        if not prompts.strategies[strategy].shares:
            continue
        prompt = prompts.ids(problem, strategy, Budget(row["think_budget"], row["solution_budget"]))
        response = tuple(row["response_ids"])
        names = checkpoints(row["model"])
        pieces = [(phase, response[:at], ids) for phase, at, ids in draws(row)]
        for probe in row["probes"] or ():
            drawn, written = probe["ids"], probe["forced"]
            pieces.append(("solver", (*response[: probe["at"]], *drawn[:written]), tuple(drawn[written:])))
        for phase, before, ids in pieces:
            memo = memos.get(names.get("policy") or names.get(phase, ""))
            if memo is not None:
                memo.learn(prompt + before, ids, sampling)


def draws(row: Mapping[str, Any]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """The pieces that a row's model drew: role (of the turn, else "thinker" or "solver" by phase), index into the
    response, and tokens, including those that the strategy dropped."""
    response, forced = row["response_ids"], row["forced"]
    dropped = defaultdict[int, list[int]](list)
    for entry in row["dropped"]:
        dropped[entry["at"]].append(entry["id"])
    start, num_sampled = 0, 0
    for i in range(len(response) + 1):
        thinking = num_sampled < row["think_tokens"] or i in dropped
        closed = num_sampled + i - start == row["think_tokens"]
        if i < len(response) and not forced[i] and i not in dropped and not (thinking and closed):
            continue
        ids = (*response[start:i], *dropped.get(i, ()))
        if ids:
            role = next((turn["role"] for turn in reversed(row["turns"]) if turn["at"] <= start), None)
            yield role or ("thinker" if thinking else "solver"), start, ids
        num_sampled += i - start
        start = i + (i < len(response) and forced[i])


def _samples(units: Sequence[Work]) -> pl.DataFrame:
    return pl.DataFrame([unit.key for unit in units], {name: SCHEMA[name] for name in _SAMPLE}, orient="row")
