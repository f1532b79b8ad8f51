"""Prompt templates: what exactly a model is asked. A published number holds for one wording, so each has a version in
its name, its hash is in the manifest, and a change of wording is a new name."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from elastic_core.fingerprint import hash_value

_PLACEHOLDER = re.compile(r"\{(question|starter_code)\}")


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

    @property
    def sha256(self) -> str:
        return hash_value([self.text, self.with_starter_code])

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
