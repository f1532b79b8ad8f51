"""How the miniature writes: thoughts in three styles, and solutions that can pick up an unfinished thought.

A verbose thought spends 13 tokens on an operation, a medium one 8, a concise one 4:

    Okay, let me compute this step by step. we have 36, first 36+6=42. we have 42, then 42-4=38. So the answer is 38.
    Let me compute. first 36+6=42. then 42-4=38.
    36+6=42-4=38.

A solution comes in three kinds, of which only the first needs a finished thought:

    direct      \\nFinal Answer:\\boxed{38}
    continued   from 36+6=42-4=38\\nFinal Answer:\\boxed{38}     restates the last operation thought about, then goes on
    derived     36+6=42-4=38\\nFinal Answer:\\boxed{38}

Everything is text whose pieces are tokens (see `tokenizer.py`), so lengths here are lengths in tokens.
"""

import random
from dataclasses import dataclass
from typing import Literal

from elastic_core.miniature.problems import Problem
from elastic_core.miniature.tokenizer import BOXED, END_BOXED, FINAL_ANSWER, NEWLINE

Style = Literal["verbose", "medium", "concise"]
SolutionKind = Literal["direct", "continued", "derived"]

OPENING: dict[Style, str] = {
    "verbose": "Okay, let me compute this step by step.",
    "medium": "Let me compute.",
    "concise": "",
}
RECHECK = f"{NEWLINE}Wait, let me check this again."


@dataclass(frozen=True)
class Segment:
    """A stretch of a thought."""

    text: str
    operations_done: int
    """Operations of the first pass whose result stands written once this segment is complete."""


def thought(problem: Problem, style: Style, num_rechecks: int) -> list[Segment]:
    """A complete thought. Only verbose and medium thoughts re-check; a re-check repeats the chain in medium style."""
    num = len(problem.operations)
    segments = [Segment(OPENING[style], 0)] if OPENING[style] else []
    if style == "concise":
        segments.append(Segment(str(problem.totals[0]), 0))
        segments += [Segment(step, i + 1) for i, step in enumerate(_concise_steps(problem))]
        return [*segments, Segment(".", num)]
    segments += _spelled_steps(problem, verbose=style == "verbose")
    for _ in range(num_rechecks):
        segments.append(Segment(RECHECK, num))
        segments += [Segment(s.text, num) for s in _spelled_steps(problem, verbose=False)]
    if style == "verbose":
        segments.append(Segment(f" So the answer is {problem.answer}.", num))
    return segments


def _spelled_steps(problem: Problem, verbose: bool) -> list[Segment]:
    segments = []
    for i, operation in enumerate(problem.operations):
        before, after = problem.totals[i], problem.totals[i + 1]
        lead = f" we have {before}," if verbose else ""
        word = " first " if i == 0 else " then "
        segments.append(Segment(f"{lead}{word}{before}{operation}={after}", i + 1))
        segments.append(Segment(".", i + 1))
    return segments


def _concise_steps(problem: Problem, start: int = 0) -> list[str]:
    pairs = zip(problem.operations, problem.totals[1:], strict=True)
    return [f"{operation}={total}" for operation, total in pairs][start:]


def solution(problem: Problem, kind: SolutionKind, operations_mentioned: int) -> str:
    """The text after `</think>`, without the end-of-text token.

    Args:
        operations_mentioned: operations written in the thought's current pass, the last possibly without its result.
            A continued solution restates that last one; where none was mentioned it derives everything.
    """
    body = ""
    if kind == "derived" or (kind == "continued" and operations_mentioned == 0):
        body = str(problem.totals[0]) + "".join(_concise_steps(problem))
    elif kind == "continued":
        start = operations_mentioned - 1
        body = f"from {problem.totals[start]}" + "".join(_concise_steps(problem, start))
    return f"{body}{NEWLINE}{FINAL_ANSWER}{BOXED}{problem.answer}{END_BOXED}"


def draw_rechecks(rng: random.Random, style: Style, weights: tuple[float, float, float]) -> int:
    """How often a thought re-checks itself: 0, 1 or 2 times by `weights` if verbose, 30 % once if medium."""
    if style == "verbose":
        return rng.choices((0, 1, 2), weights)[0]
    return int(style == "medium" and rng.random() < 0.3)
