"""The models that a command can use: a preset's on this machine or behind servers, and those that the user names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from elastic_core.budget import Budget
from elastic_core.engines.endpoint import Endpoint, EndpointParameters, is_endpoint
from elastic_core.errors import UserError
from elastic_core.models import files as model_files
from elastic_core.statistics.estimates import without_seed
from elastic_core.strategies.reasonflux_zero import Templates
from flows.runtime.endpoints import named_endpoint
from flows.runtime.run import FlowRun
from flows.runtime.settings import TRAINED, Settings
from flows.runtime.stages import load_templates


@dataclass(frozen=True)
class Models:
    """A preset's models, and the user's, by name."""

    run: FlowRun
    directories: dict[str, Path]  # Checkpoints; of a model behind a server the directory of its tokenizer.
    first: tuple[str, ...]  # Those that a page begins with.
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.run.settings

    @property
    def budget(self) -> Budget:
        """The budget that the preset trains under; without training the middle of its grid."""
        grid = [budget for budget in self.settings.sweep.grid if budget.total is not None]
        trained = self.settings.train.fixed_budget if self.settings.train else None
        return trained or (grid[len(grid) // 2] if grid else Budget(1024, 1024))

    def label(self, name: str) -> str:
        """A model's name for people, with its seed, its server, or the base's origin."""
        plain, seed = without_seed(name)
        plain = plain if seed is None else f"{plain}, seed {seed}"
        if name in self.endpoints:
            return f"{plain} at {urlsplit(self.endpoints[name].addresses[0].url).netloc}"
        base = self.settings.base
        return f"{plain}: {base.rpartition('/')[2]}" if name == "base" and "/" in base else plain

    def templates(self) -> Templates:
        """The preset's thought templates, fetched if need be. Raises UserError when they cannot be had."""
        return load_templates(self.settings.sweep.templates, self.run.runs, self.run.mirror)


def find_models(
    preset: str, overrides: Mapping[str, Any], named: Sequence[str] = (), family: str | None = None
) -> Models:
    """The models named, then those of the preset that are there.

    Args:
        named: checkpoint directories, OWNER/NAME on the hub, or addresses of servers, each as it is or as NAME=PLACE.
        family: the family of think markers that those named have, where their files do not say it.

    Raises:
        UserError: on a wrong preset, override or model, or when no model is found.
    """
    run = FlowRun.begin(preset, overrides)
    given = dict(_named(text, run, family) for text in named)
    # The preset's models on known servers that take token ids.
    served: dict[str, Path | Endpoint] = {}
    for name, addresses in run.settings.sweep.endpoints.items():
        if not addresses[0].chat:
            with suppress(UserError):
                served |= run.find_endpoints({name: addresses}, _impatient(run))
    found = given | _preset_checkpoints(run, required=not given and not served) | served | given
    names = list(found)
    trained = [name for name in names[1:] if without_seed(name)[0] in TRAINED]
    return Models(
        run,
        {name: place if isinstance(place, Path) else place.tokenizer or Path() for name, place in found.items()},
        tuple(given) or (names[0], *trained[:1]),
        {name: place for name, place in found.items() if isinstance(place, Endpoint)},
    )


def choose_model(
    preset: str, overrides: Mapping[str, Any], model: str | None, family: str | None = None, pairs: bool = False
) -> tuple[Models, str]:
    """The preset's models, and the name of one: of `model`, a name of the preset's or a place as in `find_models`, with
    `pairs` also two of these, "A>B", or the preset's first; with the marks of a family, if one is given. Raises
    UserError as `find_models`, or on an unknown name."""
    wanted = [] if model is None else model.split(">", 1) if pairs else [model]
    places = [each for each in wanted if "/" in each or "=" in each or Path(each).exists()]
    models = find_models(preset, overrides, places, family)
    shown = dict(zip(dict.fromkeys(places), models.first, strict=False))
    names = [shown.get(each, each) for each in wanted] or [models.first[0]]
    for name in names:
        if name not in models.directories:
            raise UserError(
                f"--model {name}: the preset has {', '.join(models.directories)}; expected one of these, a checkpoint "
                "directory, OWNER/NAME on the hub, or a server's address"
            )
        if family is not None and name not in shown.values():
            models.directories[name] = models.run.with_family(name, models.directories[name], family)
    return models, ">".join(names)


def _named(text: str, run: FlowRun, family: str | None) -> tuple[str, Path | Endpoint]:
    name, given, place = text.partition("=")
    place = place if given else name
    if is_endpoint(place):
        shown = name if given else text.rpartition("#")[2]
        return shown, run.at_endpoint(shown, named_endpoint(shown, place, _impatient(run), run.runs), family)
    directory = model_files.locate(place)
    if not any(directory.glob("*.safetensors")):
        raise UserError(f"--model {text}: no model checkpoint at {directory}; expected a directory with *.safetensors")
    shown = name if given else directory.name if Path(name).exists() else name
    return shown, directory if family is None else run.with_family(shown, directory, family)


def _impatient(run: FlowRun) -> EndpointParameters:
    """Parameters without waiting: the user waits for the answer."""
    return run.settings.endpoint.model_copy(update={"wait_seconds": 0.0})


def _preset_checkpoints(run: FlowRun, required: bool) -> dict[str, Path]:
    """The preset's checkpoints that are on this machine."""
    found, settings = {}, run.settings
    try:
        found["base"] = run.base
    except UserError:
        if required:
            raise
    if settings.train is not None and "base" in found and run.data.is_done:
        for name in (name for kind in TRAINED for name in settings.of_seeds(kind)):
            with suppress(UserError):
                found[name] = run.trained(name)
    named = {name: Path(place) for name, place in settings.sweep.directories.items()}
    here = {name: place.resolve() for name, place in named.items() if place.is_dir()}
    return found | {name: run.with_family(name, place) for name, place in here.items()}


def require_room(what: str, budget: Budget, context: int) -> None:
    """Raises UserError where a budget, named by `what`, leaves no token of a known context for a prompt."""
    if context and budget.limited + 1 >= context:
        raise UserError(
            f"{what} is {budget}, which takes {budget.limited + 1} tokens after the prompt, and the context has "
            f"{context}: expected a smaller one, or a larger engine.max_model_len"
        )
