"""A run as HTML, and how it looks. Everything that a model or a visitor wrote is escaped; fonts are the system's.

A colour has one meaning: thinking, solution, forced, right, wrong. They are Okabe and Ito's, which colour-blind readers
tell apart; the last two are darker, to be read below white. All else, the budget's cut among it, has the text's colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from elastic_core.rewards import GradeStatus
from elastic_core.trajectory import Trajectory
from flows.commands.answer import TYPED, Attempt, Loaded
from flows.commands.ask import CUT, Piece, by_phase, counts, finish, of, phases
from flows.commands.playground.choices import strategy_label
from flows.commands.playground.session import Run

CSS = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")

_GRADES = {
    GradeStatus.CORRECT: "✓ correct",
    GradeStatus.WRONG: "✗ wrong",
    GradeStatus.NO_ANSWER: "✗ no answer could be read",
    GradeStatus.TRUNCATED: "✗ cut before the thinking ended",
    GradeStatus.TIMEOUT: "✗ took too long",
    GradeStatus.RUNTIME_ERROR: "✗ the program failed",
}
_LONGEST = 100
"""Characters of a problem that are repeated above its answers."""


def message(sentence: str, kind: str = "note") -> str:
    """A line instead of a result: "note" or "error"."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="pg-message pg-{kind}" role="{role}">{escape(sentence)}</div>'


def render(run: Run, finished: bool) -> str:
    """Every attempt side by side, its bar on the scale of the longest; of several models a line for each strategy."""
    if not run.loaded and all(attempt.state == "waiting" for attempt in run.attempts):
        names = " and ".join(run.asked.models)
        return message(f"waiting for the engine of {names}; it takes half a minute to start")
    lengths = [len(attempt.trajectory.response_ids) for attempt in run.attempts if attempt.trajectory]
    scale = max(1, *lengths, *(_limit(attempt) or 0 for attempt in run.attempts))
    cards = "".join(_card(attempt, run, scale) for attempt in run.attempts)
    models = len(run.asked.models)
    pairs = f'class="pg-cards pg-pairs" style="--pg-models:{models}"' if models > 1 else 'class="pg-cards"'
    footer = ""
    if finished:
        reused = f", {run.reused:,} answered from the same thought" if run.reused else ""
        drawn = f"sample {run.asked.sample}: {run.generated:,} tokens drawn{reused}"
        footer = message(f"{drawn}. Move a slider to cut the same thought elsewhere.")
    return f"{_asked(run)}<div {pairs}>{cards}</div>{footer}"


def _asked(run: Run) -> str:
    """This run's problem and budget, as the fields may have changed since."""
    problem, question = run.asked.problem, " ".join(run.asked.problem.question.split())
    shown = question if len(question) <= _LONGEST else f"{question[:_LONGEST]}…"
    name = "your problem" if problem.benchmark == TYPED else f"{problem.benchmark} {problem.id}"
    settings = f"{name} · budget {run.asked.budget} · sample {run.asked.sample}"
    return f'<p class="pg-asked"><b>{escape(shown)}</b> <span class="pg-budget">{escape(settings)}</span></p>'


def _limit(attempt: Attempt) -> int | None:
    """Where the first cut falls, in tokens."""
    return attempt.budget.think if by_phase(attempt) else attempt.budget.total


def _card(attempt: Attempt, run: Run, scale: int) -> str:
    name = strategy_label(attempt.strategy)
    title = f"{attempt.model} · {name}" if len(run.asked.models) > 1 else name
    budget = f'<span class="pg-budget">{escape(str(attempt.budget))}</span>'
    head = f'<header><h3>{escape(title)}</h3>{budget}</header><div class="pg-badges">{_badges(attempt)}</div>'
    loaded = run.loaded.get(attempt.model)
    if attempt.trajectory is None or loaded is None:
        waiting = "waiting" if loaded else f"waiting for the engine of {attempt.model}"
        body = f'<p class="pg-finish">{escape(attempt.sentence or waiting)}</p>'
    else:
        parts = [_bar(attempt, attempt.trajectory, scale), _counts(attempt, attempt.trajectory)]
        parts.append(_text(attempt, attempt.trajectory, loaded))
        body = f'{"".join(parts)}<p class="pg-finish">{escape(finish(attempt, attempt.trajectory))}</p>'
    data = f'data-model="{escape(attempt.model)}" data-strategy="{escape(attempt.strategy)}"'
    return f'<section class="pg-card pg-{attempt.state}" {data}>{head}{body}</section>'


def _badges(attempt: Attempt) -> str:
    """Right or wrong, how many tokens, forced or not."""
    trajectory = attempt.trajectory
    if attempt.state != "done" or trajectory is None:
        return f'<span class="pg-badge">{"did not run" if attempt.state == "failed" else "…"}</span>'
    verdict, shown = "", "not graded"
    if (grade := attempt.grade) is not None:
        verdict = "pg-right" if grade.status is GradeStatus.CORRECT else "pg-wrong"
        answer = f": {grade.answer[:80]}" if grade.answer else ""
        shown = f"{_GRADES.get(grade.status, grade.status)}{answer}"
    forced = trajectory.forced_tokens
    return (
        f'<span class="pg-badge pg-verdict {verdict}">{escape(shown)}</span>'
        f'<span class="pg-badge">{len(trajectory.response_ids)} tokens</span>'
        f'<span class="pg-badge {"pg-forced" if forced else ""}">{"forced" if forced else "not forced"}</span>'
    )


def _bar(attempt: Attempt, trajectory: Trajectory, scale: int) -> str:
    """Tokens in their order, one colour for each phase and one for forced tokens, and a line where the budget cuts."""
    start = len(trajectory.response_ids) if trajectory.solution_start is None else trajectory.solution_start
    origins = [
        "forced" if forced else "solution" if i >= start else "thinking" for i, forced in enumerate(trajectory.forced)
    ]
    parts = "".join(
        f'<i class="pg-{origin}" style="width:{100 * len(list(part)) / scale:.3f}%"></i>'
        for origin, part in groupby(origins)
    )
    line, limit = "", _limit(attempt)
    if limit is not None:
        line = f'<b class="pg-limit" data-limit="{limit}" style="left:{100 * limit / scale:.3f}%"></b>'
    return f'<div class="pg-bar" role="img" aria-label="{len(origins)} tokens of {scale}">{parts}{line}</div>'


def _counts(attempt: Attempt, trajectory: Trajectory) -> str:
    shown = [
        f"<span>together {count}{of(limit)}</span>"
        if name == "together"
        else f'<span class="pg-key pg-{name}">{name} <b data-count="{name}">{count}</b>{of(limit)}</span>'
        for name, count, limit in counts(attempt, trajectory)
    ]
    return f'<p class="pg-counts">{"".join(shown)}</p>'


def _text(attempt: Attempt, trajectory: Trajectory, loaded: Loaded) -> str:
    """Thinking and solution below each other."""
    thinking, solution = map(_marked, phases(attempt, trajectory, loaded))
    answer = "" if trajectory.solution_start is None else f'<div class="pg-text pg-answer">{solution}</div>'
    return f'<div class="pg-text pg-thought">{thinking}</div>{answer}'


def _marked(found: Sequence[Piece | None]) -> str:
    parts = []
    for piece in found:
        if piece is None:
            parts.append(f'<span class="pg-cut">{CUT}</span>')
        else:
            text = escape(piece.text)
            parts.append(f'<mark title="forced">{text}</mark>' if piece.forced else text)
    return "".join(parts)
