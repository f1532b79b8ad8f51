"""Whether a checkpoint can be used here, by its configuration and tokenizer.

Covered: missing files and truncated weights; a tokenizer that does not fit the embedding, token ids outside it, think
markers; architectures that transformers, vLLM or verl's loss do not know, heads that vLLM has no CPU kernel for.
Not covered: the values of the weights, and whether they fit the memory.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any, Literal

from elastic_core.errors import UserError, first_line
from elastic_core.models.files import tensors
from elastic_core.models.special_tokens import ChatTemplateFailed, load_markers, load_tokenizer
from elastic_core.system.fingerprint import tokenizer_fingerprint

_LOGIT_SCALES = {"final_logit_softcapping": None, "logit_scale": 1, "logits_scaling": 1, "lm_head_multiplier": 1}
"""Settings that change logits after the last layer, and the value at which they do not."""
_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def require_usable(
    checkpoint: Path,
    *,
    name: str | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    trained: bool = False,
    weights: bool = True,
    thinks: bool = True,
) -> str:
    """The markers of a checkpoint directory, in a sentence.

    Args:
        name: what messages call it; None is the directory.
        device: of its engine.
        trained: whether verl trains it, too.
        weights, thinks: whether weights and think markers have to be there.

    Raises:
        UserError: with the first reason why it cannot be used, and what to do.
    """
    name = name or str(checkpoint)
    raw = _read_json(checkpoint / "config.json", name)
    if weights:
        _require_weights(checkpoint, name)
    config = _require_architecture(checkpoint, raw, name)
    text = config.get_text_config()
    _require_tokenizer(checkpoint, text.vocab_size, name)
    _require_special_ids(checkpoint, raw, text.vocab_size, name)
    try:
        tokenizer, markers = load_markers(checkpoint, thinks)
    except (ValueError, OSError) as error:
        reason = first_line(error).rstrip(".").removeprefix(f"{checkpoint}: ")
        if reason.endswith("no chat template"):
            raise UserError(f"{name}: {reason}; give the model's instruction-tuned version, which has one") from None
        if isinstance(error, ChatTemplateFailed):
            raise UserError(f"{name}: {reason}; correct it, in chat_template.jinja or tokenizer_config.json") from None
        raise UserError(
            f"{name}: {reason}, so there is no thought to put a budget on; give a reasoning model, or make a "
            f"checkpoint that has what is missing: elastic model prepare {name} --to DIR"
        ) from None
    if device == "cpu":
        _require_cpu_kernel(text, name)
    if trained:
        _require_plain_logits(config, name)
    marks = [markers.think_start, *markers.think_ends[:1], *((i,) for i in markers.end_of_text)]
    found = ((tokenizer.decode(list(mark)).replace("\n", "\\n"), mark) for mark in marks if mark)
    described = ", ".join(f"{text} is token{'s' * (len(mark) > 1)} {' '.join(map(str, mark))}" for text, mark in found)
    return f"{described} (marks of {markers.family})" if markers.thinks else described


def _read_json(file: Path, name: str) -> dict[str, Any]:
    if not file.parent.is_dir():
        raise UserError(f"{name}: no such directory; expected a Hugging Face checkpoint")
    if not file.exists():
        if found := _gguf(file.parent):
            raise UserError(
                f"{name} holds {found}, which is not trained from; make a checkpoint of it: "
                f"elastic model prepare {file.parent / found} --to DIR"
            )
        raise UserError(f"{name} has no {file.name}; expected a Hugging Face checkpoint directory")
    try:
        value = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: {file.name} is not JSON ({error}); copy the checkpoint anew") from None
    if not isinstance(value, dict):
        raise UserError(f"{name}: {file.name} holds a {type(value).__name__}, expected an object")
    return value


def _require_weights(checkpoint: Path, name: str) -> None:
    try:
        if tensors(checkpoint):
            return
    except UserError as error:
        raise UserError(f"{name}: {str(error).removeprefix(f'{checkpoint}/')}") from None
    found = _gguf(checkpoint) or next((file.name for file in sorted(checkpoint.glob("*.bin"))), None)
    if found is None:
        raise UserError(f"{name} holds no weights, expected *.safetensors; copy them there")
    raise UserError(
        f"{name} holds {found}, expected *.safetensors; write them: "
        f"elastic model prepare {checkpoint / found if found.endswith('.gguf') else name} --to DIR"
    )


def _gguf(directory: Path) -> str | None:
    return next((file.name for file in sorted(directory.glob("*.gguf"))), None)


def _require_architecture(checkpoint: Path, raw: dict[str, Any], name: str) -> Any:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig
    from vllm import ModelRegistry

    try:
        config = AutoConfig.from_pretrained(checkpoint)
    except (ValueError, KeyError, TypeError, OSError) as error:
        kind, reason = raw.get("model_type", "missing"), first_line(error).rstrip(".")
        raise UserError(
            f"{name}: transformers cannot read its config.json, whose model_type is {kind} ({reason}); expected an "
            "architecture that the installed transformers, vLLM and verl have code for"
        ) from None
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"{name}: model_type {config.model_type} is not a language model that transformers can load as one "
            "(AutoModelForCausalLM); give one that is"
        )
    if not set(ModelRegistry.get_supported_archs()) & set(config.architectures or []):
        expected = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__name__
        raise UserError(
            f"{name}: vLLM has no code for the architectures {config.architectures} of its config.json; expected one "
            f"that it has, such as {expected} (vllm.ModelRegistry.get_supported_archs())"
        )
    return config


def _require_tokenizer(checkpoint: Path, rows: int, name: str) -> None:
    try:
        tokenizer_fingerprint(checkpoint)  # Without one transformers' message misleads.
        tokenizer = load_tokenizer(checkpoint)
    except Exception as error:  # The tokenizers library raises bare ones.
        reason = first_line(error).rstrip(".").removeprefix(f"{checkpoint}: ")
        raise UserError(
            f"{name}: its tokenizer cannot be loaded ({reason}); copy the tokenizer's files to the checkpoint"
        ) from None
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= rows:
        raise UserError(
            f"{name}: its tokenizer has token {largest} ({token!r}), and its embedding {rows} rows (vocab_size); give "
            f"it the tokenizer it was trained with, or an embedding to match: elastic model prepare {name} --to DIR"
        )


def _require_special_ids(checkpoint: Path, raw: dict[str, Any], rows: int, name: str) -> None:
    generation = checkpoint / "generation_config.json"
    files = {"config.json": raw}
    if generation.exists():
        files[generation.name] = _read_json(generation, name)
    for (file, values), key in product(files.items(), _SPECIAL):
        value = values.get(key)
        for token in value if isinstance(value, list) else [value]:
            if token is None or (key == "pad_token_id" and token == -1):  # How some checkpoints write that it has none.
                continue
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < rows:
                raise UserError(
                    f"{name}: {key} is {token!r} in {file}, expected a token below the {rows} rows of the embedding; "
                    "correct it there"
                )


def _require_cpu_kernel(text: Any, name: str) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        raise UserError(
            f"{name}: its attention heads have {size} dimensions, and vLLM on a CPU takes "
            f"{', '.join(map(str, sizes))}; run it on a GPU (engine.device=cuda), or give another model"
        )


def _require_plain_logits(config: Any, name: str) -> None:
    """verl's fused loss multiplies the output of `model` by the weight of `lm_head`, whatever else the model does."""
    import torch
    from transformers import AutoModelForCausalLM

    text = config.get_text_config()
    for key, neutral in _LOGIT_SCALES.items():
        value = getattr(text, key, neutral)
        if value not in (neutral, None):
            raise UserError(
                f"{name}: {key} is {value} in its config.json, which verl's fused loss would leave out, so that it "
                "would train another model than the one that answers; give one without"
            )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if not (hasattr(model, "model") and hasattr(model, "lm_head")):
        raise UserError(
            f"{name}: verl's fused loss cannot train {type(model).__name__}, which has no parts named model and "
            "lm_head; give a model of another architecture, such as Qwen or Llama"
        )
