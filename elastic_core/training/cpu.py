"""verl 0.9.1 without an accelerator: the CPU as a platform, like its CUDA, NPU and ROCm; FSDP and vLLM on it.

vLLM and verl's engines are imported inside functions: every process that imports verl loads this, few of them use one.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from elastic_core.engines.parameters import SAMPLER_THREADS, AliasFinder

_CPU = torch.device("cpu")


def register_platform() -> None:
    """Make VERL_PLATFORM=cpu known to verl. Before anything asks for the platform."""
    import torch.distributed

    PlatformRegistry.register(platform="cpu")(CpuPlatform)
    sys.meta_path.append(AliasFinder())
    original = torch.distributed.init_process_group

    # verl 0.9.1, torch 2.11 to 2.13: verl asks for the backend "cpu:gloo,<device>:<backend>" in two functions that its
    # workers import by name. On a CPU that reads "cpu:gloo,cpu:gloo", and torch refuses a repeated device.
    @wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        original("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def register_engine(engine: Any) -> None:
    """Once `verl.workers.engine` is imported: make "fsdp" and "fsdp2" available to language models. Its code is
    device-agnostic; verl registers it for CUDA and NPU only."""
    from torch.distributed.fsdp import OffloadPolicy
    from verl.workers.engine.fsdp import transformer_impl

    register = engine.EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
    register(engine.FSDPEngineWithLMHead)
    # verl's policy keeps the reference model's weights in pinned memory, which needs an accelerator.
    transformer_impl.CPUOffloadPolicy = lambda *, pin_memory: OffloadPolicy()


def start_no_load_balancer() -> None:
    """Leave verl's balancer out of a trainer whose rollouts use `server.GroupedClient`, which needs none: its process
    would import for ten seconds while two cores start all others."""
    from verl.workers.rollout import llm_server

    async def without(self: Any) -> None:
        self.global_load_balancer = None

    llm_server.LLMServerManager._init_global_load_balancer = without


def register_worker(utils: Any) -> None:
    """Once `verl.workers.rollout.vllm_rollout.utils` is imported: have vLLM's worker take new weights as a CPU can.

    vLLM repacks weights after loading on a CPU and drops their loaders, so verl's `model.load_weights` would write into
    the wrong layout. `reload_weights` restores the loaders and repacks again."""

    def update_weights_from_ipc(
        self: Any, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

        if peft_config:
            raise NotImplementedError("LoRA weights cannot be updated in vLLM on a CPU; train the full model")
        weights: list[tuple[str, torch.Tensor]] = []

        def keep(bucket: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The receiver overwrites its buffer with the next bucket.
            weights.extend((name, tensor.clone()) for name, tensor in bucket)

        receiver = BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=_CPU, use_shm=use_shm)
        receiver.receive_weights(on_bucket_received=keep)
        self.model_runner.reload_weights(weights_iterator=iter(weights))

    utils.vLLMColocateWorkerExtension.update_weights_from_ipc = update_weights_from_ipc


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _give_memory_back(*args: Any) -> None:
    """Do as CUDA's `empty_cache`: verl calls it once a step, and KEPT_MEMORY else keeps what passes of other sizes
    have left in pieces, more with every step."""
    ctypes.CDLL(None).malloc_trim(0)


class CpuDevice:
    """What verl calls of a module like `torch.cuda`; `torch.cpu` lacks some of it. Memory is the operating system's."""

    Stream = torch.cpu.Stream
    current_stream = staticmethod(torch.cpu.current_stream)
    stream = staticmethod(torch.cpu.stream)
    is_available = staticmethod(torch.cpu.is_available)
    device_count = staticmethod(torch.cpu.device_count)
    get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))
    current_device = staticmethod(lambda: _CPU)
    get_device_name = staticmethod(lambda *_: "cpu")
    empty_cache = staticmethod(_give_memory_back)
    ipc_collect = synchronize = set_device = set_per_process_memory_fraction = staticmethod(_nothing)
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = staticmethod(lambda *_, **__: 0)

    @staticmethod
    def mem_get_info(*args: Any) -> tuple[int, int]:
        """Available and total memory in bytes."""
        import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total


def _always(value: Any) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: value


class CpuPlatform(PlatformBase):
    """Selected by VERL_PLATFORM=cpu."""

    device_name = vendor_name = "cpu"
    device_module = CpuDevice
    set_device = synchronize = empty_cache = set_allocator_settings = _nothing
    profiler_start = profiler_stop = cudart = _nothing
    is_available = _always(True)
    # Never found by verl's detection, which runs in processes without a GPU on GPU clusters too.
    is_platform_available = _always(False)
    # verl calls model.to(device=...) with this; an index would mean an accelerator.
    current_device = _always(_CPU)
    device_count = _always(1)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")
    # verl places its workers on GPUs. Ray is started with pretended ones (ray_cluster.local_cluster).
    ray_resource_name = _always("GPU")
    ray_noset_envvars = _always(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    # Device memory handles do not exist: verl sends weights through shared memory.
    is_ipc_supported = _always(False)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def rollout_env_vars(self) -> dict[str, str]:
        return {
            # Threads are not pinned to cores: the trainer uses the same ones.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": os.environ.get(SAMPLER_THREADS, "1"),
            # Else unused ranks of sampled tokens are counted by a kernel that C++ compiles first.
            "TORCH_COMPILE_DISABLE": "1",
        }
