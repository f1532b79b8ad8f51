"""Strategies of a model behind a chat API. No token ids go in or come out, so nothing can be written into a response:
the server cuts it after a number of tokens, or takes a level of effort (`reasoning_effort`). Its usage is the cost.

The coroutines are those of `elastic_core.strategies.base`, with other requests and replies; the same driver runs both.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from elastic_core.budget import Budget
from elastic_core.strategies.base import Finish, Sampling, Strategy
from elastic_core.strategies.single_pass import UNCONSTRAINED, VANILLA
from elastic_core.strategies.variants import BARE, split_variant
from elastic_core.trajectory import SolutionFinish, ThinkFinish

EFFORT = "effort"  # All levels together, in a sweep's settings.


@dataclass(frozen=True)
class ChatRequest:
    """Answer a user's message in at most `max_tokens` tokens (None: the server's limit), at a level of effort that
    the server knows (None: its default). `role` is as of `Generate`."""

    question: str
    max_tokens: int | None
    sampling: Sampling
    effort: str | None = None
    role: str = "policy"
    near: ClassVar[int] = 0  # As of `Generate`: nothing can be written into a response.


@dataclass(frozen=True)
class Reply:
    """A response, with the tokens of the server's usage."""

    thinking: str  # as far as the server shows it
    solution: str | None  # None when none was begun
    prompt_tokens: int
    sampled: int
    think_tokens: int | None  # among `sampled`; None where the server does not count them apart
    finish: Finish

    @property
    def tokens(self) -> range:
        """Stands for the sampled tokens; the server does not show their ids."""
        return range(self.sampled)


@dataclass(frozen=True)
class ChatTrajectory:
    """A reply as a row has it. Tokens that the server does not count apart are the solution's."""

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


def _in_text(like: Strategy, effort: str | None = None) -> Strategy:
    def decode(question: str, budget: Budget, markers: None, sampling: Sampling) -> ChatRun:
        reply = yield ChatRequest(question, budget.total, sampling, effort)
        stopped = reply.finish is Finish.STOP
        if reply.solution is None:
            cut = ThinkFinish.END_OF_TEXT if stopped else ThinkFinish.LENGTH
            return ChatTrajectory(reply, cut, SolutionFinish.NOT_APPLICABLE)
        thought = ThinkFinish.CLOSED if reply.think_tokens or reply.thinking else ThinkFinish.NOT_APPLICABLE
        return ChatTrajectory(reply, thought, SolutionFinish.STOP if stopped else SolutionFinish.LENGTH)

    return replace(like, decode=decode, shares=False)  # type: ignore[arg-type]


EFFORTS = {
    f"{EFFORT}_{level}": _in_text(replace(UNCONSTRAINED, thinks=False), level)
    for level in ("minimal", "low", "medium", "high")
}
"""By name; they run in `CHAT_STRATEGIES` only: the settings refuse them for other models."""
_COMMON = {"vanilla": VANILLA, "unconstrained": UNCONSTRAINED}


class _ChatStrategies(dict[str, Strategy]):
    """Those that have a name, and the common ones with an effort."""

    def __missing__(self, name: str) -> Strategy:
        base, closing, effort = split_variant(name)
        if base == name or base not in _COMMON or closing != BARE:
            raise KeyError(name)
        return _in_text(_COMMON[base], effort)

    def __contains__(self, name: object) -> bool:
        with suppress(KeyError):
            return isinstance(name, str) and bool(self[name])
        return False


CHAT_STRATEGIES: Mapping[str, Strategy] = _ChatStrategies(
    {**{name: _in_text(like) for name, like in _COMMON.items()}, **EFFORTS}
)
"""By name. A table knows strategies by their names, whether a chat API or a local engine ran them."""
