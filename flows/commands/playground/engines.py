"""The engines of the page's models, each started when it is needed: two at once where they fit into memory, else one
after the other. A model behind a server needs none here."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.engines.base import EngineLost
from elastic_core.engines.http import HttpEngine, http_pool
from elastic_core.engines.http_server import ServerLost
from elastic_core.engines.parameters import DEFAULT_CPU_CACHE_GIB, EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.errors import UserError, first_line
from elastic_core.models.special_tokens import Markers, load_markers
from elastic_core.system.accelerators import installed_gpus
from flows.commands.doctor.machine import GIB, cgroup_memory_limit
from flows.commands.playground.choices import Choices

_log = logging.getLogger(__name__)

MAX_SEQUENCES = 16
"""Sequences an engine decodes together: a page needs few, and warms up the faster."""
_MOST_ENGINES = 2
"""Base and trained."""
_PROCESS_GIB = 2.0
"""Of an engine's process, beside weights and cache: of a small model both together were 1.9 GiB at most on a CPU."""


@dataclass
class Loaded:
    """A model that answers.

    Attributes:
        users: runs that need it now.
    """

    name: str
    engine: VllmEngine | HttpEngine
    tokenizer: Any
    markers: Markers
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    users: int = 0


class Ready(NamedTuple):
    """Models that answer, and why others do not, by name."""

    loaded: dict[str, Loaded]
    refused: dict[str, str]


class Engines:
    """All of it lives in one event loop.

    Attributes:
        at_once: how many engines there may be.
    """

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self.at_once = _num_engines(choices)
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._starting = asyncio.Lock()
        self._idle = asyncio.Event()

    def batches(self, models: Sequence[str]) -> list[list[str]]:
        """The models in groups that can answer at the same time; those that are loaded come first."""
        behind = [model for model in models if model in self._choices.endpoints]
        here = sorted((model for model in models if model not in behind), key=lambda model: model not in self._loaded)
        first, *rest = [here[i : i + self.at_once] for i in range(0, len(here), self.at_once)] or [[]]
        return [behind + first, *rest]

    @asynccontextmanager
    async def using(self, batch: Sequence[str]) -> AsyncIterator[Ready]:
        """The models of one of the `batches`. Whoever wants others waits until nobody uses these, and whoever comes
        later waits behind: all of a batch are taken together, so that no two runs wait for each other."""
        ready = Ready({}, {})
        try:
            async with self._starting:
                for model in batch:
                    try:
                        loaded = await self._get(model, batch)
                    except UserError as error:
                        ready.refused[model] = str(error)
                    else:
                        loaded.users += 1
                        ready.loaded[model] = loaded
            yield ready
        finally:
            for loaded in ready.loaded.values():
                loaded.users -= 1
            self._idle.set()

    async def drop(self, loaded: Loaded) -> None:
        """End one that answers no more; it is started anew when it is needed."""
        if self._loaded.get(loaded.name) is loaded:
            del self._loaded[loaded.name]
            await loaded.resources.aclose()

    async def aclose(self) -> None:
        """End all."""
        for loaded in list(self._loaded.values()):
            await self.drop(loaded)

    async def _get(self, model: str, batch: Sequence[str]) -> Loaded:
        if model not in self._loaded:
            if model not in self._choices.endpoints:
                await self._make_room(batch)
            self._loaded[model] = await self._load(model)
        self._loaded.move_to_end(model)
        return self._loaded[model]

    async def _make_room(self, batch: Sequence[str]) -> None:
        """For one more engine: those used longest ago end first."""
        while len(here := [name for name in self._loaded if name not in self._choices.endpoints]) >= self.at_once:
            idle = [name for name in here if name not in batch and not self._loaded[name].users]
            if idle:
                await self.drop(self._loaded[idle[0]])
            else:
                self._idle.clear()
                await self._idle.wait()

    async def _load(self, model: str) -> Loaded:
        directory = str(self._choices.models[model])
        resources = AsyncExitStack()
        try:
            tokenizer, markers = load_markers(directory)
            return Loaded(model, await self._engine(model, directory, resources), tokenizer, markers, resources)
        except UserError:
            await resources.aclose()
            raise
        except ServerLost as error:
            await resources.aclose()
            raise UserError(lost(error)) from None
        except Exception as error:  # vLLM's own kinds are many; its log says more.
            _log.exception("the engine for %s did not start", directory)
            await resources.aclose()
            raise UserError(f"{model} cannot be loaded: {first_line(error)}") from None

    async def _engine(self, model: str, directory: str, resources: AsyncExitStack) -> VllmEngine | HttpEngine:
        endpoint = self._choices.endpoints.get(model)
        if endpoint is not None:
            replicas = await resources.enter_async_context(http_pool({model: endpoint}))
            served: HttpEngine = replicas[0][model]
            return served
        parameters = self._choices.settings.engine
        share = parameters.gpu_memory_utilization / self.at_once
        engine = VllmEngine(
            directory, parameters.model_copy(update={"max_num_seqs": MAX_SEQUENCES, "gpu_memory_utilization": share})
        )
        resources.callback(engine.shutdown)
        await engine.warm_up()
        return engine


def lost(error: EngineLost) -> str:
    """What is said of a model that answers no more."""
    advice = "start that server, then run again" if isinstance(error, ServerLost) else "run again to start it anew"
    return f"{error}; {advice}"


def _num_engines(choices: Choices) -> int:
    parameters = choices.settings.engine
    here = [path for name, path in choices.models.items() if name not in choices.endpoints]
    needed = [memory_needed(parameters, path) for path in here]
    return num_engines(needed, memory_for_engines(parameters)) if len(needed) > 1 else 1


def memory_needed(parameters: EngineParameters, model: Path) -> float:
    """Bytes of one device that an engine takes, not too few: weights, cache, and what it computes with."""
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors")) / parameters.tensor_parallel_size
    if parameters.dtype == "float32":
        weights *= 2  # Most checkpoints are bfloat16.
    if parameters.device == "cpu" or parameters.kv_cache_gib:
        cache = (parameters.kv_cache_gib or DEFAULT_CPU_CACHE_GIB) * GIB
    else:
        cache = weights  # It takes what is left of its share, and works with less.
    return weights + cache + _PROCESS_GIB * GIB


def memory_for_engines(parameters: EngineParameters) -> float:
    """Bytes of one device that engines may take together."""
    if parameters.device == "cuda":
        smallest = min((gpu.total for gpu in installed_gpus()), default=0)
        return smallest * parameters.gpu_memory_utilization
    import psutil

    available = psutil.virtual_memory().available
    return min(available, cgroup_memory_limit() or available)


def num_engines(needed: Sequence[float], room: float) -> int:
    """As many at once as always fit, each with the same share.

    Args:
        needed: bytes, of every model that may be chosen.
        room: bytes.
    """
    return max(1, min(_MOST_ENGINES, int(room // max(needed))))
