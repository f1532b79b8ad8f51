"""A run as HTML, and how it looks. Everything that a model or a visitor wrote is escaped; fonts are the system's.

A colour has one meaning: thinking, solution, forced, right, wrong. They are Okabe and Ito's, which colour-blind readers
tell apart; the last two are darker, to be read below white. All else, the budget's cut among it, has the text's colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from elastic_core.rewards import GradeStatus
from elastic_core.trajectory import Trajectory
from flows.commands.answer import TYPED, Attempt, Loaded
from flows.commands.ask import CUT, Piece, by_phase, counts, finish, of, phases
from flows.commands.playground.choices import strategy_label
from flows.commands.playground.session import Run

CSS = """
:root { --pg-thinking: #56b4e9; --pg-solution: #cc79a7; --pg-forced: #e69f00; --pg-right: #00795a;
  --pg-wrong: #b34d00; }
.pg-cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 14px; }
@media (min-width: 1000px) { .pg-cards.pg-pairs { grid-template-columns: repeat(var(--pg-models), minmax(0, 1fr)); } }
.pg-card { border: 1px solid var(--border-color-primary); border-radius: 8px; padding: 12px 14px;
  background: var(--block-background-fill); min-width: 0; }
.pg-card header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 10px; }
.pg-card h3 { margin: 0; font-size: 1.05em; }
.pg-budget { opacity: .75; font-variant-numeric: tabular-nums; }
.pg-badge { padding: 1px 8px; border-radius: 10px; font-size: .88em; overflow-wrap: anywhere;
  background: var(--background-fill-secondary); border: 1px solid var(--border-color-primary); }
.pg-badge.pg-right { background: var(--pg-right); color: #fff; }
.pg-badge.pg-wrong { background: var(--pg-wrong); color: #fff; }
.pg-badge.pg-forced { background: var(--pg-forced); color: #000; }
.pg-badges { display: flex; flex-wrap: wrap; gap: 4px 6px; margin-top: 6px; }
.pg-asked { margin: 0 0 10px; overflow-wrap: anywhere; }
.pg-bar { position: relative; display: flex; height: 14px; margin: 12px 0 6px; border-radius: 3px;
  background: var(--background-fill-secondary); }
.pg-bar i { display: block; height: 100%; transition: width .15s; }
.pg-bar i.pg-thinking { background: var(--pg-thinking); }
.pg-bar i.pg-solution { background: var(--pg-solution); }
.pg-bar i.pg-forced { background: var(--pg-forced); min-width: 3px; }
.pg-bar .pg-limit { position: absolute; top: -4px; bottom: -4px; border-left: 2px dashed var(--body-text-color);
  transition: left .15s; }
.pg-counts { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 0 0 8px; font-size: .9em;
  font-variant-numeric: tabular-nums; }
.pg-key::before { content: ""; display: inline-block; width: 9px; height: 9px; margin-right: 5px; border-radius: 2px; }
.pg-key.pg-thinking::before { background: var(--pg-thinking); }
.pg-key.pg-solution::before { background: var(--pg-solution); }
.pg-key.pg-forced::before { background: var(--pg-forced); }
.pg-text { font-family: ui-monospace, monospace; font-size: .88em; white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 420px; overflow-y: auto; padding: 6px 10px; border-left: 3px solid; margin: 6px 0; }
.pg-text.pg-thought { border-color: var(--pg-thinking); }
.pg-text.pg-answer { border-color: var(--pg-solution); }
.pg-text mark { background: var(--pg-forced); color: #000; border-radius: 3px; padding: 0 2px; }
.pg-cut { font-family: system-ui, sans-serif; font-size: .85em; font-weight: 600; white-space: nowrap; padding: 0 4px; }
.pg-finish { margin: 6px 0 0; font-size: .88em; opacity: .75; }
.pg-message { padding: 10px 2px; opacity: .75; }
.pg-message.pg-error { opacity: 1; font-weight: 600; border-left: 4px solid; padding-left: 12px; }
"""

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
    scale = max(1, *(_extent(attempt) for attempt in run.attempts))
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
    """The problem and the budget of this run: the fields beside it may have changed since."""
    problem, question = run.asked.problem, " ".join(run.asked.problem.question.split())
    shown = question if len(question) <= _LONGEST else f"{question[:_LONGEST]}…"
    name = "your problem" if problem.benchmark == TYPED else f"{problem.benchmark} {problem.id}"
    settings = f"{name} · budget {run.asked.budget} · sample {run.asked.sample}"
    return f'<p class="pg-asked"><b>{escape(shown)}</b> <span class="pg-budget">{escape(settings)}</span></p>'


def _limit(attempt: Attempt) -> int | None:
    """Where the first cut falls, in tokens."""
    return attempt.budget.think if by_phase(attempt) else attempt.budget.total


def _extent(attempt: Attempt) -> int:
    """Tokens that the attempt's bar has to have room for."""
    used = len(attempt.trajectory.response_ids) if attempt.trajectory else 0
    return max(used, _limit(attempt) or 0)


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
        body = (
            _bar(attempt, attempt.trajectory, scale)
            + _counts(attempt, attempt.trajectory)
            + _text(attempt, attempt.trajectory, loaded)
            + f'<p class="pg-finish">{escape(finish(attempt, attempt.trajectory))}</p>'
        )
    data = f'data-model="{escape(attempt.model)}" data-strategy="{escape(attempt.strategy)}"'
    return f'<section class="pg-card pg-{attempt.state}" {data}>{head}{body}</section>'


def _badges(attempt: Attempt) -> str:
    """Right or wrong, how many tokens, forced or not: what answers are compared by."""
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
