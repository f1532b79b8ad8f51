"""verl's FSDP engine on a CPU. Its code is device-agnostic; verl 0.9.1 registers it for CUDA and NPU only."""

from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


def register() -> None:
    """Make the strategies "fsdp" and "fsdp2" available to language models on a CPU."""
    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)
