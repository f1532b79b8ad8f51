"""Going on where a table ends: what its rows hold is taught to the memos of samples that are not finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.strategies import Sampling
from elastic_core.sweep.grid import checkpoints
from elastic_core.sweep.models import Prompts, Questions
from elastic_core.sweep.plan import SweepPlan, Work
from elastic_core.sweep.table import Table
from elastic_core.trajectory import SCHEMA

BLOCK = 256
"""Samples whose rows are read from the table at a time: few reads, and memory that does not grow with the table."""

_SAMPLE = ["benchmark", "problem", "sample"]
_COLUMNS = [
    *_SAMPLE, "model", "strategy", "think_budget", "solution_budget", "think_tokens", "response_ids", "forced",
    "dropped", "turns",
]  # fmt: skip


class StoredRows:
    """Rows that the table holds of samples that are not finished, read in blocks, in the order of the plan."""

    def __init__(self, store: Table, plan: SweepPlan) -> None:
        self._store = store
        coming = [unit for unit in plan.work if unit.resumed]
        self._blocks = enumerate(coming[at : at + BLOCK] for at in range(0, len(coming), BLOCK))
        self._rows: dict[tuple[Any, ...], pl.DataFrame] = {}
        # Rows of every model that one of this one's checkpoints had a part in.
        mine = set(checkpoints(plan.model).values())
        keys = store.finished()
        related = [name for name in keys["model"].unique() if mine & set(checkpoints(name).values())]
        blocks = _samples(coming).with_row_index("block").with_columns(pl.col("block") // BLOCK)
        blocks = blocks.cast({name: keys.schema[name] for name in _SAMPLE})
        # Of all blocks at once: the keys of a large table take seconds to go through.
        found = keys.lazy().filter(pl.col("model").is_in(related)).join(blocks.lazy(), on=_SAMPLE)
        self._shards = found.select("block", "shard").unique().collect()

    def rows(self, unit: Work) -> pl.DataFrame:
        """The table's rows of a unit of the plan; units must be asked for in the plan's order."""
        key = _key(unit)
        if key not in self._rows:
            self._read(*next(self._blocks))
        return self._rows.pop(key)

    def _read(self, number: int, units: Sequence[Work]) -> None:
        shards = self._shards.filter(block=number)["shard"]
        wanted = _samples(units).lazy()
        mine = self._store.scan(shards).select(_COLUMNS).join(wanted, on=_SAMPLE, how="semi").collect()
        self._rows = {_key(unit): mine.clear() for unit in units}
        self._rows |= mine.partition_by(_SAMPLE, as_dict=True)


def learn(
    memos: Mapping[str, ContinuationMemo],
    rows: pl.DataFrame,
    prompts: Prompts | Questions,
    problem: Problem,
    sampling: Sampling,
) -> None:
    """Enter what rows of one sample hold into the memos of the checkpoints that drew it, by name."""
    for row in rows.iter_rows(named=True):
        strategy = row["strategy"]
        if not prompts.strategies[strategy].shares:
            continue
        prompt = prompts.ids(problem, strategy, Budget(row["think_budget"], row["solution_budget"]))
        response = tuple(row["response_ids"])
        names = checkpoints(row["model"])
        for phase, at, ids in draws(row):
            memo = memos.get(names.get("policy") or names.get(phase, ""))
            if memo is not None:
                memo.learn(prompt + response[:at], ids, sampling)


def draws(row: Mapping[str, Any]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """What a row's model drew, piece by piece: the phase's role ("thinker", "solver"), the index into the response, and
    the tokens, those included that the strategy took out. Where roles took turns the role is the turn's."""
    response, forced = row["response_ids"], row["forced"]
    dropped = {entry["at"]: entry["id"] for entry in row["dropped"]}
    start, num_sampled = 0, 0
    for i in range(len(response) + 1):
        thinking = num_sampled < row["think_tokens"] or i in dropped
        closed = num_sampled + i - start == row["think_tokens"]
        if i < len(response) and not forced[i] and i not in dropped and not (thinking and closed):
            continue
        ids = (*response[start:i], *([dropped[i]] if i in dropped else ()))
        if ids:
            role = next((turn["role"] for turn in reversed(row["turns"]) if turn["at"] <= start), None)
            yield role or ("thinker" if thinking else "solver"), start, ids
        num_sampled += i - start
        start = i + (i < len(response) and forced[i])


def _samples(units: Sequence[Work]) -> pl.DataFrame:
    return pl.DataFrame([_key(unit) for unit in units], {name: SCHEMA[name] for name in _SAMPLE}, orient="row")


def _key(unit: Work) -> tuple[Any, ...]:
    return (unit.problem.benchmark, unit.problem.id, unit.number)
