"""The engines of the page's models, and runs on them, in the event loop of the page.

Two engines run side by side where they fit into memory, else one after the other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import psutil

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import EngineLost
from elastic_core.engines.parameters import DEFAULT_CPU_CACHE_GIB, EngineParameters
from elastic_core.errors import UserError
from elastic_core.sweep.grid import UNLIMITED_BUDGET
from elastic_core.system.accelerators import installed_gpus
from flows.commands.answer import Attempt, Loaded, Thought, followed, load, lost
from flows.commands.doctor.machine import GIB, cgroup_memory_limit
from flows.commands.playground import PlaygroundParameters
from flows.runtime.models import Models

REMEMBERED = 16  # Thoughts that are kept.
_MOST_ENGINES = 2  # Base and trained.
_PROCESS_GIB = 2.0
"""Of an engine's process, beside weights and cache: of a small model both together were 1.9 GiB at most on a CPU."""


class Engines:
    """The engines, started when they are needed, `at_once` at most; a model behind a server needs none."""

    def __init__(self, models: Models) -> None:
        self._models = models
        parameters = models.settings.engine
        needed = [memory_needed(parameters, models.directories[name]) for name in self._local(models.directories)]
        self.at_once = engines_that_fit(needed, parameters) if len(needed) > 1 else 1
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._starting = asyncio.Lock()
        self._idle = asyncio.Event()

    def together(self, models: Sequence[str]) -> list[str]:
        """The first of the models that can answer at the same time."""
        waiting = self._local(models)[self.at_once :]
        return [model for model in models if model not in waiting]

    def loaded_first(self, models: Sequence[str]) -> list[str]:
        """The models in the order in which a run should ask for them: no engine ends that the run needs itself."""
        return sorted(models, key=lambda model: model not in self._loaded)

    @asynccontextmanager
    async def using(self, model: str) -> AsyncIterator[Loaded]:
        """Keep a model loaded. Without room for its engine, wait until another one is idle; later callers
        wait behind. A caller that has an engine waits for no other one, so all get their turn. UserError when it cannot
        be loaded."""
        async with self._starting:
            if model not in self._loaded:
                if model in self._local([model]):
                    await self._make_room()
                self._loaded[model] = await self._load(model)
            self._loaded.move_to_end(model)
            loaded = self._loaded[model]
            loaded.users += 1
        try:
            yield loaded
        finally:
            loaded.users -= 1
            self._idle.set()

    async def preload(self, models: Sequence[str]) -> None:
        """Start the engines of the first of these models. A failure is raised to the runs that use them."""
        for model in self.together(models):
            with suppress(UserError):
                async with self.using(model):
                    pass

    async def drop(self, loaded: Loaded) -> None:
        """End an engine; the next who needs the model gets a new one."""
        if self._loaded.get(loaded.name) is loaded:
            del self._loaded[loaded.name]
            await loaded.resources.aclose()

    def _local(self, models: Iterable[str]) -> list[str]:
        return [model for model in models if model not in self._models.endpoints]

    async def _make_room(self) -> None:
        """Make room for one more engine: those used longest ago end first."""
        while len(here := self._local(self._loaded)) >= self.at_once:
            if idle := [self._loaded[model] for model in here if not self._loaded[model].users]:
                await self.drop(idle[0])
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
        cache = weights  # It takes the rest of its share, and works with less.
    return weights + cache + _PROCESS_GIB * GIB


def engines_that_fit(needed: Sequence[float], parameters: EngineParameters) -> int:
    """How many engines of these `needed` bytes always fit on a device, each with the same share; always one."""
    if parameters.device == "cuda":
        room = min((gpu.total for gpu in installed_gpus()), default=0) * parameters.gpu_memory_utilization
    else:
        available = psutil.virtual_memory().available
        room = min(available, cgroup_memory_limit() or available)
    return max(1, min(_MOST_ENGINES, int(room // max(needed))))


@dataclass
class Run:
    """A problem that strategies answer by models under a budget; one without a truth is not graded.

    Attributes:
        attempts: the answers, by strategy and model.
        loaded: the models that answered.
        generated, reused: tokens that engines generated, and that an earlier thought answered.
    """

    models: tuple[str, ...]
    problem: Problem
    strategies: tuple[str, ...]
    budget: Budget
    sample: int
    attempts: list[Attempt] = field(init=False)
    loaded: dict[str, Loaded] = field(init=False, default_factory=dict)
    generated: int = field(init=False, default=0)
    reused: int = field(init=False, default=0)
    finished: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        budgets = {name: UNLIMITED_BUDGET if name == "unconstrained" else self.budget for name in self.strategies}
        self.attempts = [Attempt(model, name, budgets[name]) for name in self.strategies for model in self.models]

    def fail(self, model: str, sentence: str) -> None:
        """The model gives no further answers. Raises UserError when it is the only one."""
        if len(self.models) == 1:
            raise UserError(sentence)
        for attempt in self.attempts:
            if attempt.model == model and attempt.state != "done":
                attempt.state, attempt.sentence = "failed", sentence


class Session:
    """Runs on the engines, and the thoughts of earlier ones, to be cut elsewhere."""

    def __init__(self, models: Models, parameters: PlaygroundParameters) -> None:
        self.models, self.parameters = models, parameters
        self.engines = Engines(models)
        # By model, problem and sample.
        self._thought = lru_cache(REMEMBERED)(lambda *of: Thought())

    def follow(self, run: Run) -> AsyncIterator[None]:
        """Perform the run, and yield at each update of its attempts and at the end. It is cancelled with its caller,
        and raises as `perform`."""
        return followed(self.perform(run), run.attempts)

    async def perform(self, run: Run) -> None:
        """Answer and grade, to the end. Raises UserError when the run came to nothing."""
        try:
            async with asyncio.timeout(self.parameters.run_seconds):
                await asyncio.gather(*(self._answer(run, each) for each in self.engines.loaded_first(run.models)))
            run.finished = True
        except TimeoutError:
            raise UserError(f"stopped after {self.parameters.run_seconds:g} s; ask for smaller budgets") from None

    async def _answer(self, run: Run, model: str) -> None:
        try:
            async with self.engines.using(model) as loaded:
                run.loaded[model] = loaded
                await self._draw(run, loaded)
        except UserError as error:
            run.fail(model, str(error))

    async def _draw(self, run: Run, loaded: Loaded) -> None:
        """A model's answers, by one thought. Raises UserError when its engine is lost."""
        problem = run.problem
        thought = self._thought(loaded.name, problem.benchmark, problem.id, problem.question, run.sample)
        thought.engine = loaded.engine  # Its memo may be of an earlier run, and that run's engine gone.
        before = replace(thought.memo.counts)
        answers = [
            attempt.answer(problem, run.sample, loaded, thought, self.models)
            for attempt in run.attempts
            if attempt.model == loaded.name
        ]
        for error in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(error, EngineLost):
                await self.engines.drop(loaded)
                raise UserError(lost(error))
            if error is not None:
                raise error
        run.generated += thought.memo.counts.generated - before.generated
        run.reused += thought.memo.counts.reused - before.reused
