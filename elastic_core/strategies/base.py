"""The protocol of a decoding strategy: a generator that yields requests and receives completions, in token ids.

A strategy never touches an engine, text, asyncio or a batch, so the same code runs in training rollouts, in sweeps
and in the playground. Whoever answers its requests is a driver, see `elastic_core.engines.base.drive`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum

from elastic_core.budget import Budget
from elastic_core.markers import Markers
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    logprobs: bool = False


@dataclass(frozen=True)
class Generate:
    """A request: continue `prefix` until a stop id or `max_tokens` sampled tokens (None: the context's end).

    `role` names which model answers ("policy" unless a strategy uses two).
    """

    prefix: tuple[int, ...]
    max_tokens: int | None
    stop: tuple[int, ...]
    sampling: Sampling
    role: str = "policy"


class Finish(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True)
class Completion:
    """The answer: sampled tokens, the stop id included as the last one when it was reached."""

    tokens: tuple[int, ...]
    finish: Finish
    logprobs: tuple[float, ...] | None = None


Rollout = Generator[Generate, Completion, Trajectory]
Strategy = Callable[[tuple[int, ...], Budget, Markers, Sampling], Rollout]


@dataclass
class Draft:
    """A response under construction, which remembers where each token came from."""

    prompt_ids: tuple[int, ...]
    with_logprobs: bool
    tokens: list[int] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def prefix(self) -> tuple[int, ...]:
        return self.prompt_ids + tuple(self.tokens)

    def sampled(self, completion: Completion, *, drop_last: bool = False) -> None:
        count = len(completion.tokens) - drop_last
        self.tokens += completion.tokens[:count]
        self.forced += [False] * count
        if self.with_logprobs:
            assert completion.logprobs is not None, "the engine returned no log-probabilities though asked for them"
            self.logprobs += completion.logprobs[:count]

    def force(self, tokens: tuple[int, ...]) -> None:
        self.tokens += tokens
        self.forced += [True] * len(tokens)
        self.logprobs += [0.0] * len(tokens)

    def finish(self, solution_start: int | None, think: ThinkFinish, solution: SolutionFinish) -> Trajectory:
        return Trajectory(
            self.prompt_ids,
            tuple(self.tokens),
            tuple(self.forced),
            solution_start,
            think,
            solution,
            tuple(self.logprobs) if self.with_logprobs else None,
        )


def think(
    draft: Draft, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, ThinkFinish]:
    """Sample a thought of at most `limit` tokens. Leaves think-end in place when the model wrote it and removes
    end-of-text; what to force otherwise is the caller's decision."""
    if limit == 0:
        return ThinkFinish.FORCED
    thought = yield Generate(draft.prefix, limit, (markers.think_end, *markers.end_of_text), sampling)
    last = thought.tokens[-1] if thought.tokens else None
    ended = last in markers.end_of_text
    draft.sampled(thought, drop_last=ended)
    if last == markers.think_end:
        return ThinkFinish.CLOSED
    return ThinkFinish.END_OF_TEXT if ended else ThinkFinish.FORCED


def solve(
    draft: Draft, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, SolutionFinish]:
    """Sample a solution of at most `limit` tokens, up to end-of-text."""
    answer = yield Generate(draft.prefix, limit, markers.end_of_text, sampling)
    draft.sampled(answer)
    stopped = bool(answer.tokens) and answer.tokens[-1] in markers.end_of_text
    return SolutionFinish.STOP if stopped else SolutionFinish.LENGTH


def whole(
    draft: Draft, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, Trajectory]:
    """Sample thinking and solution in one go of at most `limit` tokens, and tell them apart at the first think-end."""
    response = yield Generate(draft.prefix, limit, markers.end_of_text, sampling)
    draft.sampled(response)
    stopped = bool(response.tokens) and response.tokens[-1] in markers.end_of_text
    if markers.think_end not in response.tokens:
        cut = ThinkFinish.END_OF_TEXT if stopped else ThinkFinish.LENGTH
        return draft.finish(None, cut, SolutionFinish.NOT_APPLICABLE)
    start = response.tokens.index(markers.think_end) + 1
    return draft.finish(start, ThinkFinish.CLOSED, SolutionFinish.STOP if stopped else SolutionFinish.LENGTH)
