"""Runs what a sweep still misses: samples at their own pace, the cells of each side by side, rows to disk as they come.

A sample's rows are the same however its cells interleave (`elastic_core.engines.draw_order`), and they are stored in
the order of its cells: what a killed run leaves is what one cell after the other would have left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from elastic_core.engines.base import Engine, Limited, RequestFailed, drive
from elastic_core.engines.draw_order import Prefix, Turn, run_in_turns
from elastic_core.engines.memo import ContinuationMemo, MemoCounts
from elastic_core.strategies import Completion, Generate, Sampling, Strategy
from elastic_core.sweep.grid import Cell, checkpoints
from elastic_core.sweep.models import Prompts, Questions
from elastic_core.sweep.plan import SweepPlan, Work
from elastic_core.sweep.resume import StoredRows, learn
from elastic_core.sweep.rows import Rows, Sample
from elastic_core.sweep.scheduler import Lanes, Place, Replica
from elastic_core.sweep.table import Table
from elastic_core.trajectory import Trajectory

ATTEMPTS = 2
"""How often a sample is tried before it counts as failed."""

FLUSH_ROWS = 4096
FLUSH_TOKENS = 1_000_000
FLUSH_SECONDS = 15.0
"""A shard is written at whichever comes first: few shards, and little lost to a kill."""
FIRST_FLUSH_SECONDS = 1.0
"""The first shard's time, doubled with each: whoever watches sees soon that rows come, and how fast."""

MAX_WAITING = 3
"""Shards' worth of finished samples that may wait for the writer before generation does: memory stays bounded."""

_SHOWN_FAILURES = 10


@dataclass(frozen=True)
class SweepResult:
    """Counts of one run, so far or at its end.

    Attributes:
        tokens_generated: tokens that engines drew.
        tokens_reused: tokens of rows that were answered from what had been drawn.
        grading_seconds: time spent on turning trajectories into graded rows, beside generation.
        store_seconds: time spent on writing them.
    """

    rows_written: int
    rows_present: int
    rows_total: int
    tokens_generated: int
    tokens_reused: int
    grading_seconds: float
    store_seconds: float
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_generated / self.seconds if self.seconds else 0.0


class SweepIncomplete(RuntimeError):
    """Some samples failed; every other row is on disk.

    Attributes:
        failures: (sample, reason) pairs.
        result: counts of the rest.
    """

    def __init__(self, failures: Sequence[tuple[Sample, str]], result: SweepResult) -> None:
        shown = "".join(f"\n  {sample}: {reason}" for sample, reason in failures[:_SHOWN_FAILURES])
        more = f"\n  and {len(failures) - _SHOWN_FAILURES} more" if len(failures) > _SHOWN_FAILURES else ""
        super().__init__(
            f"{len(failures)} of {result.rows_total} samples failed {ATTEMPTS} times each; the others are stored, and "
            f"the same sweep tries only these again:{shown}{more}"
        )
        self.failures = list(failures)
        self.result = result


async def run_sweep(
    plan: SweepPlan,
    *,
    sampling: Sampling,
    prompts: Prompts | Questions,
    replicas: Sequence[Replica],
    rows: Rows,
    store: Table,
    max_response_tokens: int | None = None,
    max_in_flight: int = 512,
    on_progress: Callable[[SweepResult], None] | None = None,
) -> SweepResult:
    """Generate, grade and store every missing sample. Call it inside `with store.writing(manifest)`.

    Args:
        replicas: engines that do the same work side by side; a sample stays with one, whose prefix cache holds it.
        max_response_tokens: where a phase without a limit ends; None is the context's end.
        max_in_flight: requests at once per replica; twice an engine's max_num_seqs keeps its batch full.
        on_progress: called after every shard, from the event loop.

    Raises:
        SweepIncomplete: at the end, when samples failed.
        EngineLost: when an engine is gone; what was finished is stored.
    """
    run = _Run(plan, sampling, prompts, rows, store, max_response_tokens, on_progress)
    return await run.run(replicas, max_in_flight)


@dataclass
class _Run:
    plan: SweepPlan
    sampling: Sampling
    prompts: Prompts | Questions
    rows: Rows
    store: Table
    max_response_tokens: int | None
    on_progress: Callable[[SweepResult], None] | None
    finished: list[tuple[Sample, Trajectory]] = field(default_factory=list)
    finished_tokens: int = 0
    failures: list[tuple[Sample, str]] = field(default_factory=list)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    written: asyncio.Event = field(default_factory=asyncio.Event)
    complete: bool = False
    counts: MemoCounts = field(default_factory=MemoCounts)
    rows_written: int = 0
    grading_seconds: float = 0.0
    store_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    async def run(self, replicas: Sequence[Replica], max_in_flight: int) -> SweepResult:
        self.stored = StoredRows(self.store, self.plan)
        lanes = Lanes(replicas, max_in_flight)
        # Grading takes milliseconds an answer: in a thread it does not hold up the requests. One thread, so that shards
        # are written one after the other even when a cancelled flush is still running.
        with ThreadPoolExecutor(1, thread_name_prefix="sweep-writer") as thread:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.write(thread))
                    async with asyncio.TaskGroup() as samples:
                        for unit in self.plan.work:
                            samples.create_task(self.work(unit, await lanes.place()))
                    self.complete = True
                    self.full.set()
            except ExceptionGroup as errors:
                raise _first(errors) from None  # It cancelled the others.
            finally:
                await self.flush(thread)
        if self.failures:
            raise SweepIncomplete(self.failures, self.result())
        return self.result()

    async def work(self, unit: Work, place: Place) -> None:
        """All cells of a unit. A checkpoint's memo is one, whatever roles it has; it holds what its rows can tell
        again, so nothing of a strategy that does not share. Rows do not tell what a navigator drew in tokens of its
        own: whole replies, which the same seeds draw again."""
        names = checkpoints(self.plan.model)
        engines = {name: place.engine(name) for name in set(names.values())}
        memos = {name: ContinuationMemo(engine, self.counts) for name, engine in engines.items()}
        if unit.resumed:
            translates = any(self.strategy(cell).max_translated_tokens for cell in unit.cells)
            told = {names["solver"]: memos[names["solver"]]} if translates else memos
            learn(told, self.stored.rows(unit), self.prompts, unit.problem, self.sampling)

        async def attempt(cell: Cell, turn: Turn | None) -> Trajectory | None:
            mine: dict[str, Engine] = {
                role: _Counted(engines[name], self.counts) if turn is None else memos[name].of_turn(turn)
                for role, name in names.items()
            }
            return await self.attempt(_sample(unit, cell), mine)

        async def finish(cell: Cell, trajectory: Trajectory) -> None:
            await self.finish(_sample(unit, cell), trajectory)

        with place:
            async with asyncio.TaskGroup() as group:
                for prompt, cells in self.by_prompt(unit):
                    group.create_task(run_in_turns(cells, prompt, attempt, finish))

    def by_prompt(self, unit: Work) -> Iterator[tuple[Prefix | None, Sequence[Cell]]]:
        """Cells that share, by prompt, as only those share anything; and each other one by itself. Prefixes in two
        tokenizers tell nothing of each other, so cells that translate run one after the other: every prefix begins with
        the empty one."""
        shared: dict[Prefix, list[Cell]] = {}
        for cell in unit.cells:
            if self.plan.sharing == "memo" and self.strategy(cell).shares:
                translates = self.strategy(cell).max_translated_tokens > 0
                prompt = () if translates else self.prompts.ids(unit.problem, cell.strategy, cell.budget)
                shared.setdefault(prompt, []).append(cell)
            else:
                yield None, [cell]
        yield from shared.items()

    def strategy(self, cell: Cell) -> Strategy:
        return self.prompts.strategies[cell.strategy]

    async def attempt(self, sample: Sample, engines: Mapping[str, Engine]) -> Trajectory | None:
        prompt = self.prompts.ids(sample.problem, sample.cell.strategy, sample.cell.budget)
        if self.max_response_tokens is not None:
            engines = {role: Limited(engine, self.max_response_tokens) for role, engine in engines.items()}
        reason = ""
        for _ in range(ATTEMPTS):
            rollout = self.strategy(sample.cell).decode(prompt, sample.cell.budget, self.rows.markers, self.sampling)
            try:
                return await drive(rollout, engines, sample.seed)
            except RequestFailed as error:
                reason = str(error)
        self.failures.append((sample, reason))
        return None

    async def finish(self, sample: Sample, trajectory: Trajectory) -> None:
        """Hand a row to the writer; waits while the writer is behind."""
        self.finished.append((sample, trajectory))
        self.finished_tokens += len(trajectory.forced)
        if self.shards_waiting() >= 1:
            self.full.set()
        while self.shards_waiting() >= MAX_WAITING:
            self.written.clear()
            await self.written.wait()

    def shards_waiting(self) -> float:
        return max(len(self.finished) / FLUSH_ROWS, self.finished_tokens / FLUSH_TOKENS)

    async def write(self, thread: ThreadPoolExecutor) -> None:
        seconds = FIRST_FLUSH_SECONDS
        while not self.complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.full.wait()
            self.full.clear()
            if self.finished:
                seconds = min(2 * seconds, FLUSH_SECONDS)
            await self.flush(thread)

    async def flush(self, thread: ThreadPoolExecutor) -> None:
        batch, self.finished, self.finished_tokens = self.finished, [], 0
        self.written.set()
        # Shielded: cancelled before the thread has begun, the batch would be lost.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(thread, self.store_rows, batch))
        if self.on_progress is not None:
            self.on_progress(self.result())

    def store_rows(self, batch: list[tuple[Sample, Trajectory]]) -> None:
        if not batch:
            return
        began = time.monotonic()
        frame = self.rows.frame(batch)
        graded = time.monotonic()
        self.store.append(frame)
        self.grading_seconds += graded - began
        self.store_seconds += time.monotonic() - graded
        self.rows_written += frame.height

    def result(self) -> SweepResult:
        return SweepResult(
            rows_written=self.rows_written,
            rows_present=self.plan.num_present,
            rows_total=self.plan.num_rows,
            tokens_generated=self.counts.generated,
            tokens_reused=self.counts.reused,
            grading_seconds=self.grading_seconds,
            store_seconds=self.store_seconds,
            seconds=time.monotonic() - self.began,
        )


def _sample(unit: Work, cell: Cell) -> Sample:
    return Sample(cell, unit.problem, unit.number, unit.seed)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True)
class _Counted:
    """An engine without a memo, whose tokens are counted all the same."""

    engine: Engine
    counts: MemoCounts

    async def generate(self, request: Generate, seed: int) -> Completion:
        completion = await self.engine.generate(request, seed)
        self.counts.generated += len(completion.tokens)
        return completion
