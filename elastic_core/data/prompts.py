"""Prompts: what exactly a model is asked, and how many tokens that is.

A published number holds for one wording, so each template has a version in its name, its hash is in the manifest, and a
change of wording is a new name. A length is that of the prompt as the model gets it: one user message through the chat
template, with the generation prompt. Nothing is truncated, not even beyond the tokenizer's own `model_max_length`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import polars as pl

from elastic_core.system.fingerprint import hash_value

_PLACEHOLDER = re.compile(r"\{(question|starter_code)\}")
CHUNK_PROMPTS = 1024
CHUNK_CHARACTERS = 1 << 19
"""Most prompts and characters that are encoded at once: enough for every core, and some 200 MB, as the tokenizer holds
400 bytes a token until a chunk is counted. A longer prompt goes alone, since it cannot be split exactly."""

_PARALLELISM = "TOKENIZERS_PARALLELISM"
_IMPORTED_BY = os.getpid()  # Differs from the process's own in a forked child.


@dataclass(frozen=True)
class Template:
    """The user message of a problem.

    Attributes:
        text: with `{question}` where the question goes.
        with_starter_code: the text for problems that have starter code, with `{starter_code}` where it goes; None when
            the template makes no difference.
        source: where the wording comes from.
    """

    name: str
    text: str
    source: str
    with_starter_code: str | None = None

    def record(self) -> dict[str, str | None]:
        """What a manifest says of it."""
        return {
            "sha256": hash_value([self.text, self.with_starter_code]),
            "text": self.text,
            "with_starter_code": self.with_starter_code,
            "source": self.source,
        }

    def render(self) -> pl.Expr:
        """Prompts from the columns `question` and `starter_code` of a clean table."""
        plain = _fill(self.text)
        if self.with_starter_code is None:
            return plain
        return pl.when(pl.col("starter_code").is_null()).then(plain).otherwise(_fill(self.with_starter_code))


def _fill(text: str) -> pl.Expr:
    """Replaces in the template only: a placeholder inside a question is text."""
    parts = _PLACEHOLDER.split(text)  # literal, column, literal, …
    return pl.concat_str(*(pl.col(part) if i % 2 else pl.lit(part) for i, part in enumerate(parts) if part))


_PROGRAMMER = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests.\n\n"
)
_ANSWER = "### Answer: (use the provided format with backticks)\n\n"

TEMPLATES = {
    template.name: template
    for template in (
        Template("plain-v1", "{question}", "the problem as it is: its text holds the instruction"),
        Template(
            "boxed-v1",
            "{question} Let's think step by step and output the final answer within \\boxed{}.",
            "DeepScaleR and Elastic-Reasoning, scripts/data/deepscaler_dataset.py",
        ),
        Template(
            "livecodebench-v1",
            _PROGRAMMER + "{question}### Format: Read the inputs from stdin solve the problem and write the answer to "
            "stdout (do not directly test on the sample inputs). Enclose your code within delimiters as follows. "
            "Ensure that when the python program runs, it reads the inputs, runs the algorithm and writes output to "
            "STDOUT.\n```python\n# YOUR CODE HERE\n```\n\n" + _ANSWER,
            "DeepCoder and Elastic-Reasoning, fetch_live_code_bench_system_prompt",
            with_starter_code=_PROGRAMMER + "{question}### Format: You will use the following starter code to write "
            "the solution to the problem and enclose your code within delimiters.\n```python\n{starter_code}\n```\n\n"
            + _ANSWER,
        ),
        Template(
            "evalplus-v1",
            "Please provide a self-contained Python script that solves the following problem in a markdown code "
            "block:\n```\n{question}\n```\n",
            "EvalPlus, the prompt of chat models",
        ),
        Template(
            "choice-v1",
            "Answer the following multiple choice question. The last line of your response should be of the following "
            "format: 'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think step by step before "
            "answering.\n\n{question}",
            "simple-evals, QUERY_TEMPLATE_MULTICHOICE",
        ),
    )
}
"""Templates by name."""


class LengthSummary(TypedDict):
    """Lengths in tokens, as written to JSON: each the shortest that holds at least this share of the prompts, and so a
    length that occurs."""

    median: int
    p90: int
    p99: int
    max: int


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


def summarize_lengths(lengths: np.ndarray | None) -> LengthSummary | None:
    """Summary of lengths in tokens, shape (prompts,), integers of 0 and more; None where there are none."""
    if lengths is None or not lengths.size:
        return None
    # Linear interpolation would give a length between two prompts, which holds fewer of them than it says.
    median, p90, p99, longest = map(int, np.percentile(lengths, [50, 90, 99, 100], method="inverted_cdf"))
    return LengthSummary(median=median, p90=p90, p99=p99, max=longest)


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
