"""Engines side by side on Ray: replicas that share the work, each with one engine per checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from elastic_core.engines.base import Engine
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.ray_engine import RayEngine


@asynccontextmanager
async def ray_pool(
    checkpoints: Mapping[str, str], parameters: EngineParameters
) -> AsyncIterator[list[dict[str, Engine]]]:
    """`parameters.data_parallel_size` replicas, started together and stopped together.

    Args:
        checkpoints: directory or hub name of each model, by the name it is asked for under.

    Raises:
        EngineLost: when one did not start.
    """
    replicas = [
        {name: RayEngine(path, parameters) for name, path in checkpoints.items()}
        for _ in range(parameters.data_parallel_size)
    ]
    async with AsyncExitStack() as stack:
        # A failed start is raised after the others have come up, so that these are stopped too.
        started = await asyncio.gather(
            *(stack.enter_async_context(engine) for replica in replicas for engine in replica.values()),
            return_exceptions=True,
        )
        for result in started:
            if isinstance(result, BaseException):
                raise result
        yield [dict(replica) for replica in replicas]
