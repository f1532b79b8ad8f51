"""A loaded model and its answers under a budget, seen while they are drawn.

Strategies that answer side by side ask one continuation memo in turn, and so share one thought. A strategy that waits
for the draw of another will get a part of it: that part is shown while it is drawn.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import EngineLost, OnTokens, RequestFailed, drive
from elastic_core.engines.http import HttpEngine, http_pool
from elastic_core.engines.http_server import ServerLost
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.engines.vllm import VllmEngine
from elastic_core.errors import UserError, first_line
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import Markers, chat_prompt, load_markers
from elastic_core.rewards import Grade, GradingFailed, answer_reader, grade
from elastic_core.rewards.response import response_text
from elastic_core.seeds import sample_seed
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling, Strategy
from elastic_core.strategies.chat import EFFORTS
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.strategies.separate import SEPARATE_NATIVE
from elastic_core.sweep.grid import checkpoints, split_model
from elastic_core.trajectory import NAVIGATOR, SolutionFinish, ThinkFinish, Trajectory
from flows.runtime.models import Models

_log = logging.getLogger(__name__)

STRATEGY_NAMES = tuple(name for name, each in STRATEGIES.items() if each not in (SEPARATE_NATIVE, *EFFORTS.values()))
"""All but the cross-check of `separate`, and efforts of models that are asked in text."""
TYPED = "typed"  # Benchmark of a problem that was typed.
UPDATE_SECONDS = 0.15  # Between two looks at an answer that is being drawn.
_MAX_SEQUENCES = 16
"""Sequences an engine decodes together: few people ask at a time, and a small number warms up faster."""

State = Literal["waiting", "running", "done", "failed"]


@dataclass
class Loaded:
    """A model that answers; `users` are runs of the playground that need it."""

    name: str
    engine: VllmEngine | HttpEngine | Pair
    tokenizer: Any
    markers: Markers
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    users: int = 0
    guided: Strategy | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def strategy(self, name: str, models: Models) -> Strategy:
        """Raises UserError when the preset's thought templates cannot be had for a strategy that needs them."""
        if name != REASONFLUX_ZERO:
            return STRATEGIES[name]
        async with self._reading:
            if self.guided is None:
                templates = await asyncio.to_thread(models.templates)
                # A copy: this tokenizer decodes here while the thread encodes the library.
                tokenizer = copy.deepcopy(self.tokenizer)
                self.guided = await asyncio.to_thread(templates.strategy, tokenizer, self.markers)
        return self.guided


class Pair:
    """Two models as one: each request goes to the engine of its role."""

    def __init__(self, engines: Mapping[str, VllmEngine | HttpEngine]) -> None:
        self._engines = engines
        self.max_model_len = min(engine.max_model_len for engine in engines.values())

    async def generate(self, request: Generate, seed: int, on_tokens: OnTokens | None = None) -> Completion:
        return await self._engines[request.role].generate(request, seed, on_tokens)


async def load(models: Models, name: str, share: float = 1.0, thinks: bool = True) -> Loaded:
    """Start the engine of a model, or those of a pair "A>B" that shares one tokenizer, with a share of the GPU memory
    that the preset gives to engines, or connect to its server. Models need think markers if it `thinks`. Raises
    UserError when it cannot be loaded."""
    names = split_model(name)
    async with AsyncExitStack() as resources:
        try:
            read = [await asyncio.to_thread(load_markers, str(models.directories[each]), thinks) for each in names]
            tokenizer, markers = read[-1]
            if read[0][0].get_vocab() != tokenizer.get_vocab():
                raise UserError(f"{name}: their tokenizers differ, and only a sweep passes text from one to the other")
            engines = [await _engine(models, each, share / len(names), resources) for each in names]
            pair = zip(checkpoints(name), (engines[0], *engines), strict=True) if len(names) > 1 else ()
            engine = Pair(dict(pair)) if pair else engines[0]
        except (UserError, ModuleNotFoundError):
            raise
        except ServerLost as error:
            raise UserError(lost(error)) from None
        except Exception as error:  # vLLM raises many kinds; its log says more.
            _log.exception("the engine for %s did not start", name)
            raise UserError(f"{name} cannot be loaded: {first_line(error)}") from None
        return Loaded(name, engine, tokenizer, markers, resources.pop_all())


async def _engine(models: Models, name: str, share: float, resources: AsyncExitStack) -> VllmEngine | HttpEngine:
    if name in models.endpoints:
        replicas = await resources.enter_async_context(http_pool({name: models.endpoints[name]}))
        return replicas[0][name]
    parameters = models.settings.engine
    changes = {"max_num_seqs": _MAX_SEQUENCES, "gpu_memory_utilization": parameters.gpu_memory_utilization * share}
    # It takes half a minute, in which others are answered; it cannot be interrupted, and is ended once it is there.
    starting = asyncio.ensure_future(
        asyncio.to_thread(VllmEngine, str(models.directories[name]), parameters.model_copy(update=changes))
    )

    async def end() -> None:
        (await starting).shutdown()

    resources.push_async_callback(end)
    engine = await asyncio.shield(starting)
    await engine.warm_up()
    return engine


def lost(error: EngineLost) -> str:
    """The error, and what to do about it."""
    advice = "start that server, then run again" if isinstance(error, ServerLost) else "run again to start it anew"
    return f"{error}; {advice}"


class Thought:
    """One sample of a problem: its memo, and the request that is generating, with `tokens` so far after `prefix`."""

    def __init__(self, engine: VllmEngine | HttpEngine | Pair | None = None) -> None:
        self.engine = engine
        self.prefix: tuple[int, ...] = ()
        self.tokens: list[int] = []
        self.memo = ContinuationMemo(self)

    async def generate(self, request: Generate, seed: int) -> Completion:
        """The engine below the memo, see `Engine`."""
        assert self.engine is not None, "it is set before anything is drawn"
        self.prefix, self.tokens = request.prefix, []
        return await self.engine.generate(request, seed, self.tokens.extend)


class Follower:
    """The engine of one strategy: asks the memo, and knows the response so far. The solution begins where one of
    `marks` ends the thought, as far as that can be known before the end."""

    def __init__(self, thought: Thought, prompt_ids: tuple[int, ...], marks: Marks | None) -> None:
        self._thought, self._prompt, self._marks = thought, prompt_ids, marks
        self._request: Generate | None = None
        self._sequence = prompt_ids
        self._forced: list[bool] = []
        self._dropped: tuple[tuple[int, int], ...] = ()

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`."""
        if request.aside:  # Seen once it is the answer.
            return await self._thought.memo.generate(request, seed)
        # Tokens of the request's prefix after the sequence so far were forced by the strategy.
        pairs = zip(self._sequence, request.prefix, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._dropped += tuple((same - len(self._prompt), token) for token in self._sequence[same:])
        self._forced = self._forced[: same - len(self._prompt)] + [True] * (len(request.prefix) - same)
        self._sequence, self._request = request.prefix, request
        completion = await self._thought.memo.generate(request, seed)
        self._forced += [False] * len(completion.tokens)
        self._sequence, self._request = request.prefix + completion.tokens, None
        return completion

    def so_far(self) -> Trajectory:
        """The response as it stands, its finishes not known yet."""
        coming: tuple[int, ...] = ()
        if (request := self._request) is not None:
            # The tokens that the memo knows, then those of the draw under way if it continues them.
            coming = self._thought.memo.known(request).ids
            if request.prefix + coming == self._thought.prefix:
                tokens = (*coming, *self._thought.tokens)
                stop = next((i + 1 for i, token in enumerate(tokens) if token in request.stop), len(tokens))
                coming = tokens[: stop if request.max_tokens is None else min(stop, request.max_tokens)]
        ids = (*self._sequence, *coming)[len(self._prompt) :]
        start = self._marks.end(ids) if self._marks is not None else None
        forced = (*self._forced, *(False for _ in coming))
        finishes = ThinkFinish.NOT_APPLICABLE, SolutionFinish.NOT_APPLICABLE
        return Trajectory(self._prompt, ids, forced, start, *finishes, dropped=self._dropped)


@dataclass
class Attempt:
    """One model's answer to a problem with one strategy.

    Attributes:
        trajectory: so far, or complete when the state is "done".
        grade: None without a reference, and before the end.
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

    def update(self) -> None:
        """Bring the trajectory up to date while it is drawn."""
        if self.state == "running" and self.follower is not None:
            self.trajectory = self.follower.so_far()

    async def answer(self, problem: Problem, sample: int, loaded: Loaded, thought: Thought, models: Models) -> None:
        """Draw the response, and grade it if the problem has a truth. Raises only EngineLost: `sentence` says what else
        failed."""
        settings = models.settings.sweep
        try:
            strategy = await loaded.strategy(self.strategy, models)
            if expected := strategy.expected_budget(self.budget):
                raise UserError(f"{self.strategy} cannot run under {self.budget}; expected {expected}")
            template = loaded.markers.template_settings(strategy.effort)
            prompt = chat_prompt(loaded.tokenizer, strategy.prompt(problem.question, self.budget), **template)
            markers = strategy.markers(loaded.tokenizer, loaded.markers)
            num_prompt = len(prompt) + strategy.max_forced_tokens(markers)
            if num_prompt + self.budget.limited > loaded.engine.max_model_len:
                raise UserError(
                    f"{num_prompt:,} tokens of the prompt and a budget of {self.budget} do not fit the model's context "
                    f"of {loaded.engine.max_model_len:,} tokens; shorten the problem or lower the budget"
                )
            # Every turn of a conversation has a think-end; only its end shows which is the last.
            marks = loaded.markers if NAVIGATOR not in strategy.roles else None
            self.follower, self.state = Follower(thought, prompt, marks), "running"
            sampling = Sampling(settings.temperature, settings.top_p)
            strategy = strategy.reading(answer_reader(loaded.tokenizer, loaded.markers, problem.grader))
            rollout = strategy.decode(prompt, self.budget, markers, sampling)
            seed = sample_seed(settings.seed, problem.benchmark, problem.id, sample)
            self.trajectory = await drive(rollout, {"policy": self.follower}, seed)
            self.state = "done"
        except (UserError, RequestFailed, ValueError) as error:
            self.state, self.sentence = "failed", str(error)
            return
        if problem.truth:
            text = response_text(loaded.tokenizer, loaded.markers, self.trajectory).graded(self.trajectory.think_finish)
            try:
                self.grade = await asyncio.to_thread(grade, problem.grader, text, problem.truth)
            except (UserError, GradingFailed, ValueError) as error:
                self.sentence = f"not graded: {error}"


async def followed(work: Coroutine[Any, Any, None], attempts: Sequence[Attempt]) -> AsyncIterator[None]:
    """Do the work that draws these attempts, and yield at each update of them and at the end. The work is cancelled
    with its caller, and its errors are raised."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=UPDATE_SECONDS))[0]:
            for attempt in attempts:
                attempt.update()
            yield
        task.result()
        yield
    finally:
        task.cancel()
