"""What a sweep's trajectory table holds of what was asked for: its rows, its problems, each question once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from elastic_core.budget import parse_grid
from elastic_core.data.problems import Problem, read_problems
from elastic_core.sweep.grid import build_cells, first_ids, rows_of
from elastic_core.sweep.sound import check_rows, repeated_texts, whole_samples
from elastic_core.sweep.table import SweepTable
from reports.content import Asked
from tasks.records.stage_directory import benchmark_files

Problems = Mapping[tuple[str, str], Problem]
"""By benchmark and id."""


class Measured(NamedTuple):
    """Attributes:
    rows: of the problems that the sweep measures, and of each question once.
    problems: these, as far as the data is still there.
    repeated: by benchmark how many problems were left out, as they ask what another one asks.
    """

    rows: pl.LazyFrame
    problems: Problems
    repeated: Mapping[str, int]


def measured(table: SweepTable) -> Measured:
    """A table may hold more problems than its sweep was asked for last."""
    rows, files, sweep = table.scan(), benchmark_files(table), stage_inputs(table.directory.parent)
    problems: Problems = {(name, each.id): each for name, file in files.items() for each in read_problems(file)}
    if sweep is not None and (number := sweep["request"].get("problems")) is not None:
        ids = {name: first_ids(name, _known(rows, problems, name), number) for name in table.manifest.benchmarks}
        rows = rows.filter(rows_of(ids))
        problems = {key: problem for key, problem in problems.items() if key[1] in ids[key[0]]}
    if again := repeated_texts(problems.values()):
        keys = pl.LazyFrame(list(again), {"benchmark": pl.String, "problem": pl.String}, orient="row")
        rows = rows.join(keys, on=["benchmark", "problem"], how="anti")
        problems = {key: problem for key, problem in problems.items() if key not in again}
    return Measured(rows, problems, Counter(benchmark for benchmark, _ in again))


def sound_rows(table: SweepTable, columns: Collection[str | pl.Expr], *wanted: pl.Expr) -> pl.DataFrame:
    """Columns of a table's rows that are sound (`check_rows`), of the samples that every problem has.

    Args:
        columns: with `KEY`.
        wanted: which rows; all without any.

    Raises:
        UserError: when a key appears twice or a row breaks a rule.
    """
    found = measured(table)
    rows = found.rows.filter(*wanted).select(*columns).collect()
    check_rows(rows, table.directory)
    return whole_samples(rows, Counter(benchmark for benchmark, _ in found.problems)).rows


def asked_for(sweep: Mapping[str, Any], rows: pl.LazyFrame, problems: Problems) -> Asked:
    """What a sweep was asked for, by its inputs."""
    request, benchmarks = sweep["request"], list(sweep["inputs"]["benchmarks"])
    return Asked(
        build_cells(
            request["models"],
            benchmarks,
            request["strategies"],
            parse_grid(request["budgets"]),
            request.get("strategies_of"),
        ),
        {name: len(_known(rows, problems, name)) for name in benchmarks},
        request["samples"],
        chosen="problems" in request,
    )


def stage_inputs(stage: Path) -> Any:
    """What a stage was made from and asked for; None where that is not recorded."""
    return read_json(stage / _INPUTS) if (stage / _INPUTS).exists() else None


def read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


_INPUTS = "inputs.json"


def _known(rows: pl.LazyFrame, problems: Collection[tuple[str, str]], benchmark: str) -> list[str]:
    """Ids of a benchmark's problems; where the data is not there any more, of those that were begun."""
    known = [problem for of, problem in problems if of == benchmark]
    return known or rows.filter(benchmark=benchmark).select("problem").unique().collect()["problem"].to_list()
