"""vLLM engines in Ray actors, so that a crash or a leak stays there: `RayEngine` is one as an `Engine` of the flow's
process, `EngineActor` runs in the actor, and `ray_pool` starts several side by side.

Strategies run in the flow's process; only token ids travel, in groups. When the actor dies, a new one gets its
requests; a request's seed depends on its sample and prefix alone, so the rows are the same. Ray must be up.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.latency import Latency, Steps, measure_latency, measure_steps
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.request_groups import Numbered, Replies, RequestGroups
from elastic_core.strategies.base import Completion, Generate
from elastic_core.system.ray_cluster import joined_head_has_ended

MAX_REDOS = 2  # How often a request that was in flight when its actor died is sent again.

_CHECK_SECONDS = 5.0
_SHUTDOWN_SECONDS = 20.0


class RayEngine:
    """Use as `async with RayEngine(model, parameters) as engine:`. EngineLost where it does not start in time.

    Args:
        model: checkpoint directory or hub name, readable on the actor's machine.
        keeps_budgets: as of `VllmEngine`.
    """

    def __init__(self, model: str, parameters: EngineParameters, *, keeps_budgets: bool = False) -> None:
        self._model = model
        self._keeps_budgets = keeps_budgets
        self._parameters = parameters
        self._actor: Any = None
        self._requests = RequestGroups(self._submit)
        self._deaths_without_progress = 0
        self._last_progress = 0.0
        self._lost: EngineLost | None = None
        self.process_id = 0

    async def __aenter__(self) -> RayEngine:
        self._actor = await self._start()
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        self._lose(EngineLost("the engine was shut down"))
        await self._stop()

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`. Cancelling the caller leaves the request running on the actor; its completion is dropped."""
        if self._lost is not None:
            raise self._lost
        return await self._requests.ask((request, seed))  # type: ignore[no-any-return]

    async def speed(self, prompts: Sequence[Sequence[int]], most: int) -> tuple[Latency, Steps]:
        """See `measure_latency` and `measure_steps`; on the actor, so that no call to it is in the figures."""
        latency, steps = await self._actor.speed.remote([list(prompt) for prompt in prompts], most)
        return Latency(*latency), Steps(*steps)

    def _submit(self, requests: list[Numbered]) -> bool:
        if self._actor is None:  # They wait for the next one.
            return False
        if not self._requests.in_flight:
            self._last_progress = time.monotonic()
        self._actor.submit.remote(requests)
        return True

    async def _serve(self) -> None:
        """Receive completions, and replace the actor when it dies, until cancelled."""
        import ray

        try:
            while True:
                try:
                    await self._receive()
                except (ray.exceptions.RayActorError, EngineLost) as death:
                    await self._replace(death)
        except EngineLost as error:
            self._lose(error)
        except Exception as error:
            self._lose(EngineLost(f"the connection to the engine broke: {error!r}"))
            raise

    async def _receive(self) -> None:
        while True:
            replies = await _answer(self._actor.collect.remote(), self._check_progress)
            self._deaths_without_progress, self._last_progress = 0, time.monotonic()
            self._requests.resolve(replies)

    def _check_progress(self) -> None:
        limit, pending = self._parameters.stall_timeout_seconds, len(self._requests.in_flight)
        if pending and time.monotonic() - self._last_progress > limit:
            raise EngineLost(f"the engine finished none of {pending} requests within {limit:g} s")

    async def _replace(self, death: Exception) -> None:
        """Start another actor and send it the requests that the dead one had not answered. Raises EngineLost when
        actors keep dying without finishing anything, or no new one starts."""
        await self._stop()
        self._deaths_without_progress += 1
        if self._deaths_without_progress > MAX_REDOS:
            raise EngineLost(
                f"the engine for {self._model} died {self._deaths_without_progress} times in a row without finishing a "
                f"request: {death}"
            )
        for call in self._requests.take():
            call.deaths += 1
            if call.deaths <= MAX_REDOS:
                self._requests.waiting.append(call)
            else:
                call.settle(RequestFailed(f"the engine died {call.deaths} times under this request"))
        self._actor = await self._start()
        self._requests.send()

    def _lose(self, error: EngineLost) -> None:
        self._lost = self._lost or error
        self._requests.fail(self._lost)

    async def _start(self) -> Any:
        import ray

        await asyncio.to_thread(_check_head)
        needed = {"CPU": 1, "GPU": self._parameters.num_gpus}
        waited_for = f"Ray to place an actor with {needed}; the cluster has {ray.cluster_resources()}"
        limit = self._parameters.start_timeout_seconds
        # An engine without a GPU reserves one CPU and uses all: by default Ray would put every one on the same node.
        strategy = "DEFAULT" if self._parameters.num_gpus else "SPREAD"
        options = {"num_cpus": 1, "num_gpus": self._parameters.num_gpus, "scheduling_strategy": strategy}
        actor = ray.remote(EngineActor).options(**options).remote()
        try:
            async with asyncio.timeout(limit):
                self.process_id = await _answer(actor.process_id.remote())
                waited_for = f"vLLM to load {self._model} and answer"
                await _answer(actor.start.remote(self._model, self._parameters, self._keeps_budgets))
        except BaseException as error:
            ray.kill(actor)
            if isinstance(error, TimeoutError):
                raise EngineLost(f"no engine after {limit:g} s: waited for {waited_for}") from None
            if isinstance(error, ray.exceptions.RayError):
                raise EngineLost(f"vLLM did not start for {self._model}: {error}") from error
            raise
        return actor

    async def _stop(self) -> None:
        import ray

        actor, self._actor = self._actor, None
        if actor is None:
            return
        with suppress(TimeoutError, ray.exceptions.RayError):  # It may be dead or stuck.
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await actor.shutdown.remote()
        ray.kill(actor)


async def _answer(call: Any, check: Callable[[], None] = lambda: None) -> Any:
    """Await the actor's answer; poll that it can still come."""
    answer = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait([answer], timeout=_CHECK_SECONDS))[0]:
            check()
            await asyncio.to_thread(_check_head)
        return answer.result()
    finally:
        answer.cancel()


def _check_head() -> None:
    """EngineLost where Ray's head has ended, or is not the one that this process belongs to. Ray itself would wait for
    that without end, and other questions about the cluster would abort the process (2.60)."""
    import ray
    from ray.experimental.internal_kv import _internal_kv_exists

    if joined_head_has_ended():
        raise EngineLost("Ray's head has ended, and all engines with it; the same command goes on")
    try:
        _internal_kv_exists("elastic")
    except ray.exceptions.AuthenticationError as error:
        if "WrongClusterID" not in str(error):
            raise
        raise EngineLost(
            "Ray's head was started anew, and does not know this run; start Ray again on the other nodes too, and "
            "give the same command again"
        ) from None


@asynccontextmanager
async def ray_pool(
    checkpoints: Mapping[str, str], parameters: EngineParameters, *, keeps_budgets: bool = False
) -> AsyncIterator[list[dict[str, RayEngine]]]:
    """`parameters.data_parallel_size` replicas, started together and stopped together: an engine for each checkpoint
    (directory or hub name), by name. Raises EngineLost when one did not start."""
    replicas = [
        {name: RayEngine(path, parameters, keeps_budgets=keeps_budgets) for name, path in checkpoints.items()}
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
        yield replicas


class EngineActor:
    """The far side of a `RayEngine`, which calls `start` before anything else that needs the engine."""

    def __init__(self) -> None:
        # vLLM's progress lines would be repeated on the driver's terminal.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        self._replies = Replies(self._generate)

    async def process_id(self) -> int:
        return os.getpid()

    async def start(self, model: str, parameters: EngineParameters, keeps_budgets: bool) -> None:
        from elastic_core.engines.vllm import VllmEngine

        self._context = parameters.max_model_len
        self._engine = VllmEngine(model, parameters, keeps_budgets=keeps_budgets)
        await self._engine.warm_up()

    async def speed(self, prompts: list[list[int]], most: int) -> tuple[Latency, Steps]:
        """See `RayEngine.speed`. No other request may run at the same time."""
        steps = await measure_steps(self._engine, prompts, self._context, most)
        return await measure_latency(self._engine, prompts, self._context), steps

    async def submit(self, requests: list[Numbered]) -> None:
        self._replies.submit(requests)

    async def collect(self) -> list[Numbered]:
        return await self._replies.collect()

    async def shutdown(self) -> None:
        self._engine.shutdown()

    async def _generate(self, request: tuple[Generate, int]) -> Completion:
        try:
            return await self._engine.generate(*request)
        except (EngineLost, RequestFailed):
            raise
        except Exception as error:  # Not every exception survives the way to the other process.
            raise RequestFailed(f"{type(error).__name__}: {error}") from error
