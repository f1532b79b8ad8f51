"""Runs what a sweep still misses: one coroutine per sample, each at its own pace, rows to disk as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import polars as pl

from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, RequestFailed, drive
from elastic_core.markers import chat_prompt
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.rows import RowBuilder, Sample, sample_seed
from elastic_core.sweep.store import TrajectoryStore
from elastic_core.trajectory import Trajectory

ATTEMPTS = 2
"""How often a sample is tried before it counts as failed."""

FLUSH_ROWS = 4096
FLUSH_SECONDS = 15.0
"""A shard is written at whichever comes first: few shards, and little lost to a kill."""

_SHOWN_FAILURES = 10


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep of one model has and misses."""

    missing: tuple[Sample, ...]
    num_present: int


@dataclass(frozen=True)
class SweepResult:
    """Counts of one run, so far or at its end.

    Attributes:
        tokens_generated: sampled tokens in the rows it wrote.
        grading_seconds: time spent on turning trajectories into graded rows, beside generation.
    """

    rows_written: int
    rows_present: int
    rows_total: int
    tokens_generated: int
    grading_seconds: float
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


def plan_sweep(
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[Problem]],
    *,
    num_samples: int,
    seed: int,
    store: TrajectoryStore,
) -> SweepPlan:
    """The samples that the table lacks, in the order of the cells. Needs no engine.

    Args:
        cells: of one model.
        problems: by benchmark.
        num_samples: per problem and cell; a larger number later adds samples and keeps those there are.

    Raises:
        ValueError: on cells of several models, a benchmark without problems, or repeated problem ids.
    """
    _check(cells, problems, num_samples)
    finished = store.finished()
    missing: list[Sample] = []
    for cell in cells:
        present = _present(finished, cell)
        missing.extend(
            Sample(cell, problem, number, sample_seed(seed, cell.benchmark, problem.id, number))
            for problem in problems[cell.benchmark]
            for number in range(num_samples)
            if (problem.id, number) not in present
        )
    total = sum(len(problems[cell.benchmark]) for cell in cells) * num_samples
    return SweepPlan(tuple(missing), total - len(missing))


async def run_sweep(
    plan: SweepPlan,
    *,
    sampling: Sampling,
    engines: Mapping[str, Engine],
    rows: RowBuilder,
    store: TrajectoryStore,
    max_in_flight: int = 512,
    on_progress: Callable[[SweepResult], None] | None = None,
) -> SweepResult:
    """Generate, grade and store every missing sample. Call it inside `with store.writing(manifest)`.

    Args:
        engines: one per role of the strategies ("policy").
        max_in_flight: samples under way at once; twice an engine's max_num_seqs keeps its batch full.
        on_progress: called after every shard, from the event loop.

    Raises:
        SweepIncomplete: at the end, when samples failed.
        EngineLost: when the engine is gone; what was finished is stored.
    """
    return await _Run(plan, sampling, engines, rows, store, on_progress).run(max_in_flight)


@dataclass
class _Run:
    plan: SweepPlan
    sampling: Sampling
    engines: Mapping[str, Engine]
    rows: RowBuilder
    store: TrajectoryStore
    on_progress: Callable[[SweepResult], None] | None
    prompts: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    finished: list[tuple[Sample, Trajectory]] = field(default_factory=list)
    failures: list[tuple[Sample, str]] = field(default_factory=list)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    rows_written: int = 0
    tokens_generated: int = 0
    grading_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    async def run(self, max_in_flight: int) -> SweepResult:
        # All prompts first: a tokenizer must not encode while the writer's thread decodes with it.
        for problem in {sample.problem for sample in self.plan.missing}:
            self.prompts[problem.benchmark, problem.id] = chat_prompt(self.rows.tokenizer, problem.question)
        samples = iter(self.plan.missing)
        # Grading takes milliseconds an answer: in a thread it does not hold up the requests. One thread, so that shards
        # are written one after the other even when a cancelled flush is still running.
        with ThreadPoolExecutor(1, thread_name_prefix="sweep-writer") as thread:
            try:
                async with asyncio.TaskGroup() as group:
                    writer = group.create_task(self.write(thread))
                    workers = [group.create_task(self.work(samples)) for _ in range(max_in_flight)]
                    await asyncio.wait(workers)
                    writer.cancel()
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None  # It cancelled the others.
            finally:
                await self.flush(thread)
        if self.failures:
            raise SweepIncomplete(self.failures, self.result())
        return self.result()

    async def work(self, samples: Iterator[Sample]) -> None:
        for sample in samples:
            trajectory = await self.attempt(sample)
            if trajectory is not None:
                self.finished.append((sample, trajectory))
                if len(self.finished) >= FLUSH_ROWS:
                    self.full.set()

    async def attempt(self, sample: Sample) -> Trajectory | None:
        strategy = STRATEGIES[sample.cell.strategy]
        prompt = self.prompts[sample.cell.benchmark, sample.problem.id]
        reason = ""
        for _ in range(ATTEMPTS):
            rollout = strategy(prompt, sample.cell.budget, self.rows.markers, self.sampling)
            try:
                return await drive(rollout, self.engines, sample.seed)
            except RequestFailed as error:
                reason = str(error)
        self.failures.append((sample, reason))
        return None

    async def write(self, thread: ThreadPoolExecutor) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self.full.wait()
            self.full.clear()
            await self.flush(thread)

    async def flush(self, thread: ThreadPoolExecutor) -> None:
        batch, self.finished = self.finished, []
        await asyncio.get_running_loop().run_in_executor(thread, self.store_rows, batch)
        if self.on_progress is not None:
            self.on_progress(self.result())

    def store_rows(self, batch: list[tuple[Sample, Trajectory]]) -> None:
        began = time.monotonic()
        frame = self.rows.frame(batch)
        self.grading_seconds += time.monotonic() - began
        self.store.append(frame)
        self.rows_written += frame.height
        self.tokens_generated += sum(frame["think_tokens"]) + sum(frame["solution_tokens"])

    def result(self) -> SweepResult:
        present = self.plan.num_present
        return SweepResult(
            rows_written=self.rows_written,
            rows_present=present,
            rows_total=present + len(self.plan.missing),
            tokens_generated=self.tokens_generated,
            grading_seconds=self.grading_seconds,
            seconds=time.monotonic() - self.began,
        )


def _present(finished: pl.DataFrame, cell: Cell) -> set[tuple[str, int]]:
    """(problem, sample) pairs of a cell in the table."""
    rows = finished.filter(
        pl.col("model") == cell.model,
        pl.col("benchmark") == cell.benchmark,
        pl.col("strategy") == cell.strategy,
        pl.col("think_budget").eq_missing(cell.budget.think),
        pl.col("solution_budget").eq_missing(cell.budget.solution),
    )
    return set(rows.select("problem", "sample").iter_rows())


def _check(cells: Sequence[Cell], problems: Mapping[str, Sequence[Problem]], num_samples: int) -> None:
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}; expected 1 or more")
    models = {cell.model for cell in cells}
    if len(models) > 1:
        raise ValueError(f"one run sweeps one model; found {', '.join(sorted(models))}")
    for benchmark in {cell.benchmark for cell in cells}:
        ids = [problem.id for problem in problems.get(benchmark, ())]
        if not ids:
            raise ValueError(f'the sweep names the benchmark "{benchmark}", but it has no problems')
        if len(set(ids)) < len(ids):
            raise ValueError(f'the benchmark "{benchmark}" has two problems with one id')
