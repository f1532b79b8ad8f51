"""Engines, and runs on them: everything here lives in one event loop, in a thread of its own, as an engine that starts
holds its loop for half a minute and the page must answer meanwhile."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from elastic_core.budget import Budget
from elastic_core.engines.base import EngineLost, RequestFailed, drive
from elastic_core.engines.http import HttpEngine, http_pool
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.engines.vllm import VllmEngine
from elastic_core.errors import UserError, first_line
from elastic_core.markers import Markers, chat_prompt, load_markers
from elastic_core.rewards import Grade, GradingFailed, grade
from elastic_core.rewards.response import response_text
from elastic_core.seeds import sample_seed
from elastic_core.strategies import STRATEGIES, Sampling, Strategy
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.sweep.grid import UNLIMITED_BUDGET
from elastic_core.trajectory import NAVIGATOR, Trajectory
from flows.playground import PlaygroundParameters
from flows.playground.choices import Choices, PageRequest
from flows.playground.live import Follower, Watched

_log = logging.getLogger(__name__)

MAX_SEQUENCES = 16
"""Sequences an engine decodes together: a page needs few, and warms up the faster."""
_UPDATE_SECONDS = 0.15
REMEMBERED = 16
"""Thoughts that are kept to be cut elsewhere."""

State = Literal["waiting", "running", "done", "failed"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Loaded:
    """A model that answers."""

    name: str
    engine: VllmEngine | HttpEngine
    tokenizer: Any
    markers: Markers
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)


@dataclass
class Attempt:
    """One strategy's try at the problem.

    Attributes:
        trajectory: so far, or whole when the state is "done".
        grade: None when there is no reference, or not yet.
        sentence: why it failed, or could not be graded.
    """

    strategy: str
    budget: Budget
    state: State = "waiting"
    trajectory: Trajectory | None = None
    grade: Grade | None = None
    sentence: str = ""
    follower: Follower | None = None


@dataclass
class Run:
    """What became of what was asked: tokens that engines drew for it, and tokens answered from an earlier thought."""

    asked: PageRequest
    attempts: list[Attempt]
    loaded: Loaded | None = None
    generated: int = 0
    reused: int = 0


@dataclass
class _Thought:
    """What is known of one sample of a problem."""

    memo: ContinuationMemo
    drawing: Watched


@dataclass
class Session:
    """Use as a context manager; other threads call `call`."""

    choices: Choices
    parameters: PlaygroundParameters
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _loaded: Loaded | None = None
    _users: int = 0
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _guided: dict[str, Strategy] = field(default_factory=dict)
    _thoughts: OrderedDict[tuple[Any, ...], _Thought] = field(default_factory=OrderedDict)

    def __enter__(self) -> Session:
        self._thread = threading.Thread(target=self._loop.run_forever, name="playground-engine", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self, seconds: float | None = None) -> None:
        """Stop runs and engine; None waits for as long as that takes. An engine that starts may hold the loop for
        longer, and nothing can interrupt it there: then it is left. Ended again it does nothing."""
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
        """A run to `perform`."""
        attempts = [
            Attempt(strategy, UNLIMITED_BUDGET if strategy == "unconstrained" else asked.budget)
            for strategy in asked.strategies
        ]
        return Run(asked, attempts)

    async def perform(self, run: Run) -> None:
        """Answer and grade, to the end.

        Raises:
            UserError: when the whole run came to nothing: no engine, too long a prompt, too long a wait.
        """
        try:
            async with asyncio.timeout(self.parameters.run_seconds), self._using(run.asked.model) as loaded:
                run.loaded = loaded
                await self._answer(run, loaded)
        except TimeoutError:
            raise UserError(f"stopped after {self.parameters.run_seconds:g} s; ask for smaller budgets") from None

    async def follow(self, run: Run) -> AsyncIterator[bool]:
        """Perform the run, for another thread's loop: again and again False, when the run's attempts tell how far they
        are, and True at the end. It is cancelled with whoever iterates.

        Raises:
            UserError: as `perform`.
        """
        work = asyncio.ensure_future(self.call(self.perform(run)))
        try:
            while not (await asyncio.wait({work}, timeout=_UPDATE_SECONDS))[0]:
                if run.loaded is not None:  # Before that this loop may be busy with an engine that starts.
                    await self.call(self._look(run))
                yield False
            work.result()
            yield True
        finally:
            work.cancel()

    async def _look(self, run: Run) -> None:
        for attempt in run.attempts:
            if attempt.state == "running" and attempt.follower is not None:
                attempt.trajectory = attempt.follower.so_far()

    def preload(self, model: str) -> None:
        """Begin to start the model's engine. Whether that fails is told to whoever uses it."""
        asyncio.run_coroutine_threadsafe(self._use(model), self._loop)

    async def _use(self, model: str) -> None:
        async with self._using(model):
            pass

    async def _answer(self, run: Run, loaded: Loaded) -> None:
        asked, settings = run.asked, self.choices.settings.sweep
        thought = self._thought(asked, loaded)
        seed = sample_seed(settings.seed, asked.problem.benchmark, asked.problem.id, asked.sample)
        before = thought.memo.counts.generated, thought.memo.counts.reused
        sampling = Sampling(settings.temperature, settings.top_p)
        try:
            async with asyncio.TaskGroup() as group:
                for attempt in run.attempts:
                    group.create_task(self._attempt(attempt, asked, loaded, thought, sampling, seed))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # It cancelled the others.
        run.generated = thought.memo.counts.generated - before[0]
        run.reused = thought.memo.counts.reused - before[1]

    async def _attempt(
        self, attempt: Attempt, asked: PageRequest, loaded: Loaded, thought: _Thought, sampling: Sampling, seed: int
    ) -> None:
        try:
            strategy = await self._strategy(attempt.strategy, loaded)
            if expected := strategy.expected_budget(attempt.budget):
                raise UserError(f"{attempt.strategy} cannot run under {attempt.budget}; expected {expected}")
            prompt = chat_prompt(loaded.tokenizer, strategy.prompt(asked.problem.question, attempt.budget))
            forced = strategy.max_forced_tokens(loaded.markers)
            _check_context(len(prompt) + forced, attempt.budget, loaded.engine.max_model_len)
            # In a conversation every turn has a think-end; which one the last is shows at the end.
            think_end = loaded.markers.think_end if NAVIGATOR not in strategy.roles else None
            attempt.follower = Follower(thought.memo, thought.drawing, prompt, think_end)
            attempt.state = "running"
            rollout = strategy.decode(prompt, attempt.budget, loaded.markers, sampling)
            attempt.trajectory = await drive(rollout, {"policy": attempt.follower}, seed)
            attempt.state = "done"
        except (UserError, RequestFailed) as error:
            attempt.state, attempt.sentence = "failed", str(error)
            return
        if asked.graded:
            response = response_text(loaded.tokenizer, loaded.markers, attempt.trajectory)
            text = response.graded(attempt.trajectory.think_finish)
            try:
                attempt.grade = await asyncio.to_thread(grade, asked.problem.grader, text, asked.problem.truth)
            except (UserError, GradingFailed, ValueError) as error:
                attempt.sentence = f"not graded: {error}"

    async def _strategy(self, name: str, loaded: Loaded) -> Strategy:
        if name != REASONFLUX_ZERO:
            return STRATEGIES[name]
        async with self._reading:
            if loaded.name not in self._guided:
                templates = await asyncio.to_thread(self.choices.templates)
                # A copy, as this one is in use here while the thread reads the library.
                tokenizer = copy.deepcopy(loaded.tokenizer)
                self._guided[loaded.name] = await asyncio.to_thread(templates.strategy, tokenizer, loaded.markers)
        return self._guided[loaded.name]

    def _thought(self, asked: PageRequest, loaded: Loaded) -> _Thought:
        """What an earlier run of the same sample knows, on the engine there is now."""
        key = (asked.model, asked.problem.benchmark, asked.problem.id, asked.problem.question, asked.sample)
        if key not in self._thoughts:
            drawing = Watched(loaded.engine)
            self._thoughts[key] = _Thought(ContinuationMemo(drawing), drawing)
        self._thoughts.move_to_end(key)
        while len(self._thoughts) > REMEMBERED:
            self._thoughts.popitem(last=False)
        self._thoughts[key].drawing.engine = loaded.engine
        return self._thoughts[key]

    @asynccontextmanager
    async def _using(self, model: str) -> AsyncIterator[Loaded]:
        """The model's engine. There is one at a time: whoever wants another waits until nobody uses this one, and
        whoever comes later waits behind."""
        async with self._starting:
            if self._loaded is None or self._loaded.name != model:
                while self._users:
                    self._idle.clear()
                    await self._idle.wait()
                await self._unload()
                self._loaded = await self._load(model)
            loaded = self._loaded
            self._users += 1
        try:
            yield loaded
        except EngineLost as error:
            if self._loaded is loaded:
                await self._unload()
            raise UserError(f"{error}; run again to start it anew") from None
        finally:
            self._users -= 1
            if not self._users:
                self._idle.set()

    async def _load(self, model: str) -> Loaded:
        directory = str(self.choices.models[model])
        resources = AsyncExitStack()
        try:
            tokenizer, markers = load_markers(directory)
            return Loaded(model, await self._engine(model, directory, resources), tokenizer, markers, resources)
        except UserError:
            await resources.aclose()
            raise
        except Exception as error:  # vLLM's own kinds are many; its log on the terminal says more.
            _log.exception("the engine for %s did not start", directory)
            await resources.aclose()
            raise UserError(f"{model} cannot be loaded: {first_line(error)}") from None

    async def _engine(self, model: str, directory: str, resources: AsyncExitStack) -> VllmEngine | HttpEngine:
        endpoint = self.choices.endpoints.get(model)
        if endpoint is not None:
            replicas = await resources.enter_async_context(http_pool({model: endpoint}))
            served: HttpEngine = replicas[0][model]
            return served
        engine = VllmEngine(directory, self.choices.settings.engine.model_copy(update={"max_num_seqs": MAX_SEQUENCES}))
        resources.callback(engine.shutdown)
        await engine.warm_up()
        return engine

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._unload()

    async def _unload(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await loaded.resources.aclose()


def _check_context(prompt_tokens: int, budget: Budget, context: int) -> None:
    if prompt_tokens + budget.limited > context:
        raise UserError(
            f"{prompt_tokens:,} tokens of the prompt and a budget of {budget} do not fit the model's context of "
            f"{context:,} tokens; shorten the problem or lower the budget"
        )
