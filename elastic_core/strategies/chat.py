"""Strategies of a model behind a chat API. No token ids go in or come out, so nothing can be written into a response:
the server cuts it after a number of tokens, or takes a level of effort (`reasoning_effort`). Its usage is the cost.

The coroutines are those of `elastic_core.strategies.base`, with other requests and replies; the same driver runs both.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Finish, Sampling, Strategy, StrategyRun
from elastic_core.strategies.single_pass import UNCONSTRAINED, VANILLA
from elastic_core.trajectory import SolutionFinish, ThinkFinish

EFFORT = "effort"
"""What a sweep's settings call all levels together."""
STRATEGY = f"{EFFORT}_{{}}"
"""A level's strategy."""


def _without_chat(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    raise AssertionError("refused by the settings: effort is for models behind a chat API")


EFFORTS = {
    level: Strategy(_without_chat, UNCONSTRAINED.expected_budget, shares=False, thinks=False)
    for level in ("minimal", "low", "medium", "high")
}
"""By level; they run in `CHAT_STRATEGIES` only."""


@dataclass(frozen=True)
class ChatRequest:
    """Answer a user's message in at most `max_tokens` tokens (None: the server's own limit).

    Attributes:
        effort: a level that the server knows; None for its default.
        role: as of `Generate`.
    """

    question: str
    max_tokens: int | None
    sampling: Sampling
    effort: str | None = None
    role: str = "policy"


@dataclass(frozen=True)
class Reply:
    """A response.

    Attributes:
        thinking: as far as the server shows it.
        solution: None when none was begun.
        prompt_tokens, sampled: of the server's usage.
        think_tokens: its thinking tokens among `sampled`; None where the server does not count them apart.
    """

    thinking: str
    solution: str | None
    prompt_tokens: int
    sampled: int
    think_tokens: int | None
    finish: Finish

    @property
    def tokens(self) -> range:
        """As many as were sampled; the server does not show their ids."""
        return range(self.sampled)


@dataclass(frozen=True)
class ChatTrajectory:
    """A reply as a row has it. Tokens that the server does not count apart are the solution's."""

    reply: Reply
    think_finish: ThinkFinish
    solution_finish: SolutionFinish

    @property
    def forced(self) -> tuple[bool, ...]:
        """A flag for every sampled token; none is forced."""
        return (False,) * self.reply.sampled

    @property
    def think_tokens(self) -> int:
        return self.reply.think_tokens or 0


ChatRun = Generator[ChatRequest, Reply, ChatTrajectory]


def _reply(question: str, limit: int | None, sampling: Sampling, effort: str | None = None) -> ChatRun:
    reply = yield ChatRequest(question, limit, sampling, effort)
    stopped = reply.finish is Finish.STOP
    if reply.solution is None:
        cut = ThinkFinish.END_OF_TEXT if stopped else ThinkFinish.LENGTH
        return ChatTrajectory(reply, cut, SolutionFinish.NOT_APPLICABLE)
    thought = ThinkFinish.CLOSED if reply.think_tokens or reply.thinking else ThinkFinish.NOT_APPLICABLE
    return ChatTrajectory(reply, thought, SolutionFinish.STOP if stopped else SolutionFinish.LENGTH)


def _vanilla(question: str, budget: Budget, markers: None, sampling: Sampling) -> ChatRun:
    return (yield from _reply(question, budget.total, sampling))


def _effort(level: str | None) -> Strategy:
    def decode(question: str, budget: Budget, markers: None, sampling: Sampling) -> ChatRun:
        return (yield from _reply(question, None, sampling, level))

    like = UNCONSTRAINED if level is None else EFFORTS[level]
    return replace(like, decode=decode, shares=False)  # type: ignore[arg-type]


CHAT_STRATEGIES: Mapping[str, Strategy] = {
    "vanilla": replace(VANILLA, decode=_vanilla, shares=False),  # type: ignore[arg-type]
    "unconstrained": _effort(None),
    **{STRATEGY.format(level): _effort(level) for level in EFFORTS},
}
"""By name. A table knows strategies by their names, whether a chat API or a local engine ran them."""
