"""A run as HTML, and its style (view.css). The template (view.html.j2) escapes every value; fonts are the system's.

A colour has one meaning: thinking, solution, forced, right, wrong. They are Okabe and Ito's, which colour-blind readers
tell apart; the last two are darker, to be read below white. All else, the budget's cut among it, has the text's colour.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Template

from elastic_core.rewards import GradeStatus
from flows.commands.answer import TYPED, Attempt
from flows.commands.ask import CUT, by_phase, counts, finish, format_limit, phases
from flows.commands.playground.choices import strategy_label
from flows.commands.playground.session import Run

CSS = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
_HTML = Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8")
# Whitespace between elements would be shown.
_RUN = Template("".join(line.strip() for line in _HTML.splitlines()), autoescape=True)

_GRADES = {
    GradeStatus.CORRECT: "✓ correct",
    GradeStatus.WRONG: "✗ wrong",
    GradeStatus.NO_ANSWER: "✗ no answer could be read",
    GradeStatus.TRUNCATED: "✗ cut before the thinking ended",
    GradeStatus.TIMEOUT: "✗ took too long",
    GradeStatus.RUNTIME_ERROR: "✗ the program failed",
}
_LONGEST = 100  # Characters of a problem that are repeated above its answers.


def message(sentence: str, kind: str = "note") -> str:
    """A line instead of a result, or above it: "note", "warning" or "error"."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="pg-message pg-{kind}" role="{role}">{escape(sentence)}</div>'


def render(run: Run) -> str:
    """Every attempt side by side, its bar on the scale of the longest; of several models a line for each strategy."""
    if not run.loaded and all(attempt.state == "waiting" for attempt in run.attempts):
        names = " and ".join(run.models)
        return message(f"waiting for the engine of {names}; it takes half a minute to start")
    problem, question = run.problem, " ".join(run.problem.question.split())
    lengths = [len(attempt.trajectory.response_ids) for attempt in run.attempts if attempt.trajectory]
    scale = max(1, *lengths, *(_limit(attempt) or 0 for attempt in run.attempts))
    return _RUN.render(
        run=run,
        question=question if len(question) <= _LONGEST else f"{question[:_LONGEST]}…",
        name="your problem" if problem.benchmark == TYPED else f"{problem.benchmark} {problem.id}",
        cards=[_card(attempt, run) for attempt in run.attempts],
        scale=scale,
        cut=CUT,
        format_limit=format_limit,
    )


def _limit(attempt: Attempt) -> int | None:
    """The place of the first cut, in tokens."""
    return attempt.budget.think if by_phase(attempt) else attempt.budget.total


def _card(attempt: Attempt, run: Run) -> dict[str, Any]:
    name, trajectory, loaded = strategy_label(attempt.strategy), attempt.trajectory, run.loaded.get(attempt.model)
    card = {
        "attempt": attempt,
        "title": f"{attempt.model} · {name}" if len(run.models) > 1 else name,
        "badges": _badges(attempt),
    }
    if trajectory is None or loaded is None:
        waiting = "waiting" if loaded else f"waiting for the engine of {attempt.model}"
        return card | {"finish": attempt.sentence or waiting}
    start = len(trajectory.response_ids) if trajectory.solution_start is None else trajectory.solution_start
    origins = [
        "forced" if forced else "solution" if i >= start else "thinking" for i, forced in enumerate(trajectory.forced)
    ]
    thinking, solution = phases(attempt, trajectory, loaded)
    return card | {
        "bar": [(origin, len(list(part))) for origin, part in groupby(origins)],
        "limit": _limit(attempt),
        "counts": counts(attempt, trajectory),
        "texts": [("thought", thinking), *([] if trajectory.solution_start is None else [("answer", solution)])],
        "finish": finish(attempt, trajectory),
    }


def _badges(attempt: Attempt) -> list[tuple[str, str]]:
    """Classes and texts: right or wrong, how many tokens, forced or not."""
    trajectory = attempt.trajectory
    if attempt.state != "done" or trajectory is None:
        return [("", "did not run" if attempt.state == "failed" else "…")]
    verdict, shown = "", "not graded"
    if (grade := attempt.grade) is not None:
        verdict = "pg-right" if grade.status is GradeStatus.CORRECT else "pg-wrong"
        answer = f": {grade.answer[:80]}" if grade.answer else ""
        shown = f"{_GRADES.get(grade.status, grade.status)}{answer}"
    forced = ("pg-forced", "forced") if trajectory.forced_tokens else ("", "not forced")
    return [(f"pg-verdict {verdict}", shown), ("", f"{len(trajectory.response_ids)} tokens"), forced]
