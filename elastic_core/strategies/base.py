"""The protocol of a decoding strategy: a generator that yields requests and receives completions, in token ids.

A strategy never touches an engine, text, asyncio or a batch, so the same code runs in training rollouts, in sweeps
and in the playground. A driver answers its requests, see `elastic_core.engines.base.drive`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import polars as pl

from elastic_core.budget import Budget
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import Markers
from elastic_core.trajectory import Probe, SolutionFinish, ThinkFinish, Trajectory


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    logprobs: bool = False


@dataclass(frozen=True)
class Generate:
    """A request: continue `prefix` until a stop id or `max_tokens` sampled tokens (None: the context's end)."""

    prefix: tuple[int, ...]
    max_tokens: int | None
    stop: tuple[int, ...]
    sampling: Sampling
    role: str = "policy"  # which engine samples; a driver without one for the role takes the policy's
    draw: int = 0  # number of this draw from the prefix; a strategy that draws from one prefix again counts up
    budget: Budget | None = None  # for the engine to keep, from the prefix on (`separate_native`)
    aside: bool = False  # the strategy may go on from an earlier prefix, as after a probe
    meanwhile: Generate | None = None  # the request that follows then, for a driver that samples both concurrently
    marks: Marks | None = None  # by which the engine keeps the budget, where they are not the model's
    near: int = 0  # see `closed_early`


class Finish(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True)
class Completion:
    """The answer: sampled tokens, the stop id included as the last one when it was reached."""

    tokens: tuple[int, ...]
    finish: Finish
    logprobs: tuple[float, ...] | None = None

    def part(self, start: int, end: int, finish: Finish) -> Completion:
        """Tokens from index `start` up to `end`, as an answer that ends so."""
        logprobs = None if self.logprobs is None else self.logprobs[start:end]
        return Completion(self.tokens[start:end], finish, logprobs)


StrategyRun = Generator[Generate, Completion, Trajectory]
Decode = Callable[[tuple[int, ...], Budget, Markers, Sampling], StrategyRun]
Rules = dict[str, pl.Expr]
AnswerOf = Callable[[Trajectory], str | None]
"""Reads the answer of a response; None where there is none."""


class Purpose(StrEnum):
    """The part that one strategy plays for reports and servers."""

    SERVED = "served"  # servers keep its budgets; models are compared, and budgets advised, under it
    BASELINE = "baseline"  # other strategies are compared with it
    FREE = "free"  # responses without a budget, the reference for the cost of a budget


@dataclass(frozen=True)
class Strategy:
    """One way of spending a budget.

    Attributes:
        decode: the coroutine, from prompt ids, budget, markers and sampling.
        expected_budget: words for the budget that it needs, where it cannot run under the one given; else None.
        instruction: text that the prompt adds to the question, by budget.
        roles: of its requests, "policy" alone or several that may be different models.
        prolongs: whether it goes on thinking after the model ended the thought.
        shares: whether other strategies may reuse its sampled tokens through the continuation memo. Each of its
            requests must then begin with the prefix of the one before that was not `aside`. A strategy that draws
            several times from one prefix and keeps the best must not share: its choice is not distributed as a draw.
        thinks: whether it needs think markers; a model that lacks them is then refused.
        translates: whether its navigator samples in another tokenizer. A row then has the navigator's replies in
            the solver's tokens, and not the tokens that were drawn.
        max_forced_tokens: most tokens that it writes itself; they need room in the context in addition to the budget.
        reads: of a strategy that decides by answers its coroutine, from what reads them.
        closing: makes a model's markers those of a cut that is worded otherwise, from its tokenizer and markers.
        effort: the effort that the chat template is given, by the family's name for it.
        purpose: its part in reports and servers, if any; no two strategies have the same.
        rules: conditions on the counts of its rows, checked before a row is stored, and when a report reads the table.
    """

    decode: Decode
    expected_budget: Callable[[Budget], str | None] = lambda budget: None
    instruction: Callable[[Budget], str] = lambda budget: ""
    roles: tuple[str, ...] = ("policy",)
    prolongs: bool = False
    shares: bool = True
    thinks: bool = True
    translates: bool = False
    max_forced_tokens: Callable[[Markers], int] = lambda markers: 0
    reads: Callable[[AnswerOf], Decode] | None = None
    closing: Callable[[Any, Markers], Markers] | None = field(default=None, compare=False)
    effort: str | None = None
    purpose: Purpose | None = None
    rules: Rules = field(default_factory=dict, compare=False)  # Expressions have no truth value, nor a hash.

    def reading(self, answer_of: AnswerOf) -> Strategy:
        """Itself, with a coroutine that can read answers where it has to."""
        return self if self.reads is None else replace(self, decode=self.reads(answer_of))

    def markers(self, tokenizer: Any, markers: Markers) -> Markers:
        """The markers that its coroutine takes, of a model's."""
        return markers if self.closing is None else self.closing(tokenizer, markers)

    def prompt(self, question: str, budget: Budget) -> str:
        """The user's message."""
        instruction = self.instruction(budget)
        return f"{question} {instruction}" if instruction else question


# Rules that the counts of a strategy's rows obey, each under the words that say it. An unlimited budget is null: a
# comparison with it is null, which breaks no rule.

_T, _S = pl.col("think_budget"), pl.col("solution_budget")
T_AND_S = _T + _S
_THINK, _SOLUTION = pl.col("think_tokens"), pl.col("solution_tokens")
_FORCED, _FINISH = pl.col("forced_tokens"), pl.col("think_finish")
_AT_T = _THINK == _T

KEEPS_PHASES: Rules = {"the thinking keeps t": _THINK <= _T, "the solution keeps s": _SOLUTION <= _S}
FORCED_AT_T = KEEPS_PHASES | {"a thought is forced exactly at t": (_FINISH != ThinkFinish.FORCED) | _AT_T}
CLOSES_ONCE = FORCED_AT_T | {
    "a closed thought needs no forced token, but to complete a mark at t": (_FINISH != ThinkFinish.CLOSED)
    | (_FORCED == 0)
    | _AT_T.fill_null(False)
}
CLOSES_ALL = CLOSES_ONCE | {
    "with think-end forced, all of s is there": (_FINISH == ThinkFinish.CLOSED) | (_FORCED >= 1)
}
FORCES_NOTHING: Rules = {"no token is forced": (_FORCED == 0) & (_FINISH != ThinkFinish.FORCED)}


def keeps_total(limit: pl.Expr | int = T_AND_S, words: str = "t + s") -> Rules:
    """At most `limit` sampled tokens in both phases, and nothing forced."""
    return FORCES_NOTHING | {f"both phases keep {words}": (_THINK + _SOLUTION).le(limit)}


@dataclass
class Draft:
    """A response under construction, which remembers where each token came from."""

    prompt_ids: tuple[int, ...]
    with_logprobs: bool
    tokens: list[int] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    turns: list[tuple[int, str]] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)

    @property
    def prefix(self) -> tuple[int, ...]:
        return self.prompt_ids + tuple(self.tokens)

    def sampled(self, completion: Completion) -> None:
        self.tokens += completion.tokens
        self.forced += [False] * len(completion.tokens)
        if self.with_logprobs:
            assert completion.logprobs is not None, "the engine returned no log-probabilities"
            self.logprobs += completion.logprobs

    def drop_last(self, count: int = 1) -> None:
        """Take the last tokens out of the response; that they were drawn is remembered of those that were sampled."""
        keep = len(self.tokens) - count
        self.dropped += [
            (keep, token) for token, forced in zip(self.tokens[keep:], self.forced[keep:], strict=True) if not forced
        ]
        del self.tokens[keep:], self.forced[keep:], self.logprobs[keep:]

    def turn(self, role: str) -> None:
        """Record that a role samples from here on."""
        self.turns.append((len(self.tokens), role))

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
            tuple(self.dropped),
            tuple(self.turns),
            tuple(self.probes),
        )

    def solution_start(self, markers: Markers) -> int:
        """Index of the solution's first token once the thought has ended: the last token of a call that ended it, else
        the next one."""
        at = len(self.tokens)
        return at if not at or self.forced[-1] else at - markers.call_before(self.tokens, at)

    def fork(self) -> Draft:
        """Copy the draft, so that either can go on."""
        lists: dict[str, Any] = {name: list(value) for name, value in vars(self).items() if isinstance(value, list)}
        return replace(self, **lists)


def think(
    draft: Draft, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, ThinkFinish]:
    """Sample a thought of at most `limit` tokens. A think-end of the model's stays, and is completed where the limit
    cuts it; its end-of-text is removed. The caller forces the missing tokens."""
    begin = len(draft.tokens)
    if finish := (yield from think_on(draft, begin, limit, markers, sampling)):
        return finish
    rest = markers.rest_of_end(draft.tokens[begin:])
    draft.force(rest)
    return ThinkFinish.CLOSED if rest else ThinkFinish.FORCED


def thinking(draft: Draft, limit: int | None, markers: Markers, sampling: Sampling) -> Generate:
    """The request that goes on with a thought."""
    return Generate(draft.prefix, limit, (*markers.stop, *markers.end_of_text), sampling, "thinker")


def think_on(
    draft: Draft, begin: int, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, ThinkFinish | None]:
    """Go on with a thought that began after `begin` tokens, by at most `limit`; how the model ended it, or None."""
    left = limit
    while left != 0:
        thought = yield thinking(draft, left, markers, sampling)
        draft.sampled(thought)
        # The last token of an end may stand for itself as well: then the thought goes on.
        if markers.end(draft.tokens, begin) is not None:
            return ThinkFinish.CLOSED
        if thought.tokens and thought.tokens[-1] in markers.end_of_text:
            draft.drop_last()
            return ThinkFinish.END_OF_TEXT
        if thought.finish is Finish.LENGTH:
            break
        left = None if left is None else left - len(thought.tokens)
    return None


def closed_early(
    draft: Draft, finish: ThinkFinish, limit: int | None, markers: Markers, sampling: Sampling
) -> Generator[Generate, Completion, ThinkFinish]:
    """Cut a thought that has ended under `limit` at the first place of the window of a soft closing where think-end is
    among the most probable tokens; how it ended then.

    The request is for such a place in the thought that there is (`Generate.near`): the completion is, of the last
    `max_tokens` tokens of the prefix, those before the first one in whose place `stop[0]` is among the `near` most
    probable tokens; finish STOP there, LENGTH without one. What the model draws after that place depends on nothing
    before it that the cut does not keep, so the thought is distributed as if it had been closed while it was drawn.
    """
    if markers.soft is None or not limit:
        return finish
    # In the place of an end-of-text think-end may have been written too.
    ended = (draft.dropped[-1][1],) if finish is ThinkFinish.END_OF_TEXT else ()
    begin = markers.soft_begin(draft.tokens, limit)
    most = len(draft.tokens) + len(ended) - begin
    if most <= 0:
        return finish
    prefix, near = draft.prefix + ended, markers.soft.most
    kept = yield Generate(prefix, most, markers.close[:1], sampling, "thinker", aside=True, near=near)
    if kept.finish is not Finish.STOP:
        return finish
    end = begin + len(kept.tokens)
    del draft.tokens[end:], draft.forced[end:], draft.logprobs[end:]
    draft.dropped = [(at, token) for at, token in draft.dropped if at < end]
    return ThinkFinish.FORCED


def solve(
    draft: Draft, limit: int | None, markers: Markers, sampling: Sampling, meanwhile: Generate | None = None
) -> Generator[Generate, Completion, SolutionFinish]:
    """Sample a solution of at most `limit` tokens, with the first one of a call that ended the thought, up to
    end-of-text; aside where the thought may go on `meanwhile`."""
    aside = meanwhile is not None
    limit = None if limit is None else limit - len(draft.tokens) + draft.solution_start(markers)
    if limit == 0:
        return SolutionFinish.LENGTH
    answer = yield Generate(draft.prefix, limit, markers.end_of_text, sampling, "solver", 0, None, aside, meanwhile)
    draft.sampled(answer)
    stopped = bool(answer.tokens) and answer.tokens[-1] in markers.end_of_text
    return SolutionFinish.STOP if stopped else SolutionFinish.LENGTH
