"""The CPU as a platform of verl 0.9.1, which ships platforms for CUDA, NPU and ROCm only."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class CpuDevice:
    """What verl asks of a module like `torch.cuda` and `torch.cpu` does not have. Memory is the operating system's."""

    Stream = torch.cpu.Stream
    current_stream = staticmethod(torch.cpu.current_stream)
    stream = staticmethod(torch.cpu.stream)

    @staticmethod
    def _nothing(*args: Any, **kwargs: Any) -> None:
        pass

    @staticmethod
    def _zero(*args: Any, **kwargs: Any) -> int:
        return 0

    empty_cache = ipc_collect = synchronize = set_device = set_per_process_memory_fraction = _nothing
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _zero

    @staticmethod
    def mem_get_info(*args: Any) -> tuple[int, int]:
        """Available and total memory in bytes."""
        import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> torch.device:
        return torch.device("cpu")

    @staticmethod
    def get_device_name(*args: Any) -> str:
        return "cpu"

    @staticmethod
    def get_rng_state(*args: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *args: Any) -> None:
        torch.set_rng_state(state)


class CpuPlatform(PlatformBase):
    """Selected by VERL_PLATFORM=cpu."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> Any:
        return CpuDevice

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        # Never found by verl's own detection, which runs in processes without a GPU on GPU clusters too.
        return False

    def current_device(self) -> torch.device:
        # verl calls model.to(device=...) with this; an index would mean an accelerator.
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        # verl places its workers on GPUs. Ray is started with a pretended one (launch.local_cluster).
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        # Device memory handles do not exist; False makes verl send weights through shared memory.
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        # vLLM's own count, one core for its scheduler and the rest for the model, without pinning threads to cores: the
        # trainer uses the same ones.
        threads = max(1, len(os.sched_getaffinity(0)) - 1)
        return {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}

    def cudart(self) -> None:
        return None


def register() -> None:
    """Make VERL_PLATFORM=cpu known to verl."""
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
