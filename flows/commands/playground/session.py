"""The engines of the page's models, and runs on them.

They have an event loop and thread of their own: an engine that starts holds its loop for half a minute. Two engines run
at once where they fit into memory, else one after the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from elastic_core.engines.base import EngineLost
from elastic_core.engines.parameters import DEFAULT_CPU_CACHE_GIB, EngineParameters
from elastic_core.errors import UserError
from elastic_core.sweep.grid import UNLIMITED_BUDGET
from elastic_core.system.accelerators import installed_gpus
from flows.commands.answer import UPDATE_SECONDS, Attempt, Loaded, Thought, load, lost
from flows.commands.doctor.machine import GIB, cgroup_memory_limit
from flows.commands.playground import PlaygroundParameters
from flows.commands.playground.choices import PageRequest
from flows.runtime.models import Models

REMEMBERED = 16  # Thoughts that are kept to be cut elsewhere.
_MOST_ENGINES = 2  # Base and trained.
_PROCESS_GIB = 2.0
"""Of an engine's process, beside weights and cache: of a small model both together were 1.9 GiB at most on a CPU."""

Result = TypeVar("Result")


class Engines:
    """The engines, started when they are needed, `at_once` at most; a model behind a server needs none."""

    def __init__(self, models: Models) -> None:
        self._models = models
        parameters = models.settings.engine
        directories = models.directories.items()
        needed = [memory_needed(parameters, path) for name, path in directories if name not in models.endpoints]
        self.at_once = num_engines(needed, memory_for_engines(parameters)) if len(needed) > 1 else 1
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._starting = asyncio.Lock()
        self._idle = asyncio.Event()

    def batches(self, models: Sequence[str]) -> list[list[str]]:
        """The models in groups that can answer at the same time; those that are loaded come first."""
        behind = [model for model in models if model in self._models.endpoints]
        here = sorted((model for model in models if model not in behind), key=lambda model: model not in self._loaded)
        first, *rest = [here[i : i + self.at_once] for i in range(0, len(here), self.at_once)] or [[]]
        return [behind + first, *rest]

    @asynccontextmanager
    async def using(self, batch: Sequence[str]) -> AsyncIterator[tuple[dict[str, Loaded], dict[str, str]]]:
        """Of one of the `batches` the models that answer, and why others do not. A run waits until the engines in its
        way are idle, and later runs wait behind it: a batch is taken in one go: no two runs wait for each other."""
        ready: dict[str, Loaded] = {}
        refused: dict[str, str] = {}
        try:
            async with self._starting:
                for model in batch:
                    try:
                        ready[model] = await self._get(model, batch)
                        ready[model].users += 1
                    except UserError as error:
                        refused[model] = str(error)
            yield ready, refused
        finally:
            for loaded in ready.values():
                loaded.users -= 1
            self._idle.set()

    async def drop(self, loaded: Loaded) -> None:
        if self._loaded.get(loaded.name) is loaded:
            del self._loaded[loaded.name]
            await loaded.resources.aclose()

    async def aclose(self) -> None:
        for loaded in list(self._loaded.values()):
            await self.drop(loaded)

    async def _get(self, model: str, batch: Sequence[str]) -> Loaded:
        if model not in self._loaded:
            if model not in self._models.endpoints:
                await self._make_room(batch)
            self._loaded[model] = await self._load(model)
        self._loaded.move_to_end(model)
        return self._loaded[model]

    async def _make_room(self, batch: Sequence[str]) -> None:
        """For one more engine: those used longest ago end first."""
        while len(here := [name for name in self._loaded if name not in self._models.endpoints]) >= self.at_once:
            idle = [name for name in here if name not in batch and not self._loaded[name].users]
            if idle:
                await self.drop(self._loaded[idle[0]])
            else:
                self._idle.clear()
                await self._idle.wait()

    async def _load(self, model: str) -> Loaded:
        return await load(self._models, model, 1 / self.at_once)


def memory_needed(parameters: EngineParameters, model: Path) -> float:
    """An upper bound on an engine's bytes on one device: weights, cache, and activations."""
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors")) / parameters.tensor_parallel_size
    if parameters.dtype == "float32":
        weights *= 2  # Most checkpoints are bfloat16.
    if parameters.device == "cpu" or parameters.kv_cache_gib:
        cache = (parameters.kv_cache_gib or DEFAULT_CPU_CACHE_GIB) * GIB
    else:
        cache = weights  # It takes what is left of its share, and works with less.
    return weights + cache + _PROCESS_GIB * GIB


def memory_for_engines(parameters: EngineParameters) -> float:
    """Bytes of one device that engines may take together."""
    if parameters.device == "cuda":
        return min((gpu.total for gpu in installed_gpus()), default=0) * parameters.gpu_memory_utilization
    available = psutil.virtual_memory().available
    return min(available, cgroup_memory_limit() or available)


def num_engines(needed: Sequence[float], room: float) -> int:
    """How many always fit, each with the same share: `needed` and `room` are bytes."""
    return max(1, min(_MOST_ENGINES, int(room // max(needed))))


@dataclass
class Run:
    """A request and its answers by strategy and model, the models that answered, and the tokens that engines generated
    and that an earlier thought answered."""

    asked: PageRequest
    attempts: list[Attempt]
    loaded: dict[str, Loaded] = field(default_factory=dict)
    generated: int = 0
    reused: int = 0

    def fail(self, model: str, sentence: str) -> None:
        """The model gives no further answers. Raises UserError when it is the only one."""
        if len(self.asked.models) == 1:
            raise UserError(sentence)
        for attempt in self.attempts:
            if attempt.model == model and attempt.state != "done":
                attempt.state, attempt.sentence = "failed", sentence


class Session:
    """Use as a context manager; other threads call `call`."""

    def __init__(self, models: Models, parameters: PlaygroundParameters) -> None:
        self.models, self.parameters = models, parameters
        self.engines = Engines(models)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="playground-engine", daemon=True)
        self._thoughts: OrderedDict[tuple[Any, ...], Thought] = OrderedDict()

    def __enter__(self) -> Session:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self, seconds: float | None = None) -> None:
        """Stop runs and engines; None waits for as long as that takes. A starting engine may hold the loop for longer
        and cannot be interrupted: it is left."""
        if self._loop.is_closed():
            return
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        try:
            closing.result(seconds)
        except TimeoutError:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """A coroutine's result, run in the session's loop and cancelled with its caller."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def begin(self, asked: PageRequest) -> Run:
        attempts = [
            Attempt(model, strategy, UNLIMITED_BUDGET if strategy == "unconstrained" else asked.budget)
            for strategy in asked.strategies
            for model in asked.models
        ]
        return Run(asked, attempts)

    async def perform(self, run: Run) -> None:
        """Answer and grade, to the end. Raises UserError when the run came to nothing."""
        try:
            async with asyncio.timeout(self.parameters.run_seconds):
                for batch in self.engines.batches(run.asked.models):
                    async with self.engines.using(batch) as (loaded, refused):
                        run.loaded |= loaded
                        for model, sentence in refused.items():
                            run.fail(model, sentence)
                        await asyncio.gather(*(self._answer(run, each) for each in loaded.values()))
        except TimeoutError:
            raise UserError(f"stopped after {self.parameters.run_seconds:g} s; ask for smaller budgets") from None

    async def follow(self, run: Run) -> AsyncIterator[bool]:
        """Perform the run, from another thread's loop, and yield False at each update of its attempts, True at the end.
        It is cancelled with its caller, and raises as `perform`."""
        work = asyncio.ensure_future(self.call(self.perform(run)))
        try:
            while not (await asyncio.wait({work}, timeout=UPDATE_SECONDS))[0]:
                if run.loaded:  # Before that the session's loop may be busy with an engine that starts.
                    await self.call(self._look(run))
                yield False
            work.result()
            yield True
        finally:
            work.cancel()

    async def _look(self, run: Run) -> None:
        for attempt in run.attempts:
            attempt.look()

    def preload(self, models: Sequence[str]) -> None:
        """Begin to start the models' engines. A failure is raised to the runs that use them."""

        async def start() -> None:
            async with self.engines.using(self.engines.batches(models)[0]):
                pass

        asyncio.run_coroutine_threadsafe(start(), self._loop)

    async def _answer(self, run: Run, loaded: Loaded) -> None:
        thought = self._thought(run.asked, loaded)
        before = thought.memo.counts.generated, thought.memo.counts.reused
        try:
            async with asyncio.TaskGroup() as group:
                for attempt in run.attempts:
                    if attempt.model == loaded.name:
                        answer = attempt.answer(run.asked.problem, run.asked.sample, loaded, thought, self.models)
                        group.create_task(answer)
        except ExceptionGroup as errors:  # It cancelled the others.
            (error, *_) = errors.exceptions
            if not isinstance(error, EngineLost):
                raise error from None
            await self.engines.drop(loaded)
            run.fail(loaded.name, lost(error))
        run.generated += thought.memo.counts.generated - before[0]
        run.reused += thought.memo.counts.reused - before[1]

    def _thought(self, asked: PageRequest, loaded: Loaded) -> Thought:
        """The memo of the sample's earlier runs, on the present engine."""
        key = (loaded.name, asked.problem.benchmark, asked.problem.id, asked.problem.question, asked.sample)
        thought = self._thoughts.setdefault(key, Thought(loaded.engine))
        self._thoughts.move_to_end(key)
        while len(self._thoughts) > REMEMBERED:
            self._thoughts.popitem(last=False)
        thought.engine = loaded.engine
        return thought

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.engines.aclose()
