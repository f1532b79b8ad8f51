"""The far side of `elastic_core.engines.ray_engine`: vLLM inside a Ray actor, so that its crash or leak stays there."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.parameters import EngineParameters
from elastic_core.strategies.base import Completion, Generate

if TYPE_CHECKING:
    from elastic_core.engines.vllm import VllmEngine

Ask = tuple[int, Generate, int]
"""Number of the request, the request, its seed."""

Reply = tuple[int, Completion | str]
"""Number of the request, and the completion or why there is none."""


LINGER_SECONDS = 0.02
"""How long the first completion of a group waits for company. It delays no token: while requests queue, the engine's
batch stays full, and a group costs the flow's process one call instead of many."""


class EngineActor:
    """Requests arrive in groups and completions leave in groups, each as soon as it is there: one call per request
    would cost more than a small model's decoding."""

    def __init__(self) -> None:
        # vLLM's own progress lines would be repeated on the driver's terminal.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        self._done: list[Reply] = []
        self._news = asyncio.Event()
        self._lost: EngineLost | None = None
        self._engine: VllmEngine | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def process_id(self) -> int:
        """Also tells that Ray has placed the actor."""
        return os.getpid()

    async def start(self, model: str, parameters: EngineParameters) -> None:
        """Load the model and warm it up."""
        from elastic_core.engines.vllm import VllmEngine

        self._engine = VllmEngine(model, parameters)
        await self._engine.warm_up()

    async def submit(self, batch: list[Ask]) -> None:
        """Begin these requests; their completions come through `collect`."""
        for ask in batch:
            task = asyncio.create_task(self._answer(*ask))
            self._tasks.add(task)  # The loop itself holds tasks only weakly.
            task.add_done_callback(self._tasks.discard)

    async def collect(self) -> list[Reply]:
        """Everything finished since the last call, at least one.

        Raises:
            EngineLost: when vLLM's engine core died.
        """
        await self._news.wait()
        await asyncio.sleep(LINGER_SECONDS)
        self._news.clear()
        if self._lost is not None:
            raise self._lost
        done, self._done = self._done, []
        return done

    async def shutdown(self) -> None:
        """Stop vLLM's processes."""
        if self._engine is not None:
            self._engine.shutdown()

    async def _answer(self, number: int, request: Generate, seed: int) -> None:
        assert self._engine is not None, "start comes first"
        try:
            reply: Completion | str = await self._engine.generate(request, seed)
        except EngineLost as error:
            self._lost = error
            self._news.set()
            return
        except RequestFailed as error:
            reply = str(error)
        except Exception as error:  # Somebody waits for a reply on the other side, whatever happened.
            reply = f"{type(error).__name__}: {error}"
        self._done.append((number, reply))
        self._news.set()
