"""Warm starts from a recipe: the architecture, its initial weights, and the run that makes the base of them."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core.miniature.corpus import Recipe, default_recipe, write_corpus
from elastic_core.miniature.grammar import BOS, EFFORT_TEMPLATE, EOS, PAD, build_tokenizer, vocabulary
from elastic_core.models.families import OWN_FILE
from elastic_core.system.files import replacing_directory

if TYPE_CHECKING:
    from transformers import LlamaConfig

    from elastic_core.training.sft_parameters import WarmStart

BASE = Path(__file__).parent / "base"  # the shipped base: a Hugging Face checkpoint of about 3 MB

HIDDEN_SIZE = 128
NUM_LAYERS = 4
MICRO_BATCH_TOKENS = 400
"""Attention over a pack is quadratic in its length: on a CPU packs barely longer than the longest example are best."""


def prepare(
    work_dir: Path, output_dir: Path, recipe: Recipe | None = None, num_batches: int | None = None
) -> "WarmStart":
    """Write the initial model and the corpus under `work_dir` unless they are there, and describe the training run. The
    recipe defaults to that of the shipped base; its seed also initialises the model. `num_batches` shortens every stage
    in proportion to this many steps in all, for tests."""
    from elastic_core.training.sft_parameters import WarmStart

    recipe = recipe or default_recipe()
    if num_batches is not None:
        recipe = shortened(recipe, num_batches)
    initial, corpus = work_dir / "initial", work_dir / "corpus.parquet"
    if not initial.exists():
        with replacing_directory(initial) as temporary:
            save_initial(temporary, recipe.seed)
    if not corpus.exists():
        write_corpus(recipe, corpus)
    return WarmStart(
        model=initial,
        train_file=corpus,
        work_dir=work_dir / "run",
        output_dir=output_dir,
        total_steps=recipe.steps,
        batch_size=recipe.batch_size,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        learning_rate=1.2e-3,
        warmup_steps=100,
        min_learning_rate_ratio=0.03,
        save_every=400,
    )


def save_with_efforts(model: Path, path: Path) -> None:
    """Write a copy of a miniature to the directory `path`, whose chat template takes the efforts of a recipe."""
    from transformers import PreTrainedTokenizerFast

    with replacing_directory(path) as temporary:
        shutil.copytree(model, temporary, dirs_exist_ok=True)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
        tokenizer.chat_template = EFFORT_TEMPLATE
        tokenizer.save_pretrained(temporary)
        (temporary / OWN_FILE).write_text(_EFFORTS)


_EFFORTS = """[thought]
open = "<think>"
ends = ["</think>"]
parser = "deepseek_r1"

[thought.efforts]
low = { reasoning_effort = "low" }
high = { reasoning_effort = "high" }
"""


def shortened(recipe: Recipe, steps: int) -> Recipe:
    """The same curriculum in `steps` optimiser steps. ValueError when a stage would be left without a step."""
    ends = [sum(s.steps for s in recipe.stages[: i + 1]) * steps // recipe.steps for i in range(len(recipe.stages))]
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if min(lengths) < 1:
        raise ValueError(f"{steps} steps are too few for {len(recipe.stages)} stages of {recipe.steps} steps in all")
    return replace(recipe, stages=tuple(replace(s, steps=n) for s, n in zip(recipe.stages, lengths, strict=True)))


def model_config() -> "LlamaConfig":
    """Width 128, 4 layers, 4 heads over 2 key-value heads, feed-forward 352, tied embeddings, float32."""
    from transformers import LlamaConfig

    ids = vocabulary()
    return LlamaConfig(
        vocab_size=len(ids),
        hidden_size=HIDDEN_SIZE,
        intermediate_size=352,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=ids[BOS],
        eos_token_id=ids[EOS],
        pad_token_id=ids[PAD],
        dtype="float32",
    )


def save_initial(path: Path, seed: int) -> None:
    """Write a randomly initialised checkpoint with its tokenizer to the directory `path`.

    Matrices that read the residual stream start wide (0.7 / sqrt(width)), those that write to it narrow (0.04 / sqrt(2
    · layers)): with Hugging Face's uniform 0.02 a model this narrow learns to copy many times slower.
    """
    import torch
    from transformers import GenerationConfig, LlamaForCausalLM

    config = model_config()
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            if "embed_tokens" in name:
                deviation = 0.02
            elif "o_proj" in name or "down_proj" in name:
                deviation = 0.04 / math.sqrt(2 * NUM_LAYERS)
            else:
                deviation = 0.7 / math.sqrt(HIDDEN_SIZE)
            parameter.normal_(std=deviation, generator=generator)
    ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = GenerationConfig(**ids)
    path.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
