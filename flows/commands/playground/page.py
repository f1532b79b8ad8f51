"""The page: fields on the left, models and strategies side by side on the right."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from elastic_core.data.problems import Problem
from elastic_core.errors import UserError
from elastic_core.serving.levels import EFFORTS
from flows.commands.playground.choices import (
    FIRST_STRATEGIES,
    STRATEGY_NAMES,
    PageRequest,
    edited,
    read_budget,
    read_level,
    read_models,
    read_problem,
    read_sample,
    read_strategies,
    shown_reference,
    strategy_label,
    taken_problem,
)
from flows.commands.playground.session import Session
from flows.commands.playground.view import message, render

_log = logging.getLogger(__name__)

_TITLE = "Elastic Reasoning playground"
_SLIDER_STEPS = 512
_WELCOME = "Take a problem or type one, set the budget, and run: t tokens to think, s tokens for the solution."
_DEFECT = "This run failed for a reason that is not yours; the log of the playground says which."

Taken = tuple[str, int] | None
"""Benchmark and number of the problem that was taken."""


def build(session: Session) -> gr.Blocks:
    """The page of a session; `gr.mount_gradio_app` serves it."""
    choices, parameters = session.choices, session.parameters
    budget, largest = choices.budget, choices.largest
    benchmarks = list(choices.problems)
    first = _take(session, benchmarks[0], 1) if benchmarks else ("", "", None)
    with gr.Blocks(title=_TITLE, analytics_enabled=False, fill_width=True) as page:
        taken = gr.State(first[2])
        gr.HTML(f"<h2>{_TITLE}</h2>")
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                models = gr.Dropdown(
                    [(choices.label(name), name) for name in choices.models],
                    value=session.engines.batches(choices.side_by_side)[0],
                    multiselect=True,
                    label="Models",
                )
                with gr.Group(visible=bool(benchmarks)):
                    benchmark = gr.Dropdown(benchmarks, value=next(iter(benchmarks), None), label="Benchmark")
                    number = gr.Number(1, label="Its problem number", placeholder="none: the problem was typed")
                question = gr.Textbox(
                    first[0], label="Problem", lines=3, max_lines=12, max_length=parameters.max_question
                )
                reference = gr.Textbox(
                    first[1], label="Reference answer, if known", max_length=parameters.max_reference
                )
                strategies = gr.Dropdown(
                    [(strategy_label(name), name) for name in STRATEGY_NAMES],
                    value=list(FIRST_STRATEGIES),
                    multiselect=True,
                    label="Strategies",
                )
                sample = gr.Number(0, label="Sample")
            with gr.Column(scale=3, min_width=320):
                effort = gr.Radio(list(EFFORTS), label="Effort level: sets t and s as measured")
                with gr.Row(equal_height=True):
                    with gr.Group():
                        think = _slider("Thinking budget t, in tokens", 0, budget.think, largest.think)
                        think_unlimited = gr.Checkbox(False, label="t unlimited")
                    with gr.Group():
                        solution = _slider("Solution budget s, in tokens", 1, budget.solution, largest.solution)
                        solution_unlimited = gr.Checkbox(False, label="s unlimited")
                with gr.Row():
                    run = gr.Button("Run", variant="primary", min_width=80)
                    another = gr.Button("Next sample", min_width=80)
                    stop = gr.Button("Stop", min_width=80)
                shown = gr.HTML(message(_WELCOME))

        fields = [
            *(models, question, reference, taken, strategies),
            *(think, think_unlimited, solution, solution_unlimited, sample),
        ]
        budgets = [think, think_unlimited, solution, solution_unlimited]

        async def run_it(*values: Any) -> AsyncIterator[str]:
            async for html in _run(session, *values):
                yield html

        async def cut_elsewhere(*values: Any) -> AsyncIterator[str]:
            """A moved slider runs again what can be run, and says nothing where there is no problem yet."""
            if str(values[1] or "").strip():
                async for html in _run(session, *values):
                    yield html

        async def run_level(level: Any, *values: Any) -> AsyncIterator[dict[Any, Any]]:
            try:
                found = read_level(level, read_models(values[0], choices.models), choices)
            except UserError as error:
                yield {effort: None, shown: message(str(error), "error")}
                return
            t, s = found.think, found.solution
            assert t is not None and s is not None, "levels are limited"
            limits = {think: _reaching(t, largest.think), solution: _reaching(s, largest.solution)}
            yield {**limits, think_unlimited: False, solution_unlimited: False}
            async for html in cut_elsewhere(*values[:5], t, False, s, False, values[-1]):
                yield {shown: html}

        answering: dict[str, Any] = {
            "concurrency_limit": parameters.concurrent,
            "concurrency_id": "run",
            "show_progress": "hidden",
            "trigger_mode": "always_last",
            "api_visibility": "private",
        }
        quick = {name: value for name, value in answering.items() if not name.startswith("concurrency")}
        quick["queue"] = False
        runs = [
            gr.on([run.click, question.submit], run_it, fields, shown, **answering),
            gr.on(
                [think.release, solution.release, think_unlimited.input, solution_unlimited.input],
                cut_elsewhere,
                fields,
                shown,
                **answering,
            ),
            effort.input(run_level, [effort, *fields], [effort, *budgets, shown], **answering),
            another.click(lambda now: int(now or 0) + 1, sample, sample, **quick).then(
                run_it, fields, shown, **answering
            ),
        ]
        stop.click(lambda: message("stopped"), None, shown, cancels=runs, **quick)
        # Another model has other levels, and another budget is none.
        moved = [think.input, solution.input, think_unlimited.input, solution_unlimited.input]
        gr.on([models.input, *moved], None, None, effort, js="() => null", api_visibility="private")
        if benchmarks:

            def take(name: str, place: Any) -> tuple[Any, ...]:
                if place is None:  # Another number is being typed.
                    return (gr.skip(),) * 4
                try:
                    return *_take(session, name, place), gr.skip()
                except UserError as error:
                    return gr.skip(), gr.skip(), gr.skip(), message(str(error), "error")

            def edit(asked: Any, known: Any, place: Taken) -> tuple[Any, Any]:
                problem = _taken(session, place)
                if problem is None or place is None:
                    return gr.skip(), gr.skip()
                unchanged, left = edited(asked, known, problem)
                return left, place[1] if unchanged else None

            taking = [question, reference, taken, shown]
            number.input(take, [benchmark, number], taking, **quick)
            benchmark.input(lambda name: (1, *take(name, 1)), benchmark, [number, *taking], **quick)
            question.change(edit, [question, reference, taken], [reference, number], **quick)
        page.queue(max_size=parameters.waiting, default_concurrency_limit=parameters.concurrent, api_open=False)
    return page


def _slider(label: str, least: int, value: int | None, most: int | None) -> gr.Slider:
    assert value is not None and most is not None, "the page begins with a limited budget"
    return gr.Slider(least, most, value, step=max(1, most // _SLIDER_STEPS), label=label)


def _reaching(tokens: int, most: int | None) -> Any:
    """A slider at so many tokens, longer if need be."""
    return gr.update(value=tokens, maximum=max(tokens, most or 0))


def _take(session: Session, benchmark: str, number: Any) -> tuple[str, str, Taken]:
    problem = taken_problem(session.choices.problems[benchmark], number)
    return problem.question, shown_reference(problem), (benchmark, int(number))


def _taken(session: Session, taken: Taken) -> Problem | None:
    return taken_problem(session.choices.problems[taken[0]], taken[1]) if taken else None


async def _run(
    session: Session, models: Any, question: Any, reference: Any, taken: Taken, strategies: Any, *numbers: Any
) -> AsyncIterator[str]:
    """The page's right side, again and again until the run is over. Whatever fails becomes a sentence."""
    *budget, sample = numbers
    try:
        asked = PageRequest(
            read_models(models, session.choices.models),
            read_problem(question, reference, _taken(session, taken), session.parameters),
            read_strategies(strategies),
            read_budget(*budget),
            read_sample(sample),
        )
        run = session.begin(asked)
        async for finished in session.follow(run):
            yield render(run, finished)
    except UserError as error:
        yield message(str(error), "error")
    except Exception:
        _log.exception("a run of the playground failed")
        yield message(_DEFECT, "error")
