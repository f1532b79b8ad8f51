"""A tokenizer in the place of one that cannot be had: a byte-level byte-pair encoding, trained on the spot, with a
family's number of tokens, special tokens and ids. It splits text otherwise than the real one; ids and templates are its
own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elastic_core.twins.family import Family

_LEARNED = 4096
"""Tokens that are learned; the rest of the vocabulary is filled up with tokens that no text has."""
_REPOSITORY = Path(__file__).parents[2]


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
        # Ids between them belong to tokens that nobody needs here.
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


def _learned() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens by id and merges, from the texts of this project; the same wherever its files are the same."""
    import json

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
