"""Thinking that ends when its answers agree: the thought is probed at rungs, and goes on until a rule is satisfied or
its budget is spent (Dynasor-CoT: Fu et al. 2024, arXiv 2412.20993; DEER: Yang et al. 2025, arXiv 2504.15895).

At each rung the thought is closed as `separate` closes it, and a solution is drawn. Where the rule is satisfied that is
the response, the one that `separate` would have given at that budget. Else the thought goes on as if nothing had been
drawn. So in a sweep with `separate` at the rungs, the memo has every draw already.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from math import exp

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers
from elastic_core.stop_rule import StopRule
from elastic_core.strategies.base import (
    KEEPS_PHASES,
    AnswerOf,
    Completion,
    Decode,
    Draft,
    Generate,
    Sampling,
    Strategy,
    StrategyRun,
    solve,
    think_on,
    thinking,
)
from elastic_core.strategies.budget_forcing import exhausted
from elastic_core.strategies.separate import SEPARATE, answer
from elastic_core.trajectory import Probe, ThinkFinish, Trajectory


def adaptive(given: StopRule | None = None) -> Strategy:
    """The strategy of a rule; without one that of two answers in a row, at every eighth of the thinking budget. Probes
    are charged apart (`Trajectory.probes`); the response keeps t and s."""

    def reads(answer_of: AnswerOf) -> Decode:
        def decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
            rule = given or _eighths(budget)
            sampling = replace(sampling, logprobs=sampling.logprobs or rule.sure is not None)
            draft = Draft(prompt_ids, sampling.logprobs)
            answers: list[str | None] = []
            for rung, further in _with_next(rule.rungs(budget.think), budget.think):
                finish = yield from think_on(draft, 0, rung - len(draft.tokens), markers, sampling)
                if finish is not None or len(draft.tokens) < rung:  # The context is full.
                    return (yield from answer(draft, finish, budget, markers, sampling))
                goes_on = thinking(draft, None if further is None else further - rung, markers, sampling)
                probe = yield from _probe(draft, rule, budget, markers, sampling, goes_on)
                answers.append(answer_of(probe))
                sure = None if probe.solution_logprob is None else exp(probe.solution_logprob)
                stopped = rule.stops(rung, answers, sure)
                if stopped and rule.probe is None:
                    return replace(probe, stopped=stopped).check(budget)
                draft.probes.append(_aside(draft, probe))
                if stopped:
                    return replace((yield from answer(draft, None, budget, markers, sampling)), stopped=stopped)
            left = None if budget.think is None else budget.think - len(draft.tokens)
            finish = yield from think_on(draft, 0, left, markers, sampling)
            return (yield from answer(draft, finish, budget, markers, sampling))

        return decode

    def max_forced_tokens(markers: Markers) -> int:
        if given is None or given.probe is None:
            return markers.max_forced
        return markers.max_forced + len(markers.final_answer_after) + len(markers.final_answer_before) + given.probe

    def expected_budget(budget: Budget) -> str | None:
        runs = given is not None or budget.think is not None
        return None if runs else "a limited thinking budget, whose eighths are its rungs"

    return replace(
        SEPARATE,
        decode=reads(_solution),
        expected_budget=expected_budget,
        max_forced_tokens=max_forced_tokens,
        reads=reads,
        rules=KEEPS_PHASES,
    )


def _solution(trajectory: Trajectory) -> str:
    """Stands for the answer where it is not read."""
    return str(trajectory.response_ids[trajectory.solution_start :])


def _eighths(budget: Budget) -> StopRule:
    assert budget.think is not None, "refused by the grid"
    return StopRule(agree=2, at=tuple(sorted({max(1, budget.think * part // 8) for part in range(1, 8)})))


def _with_next(rungs: Iterator[int], limit: int | None) -> Iterator[tuple[int, int | None]]:
    """Each rung, and how far the thought goes if it goes on; rungs may have no end."""
    rung = next(rungs, None)
    while rung is not None:
        further = next(rungs, None)
        yield rung, limit if further is None else further
        rung = further


def _probe(
    draft: Draft, rule: StopRule, budget: Budget, markers: Markers, sampling: Sampling, meanwhile: Generate
) -> Generator[Generate, Completion, Trajectory]:
    """The response if the thought ended here."""
    fork = draft.fork()
    if rule.probe is None:
        return (yield from answer(fork, None, budget, markers, sampling, meanwhile))
    rest = markers.rest_of_end(draft.tokens)
    fork.force(rest or exhausted(draft.tokens, markers))
    start = len(fork.tokens)
    fork.force(() if rest else markers.final_answer_after)
    solution = yield from solve(fork, rule.probe, markers, sampling, meanwhile)
    return fork.finish(start, ThinkFinish.FORCED, solution)


def _aside(draft: Draft, probe: Trajectory) -> Probe:
    at = len(draft.tokens)
    forced = next((i for i, ours in enumerate(probe.forced[at:]) if not ours), len(probe.forced) - at)
    return Probe(at, forced, probe.response_ids[at:])
