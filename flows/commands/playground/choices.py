"""What can be chosen on the page: models and problems of a preset, and any checkpoint named at the start; and what was
chosen, read from its fields: everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem, read_problems
from elastic_core.engines.endpoint import Endpoint, EndpointParameters, is_endpoint
from elastic_core.errors import UserError
from elastic_core.miniature.problems import DATA_SOURCE, LEVELS, generate
from elastic_core.models import files as model_files
from elastic_core.rewards.truth import MathTruth
from elastic_core.serving.levels import levels_beside, no_levels
from elastic_core.statistics.seeds import without_seed
from elastic_core.strategies import STRATEGIES
from elastic_core.strategies.effort import EFFORTS
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO, Templates
from elastic_core.strategies.separate import SEPARATE_NATIVE
from flows.commands.playground import PlaygroundParameters
from flows.runtime.endpoints import find_endpoints, named_endpoint
from flows.runtime.inputs import Inputs, load_templates
from flows.runtime.run import FlowRun
from flows.runtime.settings import TRAINED, Settings

NUM_GENERATED = 100
"""Problems of each level of the miniature that are offered where no benchmark is built."""
STRATEGY_NAMES = tuple(
    name for name, strategy in STRATEGIES.items() if strategy not in (SEPARATE_NATIVE, *EFFORTS.values())
)
"""All but the cross-check of one of them, and what only models that are asked in text know."""
FIRST_STRATEGIES = ("vanilla", "budget_forcing", "separate")
"""Those that are side by side at first."""
_STRATEGY_LABELS = {
    "vanilla": "vanilla: cut after t + s",
    "separate": "separate budgets t and s",
    "unconstrained": "unconstrained: no budget",
    "l1_exact": "L1 exact",
    "l1_max": "L1 max",
    REASONFLUX_ZERO: "thought templates (ReasonFlux-Zero)",
}
TYPED = "typed"
"""Benchmark of a problem that was typed."""
MAX_SAMPLE = 2**31 - 1
_MAX_TOKENS = 2**24


@dataclass(frozen=True)
class Choices:
    """The first of each is what the page begins with, where nothing else is said.

    Attributes:
        models: checkpoint directories by name; of a model behind a server that of its tokenizer.
        problems: by benchmark; their ids are unique within it.
        templates: loads the preset's thought templates, fetched if need be; raises UserError when they cannot be had.
        side_by_side: models that the page begins with, as far as they can answer at the same time.
        endpoints: models behind servers, by name.
    """

    settings: Settings
    models: dict[str, Path]
    problems: dict[str, list[Problem]]
    templates: Callable[[], Templates]
    side_by_side: tuple[str, ...]
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)

    def label(self, model: str) -> str:
        """A model's name, and what else tells people which it is."""
        name, seed = without_seed(model)
        name = name if seed is None else f"{name}, seed {seed}"
        if model in self.endpoints:
            return f"{name} at {urlsplit(self.endpoints[model].addresses[0].url).netloc}"
        base = self.settings.base
        return f"{name}: {base.rpartition('/')[2]}" if model == "base" and "/" in base else name

    @property
    def budget(self) -> Budget:
        """What the preset trains under; without training the middle of its grid."""
        grid = [budget for budget in self.settings.sweep.grid if budget.total is not None]
        trained = self.settings.train.fixed_budget if self.settings.train else None
        return trained or (grid[len(grid) // 2] if grid else Budget(1024, 1024))

    @property
    def largest(self) -> Budget:
        """Where the sliders end: twice the preset's largest budgets, and more than what the page begins with."""
        grid = [*self.settings.sweep.grid, self.budget]
        think, solution = (max(getattr(budget, phase) or 0 for budget in grid) for phase in ("think", "solution"))
        return Budget(2 * think, 2 * solution)


def find_choices(preset: str, overrides: Mapping[str, Any], models: Sequence[str]) -> Choices:
    """What a preset has, as far as it has run, and the models named.

    Args:
        models: directories of Hugging Face checkpoints, OWNER/NAME on the hub, or addresses of servers, each as it is
            or as NAME=PLACE.

    Raises:
        UserError: on a wrong preset, override or model, or when there is no model at all.
    """
    run = FlowRun.begin(preset, overrides)
    inputs, named = Inputs(run), dict(_named(text, run) for text in models)
    served = _endpoints_of(run)
    # Those named come first, whatever of the preset's has the same name.
    found = named | _models_of(inputs, required=not named and not served) | served | named
    return Choices(
        run.settings,
        {name: _directory(place) for name, place in found.items()},
        _problems(inputs),
        lambda: load_templates(run.settings.sweep.templates, run.runs, inputs.data.mirror),
        tuple(named) or _base_and_trained(list(found)),
        {name: place for name, place in found.items() if isinstance(place, Endpoint)},
    )


def _base_and_trained(models: Sequence[str]) -> tuple[str, ...]:
    """The first model, and the first that was trained from it."""
    trained = [name for name in models[1:] if without_seed(name)[0] in TRAINED]
    return (models[0], *trained[:1])


def _directory(place: Path | Endpoint) -> Path:
    if isinstance(place, Path):
        return place
    assert place.tokenizer is not None, "models that are asked in text are no choice"
    return place.tokenizer


def _named(text: str, run: FlowRun) -> tuple[str, Path | Endpoint]:
    name, given, place = text.partition("=")
    if is_endpoint(place if given else name):
        shown = name if given else text.rpartition("#")[2]
        return shown, named_endpoint(shown, place if given else name, _impatient(run), run.runs)
    directory = model_files.locate(place if given else name)
    if not any(directory.glob("*.safetensors")):
        raise UserError(f"--model {text}: no model checkpoint at {directory}; expected a directory with *.safetensors")
    return name if given else directory.name if Path(name).exists() else name, directory


def _impatient(run: FlowRun) -> EndpointParameters:
    """Somebody is waiting: a server that is away is told at once."""
    return run.settings.endpoint.model_copy(update={"wait_seconds": 0.0})


def _endpoints_of(run: FlowRun) -> dict[str, Path | Endpoint]:
    """The preset's own models behind servers that are there and take token ids."""
    found: dict[str, Path | Endpoint] = {}
    for name, addresses in run.settings.sweep.endpoints.items():
        if not addresses[0].chat:
            with suppress(UserError):
                found |= find_endpoints({name: addresses}, run.settings.sweep.tokenizers, _impatient(run), run.runs)
    return found


def _models_of(inputs: Inputs, required: bool) -> dict[str, Path]:
    """The preset's own models that are there."""
    found, settings = {}, inputs.run.settings
    try:
        found["base"] = inputs.base
    except UserError:
        if required:
            raise
    if settings.train is not None and "base" in found and inputs.data.is_built:
        for name in (name for kind in TRAINED for name in settings.of_seeds(kind)):
            with suppress(UserError):
                found[name] = inputs.trained(name)
    named = {name: Path(place) for name, place in settings.sweep.directories.items()}
    return found | {name: place.resolve() for name, place in named.items() if place.is_dir()}


def _problems(inputs: Inputs) -> dict[str, list[Problem]]:
    miniature = inputs.run.settings.data.miniature
    if inputs.data.is_built:
        return {name: read_problems(file) for name, file in inputs.benchmark_files.items()}
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


@dataclass(frozen=True)
class PageRequest:
    """One run of the page. A problem without a truth is not graded."""

    models: tuple[str, ...]
    problem: Problem
    strategies: tuple[str, ...]
    budget: Budget
    sample: int

    @property
    def graded(self) -> bool:
        return bool(self.problem.truth)


def read_budget(think: Any, think_unlimited: Any, solution: Any, solution_unlimited: Any) -> Budget:
    """Raises UserError on what is no number of tokens."""
    t = None if think_unlimited else _tokens(think, "the thinking budget t", least=0)
    return Budget(t, None if solution_unlimited else _tokens(solution, "the solution budget s", least=1))


def strategy_label(name: str) -> str:
    """A strategy as people call it."""
    stem, wait, times = name.partition("_wait")
    plainly = _STRATEGY_LABELS.get(stem, stem.replace("_", " "))
    return f"{plainly}, {times} × Wait" if wait else plainly


def read_models(names: Any, known: Mapping[str, Any]) -> tuple[str, ...]:
    """In the order of the page. Raises UserError on none, or an unknown one."""
    return _read_names(names, "model", tuple(known))


def read_level(effort: Any, models: Sequence[str], choices: Choices) -> Budget:
    """The budget of an effort level, as the first of the models has it that has any.

    Raises:
        UserError: when none has, with the command that makes them, or when it has no such level.
    """
    for model in models:
        if (levels := levels_beside(choices.models[model])) is not None:
            return levels.budget(str(effort)[:40])
    raise UserError(no_levels(models[0], choices.models[models[0]]))


def read_strategies(names: Any) -> tuple[str, ...]:
    """In the order of the page. Raises UserError on none, or an unknown one."""
    return _read_names(names, "strategy", STRATEGY_NAMES)


def _read_names(names: Any, kind: str, known: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise UserError(f"no {kind} is chosen; choose at least one")
    for name in names:
        if name not in known:
            raise UserError(f'no {kind} "{str(name)[:40]}"; expected {", ".join(known)}')
    return tuple(name for name in known if name in names)


def read_problem(question: Any, reference: Any, taken: Problem | None, parameters: PlaygroundParameters) -> Problem:
    """The problem that was taken, as long as nobody changed it; else what was typed, a reference read as mathematics.

    Raises:
        UserError: when it is empty or too long.
    """
    question = str(question or "")
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
    truth = MathTruth((reference,)).encode() if reference else ""
    return Problem(TYPED, question, question, truth, "math")


def read_sample(number: Any) -> int:
    """Raises UserError when it is no whole number from 0 up."""
    return _whole(number, "the sample", least=0, most=MAX_SAMPLE)


def taken_problem(problems: Sequence[Problem], number: Any) -> Problem:
    """The problem of a benchmark by its place, counted from 1. Raises UserError when there is none."""
    return problems[_whole(number, "the problem's number", least=1, most=len(problems)) - 1]


def shown_reference(problem: Problem) -> str:
    """What the page shows as the reference answer of a problem it has taken; tests of programs are too long."""
    return "" if problem.grader == "code" else problem.truth


def kept_reference(question: Any, reference: Any, taken: Problem | None) -> str:
    """The reference answer that is there, unless it belongs to the problem that was taken and changed since."""
    reference = str(reference or "").strip()
    stale = taken is not None and question != taken.question and reference == shown_reference(taken)
    return "" if stale else reference


def edited(question: Any, reference: Any, taken: Problem) -> tuple[bool, str]:
    """Whether the problem is the one that was taken, and its reference answer, which comes back with it."""
    unchanged = question == taken.question
    return unchanged, kept_reference(question, reference, taken) or (shown_reference(taken) if unchanged else "")


def _tokens(value: Any, name: str, least: int) -> int:
    return _whole(value, name, least=least, most=_MAX_TOKENS, unit=" tokens")


def _whole(value: Any, name: str, *, least: int, most: int, unit: str = "") -> int:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or number != number // 1 or not least <= number <= most:
        raise UserError(f"{name} is {value!r:.40}; expected a whole number of {least:,} to {most:,}{unit}")
    return int(number)
