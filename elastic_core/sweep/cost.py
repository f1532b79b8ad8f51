"""The cost of a sweep: most tokens that its plan can take, and the speed of a model in earlier sweeps."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, Limited, drive, room_for
from elastic_core.engines.latency import Steps
from elastic_core.engines.memo import ContinuationMemo, MemoCounts
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling, Strategy
from elastic_core.strategies.reasonflux_zero import MAX_TRANSLATED_TOKENS
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.plan import SweepPlan
from elastic_core.sweep.table import Table
from elastic_core.system.files import write_text
from elastic_core.trajectory import NAVIGATOR


class Bound(NamedTuple):
    """Most tokens that a plan can draw with the memo, and without it. The latter is also the size of its rows, apart
    from translated tokens."""

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
    """Upper bound of the tokens that a plan draws: its cells run on an engine that never stops by itself. A strategy
    that prolongs thoughts counts as if it shared with no other, as "Wait" begins a second path.

    Args:
        prompt_ids: of a problem under a strategy and budget.
        context: of the model in tokens; where a phase without a limit ends without `max_response_tokens`.
    """
    special = {*markers.think_start, *chain.from_iterable((*markers.think_ends, *markers.calls)), *markers.end_of_text}
    endless = _Endless(context, next(token for token in count() if token not in special), markers)

    async def of_cells(prompts: Mapping[Cell, tuple[int, ...]]) -> Bound:
        shared, independent = MemoCounts(), MemoCounts()
        memos: dict[str, ContinuationMemo] = {}
        for cell, prompt in prompts.items():
            strategy = strategies[cell.strategy]
            # A navigator that draws nothing leaves the budget to the other roles.
            others: dict[str, Engine] = {NAVIGATOR: replace(endless, context=0)} if strategy.translates else {}
            group = str(cell) if not strategy.shares else cell.strategy if strategy.prolongs else ""
            memo = memos.setdefault(group, ContinuationMemo(endless, shared))
            for engine in (memo, ContinuationMemo(endless, independent)):
                reading = strategy.reading(lambda trajectory: None)  # Answers that never agree are probed most often.
                rollout = reading.decode(prompt, cell.budget, markers, Sampling())
                limited = engine if max_response_tokens is None else Limited(engine, max_response_tokens)
                await drive(rollout, {"policy": limited, **others}, seed=0)
            independent.generated += MAX_TRANSLATED_TOKENS * strategy.translates
        # Sampled to their end, and once for all budgets.
        shared.generated += MAX_TRANSLATED_TOKENS * any(strategies[cell.strategy].translates for cell in prompts)
        return Bound(shared.generated, independent.generated)

    known: dict[tuple[tuple[Cell, ...], int], Bound] = {}
    shared = independent = 0
    for unit in plan.work:
        first = unit.cells[0]
        # Only lengths count, so samples with prompts of one length are one run.
        key = unit.cells, len(prompt_ids(unit.problem, first.strategy, first.budget))
        if key not in known:
            prompts = {cell: prompt_ids(unit.problem, cell.strategy, cell.budget) for cell in unit.cells}
            known[key] = asyncio.run(of_cells(prompts))
        shared += known[key].shared
        independent += known[key].independent
    return Bound(shared, independent)


@dataclass(frozen=True)
class _Endless:
    """Draws up to every limit; closes a thought where the engine keeps the budget."""

    context: int
    token: int
    markers: Markers

    async def generate(self, request: Generate, seed: int) -> Completion:
        count = room_for(request, self.context)
        tokens = [self.token] * count
        think = None if request.budget is None else request.budget.think
        if think is not None and think < count:
            closing = self.markers.closing(tokens[:think])
            tokens[think : think + len(closing)] = closing
        return Completion(tuple(tokens), Finish.LENGTH)


class Throughput(NamedTuple):
    """Speed of one model on one engine, both by fingerprint: tokens per second of all replicas together, bytes of the
    table per token in its rows, and the `Latency` and `Steps` of one, None of two models that share a response."""

    model: str
    engine: str
    replicas: int
    tokens_per_second: float
    bytes_per_token: float
    latency: tuple[float, float, float] | None = None
    steps: Steps | None = None

    def write(self, stage: Path, name: str) -> None:
        write_text(throughput_file(stage, name), json.dumps(self._asdict(), indent=2) + "\n")

    @classmethod
    def read(cls, file: Path) -> Throughput:
        found = json.loads(file.read_text())
        return cls(**{**found, "steps": Steps(*found["steps"]) if found.get("steps") else None})


def throughput_file(stage: Path, name: str) -> Path:
    return stage / f"throughput-{re.sub('[^0-9A-Za-z]+', '-', name)}.json"


def bytes_per_token(store: Table) -> float:
    """Size of a table over the tokens in its rows; 0 without rows."""
    tokens = store.scan().select("think_tokens", "solution_tokens", "forced_tokens").sum().collect().sum_horizontal()[0]
    return sum(shard.stat().st_size for shard in store.shards()) / tokens if tokens else 0.0


def measured(stages: Iterable[Path], model: str, engine: str) -> Throughput | None:
    """The latest measurement of this model on this engine, among directories of sweeps."""
    files = [file for stage in stages for file in stage.glob("throughput-*.json")]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        found = Throughput.read(file)
        if (found.model, found.engine) == (model, engine):
            return found
    return None
