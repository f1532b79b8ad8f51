"""Twins of models, small enough for a CPU: a model's configuration with few layers and a small width, its tokenizer and
chat template, random weights. `elastic rehearse` runs a preset with them.

So that thoughts are closed and some answers right, one hidden dimension is a constant, by which the output layer
prefers words to tokens that no text has; and a token of `ANSWERS` has a dimension that makes the next one likely. A
model that cannot be reached is made of the facts of its family (`families`), with a byte-pair encoding (`merges.txt`)
that has its number of tokens, special tokens and ids.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.errors import UserError
from elastic_core.models import files
from elastic_core.models.families import DIRECTORY
from elastic_core.models.special_tokens import Markers, chat_prompt, encode, load_markers
from elastic_core.system.files import replacing_directory

_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_DIRECTORY = Path(__file__).parent
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?B)(?!\w)", re.IGNORECASE)
_FILES = (*files.TOKENIZER_FILES, "generation_config.json", "special_tokens_map.json")

ANSWERS = ("\\boxed{1}", "\\boxed{2}", "```python\nprint(3)\n```", "```python\nprint(4)\n```")
"""What it writes after a thought: truths of the rows that stand in for data sets (stand_in.py)."""
_FIRST_WORDS = (" the", " so", " we")  # Beginnings of its thoughts.
_MEAN_THOUGHT = 16  # Tokens until it closes a thought by itself, at temperature 0.6.
_TEMPERATURE = 0.6
_SCALE = 0.1  # Deviation of random weights in the embeddings.
_STRENGTH = 4.0  # Of a token's dimension in its embedding; the constant is 1.


_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
"""Largest sizes of a mixture of experts."""


class Size(NamedTuple):
    """Sizes of a twin; `width` is a multiple of `head`."""

    layers: int
    width: int
    head: int


SMALL = Size(layers=2, width=64, head=32)  # vLLM's attention on a CPU takes heads of 32 or more.


@dataclass(frozen=True)
class Family:
    """Models of one architecture and tokenizer.

    Attributes:
        models: how the names of its models begin, without their owner.
        vocabulary: tokens of its byte-pair encoding, which come first.
        tokens: further tokens by id, and whether decoding leaves them out.
        generation, config: generation_config.json without token ids, config.json without sizes that a twin replaces.
        sizes: what differs in the configuration, by size such as "7B".
    """

    name: str
    models: tuple[str, ...]
    vocabulary: int
    tokens: Mapping[int, tuple[str, bool]]
    eos: str
    chat_template: str
    generation: Mapping[str, Any]
    config: Mapping[str, Any]
    sizes: Mapping[str, Mapping[str, Any]]
    bos: str | None = None
    pad: str | None = None

    def __str__(self) -> str:
        return f"families/{self.name}.toml"

    def config_of(self, model: str) -> dict[str, Any]:
        found = _SIZE.search(model)
        return {**self.config, **(self.sizes.get(found[1].upper(), {}) if found else {})}


Origin = Path | Family
"""Where a twin's configuration and tokenizer are from: the model itself, or its family's facts."""


def origin_of(model: str) -> Origin:
    """Find the origin of a model's twin: a directory, the hub's cache, the hub, or else the facts of its family.
    Raises UserError when none of them has it."""
    try:
        return Path(model) if Path(model).is_dir() else files.locate(model, _FILES)
    except UserError:
        return family_of(model)


def make_twin(model: str, origin: Origin, directory: Path, *, seed: int = 0, size: Size = SMALL) -> None:
    """Write the twin of a model, which messages call `model`, to `directory`, which appears complete or not at all.
    Raises UserError when no twin of it can be made."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # A model of 40 MB takes no time.
    with replacing_directory(directory) as temporary:
        values = _copy_origin(model, origin, temporary)
        sizes = shrunk(values, model, size)
        try:
            config = AutoConfig.for_model(**sizes)
        except ValueError:
            kind = values["model_type"]
            raise UserError(f"{model}: no twin can be made: transformers has no architecture {kind}") from None
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
        twin.generation_config = twin.generation_config.from_pretrained(temporary)
        twin.save_pretrained(temporary)


def shrunk(config: Mapping[str, Any], model: str, size: Size = SMALL) -> dict[str, Any]:
    """A configuration with few layers and a small width. The architecture stays: tied or untied, biases, grouped heads,
    heads wider than their share of the width, rope, norms, vocabulary. UserError unless it is of a language model
    alone."""
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
        # Attention over all tokens next to attention over the last ones, as in Gemma 4.
        **({"global_head_dim": 2 * size.head} if config.get("global_head_dim") else {}),
        **({"num_global_key_value_heads": 1} if config.get("num_global_key_value_heads") else {}),
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
    following = {} if tied else _continuations(tokenizer, markers)
    own = {token: 1 + i for i, token in enumerate(following)}
    assert 2 * len(own) < width, f"{len(own)} tokens have a dimension of their own, of {width}"
    # A wider vector would be further from that of other tokens, and a tied layer repeat its token.
    scale = _SCALE * sqrt(SMALL.width / width)
    embedding.normal_(0, scale)
    embedding[:, : 1 + len(own)] = 0
    embedding[:, 0] = 1
    for token, dimension in own.items():
        embedding[token, dimension] = _STRENGTH
    # After the last norm a vector has length sqrt(width): the rest of the constant after a plain word.
    constant = sqrt(width) / sqrt(1 + (width - 1 - len(own)) * scale**2)
    # Tokens that are words of a text, which every tokenizer encodes.
    texts = [(_DIRECTORY / "words.txt").read_text(), *_FIRST_WORDS, *(f" {number}" for number in range(100))]
    words = sorted({token for text in texts for token in encode(tokenizer, text)})
    preference = torch.full((size,), -20.0)
    preference[words] = 0.0
    # Those that marks are spelled with, so that of two marks with one beginning neither is preferred.
    made = set(tokenizer.get_added_vocab().values())
    preference[[token for token in (*markers.think_start, *markers.close) if token not in made]] = 0.0
    if tied:  # Else what comes after the prompt would not be a word either.
        preference[chat_prompt(tokenizer, "1+1=?")[-1]] = 0.0
    preference[markers.close[0]] = _TEMPERATURE * log(len(words) / _MEAN_THOUGHT)
    if not tied:
        output.normal_(0, 0.02)
        output[:, : 1 + len(own)] = 0
    output[:, 0] = preference / constant + tied
    strength = _strength(model, words)
    output[:, 0] = preference / (constant * strength) + tied
    for token, continuations in following.items():
        output[continuations, own[token]] = 20.0 / (strength * sqrt(width))


def _strength(model: Any, words: Sequence[int]) -> float:
    """The factor that an architecture applies to preferences, such as that of words to other tokens, set to 20: some
    scale their logits, and some normalise what each layer adds, so that less of the constant is left."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([words[:64]])).logits[0].float()
    others = torch.ones(logits.shape[-1], dtype=torch.bool)
    others[words] = False
    return float(logits[:, words].mean() - logits[:, others].mean()) / 20


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


def _continuations(tokenizer: Any, markers: Markers) -> Mapping[int, list[int]]:
    end = markers.end_of_text[0]
    (newline,) = encode(tokenizer, "\n")
    prompt = chat_prompt(tokenizer, "1+1=?")
    answers = [[*markers.close, *encode(tokenizer, text), end] for text in ANSWERS]
    opening = [] if markers.template_opens_thinking else markers.think_start[:1]
    starts = [[newline, token] for token in (*opening, *(encode(tokenizer, word)[0] for word in _FIRST_WORDS))]
    found: dict[int, list[int]] = {}
    for text in [*answers, *starts, [*prompt[-1:], *opening], [*markers.think_start, newline]]:
        for token, then in pairwise(text):
            if then not in found.setdefault(token, []):
                found[token].append(then)
    return found


def family_of(model: str) -> Family:
    """The family with the longest beginning of a hub model's name, OWNER/NAME. Raises UserError when none has it."""
    name = model.rpartition("/")[2].lower()
    beginnings = {beginning: family for family in families() for beginning in family.models}
    if found := [beginning for beginning in beginnings if name.startswith(beginning.lower())]:
        return beginnings[max(found, key=len)]
    raise UserError(
        f"{model}: no twin can be made: the hub did not give its configuration and tokenizer, and no family has its "
        f"name ({', '.join(sorted(beginnings))}); get it with `hf download {model}` where there is internet"
    )


def families() -> list[Family]:
    return [_load(file.stem) for file in sorted(DIRECTORY.glob("*.toml")) if "models" in _read(file.stem)]


def build_tokenizer(family: Family) -> Any:
    """The family's stand-in for its tokenizer, a transformers one."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    merges = [tuple(line.split(" ")) for line in (_DIRECTORY / "merges.txt").read_text(encoding="utf-8").splitlines()]
    tokens = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)])
    # The rest of the vocabulary are tokens that no text has.
    unused = (f"Ġunused{i}" for i in range(len(tokens), family.vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*tokens, *unused])}, merges=merges))
    # Cuts text into pieces that merges stay within, as Qwen2.5's: words, digits, punctuation, line ends.
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    others = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    pieces = pre_tokenizers.Split(Regex(f"{words}|{others}"), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    following = family.vocabulary
    for i, (text, special) in sorted(family.tokens.items()):
        # Ids between them belong to tokens that are not used here.
        tokenizer.add_tokens([AddedToken(f"<|reserved_{j}|>", normalized=False) for j in range(following, i)])
        added = AddedToken(text, special=special, normalized=False)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([added])
        following = i + 1
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=family.bos,
        eos_token=family.eos,
        pad_token=family.pad,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = family.chat_template
    return wrapped


def _load(name: str) -> Family:
    values = {key: value for key, value in _read(name).items() if key != "thought"}
    tokens: dict[int, tuple[str, bool]] = {}
    following = values["vocabulary"]
    for token in values.pop("tokens"):
        following = token.get("id", following)
        tokens[following] = (token["text"], token["special"])
        following += 1
    values["sizes"] = {size: table["config"] for size, table in values.get("sizes", {}).items()}
    values |= {"models": tuple(values["models"]), "chat_template": values["chat_template"].strip()}
    return Family(name=name, tokens=tokens, **values)


def _read(name: str) -> dict[str, Any]:
    own = tomllib.loads((DIRECTORY / f"{name}.toml").read_text())
    extended = own.pop("extends", None)
    if extended is None:
        return own
    inherited = _read(extended)
    return {**inherited, **own, "config": {**inherited["config"], **own.get("config", {})}}
