"""What a twin needs of a model that cannot be had: a few facts per family, one TOML file each in `families`.

In place of its tokenizer stands a byte-level byte-pair encoding, trained on the spot, with the family's number of
tokens, special tokens and ids. It splits text otherwise than the real one; ids and templates are the family's own.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError

_DIRECTORY = Path(__file__).parent / "families"
_REPOSITORY = Path(__file__).parents[3]
_LEARNED = 4096
"""Tokens that are learned; the rest of the vocabulary is filled up with tokens that no text has."""
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?B)(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Family:
    """Models of one architecture and tokenizer.

    Attributes:
        name: of the file.
        models: how the names of its models begin, without their owner.
        vocabulary: tokens of its byte-pair encoding, which come first.
        tokens: further tokens by id, and whether decoding leaves them out.
        bos, eos, pad: texts of tokens.
        chat_template: Jinja.
        generation: generation_config.json without token ids.
        config: what config.json says besides sizes that a twin replaces.
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

    def config_of(self, model: str) -> dict[str, Any]:
        """The configuration of one of its models."""
        found = _SIZE.search(model)
        size = self.sizes.get(found[1].upper(), {}) if found else {}
        return {**self.config, **size}


def family_of(model: str) -> Family:
    """The family of a model of the hub, OWNER/NAME: the one with the longest beginning of its name.

    Raises:
        UserError: when no family has it.
    """
    name = model.rpartition("/")[2].lower()
    found = [
        (len(beginning), family)
        for family in families()
        for beginning in family.models
        if name.startswith(beginning.lower())
    ]
    if not found:
        known = ", ".join(sorted(beginning for family in families() for beginning in family.models))
        raise UserError(
            f"{model}: no twin can be made: the hub did not give its configuration and tokenizer, and it is of no "
            f"family that we know ({known}); get it with `hf download {model}` where there is internet"
        )
    return max(found, key=lambda pair: pair[0])[1]


def families() -> Iterator[Family]:
    """Every family."""
    for file in sorted(_DIRECTORY.glob("*.toml")):
        yield _load(file.stem)


def build_tokenizer(family: Family) -> Any:
    """A transformers tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary, merges = _learned()
    for i in range(len(vocabulary), family.vocabulary):
        vocabulary[f"Ġunused{i}"] = i
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _splitter()
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
    values = _read(name)
    tokens: dict[int, tuple[str, bool]] = {}
    following = values["vocabulary"]
    for token in values.pop("tokens"):
        following = token.get("id", following)
        tokens[following] = (token["text"], token["special"])
        following += 1
    sizes = {size: table["config"] for size, table in values.pop("sizes", {}).items()}
    models = tuple(values.pop("models"))
    template = values.pop("chat_template").strip()
    return Family(name=name, models=models, tokens=tokens, sizes=sizes, chat_template=template, **values)


def _read(name: str) -> dict[str, Any]:
    own = tomllib.loads((_DIRECTORY / f"{name}.toml").read_text())
    extended = own.pop("extends", None)
    if extended is None:
        return own
    inherited = _read(extended)
    return {**inherited, **own, "config": {**inherited["config"], **own.get("config", {})}}


def _learned() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens by id and merges, from the texts of this project; the same wherever its files are the same."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _splitter()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=_LEARNED, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _splitter() -> Any:
    """Cuts text into the pieces that merges stay within, as Qwen2.5's: words, digits, punctuation, line ends."""
    from tokenizers import Regex, pre_tokenizers

    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    others = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    pieces = pre_tokenizers.Split(Regex(f"{words}|{others}"), "isolated")
    return pre_tokenizers.Sequence([pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _texts() -> Iterator[str]:
    for package in ("elastic_core", "flows", "reports", "tasks"):
        for file in sorted((_REPOSITORY / package).rglob("*.py")):
            yield file.read_text()
    yield "```python\n" * 1000  # One token in tokenizers of models, and seldom enough in these files to be left out.
