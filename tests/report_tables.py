"""Trajectory tables in small, for the page that shows them."""

from __future__ import annotations

from typing import Any

import polars as pl

from elastic_core.trajectory import SCHEMA

BUDGETS = (4, 8, 16)
THOUGHT = "We add two and two. That is four. But wait: it may be five. No, four it is."
"""One token per word, as far as these tables are concerned."""
CLOSED = {"think_finish": "closed", "forced_tokens": 0, "forced": [False] * 19}
PHRASE = ("\n", "\nFinal Answer:")
HOSTILE = (
    "</script><script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    "<!--<script>",
    "\u202egnirts desrever\u2066",
    "\ud7ff\U0001f600 \x00 \\u003c &lt;b&gt;",
)


def row(**columns: Any) -> dict[str, Any]:
    """A row of the table; the given columns over those of a thought that the model closed."""
    defaults = {
        "model": "base",
        "benchmark": "easy",
        "problem": "1",
        "sample": 0,
        "strategy": "separate",
        "think_budget": 32,
        "solution_budget": 8,
        "prompt_tokens": 5,
        "think_tokens": 18,
        "forced_tokens": 0,
        "navigator_tokens": 0,
        "solution_tokens": 3,
        "think_finish": "closed",
        "solution_finish": "stop",
        "answer": "4",
        "score": 1.0,
        "grade_status": "correct",
        "thinking": THOUGHT,
        "solution": "It is 4",
        "forced": [False] * 21,
        "dropped": [],
    }
    return defaults | columns


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


def cut(tokens: int, right: bool, **columns: Any) -> dict[str, Any]:
    """A row whose thought was cut by its budget, and its think-end written."""
    words = THOUGHT.split(" ")
    return (
        row(
            think_budget=tokens,
            think_tokens=tokens,
            forced_tokens=1,
            think_finish="forced",
            thinking=" ".join(words[:tokens]),
            forced=[False] * tokens + [True] + [False] * 3,
            **({} if right else {"answer": "5", "score": 0.0, "grade_status": "wrong", "solution": "It is 5"}),
        )
        | columns
    )


def small_table(num_problems: int = 3, num_samples: int = 2) -> pl.DataFrame:
    """Two benchmarks, a model, two strategies. Under `separate` the smallest budget is wrong and the others are right,
    and the model closes its thought within the largest. Under `budget_forcing`, which writes its phrase, only the
    middle one is right, and that on easy problems only."""
    rows = []
    for benchmark in ("easy", "hard"):
        for problem in range(num_problems):
            for sample in range(num_samples):
                key = {"benchmark": benchmark, "problem": str(problem), "sample": sample}
                for tokens in BUDGETS:
                    rows.append(cut(tokens, tokens > 4, **key) | (CLOSED if tokens == 16 else {}))
                    forced = cut(tokens, tokens == 8 and benchmark == "easy", strategy="budget_forcing", **key)
                    rows.append(with_phrase(forced))
    return table(*rows)


def with_phrase(forced: dict[str, Any]) -> dict[str, Any]:
    """What budget forcing writes around the think-end, as three tokens more."""
    before, after = PHRASE
    thought = forced["think_tokens"]
    return forced | {
        "thinking": forced["thinking"] + before,
        "solution": after + forced["solution"],
        "forced_tokens": 4,
        "forced": [False] * thought + [True] * 4 + [False] * 3,
    }
