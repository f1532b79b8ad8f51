"""The server of rollouts: verl's for vLLM, which reports a request once, at its end, and takes requests in groups."""

from collections.abc import AsyncIterator
from typing import Any


def register(replica: Any) -> None:
    """Once `verl.workers.rollout.replica` is imported: make the rollout name "vllm" mean this server."""
    replica.RolloutReplicaRegistry.register("vllm", _replica_class)


def _replica_class() -> Any:
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    class Replica(vLLMReplica):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = ray.remote(server_class())

    return Replica


def server_class() -> Any:
    """A subclass of verl's `vLLMHttpServer`. vLLM takes seconds to import, so a server's process alone does."""
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
    from vllm.sampling_params import RequestOutputKind

    from elastic_core.training.grpo.groups import Request, answers

    class RolloutServer(vLLMHttpServer):
        async def generate(self, prompt_ids: Any, sampling_params: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            # verl waits for the end of a request but has every token reported, each time with all before it. It takes
            # the parameters as they are: only vLLM's own enum is understood.
            params = sampling_params | {"output_kind": RequestOutputKind.FINAL_ONLY}
            return await super().generate(prompt_ids, params, *args, **kwargs)

        async def generate_group(self, requests: list[Request]) -> AsyncIterator[list[tuple[int, Any]]]:
            async for found in answers(self.generate, requests):
                yield found

    return RolloutServer
