"""Runs on engines: everything here lives in one event loop, in a thread of its own, as an engine that starts
holds its loop for half a minute and the page must answer meanwhile."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from elastic_core.budget import Budget
from elastic_core.engines.base import EngineLost, RequestFailed, drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.errors import UserError
from elastic_core.models.special_tokens import chat_prompt
from elastic_core.rewards import Grade, GradingFailed, grade
from elastic_core.rewards.response import response_text
from elastic_core.seeds import sample_seed
from elastic_core.strategies import STRATEGIES, Sampling, Strategy
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.sweep.grid import UNLIMITED_BUDGET
from elastic_core.trajectory import NAVIGATOR, Trajectory
from flows.commands.playground import PlaygroundParameters
from flows.commands.playground.choices import Choices, PageRequest
from flows.commands.playground.engines import Engines, Loaded, lost
from flows.commands.playground.live import Follower, Watched

_UPDATE_SECONDS = 0.15
REMEMBERED = 16
"""Thoughts that are kept to be cut elsewhere."""

State = Literal["waiting", "running", "done", "failed"]
Result = TypeVar("Result")


@dataclass
class Attempt:
    """One model's try at the problem with one strategy.

    Attributes:
        trajectory: so far, or whole when the state is "done".
        grade: None when there is no reference, or not yet.
        sentence: why it failed, or could not be graded.
    """

    model: str
    strategy: str
    budget: Budget
    state: State = "waiting"
    trajectory: Trajectory | None = None
    grade: Grade | None = None
    sentence: str = ""
    follower: Follower | None = None


@dataclass
class Run:
    """What became of a request: tokens that engines drew for it, and tokens answered from an earlier thought.

    Attributes:
        attempts: those of a strategy follow each other, in the order of the models.
        loaded: models that answer, or did, by name.
    """

    asked: PageRequest
    attempts: list[Attempt]
    loaded: dict[str, Loaded] = field(default_factory=dict)
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
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _guided: dict[str, Strategy] = field(default_factory=dict)
    _thoughts: OrderedDict[tuple[Any, ...], _Thought] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.engines = Engines(self.choices)

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
            Attempt(model, strategy, UNLIMITED_BUDGET if strategy == "unconstrained" else asked.budget)
            for strategy in asked.strategies
            for model in asked.models
        ]
        return Run(asked, attempts)

    async def perform(self, run: Run) -> None:
        """Answer and grade, to the end.

        Raises:
            UserError: when the whole run came to nothing: no engine, too long a prompt, too long a wait.
        """
        try:
            async with asyncio.timeout(self.parameters.run_seconds):
                for batch in self.engines.batches(run.asked.models):
                    await self._perform(run, batch)
        except TimeoutError:
            raise UserError(f"stopped after {self.parameters.run_seconds:g} s; ask for smaller budgets") from None

    async def _perform(self, run: Run, batch: Sequence[str]) -> None:
        async with self.engines.using(batch) as (loaded, refused):
            run.loaded |= loaded
            for model, sentence in refused.items():
                _fail(run, model, sentence)
            await asyncio.gather(*(self._answer(run, each) for each in loaded.values()))

    async def follow(self, run: Run) -> AsyncIterator[bool]:
        """Perform the run, for another thread's loop: again and again False, when the run's attempts tell how far they
        are, and True at the end. It is cancelled when its caller is.

        Raises:
            UserError: as `perform`.
        """
        work = asyncio.ensure_future(self.call(self.perform(run)))
        try:
            while not (await asyncio.wait({work}, timeout=_UPDATE_SECONDS))[0]:
                if run.loaded:  # Before that this loop may be busy with an engine that starts.
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

    def preload(self, models: Sequence[str]) -> None:
        """Begin to start the models' engines. A failure is raised to the callers that use them."""
        asyncio.run_coroutine_threadsafe(self._preload(models), self._loop)

    async def _preload(self, models: Sequence[str]) -> None:
        async with self.engines.using(self.engines.batches(models)[0]):
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
                    if attempt.model == loaded.name:
                        group.create_task(self._attempt(attempt, asked, loaded, thought, sampling, seed))
        except ExceptionGroup as errors:  # It cancelled the others.
            (error, *_) = errors.exceptions
            if not isinstance(error, EngineLost):
                raise error from None
            await self.engines.drop(loaded)
            _fail(run, loaded.name, lost(error))
        run.generated += thought.memo.counts.generated - before[0]
        run.reused += thought.memo.counts.reused - before[1]

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
        key = (loaded.name, asked.problem.benchmark, asked.problem.id, asked.problem.question, asked.sample)
        if key not in self._thoughts:
            drawing = Watched(loaded.engine)
            self._thoughts[key] = _Thought(ContinuationMemo(drawing), drawing)
        self._thoughts.move_to_end(key)
        while len(self._thoughts) > REMEMBERED:
            self._thoughts.popitem(last=False)
        self._thoughts[key].drawing.engine = loaded.engine
        return self._thoughts[key]

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.engines.aclose()


def _fail(run: Run, model: str, sentence: str) -> None:
    """The model has no further answers.

    Raises:
        UserError: when it is the only one, so that the run came to nothing.
    """
    if len(run.asked.models) == 1:
        raise UserError(sentence)
    for attempt in run.attempts:
        if attempt.model == model and attempt.state != "done":
            attempt.state, attempt.sentence = "failed", sentence


def _check_context(prompt_tokens: int, budget: Budget, context: int) -> None:
    if prompt_tokens + budget.limited > context:
        raise UserError(
            f"{prompt_tokens:,} tokens of the prompt and a budget of {budget} do not fit the model's context of "
            f"{context:,} tokens; shorten the problem or lower the budget"
        )
