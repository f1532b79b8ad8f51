"""The miniature's architecture: a Llama of three quarters of a million parameters."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core.miniature.tokenizer import BOS, EOS, PAD, build_tokenizer, vocabulary

if TYPE_CHECKING:
    from transformers import LlamaConfig

HIDDEN_SIZE = 128
NUM_LAYERS = 4


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

    Matrices that read the residual stream start wide (0.7 / sqrt(width)), those that write to it narrow
    (0.04 / sqrt(2 · layers)), embeddings at 0.02: with Hugging Face's uniform 0.02 a model this narrow learns to copy
    operands many times slower.
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
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )
    path.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
