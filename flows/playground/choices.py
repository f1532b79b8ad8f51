"""What can be chosen on the page: models and problems of a preset, and any checkpoint named at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core import hub
from elastic_core.budget import Budget
from elastic_core.data.problems import Problem, read_problems
from elastic_core.errors import UserError
from elastic_core.miniature.problems import DATA_SOURCE, LEVELS, generate
from elastic_core.strategies import STRATEGIES
from elastic_core.strategies.reasonflux_zero import Templates
from elastic_core.strategies.separate import SEPARATE_NATIVE
from flows.inputs import Inputs, load_templates
from flows.run import FlowRun
from flows.settings import TRAINED, Settings

NUM_GENERATED = 100
"""Problems of each level of the miniature that are offered where no benchmark is built."""
STRATEGY_NAMES = tuple(name for name, strategy in STRATEGIES.items() if strategy is not SEPARATE_NATIVE)
"""All but the cross-check of one of them."""
FIRST_STRATEGIES = ("vanilla", "budget_forcing", "separate")
"""Those that are side by side at first."""


@dataclass(frozen=True)
class Choices:
    """The first of each is what the page begins with.

    Attributes:
        models: checkpoint directories by name.
        problems: by benchmark; their ids are unique within it.
        templates: loads the preset's thought templates, fetched if need be; raises UserError when they cannot be had.
    """

    settings: Settings
    models: dict[str, Path]
    problems: dict[str, list[Problem]]
    templates: Callable[[], Templates]

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
        models: directories of Hugging Face checkpoints or OWNER/NAME on the hub, each as it is or as NAME=PLACE.

    Raises:
        UserError: on a wrong preset, override or model, or when there is no model at all.
    """
    run = FlowRun.begin(preset, overrides)
    inputs, found = Inputs(run), dict(_named(text) for text in models)
    return Choices(
        run.settings,
        found | _models_of(inputs, required=not found),
        _problems(inputs),
        lambda: load_templates(run.settings.sweep.templates, run.runs, inputs.data.mirror),
    )


def _named(text: str) -> tuple[str, Path]:
    name, given, place = text.partition("=")
    directory = hub.locate(place if given else name)
    if not any(directory.glob("*.safetensors")):
        raise UserError(f"--model {text}: no model checkpoint at {directory}; expected a directory with *.safetensors")
    return name if given else directory.name if Path(name).exists() else name, directory


def _models_of(inputs: Inputs, required: bool) -> dict[str, Path]:
    """The preset's own models that are there."""
    found, settings = {}, inputs.run.settings
    try:
        found["base"] = inputs.base
    except UserError:
        if required:
            raise
    if settings.train is not None and "base" in found and inputs.data.is_built:
        for name in TRAINED:
            with suppress(UserError):
                found[name] = inputs.trained(name)
    named = {name: Path(place) for name, place in settings.sweep.checkpoints.items()}
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
