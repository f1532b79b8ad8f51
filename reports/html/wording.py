"""What the page says for the names that a row has."""

from __future__ import annotations

from elastic_core.rewards.grade import GradeStatus
from elastic_core.trajectory import SolutionFinish, ThinkFinish

WORDING = {
    "think_finish": {
        ThinkFinish.CLOSED: "closed by the model",
        ThinkFinish.FORCED: "cut when its budget was spent",
        ThinkFinish.END_OF_TEXT: "the model stopped inside it",
        ThinkFinish.LENGTH: "cut by the limit of the whole response, and not closed",
        ThinkFinish.NOT_APPLICABLE: "the strategy has no thinking",
    },
    "solution_finish": {
        SolutionFinish.STOP: "ended by the model",
        SolutionFinish.LENGTH: "cut when its budget was spent",
        SolutionFinish.NOT_APPLICABLE: "none was begun",
    },
    "grade_status": {
        GradeStatus.CORRECT: "the answer is right",
        GradeStatus.WRONG: "an answer was read, and it is not right",
        GradeStatus.NO_ANSWER: "no answer could be read, or the model stopped before it began a solution",
        GradeStatus.TRUNCATED: "cut before the thought ended, so there is no solution to grade",
        GradeStatus.TIMEOUT: "the program, or the comparison of the answer, took longer than it may",
        GradeStatus.RUNTIME_ERROR: "the program failed",
        GradeStatus.SANDBOX_ERROR: "the grader failed, not the response",
    },
}
"""Column → value → explanation."""
