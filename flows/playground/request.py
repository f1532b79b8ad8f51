"""What a visitor asked for, read from the page's fields: everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.errors import UserError
from elastic_core.rewards.truth import MathTruth
from flows.playground.choices import STRATEGY_NAMES
from flows.playground.parameters import PlaygroundParameters

TYPED = "typed"
"""Benchmark of a problem that was typed."""
MAX_SAMPLE = 2**31 - 1
_MAX_TOKENS = 2**24


@dataclass(frozen=True)
class PageRequest:
    """One run of the page. A problem without a truth is not graded."""

    model: str
    problem: Problem
    strategies: tuple[str, ...]
    budget: Budget
    sample: int

    @property
    def graded(self) -> bool:
        return bool(self.problem.truth)


def read_budget(think: Any, think_unlimited: Any, solution: Any, solution_unlimited: Any) -> Budget:
    """Raises UserError on what is no number of tokens."""
    t = None if think_unlimited else _tokens(think, "the thinking budget t", least=0)
    return Budget(t, None if solution_unlimited else _tokens(solution, "the solution budget s", least=1))


def read_strategies(names: Any) -> tuple[str, ...]:
    """In the order of the page.

    Raises:
        UserError: on none, or an unknown one.
    """
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise UserError("no strategy is chosen; choose at least one")
    for name in names:
        if name not in STRATEGY_NAMES:
            raise UserError(f'no strategy "{str(name)[:40]}"; expected {", ".join(STRATEGY_NAMES)}')
    return tuple(name for name in STRATEGY_NAMES if name in names)


def read_problem(question: Any, reference: Any, taken: Problem | None, parameters: PlaygroundParameters) -> Problem:
    """The problem that was taken, as long as nobody changed it; else what was typed, a reference read as mathematics.

    Raises:
        UserError: when it is empty or too long.
    """
    question = str(question or "")
    reference = kept_reference(question, reference, taken)
    if taken is not None and question == taken.question and reference == shown_reference(taken):
        return taken
    if not question.strip():
        raise UserError("there is no problem yet; type one, or take one from a benchmark")
    for name, text, most in (
        ("problem", question, parameters.max_question),
        ("reference answer", reference, parameters.max_reference),
    ):
        if len(text) > most:
            raise UserError(f"the {name} has {len(text):,} characters; expected at most {most:,}")
    truth = MathTruth((reference,)).encode() if reference else ""
    return Problem(TYPED, question, question, truth, "math")


def read_sample(number: Any) -> int:
    """Raises UserError when it is no whole number from 0 up."""
    return _whole(number, "the sample", least=0, most=MAX_SAMPLE)


def taken_problem(problems: Sequence[Problem], number: Any) -> Problem:
    """The problem of a benchmark by its place, counted from 1.

    Raises:
        UserError: when there is none.
    """
    return problems[_whole(number, "the problem's number", least=1, most=len(problems)) - 1]


def shown_reference(problem: Problem) -> str:
    """What the page shows as the reference answer of a problem it has taken; tests of programs are too long."""
    return "" if problem.grader == "code" else problem.truth


def kept_reference(question: Any, reference: Any, taken: Problem | None) -> str:
    """The reference answer that is there, unless it belongs to the problem that was taken and changed since."""
    reference = str(reference or "").strip()
    stale = taken is not None and question != taken.question and reference == shown_reference(taken)
    return "" if stale else reference


def _tokens(value: Any, name: str, least: int) -> int:
    return _whole(value, name, least=least, most=_MAX_TOKENS, unit=" tokens")


def _whole(value: Any, name: str, *, least: int, most: int, unit: str = "") -> int:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or number != number // 1 or not least <= number <= most:
        raise UserError(f"{name} is {value!r:.40}; expected a whole number of {least:,} to {most:,}{unit}")
    return int(number)
