"""`elastic ask`: one question in the terminal, its response streaming. Engine, strategies and what is told of a
response are the playground's."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.trajectory import Trajectory
from flows.commands.playground import PlaygroundParameters, end_with_signals
from flows.commands.playground.choices import (
    Choices,
    PageRequest,
    find_choices,
    read_problem,
    read_sample,
    read_strategies,
)
from flows.commands.playground.engines import Loaded
from flows.commands.playground.session import Attempt, Run, Session
from flows.commands.playground.view import CUT, counts, finish, of, phases

if TYPE_CHECKING:
    from rich.console import Console

THOUGHT, SOLUTION, FORCED, CUT_STYLE, TOLD = "dim", "default", "black on yellow", "bold red", "cyan"
"""Styles of rich's. What we wrote is in brackets too, for a terminal without colours."""
_PATIENCE = PlaygroundParameters(run_seconds=7 * 24 * 3600)
"""The engine has one user, who can interrupt a request that takes too long."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tab and newline: a model's text must not move the terminal's cursor."""


class Segment(NamedTuple):
    """Text in one style."""

    text: str
    style: str


def ask(
    question: str,
    *,
    preset: str,
    overrides: Mapping[str, Any],
    model: str | None,
    strategy: str,
    budget: str | None,
    sample: int,
    console: Console,
) -> None:
    """Answer the question in the terminal.

    Args:
        model: one of the preset's, or as `find_choices`; None is the preset's first.
        budget: as `Budget.parse`; None is what the preset trains under.
        sample: other numbers draw other responses.

    Raises:
        UserError: on wrong input, or when no response could be drawn.
    """
    choices, name = choose(preset, overrides, model)
    try:
        limits = choices.budget if budget is None else Budget.parse(budget)
    except ValueError as error:
        raise UserError(f"--budget: {error}") from None
    problem = read_problem(question, None, None, _PATIENCE)
    request = PageRequest((name,), problem, read_strategies([strategy]), limits, read_sample(sample))
    only = replace(choices, models={name: choices.models[name]})  # The engine need not leave room for another.
    with Session(only, _PATIENCE) as session:
        end_with_signals(session)
        asyncio.run(_stream(session, session.begin(request), console))


def choose(preset: str, overrides: Mapping[str, Any], model: str | None) -> tuple[Choices, str]:
    """What there is, and the name of the model to ask."""
    if model is not None and ("/" in model or "=" in model or Path(model).exists()):
        choices = find_choices(preset, overrides, [model])
        return choices, next(iter(choices.models))
    choices = find_choices(preset, overrides, [])
    name = model or next(iter(choices.models))
    if name not in choices.models:
        raise UserError(
            f"--model {name}: the preset has {', '.join(choices.models)}; expected one of these, a checkpoint "
            "directory, OWNER/NAME on the hub, or a server's address"
        )
    return choices, name


async def _stream(session: Session, run: Run, console: Console) -> None:
    (attempt,) = run.attempts
    shown: list[Segment] = []
    started = time.perf_counter()
    async for _ in session.follow(run):
        loaded = run.loaded.get(attempt.model)
        if loaded is None or attempt.trajectory is None:
            started = time.perf_counter()
            continue
        response = segments(attempt, loaded)
        _print(console, further(shown, response))
        shown = response
    if attempt.state == "failed":
        raise UserError(attempt.sentence)
    _print(console, [Segment(f"\n\n{told(attempt, time.perf_counter() - started)}\n", TOLD)])


def _print(console: Console, added: Sequence[Segment]) -> None:
    from rich.text import Text

    for segment in added:
        console.print(Text(segment.text, segment.style), end="", soft_wrap=True, highlight=False)


def segments(attempt: Attempt, loaded: Loaded) -> list[Segment]:
    """The response so far. While it is being drawn nothing is in it that a strategy may yet take back."""
    assert attempt.trajectory is not None
    trajectory = attempt.trajectory if attempt.state == "done" else settled(attempt.trajectory)
    found = []
    for style, phase in zip(
        (THOUGHT, SOLUTION), phases(attempt, trajectory, loaded.tokenizer, loaded.markers), strict=True
    ):
        for piece in phase:
            if piece is None:
                found.append(Segment(f" {CUT} ", CUT_STYLE))
            elif text := _CONTROL.sub("\N{REPLACEMENT CHARACTER}", piece.text):
                found.append(Segment(f"⟦{text}⟧", FORCED) if piece.forced else Segment(text, style))
    return found


def settled(trajectory: Trajectory) -> Trajectory:
    """Without what may change: forced tokens at the end, of which there may be more; else the last token, which a
    strategy may drop."""
    ids, forced = trajectory.response_ids, trajectory.forced
    end = len(ids)
    while end and forced[end - 1]:
        end -= 1
    end = max(0, end - (end == len(ids)))
    start = trajectory.solution_start
    return replace(
        trajectory,
        response_ids=ids[:end],
        forced=forced[:end],
        solution_start=None if start is None or start > end else start,
    )


def further(before: Sequence[Segment], now: Sequence[Segment]) -> list[Segment]:
    """What is to be printed after `before` so that `now` stands there. A terminal takes nothing back: from the first
    segment on that is another one, as where roles take turns and the end tells which turn is the solution, the
    response is printed again on a new line."""
    for i, (old, new) in enumerate(zip_longest(before, now)):
        if old == new:
            continue
        if old is None:
            return list(now[i:])
        if new is not None and i == len(before) - 1 and new.style == old.style and new.text.startswith(old.text):
            return [Segment(new.text[len(old.text) :], new.style), *now[i + 1 :]]
        return [Segment("\n", SOLUTION), *now[i:]]
    return []


def told(attempt: Attempt, seconds: float) -> str:
    """How many tokens a response took, and how it ended."""
    assert attempt.trajectory is not None
    shown = [f"{name} {count}{of(limit)}" for name, count, limit in counts(attempt, attempt.trajectory)]
    return f"tokens: {', '.join(shown)}; {seconds:.1f} s; {finish(attempt, attempt.trajectory)}"
