"""The models of a sweep with their prompts and cells. What cannot be measured is refused before an engine starts."""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.endpoint import Endpoint
from elastic_core.engines.parameters import EngineParameters
from elastic_core.models.special_tokens import Markers, chat_prompt, load_markers
from elastic_core.strategies import STRATEGIES, Strategy
from elastic_core.strategies.chat import CHAT_STRATEGIES
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO, Templates
from elastic_core.strategies.separate import SEPARATE_NATIVE
from elastic_core.sweep.grid import Cell, checkpoint_names, request_cells, split_model
from elastic_core.sweep.rows import ChatRows, RowBuilder


class Questions:
    """Prompts of a model behind a chat API, as text."""

    strategies: Mapping[str, Strategy] = CHAT_STRATEGIES

    def ids(self, problem: Problem, strategy: str, budget: Budget) -> Any:
        return self.strategies[strategy].prompt(problem.question, budget)


class Prompts:
    """Prompts of a model, each encoded once."""

    def __init__(
        self, tokenizer: Any, strategies: Mapping[str, Strategy] = STRATEGIES, markers: Markers | None = None
    ) -> None:
        self.strategies = strategies
        self._own = markers
        # A copy, because the writer's thread decodes with the tokenizer at the same time.
        self._tokenizer = copy.deepcopy(tokenizer)
        self._known: dict[tuple[str, str | None], tuple[int, ...]] = {}

    def markers(self, strategy: Strategy, markers: Markers) -> Markers:
        """See `Strategy.markers`."""
        return strategy.markers(self._tokenizer, markers)

    def ids(self, problem: Problem, strategy: str, budget: Budget) -> tuple[int, ...]:
        found = self.strategies[strategy]
        key = found.prompt(problem.question, budget), found.effort
        if key not in self._known:
            settings = self._own.template_settings(found.effort) if self._own else {}
            self._known[key] = chat_prompt(self._tokenizer, key[0], **settings)
        return self._known[key]


@dataclass(frozen=True)
class SweepModel:
    """A model, or two that think and solve for each other."""

    name: str
    checkpoints: dict[str, str]  # Directory of each checkpoint that engines of ours run, by name.
    cells: tuple[Cell, ...]  # Largest budget first.
    rows: RowBuilder
    prompts: Prompts | Questions
    context: int | None
    """In tokens, the shorter one of two that share a tokenizer, else the solver's; None behind a chat API."""
    endpoints: Mapping[str, Endpoint]  # Checkpoints behind servers, by name.

    @property
    def chat(self) -> bool:
        return any(each.chat for each in self.endpoints.values())

    @property
    def keeps_budgets(self) -> bool:
        """Whether one of its strategies leaves the budget to the engine."""
        return any(STRATEGIES[cell.strategy] is SEPARATE_NATIVE for cell in self.cells)

    def replicas(self, engine: EngineParameters) -> int:
        """Number of engines, or servers, side by side."""
        return max((len(each.addresses) for each in self.endpoints.values()), default=engine.data_parallel_size)


def sweep_models(
    request: Mapping[str, Any],
    fingerprints: Mapping[str, str],
    paths: Mapping[str, Path],
    problems: Mapping[str, Sequence[Problem]],
    engine: EngineParameters,
    templates: Templates | None = None,
    endpoints: Mapping[str, Endpoint] | None = None,
) -> list[SweepModel]:
    """The models of a request.

    Args:
        request: models, strategies, budgets; may have strategies_of, max_response_tokens and grading.
        fingerprints, paths: of the checkpoints, by name; those behind servers have an endpoint in place of a path.

    Raises:
        ValueError: on a request that cannot be run: an unknown model or strategy, a tokenizer without think markers,
            two models that pass tokens to each other and do not share one tokenizer, a budget above the context.
    """
    found = []
    behind, as_published = endpoints or {}, "grading" in request
    tokenizers = {**paths, **{name: each.tokenizer for name, each in behind.items() if each.tokenizer is not None}}
    for name, cells in request_cells(request, list(problems)).items():
        names = checkpoint_names([name])
        for checkpoint in names:
            if checkpoint not in fingerprints:
                raise ValueError(f'no model "{checkpoint}"; expected one of {", ".join(fingerprints)}')
        served = {checkpoint: behind[checkpoint] for checkpoint in names if checkpoint in behind}
        fingerprint = ">".join(fingerprints[checkpoint] for checkpoint in split_model(name))
        engine_fingerprint = served[names[0]].engine_fingerprint if served else engine.fingerprint
        if served and served[names[0]].chat:
            chat = ChatRows(None, None, fingerprint, engine_fingerprint, as_published)
            found.append(SweepModel(name, {}, tuple(cells), chat, Questions(), None, served))
            continue
        thinks = any(STRATEGIES[cell.strategy].thinks for cell in cells)
        loaded = [load_markers(tokenizers[checkpoint], thinks) for checkpoint in names]
        contexts = [served[each].context if each in served else engine.context(str(paths[each])) for each in names]
        # Not by their files, which differ between releases of transformers.
        translates = loaded[0][0].get_vocab() != loaded[-1][0].get_vocab()
        passed = sorted({cell.strategy for cell in cells} - {REASONFLUX_ZERO})
        if translates and passed:
            raise ValueError(
                f'"{name}": thinker and solver must share one tokenizer under {", ".join(passed)}, as tokens pass from '
                f"one to the other; under {REASONFLUX_ZERO} alone it is text"
            )
        navigator, (tokenizer, markers) = (loaded[0], loaded[1]) if translates else (None, loaded[0])
        guided = {REASONFLUX_ZERO: templates.strategy(tokenizer, markers, navigator)} if templates else {}
        prompts = Prompts(tokenizer, ChainMap(guided, STRATEGIES), markers)
        context = contexts[-1] if translates else min(contexts)
        limit = request.get("max_response_tokens")
        _check_context(cells, problems, prompts, markers, context, limit)
        if navigator and templates:
            own = Prompts(navigator[0], {REASONFLUX_ZERO: templates.strategy(*navigator)})
            _check_context(cells, problems, own, navigator[1], contexts[0], limit, "the navigator")
        own_paths = {checkpoint: str(paths[checkpoint]) for checkpoint in names if checkpoint not in served}
        rows = RowBuilder(tokenizer, markers, fingerprint, engine_fingerprint, as_published)
        found.append(SweepModel(name, own_paths, tuple(cells), rows, prompts, context, served))
    return found


def _check_context(
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[Problem]],
    prompts: Prompts,
    markers: Markers,
    context: int,
    max_response_tokens: int | None,
    model: str = "the model",
) -> None:
    for cell in cells:
        longest = max(len(prompts.ids(problem, cell.strategy, cell.budget)) for problem in problems[cell.benchmark])
        strategy = prompts.strategies[cell.strategy]
        forced = strategy.max_forced_tokens(prompts.markers(strategy, markers))
        taken, limit, lower = cell.budget.limited, "", "sweep.budgets"
        if cell.budget.total is None and max_response_tokens is not None:
            taken = max_response_tokens + (cell.budget.think or 0) + (cell.budget.solution or 0)
            limit, lower = f" with {max_response_tokens} where it has none", "sweep.max_response_tokens"
        if longest + forced + taken > context:
            written = f", {forced} that the strategy writes itself" if forced else ""
            raise ValueError(
                f"{cell}: {longest} tokens of the longest prompt{written} and a budget of {cell.budget}{limit} do not "
                f"fit {model}'s context of {context} tokens; lower {lower}, or raise engine.max_model_len "
                "where the model can"
            )
