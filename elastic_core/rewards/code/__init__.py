"""Programs, graded by running them in the sandbox. What that covers, and what not: `sandbox`."""

from __future__ import annotations

from elastic_core.rewards.code.runners import run
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.rewards.extraction import extract_code
from elastic_core.rewards.grade import Grade, GradeStatus
from elastic_core.rewards.truth import CodeTruth


def grade_code(solution: str, truth: str) -> Grade:
    """Grade a solution by its last complete code block. Safe to call from any thread.

    It is right when it passes every test; tests after the first failure are not run. `Grade.answer` is the program.

    Raises:
        ValueError: when the truth is no encoded `CodeTruth`.
        GradingFailed: when the sandbox failed, not the program.
        UserError: when there is no sandbox on this machine; nothing is ever run without.
    """
    program = extract_code(solution)
    if program is None:
        return Grade(0.0, GradeStatus.NO_ANSWER, None)
    decoded = CodeTruth.decode(truth)
    require_sandbox()
    status = run(program, decoded)
    return Grade(float(status is GradeStatus.CORRECT), status, program)
