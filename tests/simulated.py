"""An engine that takes the time a decoding step takes, on a clock that skips idle time: hours of a cluster in
seconds, and the same hours on every machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from elastic_core.data.problems import Problem
from elastic_core.engines.base import drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling
from elastic_core.sweep.executor import SweepResult, run_sweep
from elastic_core.sweep.models import Prompts
from elastic_core.sweep.plan import SweepPlan
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.table import Manifest, TrajectoryStore
from tests.marks import markers, single

END_OF_TEXT, THINK_START, THINK_END, NEWLINE, WORD = range(1, 6)
MARKERS = markers(single(THINK_START, THINK_END, END_OF_TEXT), (NEWLINE,), (NEWLINE, WORD), (WORD,))
_FIRST_PROBLEM = 10

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):
    """Waits for files and threads as they come, and for the clock by setting it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(None if timeout is None else 0)
        if not events and timeout:
            self.now += timeout
        return events


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Skipping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on a clock that skips."""
    with asyncio.Runner(loop_factory=_SkippingLoop) as runner:
        return runner.run(main)


@dataclass
class SimulatedEngine:
    """Decodes `max_num_seqs` requests together, first come, first served; a step takes `step_seconds` for all of them.

    Attributes:
        lengths: of a problem by its number and a sample's seed: tokens of its thought, and of its solution.
        spans: when each request was begun and when it ended.
    """

    lengths: Callable[[int, int], tuple[int, int]]
    step_seconds: float = 2**-7  # Sums of it are exact.
    max_num_seqs: int = 1_000_000
    num_tokens: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._batch = asyncio.Semaphore(self.max_num_seqs)

    async def generate(self, request: Generate, seed: int) -> Completion:
        tokens = self._follow(request, seed)
        loop = asyncio.get_running_loop()
        async with self._batch:
            began = loop.time()
            await asyncio.sleep(len(tokens) * self.step_seconds)
            self.spans.append((began, loop.time()))
        self.num_tokens += len(tokens)
        return Completion(tokens, Finish.STOP if tokens[-1] in request.stop else Finish.LENGTH)

    def _follow(self, request: Generate, seed: int) -> tuple[int, ...]:
        """What follows: the rest of the thought, think-end, the rest of the solution, end-of-text."""
        prefix, written = request.prefix, len(request.prefix) - 2
        thought, solution = self.lengths(prefix[0] - _FIRST_PROBLEM, seed)
        if THINK_END in prefix:
            left = max(0, solution - (len(prefix) - 1 - prefix.index(THINK_END)))
            tokens = (WORD,) * left + (END_OF_TEXT,)
        elif THINK_END in request.stop:
            tokens = (WORD,) * max(0, thought - written) + (THINK_END,)
        else:
            tokens = (WORD,) * max(0, thought - written) + (THINK_END,) + (WORD,) * solution + (END_OF_TEXT,)
        return tokens[: request.max_tokens]


class _Tokenizer:
    chat_template = "one message"
    name_or_path = "simulated"

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return f"{len(ids)} words"

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        return [_FIRST_PROBLEM + int(messages[0]["content"]), THINK_START]


def prompts() -> Prompts:
    return Prompts(_Tokenizer())


def rows() -> RowBuilder:
    return RowBuilder(_Tokenizer(), MARKERS, "model", "engine")


def problems(count: int) -> dict[str, list[Problem]]:
    return {"simulated": [Problem("simulated", f"{i:06d}", str(i), "4", "math") for i in range(count)]}


def swept(directory: Path, plan: SweepPlan, engines: Sequence[SimulatedEngine], max_in_flight: int) -> SweepResult:
    """Run a plan into a table of its own, by the clock that skips."""

    async def sweep() -> SweepResult:
        store = TrajectoryStore(directory)
        with store.writing(Manifest({}, {}, {}, {})):
            return await run_sweep(
                plan, sampling=Sampling(), prompts=prompts(), replicas=[{"base": each} for each in engines],
                rows=rows(), store=store, max_in_flight=max_in_flight,
            )  # fmt: skip

    return run(sweep())


def wall(*engines: SimulatedEngine) -> float:
    """When the last request ended, in seconds."""
    return max(end for engine in engines for _, end in engine.spans)


def one_after_the_other(plan: SweepPlan, engine: SimulatedEngine, max_in_flight: int) -> float:
    """Seconds when each sample has one request at a time, and so many samples are begun."""
    made, work = prompts(), iter(plan.work)

    async def worker() -> None:
        for unit in work:
            memo = ContinuationMemo(engine)
            for cell in unit.cells:
                prompt = made.ids(unit.problem, cell.strategy, cell.budget)
                rollout = STRATEGIES[cell.strategy].decode(prompt, cell.budget, MARKERS, Sampling())
                await drive(rollout, {"policy": memo}, unit.seed)

    async def all_workers() -> None:
        await asyncio.gather(*(worker() for _ in range(max_in_flight)))

    run(all_workers())
    return wall(engine)


def tail(engines: Sequence[SimulatedEngine]) -> float:
    """Share of the time after the last moment at which every place of every engine was taken."""
    spans = [span for engine in engines for span in engine.spans]
    changes = sorted([(ended, -1) for _, ended in spans] + [(began, 1) for began, _ in spans])
    running = np.cumsum([change for _, change in changes])
    full = max(index for index, count in enumerate(running) if count == sum(each.max_num_seqs for each in engines))
    return 1 - changes[full + 1][0] / wall(*engines)
