"""verl's FSDP engine on a CPU. Its code is device-agnostic; verl 0.9.1 registers it for CUDA and NPU only."""

from torch.distributed.fsdp import OffloadPolicy
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
from verl.workers.engine.fsdp import transformer_impl


def register(_: object) -> None:
    """Make the strategies "fsdp" and "fsdp2" available to language models on a CPU, once the engines are imported."""
    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)
    transformer_impl.CPUOffloadPolicy = _stay


def _stay(*, pin_memory: bool) -> OffloadPolicy:
    """In place of the policy that keeps the reference model's weights in pinned memory, of which there is none without
    an accelerator, and no need: they lie in the machine's memory already."""
    return OffloadPolicy()
