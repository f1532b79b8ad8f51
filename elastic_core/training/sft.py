"""Warm start: supervised fine-tuning by verl's SFT trainer, on rows of token ids.

    python -m elastic_core.training.sft config.json

reads a `WarmStart` as JSON, trains, and exports a Hugging Face checkpoint. Killed, the same command resumes from the
last checkpoint; finished, it says so and does nothing. Several processes need `torchrun`.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_core.models.families import copy_own
from elastic_core.models.files import let_others_read
from elastic_core.system.files import replacing_directory
from elastic_core.system.fingerprint import hash_files, model_fingerprint
from elastic_core.system.network import HOST, ON_LOOPBACK, free_ports
from elastic_core.training.sft_parameters import WarmStart

if TYPE_CHECKING:
    from omegaconf import DictConfig

RECORD = "warm_start.json"
"""What a working directory or an exported checkpoint was made from; a different record there is an error."""
_NOT_RECORDED = {
    *("model", "train_file", "work_dir", "output_dir"),
    *("device", "offload", "attention", "save_every", "loggers", "log_every"),
}


def compose_config(config: WarmStart) -> "DictConfig":
    """verl's SFT configuration for `config`."""
    from verl.utils.device import get_device_name

    from elastic_core.training.grpo.config import verl_config

    on_gpu = config.device == "gpu"
    changed: dict[str, Any] = {
        "data.train_files": str(config.train_file),
        "data.train_batch_size": config.batch_size,
        "data.micro_batch_size_per_gpu": config.batch_size if config.remove_padding else 1,
        # Where padding stays, rows of similar length share a pass on a CPU: a pass of one row is slow there.
        "data.use_dynamic_bsz": config.remove_padding or not on_gpu,
        "data.max_token_len_per_gpu": config.micro_batch_tokens,
        "data.max_length": config.max_length,
        # Worker processes cost more than they bring for rows that are ready, and die noisily at shutdown.
        "data.num_workers": 0,
        "data.custom_cls.path": "pkg://elastic_core.training.sft",
        "data.custom_cls.name": "TokenRows",
        "model.path": str(config.model),
        "model.use_remove_padding": config.remove_padding,
        "model.enable_gradient_checkpointing": on_gpu,
        # Log-probabilities in chunks of tokens: the logits of a long row over a large vocabulary fill a GPU.
        "model.use_fused_kernels": on_gpu,
        "+model.override_config.attn_implementation": config.attention,
        "engine.strategy": "fsdp2",
        "engine.model_dtype": "fp32",
        # Left out, FSDP computes in bf16; its `dtype` is read by other engines only.
        "+engine.mixed_precision.param_dtype": config.dtype,
        "engine.use_torch_compile": False,
        # Free gathered parameters between forward and backward: saves memory where parameters are sharded.
        "engine.reshard_after_forward": on_gpu,
        "engine.offload_policy": config.offload,
        "+optim.override_optimizer_config.fused": True,
        "optim.lr": config.learning_rate,
        "optim.lr_scheduler_type": "cosine",
        "optim.lr_warmup_steps": config.warmup_steps,
        "optim.min_lr_ratio": config.min_learning_rate_ratio,
        "optim.betas": list(config.betas),
        "optim.weight_decay": config.weight_decay,
        "optim.clip_grad": config.clip_grad,
        "checkpoint.save_contents": ["model", "optimizer", "extra"],
        "trainer.default_local_dir": str(config.work_dir / "checkpoints"),
        "trainer.project_name": "warm-start",
        "trainer.experiment_name": config.output_dir.name,
        "trainer.total_training_steps": config.total_steps,
        # The rows may be passed over several times; total_training_steps ends the run.
        "trainer.total_epochs": config.total_steps,
        "trainer.save_freq": config.save_every,
        "trainer.max_ckpt_to_keep": 2,
        "trainer.resume_mode": "auto",
        "trainer.logger": list(config.loggers),
        "trainer.device": get_device_name(),
        "trainer.n_gpus_per_node": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    }
    return verl_config("sft_trainer_engine", changed)


class TokenRows:
    """verl data set over a parquet file of `input_ids` and `loss_mask`; its keys are those of `data.custom_cls`."""

    def __init__(
        self, parquet_files: str, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        import polars as pl

        rows = pl.read_parquet(parquet_files, columns=["input_ids", "loss_mask"])
        if max_samples > 0:
            rows = rows.head(max_samples)
        lengths = rows["input_ids"].list.len()
        if not lengths.equals(rows["loss_mask"].list.len()):
            raise ValueError(f"{parquet_files}: input_ids and loss_mask differ in length in some row")
        longest = max(lengths, default=0)
        if longest > config.max_length:
            raise ValueError(f"{parquet_files}: a row has {longest} tokens; max_length is {config.max_length}")
        self._ids, self._mask = rows["input_ids"], rows["loss_mask"]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        ids, mask = (torch.tensor(column[index].to_numpy(), dtype=torch.long) for column in (self._ids, self._mask))
        return {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": mask}


def train(config: WarmStart) -> None:
    """Train or resume under an initialised process group, then export on rank 0; RuntimeError when steps are
    missing."""
    import torch.distributed
    from verl.trainer import sft_trainer

    class Trainer(sft_trainer.SFTTrainer):
        def _build_dataloader(self) -> None:
            super()._build_dataloader()
            self.train_sampler.shuffle = not config.keep_order
            self.train_sampler.seed = config.seed

    class Tracking(sft_trainer.Tracking):
        # verl logs every step; a step of a small model is shorter than an MLflow request.
        def log(self, data: dict[str, Any], step: int, *args: Any, **kwargs: Any) -> None:
            if step % config.log_every == 0 or step == config.total_steps:
                super().log(data, step, *args, **kwargs)

    sft_trainer.Tracking = Tracking
    trainer = Trainer(config=compose_config(config))
    if trainer.resume_global_step % len(trainer.train_dataloader) == 0:
        # The state that verl restores after an epoch's last batch is that of an exhausted loader, which would pass over
        # the next epoch.
        trainer.train_dataloader.next_iter_state = None
    if trainer.resume_global_step < config.total_steps:
        trainer.fit()
    if (steps := trainer.engine.lr_scheduler.last_epoch) != config.total_steps:  # fit() ends with the data, silently.
        raise RuntimeError(f"fine-tuning made {steps} of {config.total_steps} steps and is not exported")
    export(trainer, config)
    torch.distributed.barrier()


def export(trainer: Any, config: WarmStart) -> None:
    import torch.distributed
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(trainer.engine.module, options=options)
    if torch.distributed.get_rank() != 0:
        return
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config.model))
    model.load_state_dict(weights)
    if (config.model / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(config.model)
    with replacing_directory(config.output_dir) as temporary:
        model.save_pretrained(temporary)
        AutoTokenizer.from_pretrained(config.model).save_pretrained(temporary)
        copy_own(config.model, temporary)
        (temporary / RECORD).write_text(json.dumps(record(config), indent=2) + "\n")
        let_others_read(temporary)


def record(config: WarmStart) -> dict[str, Any]:
    """What determines the trained weights: contents instead of paths, nothing that only saves memory or logs."""
    return {
        "model": model_fingerprint(config.model),
        "train_file": hash_files([config.train_file])[:16],
        **config.model_dump(mode="json", exclude=_NOT_RECORDED),
    }


def is_finished(config: WarmStart) -> bool:
    """Whether the export of exactly this warm start exists; ValueError when a directory belongs to another one."""
    expected = record(config)
    for directory in (config.output_dir, config.work_dir):
        file = directory / RECORD
        if not file.exists():
            if directory.exists() and any(directory.iterdir()):
                raise ValueError(f"{directory}: not empty, and not from a warm start; choose another directory")
            continue
        found = json.loads(file.read_text())
        for key, value in expected.items():
            if found.get(key) != value:
                raise ValueError(
                    f"{file}: from another warm start: {key} is {found.get(key)!r} there, {value!r} here; "
                    "choose another directory or delete this one"
                )
    return (config.output_dir / RECORD).exists()


def _single_process_environment() -> None:
    """What torchrun would set for one process, on loopback."""
    (port,) = free_ports(1)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": HOST, "MASTER_PORT": str(port)}
    os.environ |= {name: os.environ.get(name, value) for name, value in ON_LOOPBACK.items()}


def main(file: Path) -> None:
    """Run the warm start that a JSON file describes."""
    if "RANK" not in os.environ:
        _single_process_environment()
    try:
        config = WarmStart.model_validate_json(file.read_text())
        finished = is_finished(config)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{file}: {error}") from error
    if finished:
        print(f"{config.output_dir}: already trained, nothing to do")
        return
    if os.environ["RANK"] == "0" and not (config.work_dir / RECORD).exists():
        config.work_dir.mkdir(parents=True, exist_ok=True)
        (config.work_dir / RECORD).write_text(json.dumps(record(config), indent=2) + "\n")

    from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

    initialize_global_process_group()
    train(config)
    destroy_global_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
