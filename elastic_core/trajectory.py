"""A strategy's result, and the table of rows every later stage reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import polars as pl

from elastic_core.budget import Budget

NAVIGATOR = "navigator"
"""The role that plans and lets the solver work."""
TRANSLATED = "translated_navigator"
"""Stands for it in the turns of a row whose navigator has another tokenizer than the solver: it drew the same text in
other tokens."""


class ThinkFinish(StrEnum):
    """How the thinking ended."""

    # The model wrote think-end, or had begun one of several tokens when the budget was spent, and we wrote the rest; or
    # it came to the end of its plan.
    CLOSED = "closed"
    FORCED = "forced"  # the budget was spent, or a stop rule was satisfied, and we wrote it
    END_OF_TEXT = "end_of_text"  # the model stopped altogether inside its thought
    LENGTH = "length"  # cut by the total limit and never closed (vanilla truncation)
    NOT_APPLICABLE = "not_applicable"  # the strategy has no thinking phase


class SolutionFinish(StrEnum):
    """How the solution ended."""

    STOP = "stop"  # the model wrote end-of-text
    LENGTH = "length"  # the budget was spent
    NOT_APPLICABLE = "not_applicable"  # no solution was begun


class BudgetExceeded(RuntimeError):
    """More tokens were sampled than the budget allows: a defect of a strategy or an engine, never of the input."""


class Probe(NamedTuple):
    """An answer that was drawn on the way and not given, since the thought went on: after the first `at` tokens of the
    response `ids`, of which we wrote the first `forced`."""

    at: int
    forced: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Trajectory:
    """One response, token by token.

    Attributes:
        forced: one flag per response token, True where we wrote it.
        solution_start: index into response_ids of the first solution token; None when no solution was begun.
        logprobs: one per response token (0.0 where forced), or None when they were not requested.
        dropped: sampled tokens that the strategy took out again, such as end-of-text inside a thought: (index into
            response_ids that it was sampled at, token). They count in no phase.
        turns: where roles take turns within a phase, (index into response_ids, role) of each turn's first token.
        probes: answers that a stop rule looked at before the one that is given; in no phase and no budget, but a cost.
        stopped: why a stop rule ended the thought, a `Stop`; None where it did not.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    forced: tuple[bool, ...]
    solution_start: int | None
    think_finish: ThinkFinish
    solution_finish: SolutionFinish
    logprobs: tuple[float, ...] | None = None
    dropped: tuple[tuple[int, int], ...] = ()
    turns: tuple[tuple[int, str], ...] = ()
    probes: tuple[Probe, ...] = ()
    stopped: str | None = None

    def __post_init__(self) -> None:
        assert len(self.forced) == len(self.response_ids)
        assert self.logprobs is None or len(self.logprobs) == len(self.response_ids)

    @property
    def think_tokens(self) -> int:
        """Sampled tokens before the solution, the model's think-end included."""
        return _sampled(self.forced[: self.solution_start])

    @property
    def solution_tokens(self) -> int:
        """Sampled tokens of the solution, end-of-text included."""
        return 0 if self.solution_start is None else _sampled(self.forced[self.solution_start :])

    @property
    def navigator_tokens(self) -> int:
        """Sampled tokens of the navigator's turns, a part of the thinking; in the solver's tokens, as all counts."""
        ends = [at for at, _ in self.turns[1:]] + [len(self.forced)]
        turns = zip(self.turns, ends, strict=True)
        return sum(_sampled(self.forced[at:end]) for (at, role), end in turns if role in (NAVIGATOR, TRANSLATED))

    @property
    def solution_logprob(self) -> float | None:
        """Mean log-probability of the solution's sampled tokens; None where there are none, or it was not requested."""
        if self.logprobs is None or self.solution_start is None:
            return None
        flags = zip(self.logprobs[self.solution_start :], self.forced[self.solution_start :], strict=True)
        drawn = [logprob for logprob, forced in flags if not forced]
        return sum(drawn) / len(drawn) if drawn else None

    @property
    def forced_tokens(self) -> int:
        return sum(self.forced)

    @property
    def is_truncated(self) -> bool:
        """Whether a limit ended the response and not the model. A thought that was cut and then closed by us is
        followed by a solution, and the end of that counts."""
        return self.solution_finish is SolutionFinish.LENGTH or self.think_finish is ThinkFinish.LENGTH

    def loss_mask(self, *, forced_end: bool = False, truncated: bool = True) -> list[int]:
        """1 for each response token that enters the loss: its policy, KL and entropy terms, and the count of its mean.

        The policy does not choose forced tokens: they are left out. The published script of Elastic Reasoning trains
        on a forced think-end: where a forced thought leads to a right answer, the policy then learns to write it there.

        Args:
            forced_end: train on the forced tokens too.
            truncated: train on responses that a limit ended too. The reward of one that is left out stays among its
                group's (overlong filtering: DAPO, Yu et al. 2025, section 3.4; DeepCoder).
        """
        if not truncated and self.is_truncated:
            return [0] * len(self.forced)
        return [int(forced_end or not forced) for forced in self.forced]

    def as_published(self, end_of_text: int) -> Trajectory:
        """The row that the published script of Elastic Reasoning trains on. It fills up rows with end-of-text, and its
        mask has all tokens up to the first one: a solution that was cut is trained on with an end that was not sampled;
        a thought in which the model ended its text is trained on with that end, and has no solution."""
        stopped = self.think_finish is ThinkFinish.END_OF_TEXT
        if not stopped and self.solution_finish is not SolutionFinish.LENGTH:
            return self
        end = self.dropped[0][0] if stopped else len(self.response_ids)
        return replace(
            self,
            response_ids=(*self.response_ids[:end], end_of_text),
            forced=(*self.forced[:end], True),
            solution_start=None if stopped else self.solution_start,
            solution_finish=SolutionFinish.NOT_APPLICABLE if stopped else self.solution_finish,
            logprobs=None if self.logprobs is None else (*self.logprobs[:end], 0.0),
        )

    def check(self, budget: Budget) -> Trajectory:
        """Itself; raises BudgetExceeded unless it kept the budget phase by phase."""
        for phase, used, limit in (
            ("thinking", self.think_tokens, budget.think),
            ("solution", self.solution_tokens, budget.solution),
        ):
            if limit is not None and used > limit:
                raise BudgetExceeded(f"{used} sampled {phase} tokens under a budget of {budget}")
        return self

    def check_total(self, limit: int | None) -> Trajectory:
        """Itself; raises BudgetExceeded unless both phases together kept a limit in tokens."""
        if limit is not None and (sampled := _sampled(self.forced)) > limit:
            raise BudgetExceeded(f"{sampled} sampled tokens, at most {limit} asked")
        return self


def _sampled(forced: tuple[bool, ...]) -> int:
    return len(forced) - sum(forced)


KEY = ("model", "benchmark", "problem", "sample", "strategy", "think_budget", "solution_budget")
"""What identifies a row. A null budget is unlimited."""

CELL = tuple(name for name in KEY if name not in ("problem", "sample"))
"""What identifies a cell, a point of a curve."""

BUDGET = ("think_budget", "solution_budget")
"""The part of it that a strategy runs under."""

SCHEMA = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "problem": pl.String(),
        "sample": pl.Int32(),
        "strategy": pl.String(),
        "think_budget": pl.Int32(),
        "solution_budget": pl.Int32(),
        "prompt_tokens": pl.Int32(),
        "think_tokens": pl.Int32(),
        "forced_tokens": pl.Int32(),
        "solution_tokens": pl.Int32(),
        "navigator_tokens": pl.Int32(),  # the navigator's part of think_tokens; 0 where a strategy has none
        "think_finish": pl.String(),
        "solution_finish": pl.String(),
        "answer": pl.String(),  # null when none could be read
        "score": pl.Float64(),  # in [0, 1]
        # Mean log-probability of the solution's sampled tokens; null where it was not requested.
        "solution_logprob": pl.Float64(),
        "grade_status": pl.String(),
        # 0 or 1 by the rules of the authors' programs, `elastic_core.rewards.as_published`; null where not graded so.
        "published_score": pl.Float64(),
        "thinking": pl.String(),
        "solution": pl.String(),
        "response_ids": pl.List(pl.UInt32()),  # null behind a chat API; its counts are the server's
        "forced": pl.List(pl.Boolean()),
        # Sampled tokens that are not in the response: without them the memo could not be rebuilt from the table.
        "dropped": pl.List(pl.Struct({"at": pl.UInt32(), "id": pl.UInt32()})),
        # Answers that a stop rule read on the way: drawn and paid, and not in the response. Null: none.
        "probes": pl.List(pl.Struct({"at": pl.UInt32(), "forced": pl.UInt32(), "ids": pl.List(pl.UInt32())})),
        # The role that samples from each index on, where roles take turns within a phase.
        "turns": pl.List(pl.Struct({"at": pl.UInt32(), "role": pl.String()})),
        "seed": pl.Int64(),  # of the run; a request's seed is derived from it, see elastic_core.engines.base
        "engine_fingerprint": pl.String(),
        "model_fingerprint": pl.String(),
    }
)
"""The trajectory table: one row per (model, benchmark, problem, sample, strategy, think_budget, solution_budget)."""
