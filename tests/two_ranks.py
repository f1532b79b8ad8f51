"""Run by test_training_untied.py: two FSDP2 ranks over gloo compute gradients of models as verl's engine does.

    python -m tests.two_ranks DIRECTORY...

DIRECTORY/model is a model; DIRECTORY/gradients.pt will be its gradients, averaged over the ranks as FSDP does, those of
its micro-batches communicated one by one or together ("each", "last"), and DIRECTORY/saved.pt its weights after shards
were saved and loaded.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANKS, MICRO_BATCHES, TOKENS, TEMPERATURE = 2, 3, 16, 0.6


def rows(vocabulary: int) -> torch.Tensor:
    """Token ids (rank, micro-batch, 1, TOKENS)."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, vocabulary, (RANKS, MICRO_BATCHES, 1, TOKENS), generator=generator)


def _run(rank: int, directories: list[Path], rendezvous: str) -> None:
    os.environ |= {"VERL_PLATFORM": "cpu", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    torch.set_num_threads(1)
    import verl  # noqa: F401  loads our plugin

    from elastic_core.training.plugin_check import require_plugin

    require_plugin()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=RANKS)
    for directory in directories:
        model = _sharded(directory / "model")
        mine = rows(model.config.vocab_size)[rank]
        gradients = {how: _gradients(model, mine, together=how == "last") for how in ("each", "last")}
        saved = _saved_and_loaded(model, directory / f"shard-{rank}.pt")
        if rank == 0:
            torch.save(gradients, directory / "gradients.pt")
            torch.save(saved, directory / "saved.pt")
    dist.destroy_process_group()


def _sharded(checkpoint: Path) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from transformers import AutoModelForCausalLM
    from verl.models.transformers.monkey_patch import apply_monkey_patch
    from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    apply_monkey_patch(model=model, use_remove_padding=False, use_fused_kernels=True, fused_kernels_backend="torch")
    full = model.state_dict()
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    precision = MixedPrecisionPolicy(torch.float32, torch.float32, cast_forward_inputs=True)
    apply_fsdp2(model, {"mesh": mesh, "mp_policy": precision, "reshard_after_forward": True}, {})
    fsdp2_load_full_state_dict(model, full, mesh, None)
    return model


def _gradients(model: Any, micro_batches: torch.Tensor, together: bool) -> dict[str, torch.Tensor]:
    model.zero_grad()
    places = torch.arange(TOKENS).unsqueeze(0)
    for i, ids in enumerate(micro_batches):
        # What use_no_sync_for_gradient_accumulation does in verl's engine.
        model.set_requires_gradient_sync(not together or i == MICRO_BATCHES - 1)
        output = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=places, temperature=TEMPERATURE,
            return_dict=True, use_cache=False,
        )  # fmt: skip
        output.log_probs.sum().backward()
    return {name: weight.grad.full_tensor() for name, weight in model.named_parameters()}


def _saved_and_loaded(model: Any, shard: Path) -> dict[str, torch.Tensor]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    torch.save(model.state_dict(), shard)
    model.load_state_dict(torch.load(shard, weights_only=False))
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


if __name__ == "__main__":
    targets = [Path(argument) for argument in sys.argv[1:]]
    torch.multiprocessing.spawn(_run, args=(targets, f"file://{targets[0]}/rendezvous"), nprocs=RANKS)
