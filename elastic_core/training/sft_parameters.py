"""A warm start, and the settings of supervised fine-tuning on conversations that describe one."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from elastic_core.errors import UserError
from elastic_core.reasonflux.chat_templates import CHAT_TEMPLATES, OWN

_BETAS = (0.9, 0.999)
"""AdamW's in LLaMA-Factory, and so in the published recipes."""
_AS_THEY_ARE = {
    *("batch_size", "learning_rate", "warmup_steps", "weight_decay", "clip_grad", "offload", "attention"),
    *("save_every", "seed", "device"),
}


class WarmStart(BaseModel):
    """Everything a warm start depends on."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: Path  # Hugging Face checkpoint to start from
    train_file: Path  # parquet with input_ids and loss_mask, one sequence a row
    work_dir: Path  # checkpoints to resume from; may be deleted once the export exists
    output_dir: Path  # the trained Hugging Face checkpoint; appears complete or not at all
    total_steps: int = Field(gt=0)  # optimiser steps
    batch_size: int = Field(default=16, gt=0)  # sequences per optimiser step, over all processes
    micro_batch_tokens: int = Field(default=8192, gt=0)  # most tokens in one forward pass; a batch with more is split
    max_length: int = Field(default=1024, gt=0)  # longest sequence in tokens; a longer one is an error
    keep_order: bool = True  # train in file order (a curriculum) instead of shuffling
    learning_rate: float = Field(default=1.5e-3, gt=0)  # peak of a cosine
    warmup_steps: int = Field(default=50, ge=0)  # of linear warm-up
    min_learning_rate_ratio: float = Field(default=0.03, ge=0, le=1)  # where the cosine ends, relative to the peak
    betas: tuple[float, float] = (0.9, 0.95)  # AdamW's
    weight_decay: float = Field(default=0.01, ge=0)
    clip_grad: float = Field(default=1.0, gt=0)  # largest gradient norm
    dtype: Literal["fp32", "bf16"] = "fp32"  # of parameters in forward and backward; master weights are always fp32
    # Pack a batch into one sequence instead of padding it. Without, a forward pass has one row: under sdpa a packed one
    # takes a dense mask of all rows by all, and no flash kernel.
    remove_padding: bool = True
    device: Literal["gpu", "cpu"] = "cpu"  # what trains; a GPU has less memory, see `sft.compose_config`
    offload: bool = False  # keep parameters and optimiser state in the host's memory
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"
    save_every: int = Field(default=500, gt=0)  # steps between checkpoints: what a crash can cost
    seed: int = 0  # of the data order where keep_order is off
    loggers: tuple[str, ...] = ("console",)  # verl's tracking backends
    log_every: int = Field(default=50, gt=0)  # steps between log entries


class SftParameters(BaseModel):
    """Defaults are those of ReasonFlux-F1 (ReasonFlux_F1/README.md: batch 1 × accumulation 2 × 8 GPUs, no packing)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    data: str
    """What to imitate: a data set of conversations (`elastic data list`), or a JSON, JSONL or parquet file of one's own
    with the fields instruction, input and output, and system if need be."""
    chat_template: str
    """Form that questions and responses are put in: "own" is the template that comes with the initial model;
    deepseekr1, qwen and miniature are written here and must be the initial model's own, for models whose template drops
    thoughts."""
    epochs: int = Field(5, ge=1)
    """Passes over the data."""
    steps: int | None = Field(None, ge=1)
    """Optimiser steps, where they end before `epochs` do: part of a large data set."""
    cutoff: int = Field(16384, ge=8)
    """Longest row in tokens; what is longer loses its end."""
    batch_size: int = Field(16, ge=1)
    """Rows per optimiser step, over all devices."""
    learning_rate: float = Field(1e-5, gt=0)
    """AdamW's; falls to 0 along a cosine."""
    warmup_steps: int = Field(0, ge=0)
    """Optimiser steps of linear warm-up."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's."""
    clip_grad: float = Field(1.0, gt=0)
    """Largest gradient norm."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """Number format of both passes; master weights are always fp32."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of the data order."""
    save_every: int = Field(100, ge=1)
    """Steps between checkpoints: what a crash can cost."""
    device: Literal["gpu", "cpu"] = "gpu"
    """What trains: of the machine that runs the flow."""
    gpus: int = Field(8, ge=1)
    """Accelerators; divides batch_size. On a CPU, processes."""
    tokens_per_device: int = Field(16384, ge=8)
    """Most tokens of a forward pass; no row is split."""
    offload: bool = False
    """Keep parameters and optimiser state in the host's memory."""
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"
    """Attention's kernel; flash_attention_2 must be installed."""

    @field_validator("chat_template")
    @classmethod
    def _known(cls, name: str) -> str:
        names = (OWN, *CHAT_TEMPLATES)
        if name not in names:
            raise ValueError(f"no such chat template; expected one of {', '.join(names)}")
        return name

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.batch_size % self.gpus:
            raise ValueError(f"batch_size = {self.batch_size} is not a multiple of gpus = {self.gpus}")
        if self.tokens_per_device < self.cutoff:
            raise ValueError(
                f"tokens_per_device = {self.tokens_per_device} cannot hold a row of cutoff = {self.cutoff}"
            )
        return self

    def total_steps(self, num_rows: int) -> int:
        """Optimiser steps of all passes, at most `steps`. Rows that fill no batch are left to the next epoch's order.
        Raises UserError when there are too few rows for one step."""
        if num_rows < self.batch_size:
            raise UserError(
                f"{num_rows} rows of {self.data} are fewer than warm_start.sft.batch_size, {self.batch_size}"
            )
        passes = self.epochs * (num_rows // self.batch_size)
        return min(self.steps or passes, passes)

    def warm_start(self, model: Path, rows: Path, num_rows: int, work_dir: Path, output_dir: Path) -> WarmStart:
        """The training that makes `output_dir` from `model` and the `rows` of `elastic_core.reasonflux.sft.write_rows`;
        UserError as `total_steps`."""
        return WarmStart(
            model=model,
            train_file=rows,
            work_dir=work_dir,
            output_dir=output_dir,
            total_steps=self.total_steps(num_rows),
            micro_batch_tokens=self.tokens_per_device,
            max_length=self.cutoff,
            keep_order=False,
            min_learning_rate_ratio=0,
            betas=_BETAS,
            dtype=self.precision,
            remove_padding=self.attention == "flash_attention_2",
            loggers=("console", "mlflow"),
            log_every=1,
            **self.model_dump(include=_AS_THEY_ARE),
        )
