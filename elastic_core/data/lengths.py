"""Lengths of prompts in tokens, and their summary for a person or a JSON file.

A length is that of the prompt as the model gets it: one user message through the chat template, with the generation
prompt. Nothing is truncated, not even beyond the tokenizer's own `model_max_length`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

import numpy as np

CHUNK_PROMPTS = 1024
CHUNK_CHARACTERS = 1 << 19
"""Most prompts and characters that are encoded at once: enough for every core, and some 200 MB, as the tokenizer holds
400 bytes a token until a chunk is counted. A longer prompt goes alone, since it cannot be split exactly."""

_PARALLELISM = "TOKENIZERS_PARALLELISM"
_IMPORTED_BY = os.getpid()  # Differs from the process's own in a forked child.


class LengthSummary(TypedDict):
    """Lengths in tokens, as written to JSON; without prompts all but `count` are None.

    Attributes:
        median, p90, p99: the shortest length that holds at least this share of the prompts; a length that occurs.
    """

    count: int
    min: int | None
    median: int | None
    p90: int | None
    p99: int | None
    max: int | None
    mean: float | None


def prompt_lengths(tokenizer: Any, prompts: Sequence[str]) -> np.ndarray:
    """Tokens of each prompt: `len(chat_prompt(tokenizer, prompt))`, on all cores.

    Args:
        tokenizer: a transformers tokenizer with a chat template.

    Returns:
        Shape (prompts,), int64.

    Raises:
        ValueError: when there are prompts and the tokenizer has no chat template.
    """
    with _parallel_tokenizers():
        lengths = [length for chunk in _chunks(prompts) for length in _chunk_lengths(tokenizer, chunk)]
    return np.array(lengths, dtype=np.int64)


def summarize_lengths(lengths: np.ndarray) -> LengthSummary:
    """Summary of lengths in tokens, shape (prompts,), integers of 0 and more; there may be none."""
    if not lengths.size:
        return LengthSummary(count=0, min=None, median=None, p90=None, p99=None, max=None, mean=None)
    # Linear interpolation would give a length between two prompts, which holds fewer of them than it says.
    shortest, median, p90, p99, longest = np.percentile(lengths, [0, 50, 90, 99, 100], method="inverted_cdf")
    return LengthSummary(
        count=lengths.size,
        min=int(shortest),
        median=int(median),
        p90=int(p90),
        p99=int(p99),
        max=int(longest),
        mean=float(lengths.mean()),
    )


def _chunk_lengths(tokenizer: Any, prompts: Sequence[str]) -> list[int]:
    ids = tokenizer.apply_chat_template(
        [[{"role": "user", "content": prompt}] for prompt in prompts],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        # No masks, and no warning about lengths beyond the model's: to find them is what this is for.
        tokenizer_kwargs={"return_attention_mask": False, "verbose": False},
    )
    return [len(row) for row in ids]


def _chunks(prompts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of consecutive prompts within both limits, or one prompt alone."""
    start = characters = 0
    for position, prompt in enumerate(prompts):
        characters += len(prompt)
        if position > start and (position - start == CHUNK_PROMPTS or characters > CHUNK_CHARACTERS):
            yield prompts[start:position]
            start, characters = position, len(prompt)
    if start < len(prompts):
        yield prompts[start:]


@contextmanager
def _parallel_tokenizers() -> Iterator[None]:
    """Let the tokenizers library use all cores meanwhile; it reads this variable at every call.

    It is "false" elsewhere because a forked child waits for ever for threads that only its parent has. So it is
    restored afterwards, and left alone in a child.
    """
    if os.getpid() != _IMPORTED_BY:
        yield
        return
    before = os.environ.get(_PARALLELISM)
    os.environ[_PARALLELISM] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PARALLELISM]
        else:
            os.environ[_PARALLELISM] = before
