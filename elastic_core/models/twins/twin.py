"""Making a twin of a model: its configuration with few layers and a small width, its tokenizer, random weights.

With random weights every token would be as likely as any other: no thought would ever be closed, no answer ever right,
and every reward the same. So one hidden dimension is a constant, which lets the output layer prefer words to tokens
that no text has; and a token of `ANSWERS` has a dimension of its own, which makes the next one likely.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from itertools import pairwise
from math import log, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.errors import UserError
from elastic_core.models import files
from elastic_core.models.special_tokens import Markers, load_markers
from elastic_core.models.twins.family import Family, build_tokenizer, family_of
from elastic_core.system.files import replacing_directory

_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_TEXT = Path(__file__).with_name("words.txt")
_FILES = (*files.TOKENIZER_FILES, "generation_config.json", "special_tokens_map.json")

ANSWERS = ("\\boxed{1}", "\\boxed{2}", "```python\nprint(3)\n```", "```python\nprint(4)\n```")
"""What it writes after a thought. Rows that stand in for data sets have such truths (stand_in.py)."""
WORDS = (" the", " so", " we")
"""What it begins a thought with."""
MEAN_THOUGHT = 16
"""Tokens until it closes a thought by itself, at temperature 0.6."""
_TEMPERATURE = 0.6
_SCALE = 0.1
"""Deviation of random weights in the embeddings."""
_STRENGTH = 4.0
"""Of a token's own dimension in its embedding; the constant is 1."""


class Size(NamedTuple):
    """Of a twin; `width` is a multiple of `head`."""

    layers: int
    width: int
    head: int


SMALL = Size(layers=2, width=64, head=32)
"""vLLM's attention on a CPU takes heads of 32 or more."""


Origin = Path | Family
"""Where a twin's configuration and tokenizer are from: the model itself, or its family's facts."""


def origin_of(model: str) -> Origin:
    """Where to take the twin of a model from: a directory, the hub's cache, the hub, or else the facts of its family.

    Raises:
        UserError: when none of them has it.
    """
    try:
        return Path(model) if Path(model).is_dir() else files.locate(model, _FILES)
    except UserError:
        return family_of(model)


def make_twin(model: str, origin: Origin, directory: Path, *, seed: int = 0, size: Size = SMALL) -> None:
    """Write the twin of a model to `directory`, which appears complete or not at all.

    Args:
        model: what messages call it.
        origin: of `origin_of`.

    Raises:
        UserError: when no twin of it can be made.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # A model of 40 MB is written at once.
    with replacing_directory(directory) as temporary:
        values = _copy_origin(model, origin, temporary)
        config = AutoConfig.for_model(**shrunk(values, model, size))
        tokenizer = AutoTokenizer.from_pretrained(temporary)
        if len(tokenizer) > config.vocab_size:
            raise UserError(
                f"{model}: its tokenizer has {len(tokenizer)} tokens, its embedding {config.vocab_size} rows; expected "
                "no more tokens than rows"
            )
        for name in _TOKEN_IDS:
            setattr(config, name, getattr(tokenizer, name))
        # A wider layer would add more to what `teach` puts into the embeddings.
        config.initializer_range *= sqrt(SMALL.width / size.width)
        torch.manual_seed(seed)
        twin: Any = AutoModelForCausalLM.from_config(config)
        # verl and vLLM read dtype from the configuration; published models are in bfloat16.
        config.dtype = torch.bfloat16
        twin = twin.to(torch.bfloat16)
        config.save_pretrained(temporary)
        teach(twin, *load_markers(temporary))
        generation = twin.generation_config
        twin.generation_config = generation.from_pretrained(temporary)
        twin.save_pretrained(temporary)


def shrunk(config: Mapping[str, Any], model: str, size: Size = SMALL) -> dict[str, Any]:
    """A configuration with few layers and a small width. What makes an architecture stays: tied or untied, biases,
    grouped heads, heads wider than their share of the width, rope, norms, vocabulary.

    Raises:
        UserError: for a configuration that is not of a language model in one part.
    """
    if "model_type" not in config or "num_attention_heads" not in config:
        raise UserError(
            f"{model}: no twin can be made: config.json holds no model_type and num_attention_heads at its top"
        )
    heads, groups = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    wide = config.get("head_dim") and config["head_dim"] * heads != config.get("hidden_size")
    grouped = groups < heads
    own = size.width // size.head
    sizes: dict[str, Any] = {
        "hidden_size": size.width,
        "intermediate_size": 2 * size.width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": (2 if grouped else 1) * own if wide else own,
        "num_key_value_heads": (own if wide else own // 2) if grouped else own,
        **({"head_dim": size.head} if config.get("head_dim") else {}),
        **{name: min(config[name], most) for name, most in _EXPERTS.items() if config.get(name)},
    }
    # One entry a layer, or about layers that are not there.
    dropped = {"layer_types", "max_window_layers", "auto_map", "quantization_config", "transformers_version", "dtype"}
    kept = {name: value for name, value in config.items() if name not in dropped | {"torch_dtype", "architectures"}}
    return {**kept, **sizes}


def teach(model: Any, tokenizer: Any, markers: Markers) -> None:
    """Set the embeddings of a transformers model with random weights, and its output layer."""
    import torch

    embedding, output = model.get_input_embeddings().weight.data, model.get_output_embeddings().weight.data
    size, width = embedding.shape
    tied = model.config.tie_word_embeddings
    # A tied layer would have a token repeat itself: it knows plain words only.
    following = {} if tied else _following(tokenizer, markers)
    own = {token: 1 + i for i, token in enumerate(following)}
    assert 2 * len(own) < width, f"{len(own)} tokens have a dimension of their own, of {width}"
    embedding.normal_(0, _SCALE)
    embedding[:, : 1 + len(own)] = 0
    embedding[:, 0] = 1
    for token, dimension in own.items():
        embedding[token, dimension] = _STRENGTH
    # After the last norm a vector has length sqrt(width): what is left of the constant there after a plain word.
    constant = sqrt(width) / sqrt(1 + (width - 1 - len(own)) * _SCALE**2)
    words = _words(tokenizer)
    preference = torch.full((size,), -20.0)
    preference[words] = 0.0
    preference[markers.think_end] = _TEMPERATURE * log(len(words) / MEAN_THOUGHT)
    if not tied:
        output.normal_(0, 0.02)
        output[:, : 1 + len(own)] = 0
    output[:, 0] = preference / constant + tied
    for token, continuations in following.items():
        output[continuations, own[token]] = 20.0 / sqrt(width)


_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": SMALL.width}


def _copy_origin(model: str, origin: Origin, directory: Path) -> dict[str, Any]:
    """Tokenizer and generation_config.json to the directory; the configuration."""
    from transformers import GenerationConfig

    if isinstance(origin, Family):
        tokenizer = build_tokenizer(origin)
        tokenizer.save_pretrained(directory)
        ids = {name: getattr(tokenizer, name) for name in _TOKEN_IDS}
        GenerationConfig(**(ids | dict(origin.generation))).save_pretrained(directory)
        return origin.config_of(model)
    if not (origin / "config.json").exists():
        raise UserError(f"{origin}: no config.json; expected a Hugging Face checkpoint")
    for pattern in _FILES:
        for file in origin.glob(pattern):
            if file.name != "config.json":
                shutil.copy(file, directory)
    return dict(json.loads((origin / "config.json").read_text()))


def _following(tokenizer: Any, markers: Markers) -> Mapping[int, list[int]]:
    """Which tokens may come after one."""
    end = markers.end_of_text[0]
    (newline,) = tokenizer.encode("\n", add_special_tokens=False)
    answers = [[markers.think_end, *_encoded(tokenizer, text), end] for text in ANSWERS]
    opening = [] if markers.template_opens_thinking else [markers.think_start]
    starts = [[newline, token] for token in (*opening, *(_encoded(tokenizer, word)[0] for word in WORDS))]
    found: dict[int, list[int]] = {}
    for token, then in (
        pair for text in [*answers, *starts, [markers.think_start, newline]] for pair in pairwise(text)
    ):
        if then not in found.setdefault(token, []):
            found[token].append(then)
    return found


def _encoded(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _words(tokenizer: Any) -> list[int]:
    """Ids of tokens that are words of a text, which every tokenizer encodes."""
    texts = [_TEXT.read_text(), *WORDS, *(f" {number}" for number in range(100))]
    return sorted({token for text in texts for token in _encoded(tokenizer, text)})
