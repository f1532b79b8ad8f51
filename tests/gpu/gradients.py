"""Checks the gradient of training: models sharded as in verl's engine, with its fused loss, against the plain model.

    python -m tests.gpu.gradients --device cpu --ranks 2 DIRECTORY

verl 0.9.1 fails at an untied output layer, where the obvious repair has a wrong gradient (plugin.py). The gradient is
that of several micro-batches, communicated one by one ("each") or together ("last"); weights are compared after shards
were saved and loaded. Not covered: bfloat16, padding, flash-attention.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import torch

FAMILIES = ("qwen2", "qwen3", "llama")
MICRO_BATCHES, TOKENS, TEMPERATURE = 3, 16, 0.6
RESULT, _GRADIENTS = "gradients.json", "gradients.pt"
TOLERANCE = {"cpu": 1e-5, "cuda": 1e-2}
"""Largest relative error of a weight's gradient, in float32. CUDA's kernels sum in another order than the CPU, and may
round to TF32; the mistake that is looked for is larger than 1."""
_VOCABULARY = 256
_MODELS = {f"{family} {kind}": (family, kind == "tied") for family in FAMILIES for kind in ("untied", "tied")}


class Checked(TypedDict):
    """Of a model: the relative error of each weight's gradient, by how micro-batches were communicated, and whether
    shards that were saved and loaded are the model."""

    errors: dict[Literal["each", "last"], dict[str, float]]
    saved: bool


def relative_errors(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Of each weight's gradient: the norm of the difference over the norm; infinite where only one side has it."""
    both = found.keys() & expected.keys()
    errors = {name: float((found[name] - expected[name]).norm() / expected[name].norm()) for name in both}
    return {name: errors.get(name, float("inf")) for name in sorted({*found, *expected})}


def problems(checked: Mapping[str, Checked], device: Literal["cpu", "cuda"]) -> list[str]:
    """A sentence for each way in which a model was not trained as it must be."""
    found = []
    for model, each in checked.items():
        for how, errors in each["errors"].items():
            # "not <" includes NaN.
            wrong = {name: error for name, error in errors.items() if not error < TOLERANCE[device]}
            if wrong:
                worst = max(wrong, key=wrong.__getitem__)
                told = f"the gradient of {worst} is {wrong[worst]:.1%} wrong (micro-batches communicated: {how})"
                found.append(f"{model}: {told}")
        if not each["saved"]:
            found.append(f"{model}: shards that were saved and loaded are not the model")
    return found


def _token_ids(ranks: int) -> torch.Tensor:
    """Of shape (rank, micro-batch, 1, TOKENS)."""
    import torch

    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, _VOCABULARY, (ranks, MICRO_BATCHES, 1, TOKENS), generator=generator)


def _write_model(checkpoint: Path, family: str, tied: bool, ranks: int) -> None:
    """A model, and without verl the gradient of its sum of log-probabilities, averaged over the ranks as FSDP does."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=_VOCABULARY, tie_word_embeddings=tied,
    )  # fmt: skip
    model: Any = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    for ids in _token_ids(ranks).flatten(0, 1):
        log_probs = (model(input_ids=ids).logits / TEMPERATURE).log_softmax(-1)
        # verl has it so: the last position is scored against the first token, and masked later.
        log_probs.gather(-1, ids.roll(-1, -1).unsqueeze(-1)).sum().backward()
    torch.save({name: weight.grad / ranks for name, weight in model.named_parameters()}, checkpoint / _GRADIENTS)


def _run_rank(rank: int, ranks: int, device: Literal["cpu", "cuda"], directory: Path) -> None:
    """One FSDP2 rank; the first writes what was found."""
    import torch
    import torch.distributed as dist

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    if device == "cpu":
        os.environ["VERL_PLATFORM"] = "cpu"
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(rank)
    import verl  # noqa: F401  loads our plugin

    from elastic_core.training.requirements import require_plugin

    require_plugin()
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(backend, init_method=f"file://{directory}/rendezvous", rank=rank, world_size=ranks)
    checked = {}
    for name in _MODELS:
        model = _sharded(directory / name, device, ranks)
        mine = _token_ids(ranks)[rank].to(device)
        found = {how: _gradients(model, mine, together=how == "last") for how in ("each", "last")}
        saved = _survives_saving(model, directory / name / f"shard-{rank}.pt", directory / name)
        if rank == 0:
            expected = torch.load(directory / name / _GRADIENTS)
            errors = {how: relative_errors(gradients, expected) for how, gradients in found.items()}
            checked[name] = {"errors": errors, "saved": saved}
    if rank == 0:
        (directory / RESULT).write_text(json.dumps(checked, indent=2) + "\n")
    dist.destroy_process_group()


def _sharded(checkpoint: Path, device: str, ranks: int) -> Any:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from transformers import AutoModelForCausalLM
    from verl.models.transformers.monkey_patch import apply_monkey_patch
    from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    apply_monkey_patch(model=model, use_remove_padding=False, use_fused_kernels=True, fused_kernels_backend="torch")
    full = model.state_dict()
    mesh = init_device_mesh(device, (ranks,), mesh_dim_names=("fsdp",))
    precision = MixedPrecisionPolicy(torch.float32, torch.float32, cast_forward_inputs=True)
    apply_fsdp2(model, {"mesh": mesh, "mp_policy": precision, "reshard_after_forward": True}, {})
    fsdp2_load_full_state_dict(model, full, mesh, None)
    return model


def _gradients(model: Any, micro_batches: torch.Tensor, together: bool) -> dict[str, torch.Tensor]:
    import torch

    model.zero_grad()
    places = torch.arange(TOKENS, device=micro_batches.device).unsqueeze(0)
    for i, ids in enumerate(micro_batches):
        # What use_no_sync_for_gradient_accumulation does in verl's engine.
        model.set_requires_gradient_sync(not together or i == MICRO_BATCHES - 1)
        output = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=places, temperature=TEMPERATURE,
            return_dict=True, use_cache=False,
        )  # fmt: skip
        output.log_probs.sum().backward()
    return {name: weight.grad.full_tensor().cpu() for name, weight in model.named_parameters()}


def _survives_saving(model: Any, shard: Path, checkpoint: Path) -> bool:
    """Whether the model is its checkpoint after its shard was saved and loaded. Every rank calls it."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from transformers import AutoModelForCausalLM

    torch.save(model.state_dict(), shard)
    model.load_state_dict(torch.load(shard, weights_only=False))
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)  # Only the first rank gets them.
    plain: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    return not weights or all(torch.equal(weights[name], weight) for name, weight in plain.state_dict().items())


def main(device: Literal["cpu", "cuda"], ranks: int, directory: Path) -> int:
    """Check every model, and write RESULT below `directory`; 1 if one has a problem, else 0."""
    import torch

    directory = directory.resolve()
    (directory / RESULT).unlink(missing_ok=True)
    (directory / "rendezvous").unlink(missing_ok=True)
    for name, (family, tied) in _MODELS.items():
        _write_model(directory / name, family, tied, ranks)
    torch.multiprocessing.spawn(_run_rank, args=(ranks, device, directory), nprocs=ranks)
    checked = json.loads((directory / RESULT).read_text())
    for model, each in checked.items():
        errors = {name: error for of in each["errors"].values() for name, error in of.items()}
        worst = max(errors, key=errors.__getitem__)
        print(f"{model:14} largest relative error {errors[worst]:.1e} ({worst})")
    wrong = problems(checked, device)
    print("\n".join(wrong) or f"the gradients of {ranks} FSDP2 ranks on {device} are those of one process")
    return int(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--ranks", type=int, required=True, help="processes; on CUDA one for each GPU")
    parser.add_argument("directory", type=Path, help="for models, shards and what was found")
    sys.exit(main(**vars(parser.parse_args())))
