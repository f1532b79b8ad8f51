"""vLLM engines in Ray actors, so that a crash or a leak stays there: `RayEngine` is one as an `Engine` of the flow's
process, `EngineActor` runs in the actor, and `ray_pool` starts several side by side.

Strategies run in the flow's process; only token ids travel. Requests that are queued within one tick of the event loop
travel in one call. When the actor dies, its requests go to a new one and draw the same tokens, because a request's seed
depends on its sample and prefix alone. Ray must be initialised.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from elastic_core.engines.base import EngineLost, Latency, RequestFailed, measure_latency
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

MAX_REDOS = 2
"""How often a request that was in flight when its actor died is asked again."""

_CHECK_SECONDS = 5.0
_SHUTDOWN_SECONDS = 20.0


@dataclass
class _Call:
    request: Generate
    seed: int
    future: asyncio.Future[Completion]
    deaths: int = 0


class RayEngine:
    """Use as `async with RayEngine(model, parameters) as engine:`.

    Args:
        model: checkpoint directory or hub name, readable on the actor's machine.
        keeps_budgets: as of `VllmEngine`.

    Raises:
        EngineLost: on entering, when the actor did not start in time or at all.
    """

    def __init__(self, model: str, parameters: EngineParameters, *, keeps_budgets: bool = False) -> None:
        self._model = model
        self._keeps_budgets = keeps_budgets
        self._parameters = parameters
        self._actor: Any = None
        self._numbers = itertools.count()
        self._waiting: list[_Call] = []
        self._in_flight: dict[int, _Call] = {}
        self._deaths_without_progress = 0
        self._last_progress = 0.0
        self._lost: EngineLost | None = None
        self._serving: asyncio.Task[None] | None = None
        self.process_id = 0

    async def __aenter__(self) -> RayEngine:
        self._actor = await self._start()
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        self._lose(EngineLost("the engine was shut down"))
        await self._stop()

    async def generate(self, request: Generate, seed: int) -> Completion:
        """See `Engine`. Cancelling the caller leaves the request running on the actor; its completion is dropped."""
        if self._lost is not None:
            raise self._lost
        loop = asyncio.get_running_loop()
        call = _Call(request, seed, loop.create_future())
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(call)
        return await call.future

    async def latency(self, prompts: Sequence[Sequence[int]]) -> Latency:
        """See `measure_latency`; on the actor, so that no call to it is in the figures."""
        return Latency(*await self._actor.latency.remote([list(prompt) for prompt in prompts]))

    def _send(self) -> None:
        if self._actor is None or not self._waiting:  # Without an actor they wait for the next one.
            return
        if not self._in_flight:
            self._last_progress = time.monotonic()
        batch: list[Ask] = []
        for call in self._waiting:
            number = next(self._numbers)
            self._in_flight[number] = call
            batch.append((number, call.request, call.seed))
        self._waiting = []
        self._actor.submit.remote(batch)

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
            news = asyncio.ensure_future(self._actor.collect.remote())
            try:
                while not (await asyncio.wait([news], timeout=_CHECK_SECONDS))[0]:
                    self._check_progress()
                self._resolve(news.result())
            finally:
                news.cancel()

    def _check_progress(self) -> None:
        limit = self._parameters.stall_timeout_seconds
        if self._in_flight and time.monotonic() - self._last_progress > limit:
            raise EngineLost(f"the engine finished none of {len(self._in_flight)} requests within {limit:g} s")

    def _resolve(self, replies: list[Reply]) -> None:
        self._deaths_without_progress, self._last_progress = 0, time.monotonic()
        for number, reply in replies:
            future = self._in_flight.pop(number).future
            if future.done():
                continue
            if isinstance(reply, Completion):
                future.set_result(reply)
            else:
                future.set_exception(RequestFailed(reply))

    async def _replace(self, death: Exception) -> None:
        """Start another actor and ask it what the dead one had not answered.

        Raises:
            EngineLost: when actors keep dying without finishing anything, or no new one starts.
        """
        await self._stop()
        self._deaths_without_progress += 1
        if self._deaths_without_progress > MAX_REDOS:
            raise EngineLost(
                f"the engine for {self._model} died {self._deaths_without_progress} times in a row without finishing a "
                f"request: {death}"
            )
        unanswered, self._in_flight = list(self._in_flight.values()), {}
        for call in unanswered:
            call.deaths += 1
            if call.deaths <= MAX_REDOS:
                self._waiting.append(call)
            elif not call.future.done():
                call.future.set_exception(RequestFailed(f"the engine died {call.deaths} times under this request"))
        self._actor = await self._start()
        self._send()

    def _lose(self, error: EngineLost) -> None:
        self._lost = self._lost or error
        for call in (*self._in_flight.values(), *self._waiting):
            if not call.future.done():
                call.future.set_exception(self._lost)
        self._in_flight, self._waiting = {}, []

    async def _start(self) -> Any:
        import ray

        needed = {"CPU": 1, "GPU": self._parameters.num_gpus}
        waited_for = f"Ray to place an actor with {needed}; the cluster has {ray.cluster_resources()}"
        limit = self._parameters.start_timeout_seconds
        actor = ray.remote(EngineActor).options(num_cpus=1, num_gpus=self._parameters.num_gpus).remote()
        try:
            async with asyncio.timeout(limit):
                self.process_id = await actor.process_id.remote()
                waited_for = f"vLLM to load {self._model} and answer"
                await actor.start.remote(self._model, self._parameters, self._keeps_budgets)
        except TimeoutError:
            ray.kill(actor)
            raise EngineLost(f"no engine after {limit:g} s: waited for {waited_for}") from None
        except ray.exceptions.RayError as error:
            ray.kill(actor)
            raise EngineLost(f"vLLM did not start for {self._model}: {error}") from error
        except BaseException:
            ray.kill(actor)
            raise
        return actor

    async def _stop(self) -> None:
        import ray

        actor, self._actor = self._actor, None
        if actor is None:
            return
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await actor.shutdown.remote()
        except (TimeoutError, ray.exceptions.RayError):
            pass  # It is dead or stuck; killing it is what is left to do.
        ray.kill(actor)


@asynccontextmanager
async def ray_pool(
    checkpoints: Mapping[str, str], parameters: EngineParameters, *, keeps_budgets: bool = False
) -> AsyncIterator[list[dict[str, RayEngine]]]:
    """`parameters.data_parallel_size` replicas, started together and stopped together.

    Args:
        checkpoints: directory or hub name of each model, by the name it is asked for under.
        keeps_budgets: as of `VllmEngine`.

    Raises:
        EngineLost: when one did not start.
    """
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
        yield [dict(replica) for replica in replicas]


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
        self._context: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def process_id(self) -> int:
        """Also tells that Ray has placed the actor."""
        return os.getpid()

    async def start(self, model: str, parameters: EngineParameters, keeps_budgets: bool) -> None:
        """Load the model and warm it up."""
        from elastic_core.engines.vllm import VllmEngine

        self._context = parameters.max_model_len
        self._engine = VllmEngine(model, parameters, keeps_budgets=keeps_budgets)
        await self._engine.warm_up()

    async def latency(self, prompts: list[list[int]]) -> Latency:
        """See `measure_latency`. Nothing else may be asked meanwhile."""
        assert self._engine is not None, "start comes first"
        return await measure_latency(self._engine, prompts, self._context)

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
