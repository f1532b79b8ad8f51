"""The choices of the page, and those made, read from its fields. Gradio itself refuses choices that a field lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem, read_problems
from elastic_core.errors import UserError
from elastic_core.miniature.problems import DATA_SOURCE, LEVELS, beyond_task, generate, read_chain
from elastic_core.rewards.truth import MathTruth
from elastic_core.serving.levels import levels_beside, no_levels
from elastic_core.statistics.estimates import without_seed
from elastic_core.stop_rule import ADAPTIVE
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from flows.commands.answer import TYPED
from flows.commands.playground import PlaygroundParameters
from flows.runtime.models import Models
from flows.runtime.settings import TRAINED
from flows.runtime.stages import Stages

NUM_GENERATED = 100  # Problems of each level of the miniature that are shown where no benchmark is built.
FIRST_STRATEGIES = ("vanilla", "budget_forcing", "separate")
_STRATEGY_LABELS = {
    "vanilla": "vanilla: cut after t + s",
    "separate": "separate budgets t and s",
    ADAPTIVE: "adaptive: stops when two answers agree",
    "unconstrained": "unconstrained: no budget",
    "l1_exact": "L1 exact",
    "l1_max": "L1 max",
    REASONFLUX_ZERO: "thought templates (ReasonFlux-Zero)",
}
TYPED_SUM = "24+7-3+9=?"
_TASK = "sums of small numbers, like 36+6-4+8=?"
MAX_SAMPLE = 2**31 - 1


def benchmarks(run: Stages) -> dict[str, list[Problem]]:
    """The preset's problems by benchmark; where none is built generated ones of its miniature, if it has one."""
    miniature = run.settings.data.miniature
    if run.data.is_done:
        return {name: read_problems(file) for name, file in run.benchmark_files.items()}
    if miniature is None:
        return {}
    # Of the split that is for looking at: evaluation problems are for reported numbers.
    return {
        f"{DATA_SOURCE}-{level}, generated": [
            Problem(f"{DATA_SOURCE}-{level}", f"tune-{i}", problem.question, str(problem.answer), "math")
            for i, problem in enumerate(generate(level, NUM_GENERATED, miniature.seed, "tune"))
        ]
        for level in LEVELS
    }


def examples(problems: Mapping[str, Sequence[Problem]], models: Models) -> list[tuple[str, str]]:
    """Three questions with their reference answers: the first ones of the benchmarks, and of the miniature a typed sum,
    whose answer is computed."""
    typed = [(TYPED_SUM, "")] if models.settings.data.miniature else []
    firsts = [given[i] for i in range(3) for given in problems.values() if i < len(given) and given[i].grader == "math"]
    return [*((each.question, shown_reference(each)) for each in firsts[: 3 - len(typed)]), *typed]


def ability(names: Sequence[str], models: Models) -> str:
    """What the chosen models can do, where they all are the preset's miniature; else ""."""
    miniature = models.settings.data.miniature and all(without_seed(name)[0] in ("base", *TRAINED) for name in names)
    return f"The miniature solves {_TASK}, and nothing else. " if miniature else ""


def warning(question: str, names: Sequence[str], models: Models) -> str:
    """A sentence where a question is none that the chosen models were trained for, else ""."""
    if not (able := ability(names, models)):
        return ""
    chain = read_chain(question)
    reason = "this is no such sum" if chain is None else beyond_task(chain)
    return f"{able}Beyond its training: {reason}." if reason else ""


def largest_budget(models: Models) -> Budget:
    """The ends of the sliders: twice the preset's largest budgets."""
    grid = [*models.settings.sweep.grid, models.budget]
    think, solution = (max(getattr(budget, phase) or 0 for budget in grid) for phase in ("think", "solution"))
    return Budget(2 * think, 2 * solution)


def strategy_label(name: str) -> str:
    """A strategy's name for people."""
    stem, wait, times = name.partition("_wait")
    label = _STRATEGY_LABELS.get(stem, stem.replace("_", " "))
    return f"{label}, {times} × Wait" if wait else label


def read_budget(think: float, think_unlimited: bool, solution: float, solution_unlimited: bool) -> Budget:
    """The sliders, which gradio holds to their ends, and the boxes below them."""
    return Budget(None if think_unlimited else int(think), None if solution_unlimited else int(solution))


def read_names(names: Sequence[str] | None, known: Mapping[str, Any] | Sequence[str], kind: str) -> tuple[str, ...]:
    """Return the chosen names in the order of the page. Raises UserError when none is chosen."""
    if not names:
        raise UserError(f"no {kind} is chosen; choose at least one")
    return tuple(name for name in known if name in names)


def read_level(effort: str, names: Sequence[str], models: Models) -> Budget:
    """The budget of an effort level, of the first of the models that has levels. Raises UserError when none has, with
    the command that makes them, or when it has no such level."""
    for name in names:
        if (levels := levels_beside(models.directories[name])) is not None:
            return levels.budget(effort)
    raise UserError(no_levels(names[0], models.directories[names[0]]))


def read_problem(
    question: str | None, reference: str | None, taken: Problem | None, parameters: PlaygroundParameters
) -> Problem:
    """The problem that was taken, if it is unchanged; else the typed one, with a reference in mathematics: the given
    one, or of a sum its computed answer. Raises UserError when it is empty or too long."""
    question = question or ""
    reference = kept_reference(question, reference, taken)
    if taken is not None and question == taken.question and reference == shown_reference(taken):
        return taken
    if not question.strip():
        raise UserError("there is no problem yet; type one, or take one from a benchmark")
    for name, text, most in (
        ("problem", question, parameters.max_question),
        ("reference answer", reference, parameters.max_reference),
    ):
        if len(text) > most:
            raise UserError(f"the {name} has {len(text):,} characters; expected at most {most:,}")
    if not reference and (chain := read_chain(question)) is not None:
        reference = str(chain.answer)
    truth = MathTruth((reference,)).encode() if reference else ""
    return Problem(TYPED, question, question, truth, "math")


def read_whole(number: Any, name: str, least: int, most: int) -> int:
    """Raises UserError when it is not an integer from `least` to `most`."""
    # To Python true is 1, and a client can send it.
    whole = isinstance(number, int | float) and not isinstance(number, bool) and number == number // 1
    if not whole or not least <= number <= most:
        raise UserError(f"{name} is {number!r:.40}; expected a whole number of {least:,} to {most:,}")
    return int(number)


def taken_problem(problems: Sequence[Problem], number: Any) -> Problem:
    """The problem of a benchmark by its place, counted from 1. Raises UserError when there is none."""
    return problems[read_whole(number, "the problem's number", 1, len(problems)) - 1]


def shown_reference(problem: Problem) -> str:
    """The reference answer of a problem on the page; tests of programs are too long for it."""
    return "" if problem.grader == "code" else problem.truth


def kept_reference(question: str, reference: str | None, taken: Problem | None) -> str:
    """The reference answer in the field, unless it belongs to the problem that was taken and changed since."""
    reference = (reference or "").strip()
    stale = taken is not None and question != taken.question and reference == shown_reference(taken)
    return "" if stale else reference


def edited(question: str, reference: str | None, taken: Problem) -> tuple[bool, str]:
    """Whether the problem is the one that was taken, and its reference answer, which comes back with it."""
    unchanged = question == taken.question
    return unchanged, kept_reference(question, reference, taken) or (shown_reference(taken) if unchanged else "")
