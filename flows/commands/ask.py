"""`elastic ask`: one question in the terminal, its response streaming. The playground shows responses by it too."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, takewhile, zip_longest
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import EngineLost
from elastic_core.errors import UserError, printable
from elastic_core.models.special_tokens import Markers
from elastic_core.stop_rule import Stop
from elastic_core.strategies import STRATEGIES
from elastic_core.strategies.variants import BARE, variant_name
from elastic_core.sweep.grid import UNLIMITED_BUDGET, known_strategies, split_model
from elastic_core.system.processes import end_family
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from flows.commands.answer import TYPED, Attempt, Loaded, Thought, followed, load, lost
from flows.commands.options import StrategyType, budget_option, family_option, settings_options
from flows.runtime.models import Models, choose_model, require_room

THOUGHT, SOLUTION, FORCED, CUT_STYLE, COUNTS = "dim", "default", "black on yellow", "bold red", "cyan"
"""Styles of rich's. Forced text is in brackets too, for a terminal without colours."""
CUT = "✂ cut here"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_THINKING = {
    ThinkFinish.CLOSED: "thinking closed by the model",
    ThinkFinish.FORCED: "thinking cut after {think} tokens, closed by us",
    ThinkFinish.END_OF_TEXT: "the model stopped inside its thinking",
    ThinkFinish.LENGTH: "cut after {total} tokens, inside the thinking",
}
_STOPPED = {
    Stop.AGREED: "as its answers agreed",
    Stop.SURE: "as its answer was sure",
    Stop.GAVE_UP: "as no answer came twice",
}
_SOLUTION = {
    SolutionFinish.STOP: "solution ended by the model",
    SolutionFinish.LENGTH: "solution cut after {solution} tokens",
    SolutionFinish.NOT_APPLICABLE: "no solution",
}


class Segment(NamedTuple):
    """Text in one style."""

    text: str
    style: str


class Piece(NamedTuple):
    """Text of one phase that came from one source."""

    text: str
    solution: bool
    forced: bool


@click.command()
@click.argument("question")
@settings_options("Preset whose models, engine and sampling are taken.")
@click.option(
    "--model",
    metavar="MODEL",
    help="One of the preset's, a checkpoint directory, OWNER/NAME on the hub, or a server's address, "
    "http://host:8000/v1#MODEL, or two of these, as NAVIGATOR>SOLVER. Without it the preset's base.",
)
@family_option
@click.option(
    "--strategy", type=StrategyType(), default="separate", help="How the budget is spent: docs/strategies.md."
)
@click.option("--closing", default=BARE, help="How a cut is worded: soft, answer-now, or a sentence: docs/closings.md.")
@click.option("--effort", help="An effort that the model's chat template knows, such as low.")
@budget_option('Thinking + solution tokens, like "512+256" or "1k+1k". Without it what the preset trains under.')
@click.option("--sample", type=click.IntRange(0, 2**31 - 1), default=0, help="Another number draws another one.")
def ask(
    question: str,
    preset: str,
    overrides: dict[str, Any],
    strategy: str,
    closing: str,
    effort: str | None,
    budget: Budget | None,
    sample: int,
    **named: Any,
) -> None:
    """Ask a model QUESTION under a token budget, in the terminal.

    The thought is dimmed, cuts are marked, forced text is in ⟦brackets⟧; tokens are counted at the end.
    """
    # Messages of vLLM and torch would stand in the response; read when they are imported.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_LOGS", "-all")
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # Of the engine's process.
    warnings.simplefilter("ignore", FutureWarning)
    if not question.strip():
        raise UserError("there is no question; write one in quotes")
    strategy = known_strategies([variant_name(strategy, closing, effort)])[0]
    models, name = choose_model(preset, overrides, **named, pairs=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # A KeyboardInterrupt may be swallowed while modules are imported.
        signal.signal(number, lambda number, _: end_family(128 + number))
    if len(split_model(name)) > len(STRATEGIES[strategy].roles):
        raise UserError(f"--model {name}: {strategy} asks one model; expected a strategy of two roles")
    default = UNLIMITED_BUDGET if strategy == "unconstrained" else models.budget
    attempt = Attempt(name, strategy, budget or default)
    for part in {*split_model(name)} - {*models.endpoints}:
        require_room("--budget", attempt.budget, models.settings.engine.context(str(models.directories[part])))
    asyncio.run(_stream(attempt, Problem(TYPED, question, question, "", "math"), sample, models, Console()))


async def _stream(attempt: Attempt, problem: Problem, sample: int, models: Models, console: Console) -> None:
    shown: list[Segment] = []
    loaded = await load(models, attempt.model, thinks=STRATEGIES[attempt.strategy].thinks)
    async with loaded.resources:
        started = time.perf_counter()
        answering = attempt.answer(problem, sample, loaded, Thought(loaded.engine), models)
        try:
            async for _ in followed(answering, [attempt]):
                if attempt.trajectory is not None:
                    response = segments(attempt, loaded)
                    _print(console, further(shown, response))
                    shown = response
        except EngineLost as error:
            raise UserError(lost(error)) from None
        if attempt.state == "failed":
            raise UserError(attempt.sentence)
        _print(console, [Segment(f"\n\n{summary(attempt, time.perf_counter() - started)}\n", COUNTS)])


def _print(console: Console, added: Sequence[Segment]) -> None:
    for segment in added:
        console.print(Text(segment.text, segment.style), end="", soft_wrap=True, highlight=False)


def segments(attempt: Attempt, loaded: Loaded) -> list[Segment]:
    """The response so far. While it is drawn it holds nothing that a strategy may take back."""
    assert attempt.trajectory is not None
    trajectory = attempt.trajectory if attempt.state == "done" else settled(attempt.trajectory)
    found: list[Segment] = []
    for style, phase in zip((THOUGHT, SOLUTION), phases(attempt, trajectory, loaded), strict=True):
        apart = style == SOLUTION and bool(found)  # The mark between thought and solution is not shown.
        for piece in phase:
            if piece is None:
                found.append(Segment(f" {CUT} ", CUT_STYLE))
                continue
            text = printable(piece.text)
            if apart and (text := text.lstrip("\n")):
                found.append(Segment("\n\n", SOLUTION))
                apart = False
            if text:
                found.append(Segment(f"⟦{text}⟧", FORCED) if piece.forced else Segment(text, style))
    return found


def settled(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without its end that may change: forced tokens, of which there may be more; else the last
    token, which a strategy may drop."""
    ids, forced = trajectory.response_ids, trajectory.forced
    num_forced = sum(1 for _ in takewhile(bool, reversed(forced)))
    end = max(0, len(ids) - max(1, num_forced))
    start = trajectory.solution_start
    start = None if start is None or start > end else start
    return replace(trajectory, response_ids=ids[:end], forced=forced[:end], solution_start=start)


def further(before: Sequence[Segment], now: Sequence[Segment]) -> list[Segment]:
    """What to print after `before` so that `now` stands there. From the first changed segment on it is printed again on
    a new line. Segments change where roles take turns: only the end shows which one is the solution."""
    for i, (old, new) in enumerate(zip_longest(before, now)):
        if old == new:
            continue
        if old is None:
            return list(now[i:])
        if new is not None and i == len(before) - 1 and new.style == old.style and new.text.startswith(old.text):
            return [Segment(new.text[len(old.text) :], new.style), *now[i + 1 :]]
        return [Segment("\n", SOLUTION), *now[i:]]
    return []


def summary(attempt: Attempt, seconds: float) -> str:
    assert attempt.trajectory is not None
    shown = [f"{name} {count}{format_limit(limit)}" for name, count, limit in counts(attempt, attempt.trajectory)]
    return f"tokens: {', '.join(shown)}; {seconds:.1f} s; {finish(attempt, attempt.trajectory)}"


def format_limit(limit: int | None) -> str:
    """ " of 512", or nothing without a limit."""
    return "" if limit is None else f" of {limit}"


def by_phase(attempt: Attempt) -> bool:
    """Whether the budget limits thinking and solution apart, and not only their sum."""
    return STRATEGIES[attempt.strategy].roles != ("policy",)


def counts(attempt: Attempt, trajectory: Trajectory) -> list[tuple[str, int, int | None]]:
    """Name, tokens and limit of every phase; and of both together where the budget limits only these."""
    think, solution = trajectory.think_tokens, trajectory.solution_tokens
    apart = by_phase(attempt)
    limits = (attempt.budget.think, attempt.budget.solution) if apart else (None, None)
    found = [("thinking", think, limits[0]), ("solution", solution, limits[1])]
    found.append(("forced", trajectory.forced_tokens, None))
    if trajectory.probes:
        found.append(("probes", sum(len(probe.ids) - probe.forced for probe in trajectory.probes), None))
    if not apart and attempt.budget.total is not None:
        found.append(("together", think + solution, attempt.budget.total))
    return found


def finish(attempt: Attempt, trajectory: Trajectory) -> str:
    """How thinking and solution ended, in words."""
    if attempt.state != "done":
        return attempt.sentence or "drawing"
    think, solution = trajectory.think_tokens, trajectory.solution_tokens
    thinking = _THINKING.get(trajectory.think_finish, "")
    if trajectory.stopped:
        thinking = f"thinking ended by the rule after {{think}} tokens, {_STOPPED[Stop(trajectory.stopped)]}"
    finishes = (thinking, _SOLUTION[trajectory.solution_finish])
    finished = (text.format(think=think, solution=solution, total=think + solution) for text in finishes)
    return "; ".join(part for part in (*finished, attempt.sentence) if part)


def pieces(tokenizer: Any, markers: Markers, trajectory: Trajectory) -> list[Piece]:
    """The response as text, piece by piece, without a last end-of-text. A thought's marks are pieces without text.

    Prefixes are decoded and compared, as some tokenizers drop the space before the first token that they decode.
    """
    ids = trajectory.response_ids
    end = len(ids) - bool(ids and ids[-1] in markers.end_of_text)
    start = end if trajectory.solution_start is None else trajectory.solution_start
    closing = markers.begun_end(ids)[0] if trajectory.solution_start is None else markers.mark_before(ids, start)
    marks = {*range(markers.opening(ids)), *range(start - closing, start + markers.before_answer(ids, start))}
    origins = [(i >= start, trajectory.forced[i], i in marks) for i in range(end)]
    found, at, before = [], 0, ""
    for (solution, forced, mark), run in groupby(origins):
        at += len(list(run))
        text = tokenizer.decode(ids[:at], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        # The bytes of a character may come in several tokens: the last one is shown when it is complete.
        text = text.rstrip(_REPLACEMENT) if at == end else text
        found.append(Piece("" if mark else text[len(before) :], solution, forced))
        before = text
    return found


def phases(attempt: Attempt, trajectory: Trajectory, loaded: Loaded) -> tuple[list[Piece | None], list[Piece | None]]:
    """The pieces of thinking and of solution, with None where the budget ended one of them."""
    found = pieces(loaded.tokenizer, loaded.markers, trajectory)
    thinking = [piece for piece in found if not piece.solution]
    solution = [piece for piece in found if piece.solution]
    cut = attempt.state == "done" and trajectory.solution_finish is SolutionFinish.LENGTH
    return _with_cut(thinking, _is_cut(attempt, trajectory, loaded.markers)), _with_cut(solution, cut)


def _is_cut(attempt: Attempt, trajectory: Trajectory, markers: Markers) -> bool:
    """Whether we ended the thinking. Before the end that shows where the solution begins after forced tokens."""
    if attempt.state == "done":
        return trajectory.think_finish in (ThinkFinish.FORCED, ThinkFinish.LENGTH)
    start = trajectory.solution_start
    stopped = bool(trajectory.dropped) and trajectory.dropped[-1][1] in markers.end_of_text
    return by_phase(attempt) and bool(start) and trajectory.forced[:start][-1] and not stopped


def _with_cut(found: list[Piece], cut: bool) -> list[Piece | None]:
    """What has text, and the cut after the last sampled piece: what follows is forced."""
    after = 1 + max((i for i, piece in enumerate(found) if not piece.forced), default=-1)
    parts: list[Piece | None] = [*found[:after], *([None] if cut else []), *found[after:]]
    return [piece for piece in parts if piece is None or piece.text]
