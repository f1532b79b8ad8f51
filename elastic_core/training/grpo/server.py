"""The sampler of rollouts: a strategy's engine, verl's client in a rollout worker, and verl's vLLM server.

The server reports a request once, at its end, and takes requests in groups where the CPU trains: there models are so
small that one Ray call per request costs more than its tokens.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from verl.workers.rollout.llm_server import LLMServerClient

from elastic_core.engines.budgets.parameters import SOLUTION, THINK, closing_arguments
from elastic_core.engines.request_groups import Numbered, Replies, RequestGroups
from elastic_core.seeds import request_seed
from elastic_core.strategies import Completion, Finish, Generate


class ServerEngine:
    """verl's LLM server, by its client, as an engine of one rollout.

    `base` are the sampling parameters that a `Generate` does not carry, such as top_k. Unless `seeded` the server's
    generator draws. `extra_fields` holds verl's bookkeeping over all requests (the range of weight versions that
    answered), `generated` counts their tokens, those that one pass forced included.
    """

    def __init__(self, server: Any, base: dict[str, Any], *, seeded: bool) -> None:
        self._server, self._base, self._seeded = server, base, seeded
        # One id per rollout keeps its requests on one replica, which has the thought in its prefix cache.
        self._rollout = uuid4().hex
        self.extra_fields: dict[str, Any] = {}
        self.generated = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        """Raises RuntimeError when the server aborted the request."""
        sampling, budget = request.sampling, request.budget
        params = self._base | {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": sampling.logprobs,
            "max_tokens": request.max_tokens,
            "stop_token_ids": list(request.stop),
            "seed": request_seed(seed, request) if self._seeded else None,
            "detokenize": False,
        }
        if budget:
            closing = closing_arguments(request.marks) if request.marks else {}
            params["extra_args"] = {THINK: budget.think, SOLUTION: budget.solution, **closing}
        output = await self._server.generate(
            request_id=self._rollout, prompt_ids=list(request.prefix), sampling_params=params
        )
        if output.stop_reason == "aborted":
            raise RuntimeError(f"the rollout server aborted a request after {len(output.token_ids)} tokens")
        first = self.extra_fields.get("min_global_steps")
        self.extra_fields |= output.extra_fields
        if first is not None:
            self.extra_fields["min_global_steps"] = first
        tokens = tuple(output.token_ids)
        self.generated += len(tokens)
        # verl reports both a stop token and exhausted tokens as "completed".
        stopped = bool(tokens) and tokens[-1] in request.stop
        logprobs = tuple(output.log_probs) if sampling.logprobs else None
        return Completion(tokens, Finish.STOP if stopped else Finish.LENGTH, logprobs)


class GroupedClient(LLMServerClient):  # type: ignore[misc]
    """Replaces verl's client: requests travel in groups to `servers`, Ray actors of `server_class`. A rollout's UUID
    decides which one, without verl's load balancer: always the one with the thought in its prefix cache."""

    def __init__(self, config: Any, servers: Sequence[Any], **more: Any) -> None:
        super().__init__(config, **more)
        self._servers = list(servers)
        self._groups: dict[int, _ServerGroups] = {}

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        number = UUID(request_id).int % len(self._servers)
        if number not in self._groups:
            self._groups[number] = _ServerGroups(self._servers[number])
        request = {"request_id": uuid4().hex, "prompt_ids": prompt_ids, "sampling_params": sampling_params} | more
        output = await self._groups[number].ask(request)
        step = output.extra_fields.get("global_steps")
        output.extra_fields |= {"min_global_steps": step, "max_global_steps": step}
        return output


class _ServerGroups(RequestGroups):
    """One server's, of one worker. When the server dies, all of its requests fail, and the training with them."""

    def __init__(self, server: Any) -> None:
        super().__init__(self._hand_over)
        self._server, self._client = server, uuid4().hex
        self._receiving: asyncio.Task[None] | None = None

    def _hand_over(self, requests: list[Numbered]) -> bool:
        self._server.submit_group.remote(self._client, requests)
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._receive())
        return True

    async def _receive(self) -> None:
        try:
            while self.in_flight:
                self.resolve(await self._server.collect_group.remote(self._client))
        except Exception as error:
            self.fail(error)
        finally:
            self._receiving = None


def server_class() -> Any:
    """A subclass of verl's `vLLMHttpServer`, made here because its module imports vLLM, which takes seconds."""
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
    from vllm.sampling_params import RequestOutputKind

    class RolloutServer(vLLMHttpServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # By client.
            self._replies = defaultdict[str, Replies](lambda: Replies(lambda request: self.generate(**request)))

        async def generate(self, prompt_ids: Any, sampling_params: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            # verl waits for the end of a request but has every token reported, each time with all before it. It takes
            # the parameters as they are: only vLLM's enum is understood.
            params = sampling_params | {"output_kind": RequestOutputKind.FINAL_ONLY}
            return await super().generate(prompt_ids, params, *args, **kwargs)

        async def submit_group(self, client: str, requests: list[Numbered]) -> None:
            self._replies[client].submit(requests)

        async def collect_group(self, client: str) -> list[Numbered]:
            return await self._replies[client].collect()

    return RolloutServer


def replica_class() -> Any:
    """verl's vLLM replica with our server."""
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    class Replica(vLLMReplica):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = ray.remote(server_class())

    return Replica
