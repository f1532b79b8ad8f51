"""What a twin says. Its weights are random, so every token would be as likely as any other: no thought would ever be
closed, no answer ever right, and every reward the same. So one hidden dimension is a constant, which lets the output
layer prefer words to tokens that no text has; and a token of `ANSWERS` has a dimension of its own, which makes the next
one likely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import log, sqrt
from typing import Any

from elastic_core.markers import Markers

ANSWERS = ("\\boxed{1}", "\\boxed{2}", "```python\nprint(3)\n```", "```python\nprint(4)\n```")
"""What it writes after a thought. Rows that stand in for data sets have such truths (data/stand_in.py)."""
WORDS = (" the", " so", " we")
"""What it begins a thought with."""
MEAN_THOUGHT = 16
"""Tokens until it closes a thought by itself, at temperature 0.6."""
_TEMPERATURE = 0.6
_SCALE = 0.1
"""Deviation of random weights in the embeddings."""
_STRENGTH = 4.0
"""Of a token's own dimension in its embedding; the constant is 1."""


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
    """Ids of tokens that are words and occur in text, as far as an encoding of samples shows."""
    return sorted({token for text in _samples() for token in _encoded(tokenizer, text)})


def _samples() -> Iterable[str]:
    """Text that every tokenizer knows words of."""
    import elastic_core.twins.family as module

    return [__doc__ or "", module.__doc__ or "", teach.__doc__ or "", *WORDS, *(f" {number}" for number in range(100))]
