"""How often each problem is sampled: one number for all benchmarks, or one for each."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

Samples = int | Mapping[str, int]
"""Samples per problem and cell, of every benchmark or by its name; those that are not named have that of `OTHERS`."""

OTHERS = "default"


def samples_of(samples: Samples, benchmark: str) -> int:
    """Raises:
    KeyError: for a benchmark that is not named, where there is no number for others.
    """
    if isinstance(samples, int):
        return samples
    return samples[benchmark] if benchmark in samples else samples[OTHERS]


def within(samples: Samples) -> pl.Expr:
    """Whether a row of a trajectory table is one of these samples: the table may hold more."""
    if isinstance(samples, int):
        return pl.col("sample") < samples
    number = pl.col("benchmark").cast(pl.String).replace_strict(samples, default=samples.get(OTHERS, 0))
    return pl.col("sample") < number


def samples_text(samples: Samples) -> str:
    """ "16 samples", or "codeforces 8, others 16 samples"."""
    if isinstance(samples, int):
        return f"{samples} samples"
    named = [f"{'others' if name == OTHERS else name} {number}" for name, number in samples.items()]
    return f"{', '.join(named)} samples"
