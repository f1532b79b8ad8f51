"""Programs, graded by running them in the sandbox. What that covers, and what not: `sandbox`."""

from __future__ import annotations

import re
from typing import NamedTuple

from elastic_core.rewards.code.runners import run
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.rewards.grade import Grade, GradeStatus
from elastic_core.rewards.truth import CodeTruth

_OPENING = re.compile(r"([ \t]*)(`{3,})([^`]*)")  # indentation, fence, language


class _Fence(NamedTuple):
    indent: int
    length: int
    first_line: int


def grade_code(solution: str, truth: str) -> Grade:
    """Grade a solution by its last complete code block. Safe to call from any thread.

    It is right when it passes every test; tests after the first failure are not run. `Grade.answer` is the program.

    Raises:
        ValueError: when the truth is no encoded `CodeTruth`.
        UserError: when there is no sandbox on this machine; nothing is ever run without.
    """
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
