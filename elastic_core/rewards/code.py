"""Programs, graded by running them in the sandbox. What that covers, and what not: `elastic_core.rewards.sandbox`."""

from __future__ import annotations

import re
from typing import NamedTuple

from elastic_core.rewards.code_truth import CodeTruth
from elastic_core.rewards.grade import Grade, GradeStatus, solution_of
from elastic_core.rewards.runners import run
from elastic_core.rewards.sandbox import require_sandbox

_OPENING = re.compile(r"([ \t]*)(`{3,})([^`]*)")  # indentation, fence, language


class _Fence(NamedTuple):
    indent: int
    length: int
    first_line: int


def grade_code(response: str, truth: str) -> Grade:
    """Grade a response by the last complete code block after the last think-end. Safe to call from any thread.

    It is right when it passes every test; tests after the first failure are not run. `Grade.answer` is the program.

    Args:
        response: the model's whole text, think-end included as text; without one there is no credit.
        truth: an encoded `CodeTruth`.

    Raises:
        ValueError: when the truth is not one.
        UserError: when there is no sandbox on this machine; nothing is ever run without.
    """
    solution = solution_of(response)
    if solution is None:
        return Grade(0.0, GradeStatus.TRUNCATED, None)
    program = extract_code(solution)
    if program is None:
        return Grade(0.0, GradeStatus.NO_ANSWER, None)
    decoded = CodeTruth.decode(truth)
    require_sandbox()
    status = run(program, decoded)
    return Grade(float(status is GradeStatus.CORRECT), status, program)


def extract_code(solution: str) -> str | None:
    """Content of the last complete fenced block, whatever its language; None when there is none.

    A fence is three or more backticks. One that names a language opens a block even within one, which was then never
    closed and does not count. The closing fence may follow code on its line. A block's indentation is removed.
    """
    lines = solution.split("\n")
    fence: _Fence | None = None
    code = None
    for number, line in enumerate(lines):
        opening = _OPENING.fullmatch(line.rstrip())
        if opening and (fence is None or opening[3]):
            fence = _Fence(len(opening[1]), len(opening[2]), number + 1)
        elif fence and (before := _before_closing(line, fence)) is not None:
            code = "\n".join(_dedent(text, fence.indent) for text in [*lines[fence.first_line : number], *before])
            fence = None
    return code


def _before_closing(line: str, fence: _Fence) -> list[str] | None:
    """Code before the closing fence on its line, as no line or one; None when the line closes nothing."""
    text = line.rstrip()
    before = text.rstrip("`")
    if len(text) - len(before) < fence.length:
        return None
    return [before] if before.strip() else []


def _dedent(line: str, indent: int) -> str:
    return line[min(indent, len(line) - len(line.lstrip(" \t"))) :]
