"""vLLM replicas on a CPU: verl's own, with a worker extension that can reload weights there.

Imports vLLM inside the functions: every process that imports verl loads the plugin, few of them generate.
"""

from typing import Any

WORKER_EXTENSION = "elastic_core.training.cpu_worker.CpuWorkerExtension"


def register(replica: Any) -> None:
    """Make verl's rollout name "vllm" mean the CPU replica, in the module that knows the names."""
    replica.RolloutReplicaRegistry.register("vllm", _replica_class)


def _replica_class() -> Any:
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
    from vllm.sampling_params import RequestOutputKind

    class CpuHttpServer(vLLMHttpServer):
        def _get_worker_extension_cls(self) -> str:
            return WORKER_EXTENSION

        async def generate(self, prompt_ids: Any, sampling_params: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            # verl waits for the end of a request but has every token reported, which costs more than small models do.
            params = sampling_params | {"output_kind": RequestOutputKind.FINAL_ONLY}
            return await super().generate(prompt_ids, params, *args, **kwargs)

    class CpuReplica(vLLMReplica):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = ray.remote(CpuHttpServer)

    return CpuReplica
