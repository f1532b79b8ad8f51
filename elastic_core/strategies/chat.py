"""Strategies of a model that is asked in text, through a chat API: no token ids go in or come out, so nothing can be
written into a response. The server cuts it at a number of tokens, or is told how much effort to take; what it cost is
what the server's usage says.

The coroutines are those of `elastic_core.strategies.base`, with other requests and replies: whoever drives the ones
drives the others.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from elastic_core.budget import Budget
from elastic_core.strategies.base import Finish, Sampling, Strategy
from elastic_core.strategies.effort import EFFORTS, STRATEGY
from elastic_core.strategies.single_pass import UNCONSTRAINED, VANILLA
from elastic_core.trajectory import SolutionFinish, ThinkFinish


@dataclass(frozen=True)
class ChatRequest:
    """Answer a user's message in at most `max_tokens` tokens (None: the server's own end).

    Attributes:
        effort: a level that the server knows; None leaves it to the server.
        role: as of `Generate`.
    """

    question: str
    max_tokens: int | None
    sampling: Sampling
    effort: str | None = None
    role: str = "policy"


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        thinking: as far as the server shows it.
        solution: None when none was begun.
        prompt_tokens, sampled: as its usage says.
        think_tokens: of those sampled, the ones that it says were thinking; None where it does not tell them apart.
    """

    thinking: str
    solution: str | None
    prompt_tokens: int
    sampled: int
    think_tokens: int | None
    finish: Finish

    @property
    def tokens(self) -> range:
        """So many that nobody shows."""
        return range(self.sampled)


@dataclass(frozen=True)
class ChatTrajectory:
    """A reply as a row has it. Tokens that the server does not tell apart count as the solution's.

    Attributes:
        forced: a flag for every sampled token: none was written by us.
    """

    reply: Reply
    think_finish: ThinkFinish
    solution_finish: SolutionFinish

    @property
    def forced(self) -> tuple[bool, ...]:
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
"""By name. Those of one name are one strategy to the table, whoever runs it."""
