"""Some of a benchmark's problems: the same in every sweep and report, and blind to what becomes of them.

Problems are taken in the order of a hash of their names, whatever the sweep's seed. So a smaller number is a subset of
a larger one: raising it adds problems to a table and generates none of them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from elastic_core.data.problems import Problem


def problem_digest(benchmark: str, problem: str) -> str:
    """What problems are ordered by."""
    return hashlib.blake2b(f"{benchmark}\0{problem}".encode(), digest_size=8).hexdigest()


def first_ids(benchmark: str, ids: Iterable[str], num: int | None) -> set[str]:
    """Of a benchmark's problems the first `num`; all of them when there are fewer, or `num` is None."""
    ordered = sorted(ids, key=lambda problem: problem_digest(benchmark, problem))
    return set(ordered[:num])


def first_problems(problems: Mapping[str, Sequence[Problem]], num: int | None) -> dict[str, list[Problem]]:
    """The first `num` problems of each benchmark, in the order in which they were given."""
    found = {}
    for name, given in problems.items():
        chosen = first_ids(name, (problem.id for problem in given), num)
        found[name] = [problem for problem in given if problem.id in chosen]
    return found


def rows_of(ids: Mapping[str, Iterable[str]]) -> pl.Expr:
    """Whether a row of a trajectory table is of one of these problems, by benchmark."""
    wanted = [(pl.col("benchmark") == name) & pl.col("problem").is_in(sorted(chosen)) for name, chosen in ids.items()]
    return pl.any_horizontal(wanted) if wanted else pl.lit(False)
