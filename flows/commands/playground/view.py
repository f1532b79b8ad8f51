"""A run as HTML, and how it looks. Everything that a model or a visitor wrote is escaped; fonts are the system's.

A colour has one meaning: thinking, solution, forced by us, right, wrong. They are Okabe and Ito's, which colour-blind
readers tell apart, the last two darker, to be read below white. All else, the budget's cut among it, has the text's.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from elastic_core.models.special_tokens import Markers
from elastic_core.rewards import Grade, GradeStatus
from elastic_core.strategies import STRATEGIES
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from flows.commands.playground.choices import TYPED, strategy_label
from flows.commands.playground.session import Attempt, Run

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
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_GRADES = {
    GradeStatus.CORRECT: "✓ correct",
    GradeStatus.WRONG: "✗ wrong",
    GradeStatus.NO_ANSWER: "✗ no answer could be read",
    GradeStatus.TRUNCATED: "✗ cut before the thinking ended",
    GradeStatus.TIMEOUT: "✗ took too long",
    GradeStatus.RUNTIME_ERROR: "✗ the program failed",
}
_THINKING = {
    ThinkFinish.CLOSED: "thinking closed by the model",
    ThinkFinish.FORCED: "thinking cut after {think} tokens, closed by us",
    ThinkFinish.END_OF_TEXT: "the model stopped inside its thinking",
    ThinkFinish.LENGTH: "cut after {total} tokens, inside the thinking",
}
_SOLUTION = {
    SolutionFinish.STOP: "solution ended by the model",
    SolutionFinish.LENGTH: "solution cut after {solution} tokens",
    SolutionFinish.NOT_APPLICABLE: "no solution",
}
CUT = "✂ cut here"
_LONGEST = 100
"""Characters of a problem that are repeated above its answers."""
_CUT_THOUGHT = (ThinkFinish.FORCED, ThinkFinish.LENGTH)


class Piece(NamedTuple):
    """Text of one phase that came from one source."""

    text: str
    solution: bool
    forced: bool


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
    place = f'class="pg-cards pg-pairs" style="--pg-models:{models}"' if models > 1 else 'class="pg-cards"'
    return f"{_asked(run)}<div {place}>{cards}</div>{_footer(run) if finished else ''}"


def _asked(run: Run) -> str:
    """What all of it answers: the fields beside it may say something else by now."""
    problem, question = run.asked.problem, " ".join(run.asked.problem.question.split())
    shown = question if len(question) <= _LONGEST else f"{question[:_LONGEST]}…"
    name = "your problem" if problem.benchmark == TYPED else f"{problem.benchmark} {problem.id}"
    told = f"{name} · budget {run.asked.budget} · sample {run.asked.sample}"
    return f'<p class="pg-asked"><b>{escape(shown)}</b> <span class="pg-budget">{escape(told)}</span></p>'


def pieces(tokenizer: Any, markers: Markers, trajectory: Trajectory) -> list[Piece]:
    """The response as text, piece by piece, think-end included, without a last end-of-text.

    Prefixes are decoded and compared, as some tokenizers drop the space before the first token that they decode.
    """
    ids = trajectory.response_ids
    end = len(ids) - bool(ids and ids[-1] in markers.end_of_text)
    start = end if trajectory.solution_start is None else trajectory.solution_start
    origins = [(i >= start, trajectory.forced[i]) for i in range(end)]
    found, at, before = [], 0, ""
    for (solution, forced), run in groupby(origins):
        at += len(list(run))
        text = tokenizer.decode(ids[:at], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        # The bytes of a character may come in several tokens: the last one is shown when it is whole.
        text = text.rstrip(_REPLACEMENT) if at == end else text
        found.append(Piece(text[len(before) :], solution, forced))
        before = text
    return found


def _by_phase(attempt: Attempt) -> bool:
    """Whether the budget binds thinking and solution apart, and not only their sum."""
    return STRATEGIES[attempt.strategy].roles != ("policy",)


def _limit(attempt: Attempt) -> int | None:
    """Where the first cut falls, in tokens."""
    return attempt.budget.think if _by_phase(attempt) else attempt.budget.total


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
            + _text(attempt, attempt.trajectory, loaded.tokenizer, loaded.markers)
            + f'<p class="pg-finish">{escape(finish(attempt, attempt.trajectory))}</p>'
        )
    place = f'data-model="{escape(attempt.model)}" data-strategy="{escape(attempt.strategy)}"'
    return f'<section class="pg-card pg-{attempt.state}" {place}>{head}{body}</section>'


def _badges(attempt: Attempt) -> str:
    """Right or wrong, how many tokens, forced or not: what answers are compared by."""
    trajectory = attempt.trajectory
    if attempt.state != "done" or trajectory is None:
        shown = {"failed": "did not run"}.get(attempt.state, "…")
        return f'<span class="pg-badge">{shown}</span>'
    verdict, shown = "", "not graded"
    if attempt.grade is not None:
        verdict = "pg-right" if attempt.grade.status is GradeStatus.CORRECT else "pg-wrong"
        shown = _graded(attempt.grade)
    forced = trajectory.forced_tokens
    return (
        f'<span class="pg-badge pg-verdict {verdict}">{escape(shown)}</span>'
        f'<span class="pg-badge">{len(trajectory.response_ids)} tokens</span>'
        f'<span class="pg-badge {"pg-forced" if forced else ""}">{"forced" if forced else "not forced"}</span>'
    )


def _graded(grade: Grade) -> str:
    answer = f": {grade.answer[:80]}" if grade.answer else ""
    return f"{_GRADES.get(grade.status, grade.status)}{answer}"


def _bar(attempt: Attempt, trajectory: Trajectory, scale: int) -> str:
    """Tokens in their order, one colour per phase and one for what was forced, and a line where the budget cuts."""
    start = len(trajectory.response_ids) if trajectory.solution_start is None else trajectory.solution_start
    origins = [
        "forced" if forced else "solution" if i >= start else "thinking" for i, forced in enumerate(trajectory.forced)
    ]
    parts = "".join(
        f'<i class="pg-{origin}" style="width:{100 * len(list(part)) / scale:.3f}%"></i>'
        for origin, part in groupby(origins)
    )
    limit = _limit(attempt)
    line = (
        ""
        if limit is None
        else f'<b class="pg-limit" data-limit="{limit}" style="left:{100 * limit / scale:.3f}%"></b>'
    )
    return f'<div class="pg-bar" role="img" aria-label="{len(origins)} tokens of {scale}">{parts}{line}</div>'


def counts(attempt: Attempt, trajectory: Trajectory) -> list[tuple[str, int, int | None]]:
    """Tokens by phase, by name, and of how many where the budget says so; both together where it binds only these."""
    think, solution = trajectory.think_tokens, trajectory.solution_tokens
    apart = _by_phase(attempt)
    found = [
        ("thinking", think, attempt.budget.think if apart else None),
        ("solution", solution, attempt.budget.solution if apart else None),
        ("forced", trajectory.forced_tokens, None),
    ]
    if not apart and attempt.budget.total is not None:
        found.append(("together", think + solution, attempt.budget.total))
    return found


def _counts(attempt: Attempt, trajectory: Trajectory) -> str:
    shown = [
        f"<span>together {count}{of(limit)}</span>"
        if name == "together"
        else f'<span class="pg-key pg-{name}">{name} <b data-count="{name}">{count}</b>{of(limit)}</span>'
        for name, count, limit in counts(attempt, trajectory)
    ]
    return f'<p class="pg-counts">{"".join(shown)}</p>'


def of(limit: int | None) -> str:
    """ " of 512", or nothing where there is no limit."""
    return "" if limit is None else f" of {limit}"


def phases(
    attempt: Attempt, trajectory: Trajectory, tokenizer: Any, markers: Markers
) -> tuple[list[Piece | None], list[Piece | None]]:
    """The pieces of thinking and of solution, None where the budget ended one of them."""
    found = pieces(tokenizer, markers, trajectory)
    thinking = [piece for piece in found if not piece.solution]
    solution = [piece for piece in found if piece.solution]
    cut = attempt.state == "done" and trajectory.solution_finish is SolutionFinish.LENGTH
    return _with_cut(thinking, _is_cut(attempt, trajectory, markers, thinking)), _with_cut(solution, cut)


def _is_cut(attempt: Attempt, trajectory: Trajectory, markers: Markers, thinking: Sequence[Piece]) -> bool:
    """Whether the budget ended the thinking. Before the end that shows where all of t is sampled and we wrote on."""
    if attempt.state == "done":
        return trajectory.think_finish in _CUT_THOUGHT
    spent = trajectory.think_tokens + len(trajectory.dropped) == attempt.budget.think
    stopped = bool(trajectory.dropped) and trajectory.dropped[-1][1] in markers.end_of_text
    return _by_phase(attempt) and spent and not stopped and bool(thinking) and thinking[-1].forced


def _with_cut(found: list[Piece], cut: bool) -> list[Piece | None]:
    """The cut comes after the last sampled piece: what follows is ours."""
    after = 1 + max((i for i, piece in enumerate(found) if not piece.forced), default=-1)
    return [*found[:after], *([None] if cut else []), *found[after:]]


def _text(attempt: Attempt, trajectory: Trajectory, tokenizer: Any, markers: Markers) -> str:
    """Thinking and solution below each other."""
    thinking, solution = map(_marked, phases(attempt, trajectory, tokenizer, markers))
    if trajectory.solution_start is None:
        return f'<div class="pg-text pg-thought">{thinking}</div>'
    return f'<div class="pg-text pg-thought">{thinking}</div><div class="pg-text pg-answer">{solution}</div>'


def _marked(found: Sequence[Piece | None]) -> str:
    parts = []
    for piece in found:
        if piece is None:
            parts.append(f'<span class="pg-cut">{CUT}</span>')
        else:
            text = escape(piece.text)
            parts.append(f'<mark title="forced">{text}</mark>' if piece.forced else text)
    return "".join(parts)


def finish(attempt: Attempt, trajectory: Trajectory) -> str:
    """How thinking and solution ended, in words."""
    if attempt.state != "done":
        return attempt.sentence or "drawing"
    used = {
        "think": trajectory.think_tokens,
        "solution": trajectory.solution_tokens,
        "total": trajectory.think_tokens + trajectory.solution_tokens,
    }
    finishes = (_THINKING.get(trajectory.think_finish, ""), _SOLUTION[trajectory.solution_finish])
    return "; ".join(part for part in (*(text.format(**used) for text in finishes), attempt.sentence) if part)


def _footer(run: Run) -> str:
    sentence = f"sample {run.asked.sample}: {run.generated:,} tokens drawn"
    if run.reused:
        sentence += f", {run.reused:,} answered from the same thought"
    return message(f"{sentence}. Move a slider to cut the same thought elsewhere.")
