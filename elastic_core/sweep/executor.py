"""Runs a sweep's plan: each sample by itself, its cells side by side, rows to disk as they come.

A sample's rows do not depend on how its cells interleave (`elastic_core.engines.memo`), and are stored in the
order of its cells: a killed run leaves the rows that one cell after the other would have left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from elastic_core.engines.base import Engine, Limited, RequestFailed, drive
from elastic_core.engines.memo import ContinuationMemo, MemoCounts, OfTurn, Prefix, Turn, run_in_order
from elastic_core.errors import UserError
from elastic_core.rewards import answer_reader
from elastic_core.strategies import Completion, Generate, Sampling, Strategy
from elastic_core.sweep.grid import Cell, checkpoints
from elastic_core.sweep.models import Prompts, Questions
from elastic_core.sweep.plan import StoredRows, SweepPlan, Work, learn
from elastic_core.sweep.rows import RowBuilder, Sample
from elastic_core.sweep.sound import broken_rules
from elastic_core.sweep.table import Table
from elastic_core.trajectory import Trajectory

Replica = Mapping[str, Engine]  # Engines by name of the checkpoint they run.

ATTEMPTS = 2  # How often a sample is tried before it counts as failed.
FLUSH_ROWS = 4096
FLUSH_TOKENS = 1_000_000
FLUSH_SECONDS = 15.0  # A shard is written at whichever comes first: few shards, and little lost to a kill.
FIRST_FLUSH_SECONDS = 1.0  # The first shard's time, doubled with each: rows and their rate are seen soon.
MAX_WAITING = 3
"""Shards' worth of finished samples that may wait for the writer; then generation waits, so that memory is bounded."""
_SHOWN_FAILURES = 10


@dataclass
class SweepResult:
    """Counts of one run, so far or at its end. Grading and storing overlap with generation."""

    rows_present: int
    rows_total: int
    rows_written: int = 0
    tokens_generated: int = 0
    tokens_reused: int = 0
    grading_seconds: float = 0.0
    store_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_generated / self.seconds if self.seconds else 0.0


class SweepIncomplete(RuntimeError):
    """Some samples failed; every other row is on disk, and counted in `result`."""

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
    rows: RowBuilder,
    store: Table,
    max_response_tokens: int | None = None,
    max_in_flight: int = 512,
    on_progress: Callable[[SweepResult], None] | None = None,
) -> SweepResult:
    """Generate, grade and store every missing sample. Call it inside `with store.writing(manifest)`.

    Args:
        replicas: engines with the same checkpoints; a sample stays with one, for its prefix cache.
        max_response_tokens: where a phase without a limit ends; None is the context's end.
        max_in_flight: concurrent requests per replica; twice an engine's max_num_seqs keeps its batch full.
        on_progress: called after every shard, from the event loop.

    Raises:
        SweepIncomplete: at the end, when samples failed.
        EngineLost: when an engine is gone; finished samples are stored.
        UserError: when rows break a rule of their strategy; they are not stored.
    """
    run = _Run(plan, sampling, prompts, rows, store, max_response_tokens, on_progress)
    return await run.run(replicas, max_in_flight)


@dataclass
class _Run:
    plan: SweepPlan
    sampling: Sampling
    prompts: Prompts | Questions
    rows: RowBuilder
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
    began: float = field(default_factory=time.monotonic)

    async def run(self, replicas: Sequence[Replica], max_in_flight: int) -> SweepResult:
        self.so_far = SweepResult(self.plan.num_present, self.plan.num_rows)
        self.stored = StoredRows(self.store, self.plan)
        scheduler = _Scheduler(replicas, max_in_flight)
        # Grading takes milliseconds an answer: in a thread it does not delay requests. One thread writes the shards one
        # after the other, even when a cancelled flush is still running.
        with ThreadPoolExecutor(1, thread_name_prefix="sweep-writer") as thread:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.write(thread))
                    async with asyncio.TaskGroup() as samples:
                        for unit in self.plan.work:
                            samples.create_task(self.work(unit, await scheduler.slot()))
                    self.complete = True
                    self.full.set()
            except ExceptionGroup as errors:
                first: BaseException = errors
                while isinstance(first, BaseExceptionGroup):
                    first = first.exceptions[0]  # The others are cancellations.
                raise first from None
            finally:
                await self.flush(thread)
        if self.failures:
            raise SweepIncomplete(self.failures, self.result())
        return self.result()

    async def work(self, unit: Work, slot: _Slot) -> None:
        """All cells of a unit, with one memo for each checkpoint. Only strategies that share use the memo: a resumed
        run rebuilds it from their rows. Rows lack replies that a navigator drew in another tokenizer: the
        same seeds draw these again."""
        names = checkpoints(self.plan.model)
        engines = {name: _SlotEngine(slot, slot.on.replica[name]) for name in set(names.values())}
        memos = {name: ContinuationMemo(engine, self.counts) for name, engine in engines.items()}
        if unit.resumed and not self.sampling.logprobs:  # Rows do not have those of every token.
            translates = any(self.strategy(cell).translates for cell in unit.cells)
            rebuilt = {names["solver"]: memos[names["solver"]]} if translates else memos
            learn(rebuilt, self.stored.rows(unit), self.prompts, unit.problem, self.sampling)

        async def attempt(cell: Cell, turn: Turn | None) -> Trajectory | None:
            mine: dict[str, Engine] = {
                role: replace(engines[name], counts=self.counts) if turn is None else OfTurn(memos[name], turn)
                for role, name in names.items()
            }
            if self.max_response_tokens is not None:
                mine = {role: Limited(engine, self.max_response_tokens) for role, engine in mine.items()}
            prompt, reason = self.prompts.ids(unit.problem, cell.strategy, cell.budget), ""
            strategy = self.strategy(cell)
            if strategy.reads is not None:
                strategy = strategy.reading(answer_reader(self.rows.tokenizer, self.rows.markers, unit.problem.grader))
            markers = strategy.markers(self.rows.tokenizer, self.rows.markers)
            for _ in range(ATTEMPTS):
                rollout = strategy.decode(prompt, cell.budget, markers, self.sampling)
                try:
                    return await drive(rollout, mine, unit.seed)
                except RequestFailed as error:
                    reason = str(error)
            self.failures.append((Sample(cell, unit.problem, unit.number, unit.seed), reason))
            return None

        async def finish(cell: Cell, trajectory: Trajectory) -> None:
            """Hand a row to the writer; wait while the writer is behind."""
            self.finished.append((Sample(cell, unit.problem, unit.number, unit.seed), trajectory))
            self.finished_tokens += len(trajectory.forced)
            if self.shards_waiting() >= 1:
                self.full.set()
            while self.shards_waiting() >= MAX_WAITING:
                self.written.clear()
                await self.written.wait()

        async with asyncio.TaskGroup() as group:
            for prompt, cells in self.by_prompt(unit):
                group.create_task(run_in_order(cells, prompt, attempt, finish))
        slot.end()

    def by_prompt(self, unit: Work) -> Iterator[tuple[Prefix | None, Sequence[Cell]]]:
        """Cells that share, by prompt, because cells of different prompts share nothing; and each other cell by itself.
        Cells that translate get the empty prefix and run one after the other: their prefixes cannot be compared."""
        shared: dict[Prefix, list[Cell]] = {}
        for cell in unit.cells:
            if self.plan.sharing == "memo" and self.strategy(cell).shares:
                translates = self.strategy(cell).translates
                prompt = () if translates else self.prompts.ids(unit.problem, cell.strategy, cell.budget)
                shared.setdefault(prompt, []).append(cell)
            else:
                yield None, [cell]
        yield from shared.items()

    def strategy(self, cell: Cell) -> Strategy:
        return self.prompts.strategies[cell.strategy]

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
        for broken in broken_rules(frame, self.prompts.strategies).values():
            raise UserError(f"{broken}; its strategy, or a rule of it, is wrong, and the rows are not stored")
        graded = time.monotonic()
        self.store.append(frame)
        self.so_far.grading_seconds += graded - began
        self.so_far.store_seconds += time.monotonic() - graded
        self.so_far.rows_written += frame.height

    def result(self) -> SweepResult:
        generated, reused = self.counts.generated, self.counts.reused
        seconds = time.monotonic() - self.began
        return replace(self.so_far, tokens_generated=generated, tokens_reused=reused, seconds=seconds)


@dataclass
class _Load:
    replica: Replica
    requests: asyncio.Semaphore
    load: int = 0  # Requests that run or wait, and samples that have none at the moment.


class _Scheduler:
    """Gives the next sample to a replica. Each replica has at most `max_in_flight` concurrent requests, and few more
    samples than that takes: a sample has one request at first, and many once its trunk is drawn. So few samples,
    which end soon, fill a batch, and an engine with free room gets further samples."""

    def __init__(self, replicas: Sequence[Replica], max_in_flight: int) -> None:
        self._loads = [_Load(replica, asyncio.Semaphore(max_in_flight)) for replica in replicas]
        self._max_in_flight = max_in_flight
        self._eased = asyncio.Event()

    async def slot(self) -> _Slot:
        """Wait for room for the next sample, on the least loaded replica."""
        while True:
            least = min(self._loads, key=lambda each: each.load)
            if least.load < self._max_in_flight:
                least.load += 1
                return _Slot(least, self._eased)
            self._eased.clear()
            await self._eased.wait()


@dataclass
class _Slot:
    """One sample's part of a replica."""

    on: _Load
    eased: asyncio.Event
    num_requests: int = 0

    def end(self) -> None:
        """Count the end of the sample, or of one of several requests."""
        self.on.load -= 1
        self.eased.set()


@dataclass(frozen=True)
class _SlotEngine:
    """A checkpoint's engine within the replica's limit of requests, which counts tokens where no memo does."""

    slot: _Slot
    engine: Engine
    counts: MemoCounts | None = None

    async def generate(self, request: Generate, seed: int) -> Completion:
        slot = self.slot
        slot.num_requests += 1
        slot.on.load += slot.num_requests > 1
        try:
            async with slot.on.requests:
                completion = await self.engine.generate(request, seed)
            if self.counts is not None and not request.near:
                self.counts.generated += len(completion.tokens)
            return completion
        finally:
            slot.num_requests -= 1
            if slot.num_requests:
                slot.end()
