"""What a twin needs of a model that is not here: a few facts per family, one TOML file each in `families`.

In place of its tokenizer stands a byte-level byte-pair encoding (`merges.txt`, the format of GPT-2's) with the family's
number of tokens, special tokens and ids. It splits text otherwise than the real one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError

_DIRECTORY = Path(__file__).with_name("families")
_MERGES = Path(__file__).with_name("merges.txt")
"""Learned from the sources of this project. Another file makes other twins, of which no rehearsal has been run."""
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

    def __str__(self) -> str:
        return f"families/{self.name}.toml"

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
    beginnings = {beginning: family for family in families() for beginning in family.models}
    if found := [beginning for beginning in beginnings if name.startswith(beginning.lower())]:
        return beginnings[max(found, key=len)]
    raise UserError(
        f"{model}: no twin can be made: the hub did not give its configuration and tokenizer, and no family has its "
        f"name ({', '.join(sorted(beginnings))}); get it with `hf download {model}` where there is internet"
    )


def families() -> list[Family]:
    """Every family."""
    return [_load(file.stem) for file in sorted(_DIRECTORY.glob("*.toml"))]


def build_tokenizer(family: Family) -> Any:
    """A transformers tokenizer."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    merges = [tuple(line.split(" ")) for line in _MERGES.read_text(encoding="utf-8").splitlines()]
    tokens = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)])
    # The rest of the vocabulary are tokens that no text has.
    unused = (f"Ġunused{i}" for i in range(len(tokens), family.vocabulary))
    vocabulary = {token: i for i, token in enumerate([*tokens, *unused])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
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
