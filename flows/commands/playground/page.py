"""The page: fields on the left, models and strategies side by side on the right."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from elastic_core.errors import UserError
from elastic_core.serving.levels import EFFORTS
from flows.commands.answer import STRATEGY_NAMES
from flows.commands.playground import choices
from flows.commands.playground.session import Run, Session
from flows.commands.playground.view import message, render

_log = logging.getLogger(__name__)

_TITLE = "Elastic Reasoning playground"
_SLIDER_STEPS = 512
_LONGEST_LABEL = 40  # Characters of a question on a button.
_WELCOME = "Take a problem or type one, set the budget, and run: t tokens to think, s tokens for the solution."
_DEFECT = "This run failed for a reason that is not yours; the log of the playground says which."

Taken = tuple[str, int] | None  # Benchmark and number of the problem that was taken.


def build(session: Session) -> gr.Blocks:
    """The page of a session; `gr.mount_gradio_app` serves it."""
    models, parameters = session.models, session.parameters
    budget, largest = models.budget, choices.largest_budget(models)
    problems = choices.benchmarks(models.run)

    def take(benchmark: str, number: Any) -> tuple[str, str, Taken]:
        problem = choices.taken_problem(problems[benchmark], number)
        return problem.question, choices.shown_reference(problem), (benchmark, int(number))

    first = take(next(iter(problems)), 1) if problems else ("", "", None)
    with gr.Blocks(title=_TITLE, analytics_enabled=False, fill_width=True) as page:
        taken = gr.State(first[2])
        gr.HTML(f"<h2>{_TITLE}</h2>")
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                chosen = gr.Dropdown(
                    [(models.label(name), name) for name in models.directories],
                    value=session.engines.together(models.first),
                    multiselect=True,
                    label="Models",
                )
                with gr.Group(visible=bool(problems)):
                    benchmark = gr.Dropdown(list(problems), value=next(iter(problems), None), label="Benchmark")
                    number = gr.Number(1, label="Its problem number", placeholder="none: the problem was typed")
                question = gr.Textbox(
                    first[0], label="Problem", lines=3, max_lines=12, max_length=parameters.max_question
                )
                reference = gr.Textbox(
                    first[1], label="Reference answer, if known", max_length=parameters.max_reference
                )
                shown_examples = choices.examples(problems, models)
                with gr.Row():
                    buttons = [gr.Button(_short(asked), size="sm", min_width=80) for asked, _ in shown_examples]
                strategies = gr.Dropdown(
                    [(choices.strategy_label(name), name) for name in STRATEGY_NAMES],
                    value=list(choices.FIRST_STRATEGIES),
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
                shown = gr.HTML(message(choices.ability(models.first, models) + _WELCOME))

        budgets = [think, think_unlimited, solution, solution_unlimited]
        fields = [chosen, question, reference, taken, strategies, *budgets, sample]

        async def run_it(
            names: Any, text: Any, answer: Any, place: Taken, strategies: Any, *numbers: Any
        ) -> AsyncIterator[str]:
            """The page's right side, again and again until the run has finished. Every failure becomes a sentence."""
            *limits, sample = numbers
            try:
                problem = choices.taken_problem(problems[place[0]], place[1]) if place else None
                run = Run(
                    choices.read_names(names, models.directories, "model"),
                    choices.read_problem(text, answer, problem, parameters),
                    choices.read_names(strategies, STRATEGY_NAMES, "strategy"),
                    choices.read_budget(*limits),
                    choices.read_whole(sample, "the sample", 0, choices.MAX_SAMPLE),
                )
                warned = choices.warning(run.problem.question, run.models, models)
                note = message(warned, "warning") if warned else ""
                async for _ in session.follow(run):
                    yield note + render(run)
            except UserError as error:
                yield message(str(error), "error")
            except Exception:
                _log.exception("a run of the playground failed")
                yield message(_DEFECT, "error")

        async def cut_elsewhere(*values: Any) -> AsyncIterator[str]:
            """A moved slider runs again what can be run, and says nothing before a problem is there."""
            if str(values[1] or "").strip():
                async for html in run_it(*values):
                    yield html

        async def run_level(level: Any, *values: Any) -> AsyncIterator[dict[Any, Any]]:
            try:
                found = choices.read_level(level, choices.read_names(values[0], models.directories, "model"), models)
            except UserError as error:
                yield {effort: None, shown: message(str(error), "error")}
                return
            t, s = found.think, found.solution
            assert t is not None and s is not None, "levels are limited"
            # A slider becomes longer where needed.
            yield {
                think: gr.update(value=t, maximum=max(t, largest.think or 0)),
                solution: gr.update(value=s, maximum=max(s, largest.solution or 0)),
                think_unlimited: False,
                solution_unlimited: False,
            }
            async for html in cut_elsewhere(*values[:5], t, False, s, False, values[-1]):
                yield {shown: html}

        quick: dict[str, Any] = {
            "show_progress": "hidden",
            "trigger_mode": "always_last",
            "api_visibility": "private",
            "queue": False,
        }
        answering = quick | {"queue": True, "concurrency_limit": parameters.concurrent, "concurrency_id": "run"}
        released = [think.release, solution.release, think_unlimited.input, solution_unlimited.input]
        runs = [
            gr.on([run.click, question.submit], run_it, fields, shown, **answering),
            gr.on(released, cut_elsewhere, fields, shown, **answering),
            effort.input(run_level, [effort, *fields], [effort, *budgets, shown], **answering),
            another.click(lambda i: int(i or 0) + 1, sample, sample, **quick).then(run_it, fields, shown, **answering),
        ]
        stop.click(lambda: message("stopped"), None, shown, cancels=runs, **quick)
        # Another model has other levels, and another budget is none.
        moved = [think.input, solution.input, think_unlimited.input, solution_unlimited.input]
        gr.on([chosen.input, *moved], None, None, effort, js="() => null", api_visibility="private")
        if problems:

            def take_or_say(name: str, place: Any) -> tuple[Any, ...]:
                if place is None:  # Another number is being typed.
                    return (gr.skip(),) * 4
                try:
                    return *take(name, place), gr.skip()
                except UserError as error:
                    return gr.skip(), gr.skip(), gr.skip(), message(str(error), "error")

            def edit(asked: Any, known: Any, place: Taken) -> tuple[Any, Any]:
                if place is None:
                    return gr.skip(), gr.skip()
                unchanged, left = choices.edited(asked, known, choices.taken_problem(problems[place[0]], place[1]))
                return left, place[1] if unchanged else None

            taking = [question, reference, taken, shown]
            number.input(take_or_say, [benchmark, number], taking, **quick)
            benchmark.input(lambda name: (1, *take_or_say(name, 1)), benchmark, [number, *taking], **quick)
            question.change(edit, [question, reference, taken], [reference, number], **quick)
        for button, example in zip(buttons, shown_examples, strict=True):
            button.click(lambda example=example: (*example, None), None, [question, reference, number], **quick)
        page.queue(max_size=parameters.waiting, default_concurrency_limit=parameters.concurrent, api_open=False)
    return page


def _short(question: str) -> str:
    """A question as the label of a button."""
    line = " ".join(question.split())
    return line if len(line) <= _LONGEST_LABEL else f"{line[:_LONGEST_LABEL]}…"


def _slider(label: str, least: int, value: int | None, most: int | None) -> gr.Slider:
    assert value is not None and most is not None, "the page begins with a limited budget"
    return gr.Slider(least, most, value, step=max(1, most // _SLIDER_STEPS), label=label)
