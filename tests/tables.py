"""Tables of trajectories as statistics and commands read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.data.problems import VERL_SCHEMA
from elastic_core.statistics.certificates import with_looks
from elastic_core.statistics.responses import is_cut
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.system.fingerprint import hash_files
from elastic_core.trajectory import SCHEMA
from reports.summary import cell_problems, report_rows
from tests.unit.test_report_summary import make_rows


def frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Rows with these columns, of the types of a trajectory table."""
    given = list(rows)
    return pl.DataFrame(given, schema_overrides={name: SCHEMA[name] for name in given[0] if name in SCHEMA})


def advisable(rows: pl.DataFrame) -> pl.DataFrame:
    """The problem table of rows, with what advice rests on."""
    return with_looks(cell_problems(rows), report_rows(rows.lazy(), is_cut().alias("cut")).collect())


def sweep_of(directory: Path, rows: pl.DataFrame, questions: Sequence[str], grader: str = "math") -> Path:
    """The table of a sweep of base on `hard`, with the data that it was drawn from; problems are 000, 001 and so on."""
    preset = directory / "runs" / "mine"
    data = preset / "data" / "d1" / "hard.parquet"
    stage = preset / "sweep" / "s1"
    data.parent.mkdir(parents=True)
    problems = [
        {
            "data_source": "hard",
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"split": "test", "index": 0, "grader": grader, "id": f"{i:03}"},
            "prompt": [{"role": "user", "content": question}],
        }
        for i, question in enumerate(questions)
    ]
    pl.DataFrame(problems, schema=VERL_SCHEMA).write_parquet(data)
    data.with_name("manifest.json").write_text(json.dumps({"datasets": {"hard": {"rows": len(questions)}}}))
    benchmarks = {"hard": hash_files([data])}
    store = TrajectoryStore(stage / "table")
    with store.writing(Manifest({"base": "b"}, {}, benchmarks, {})):
        store.append(rows)
    request = {"models": ["base"], "strategies": ["separate"], "budgets": ["16+32"], "samples": 4}
    (stage / "inputs.json").write_text(json.dumps({"inputs": {"benchmarks": benchmarks}, "request": request}))
    return stage / "table"


def graded_twice() -> pl.DataFrame:
    """Cells of 10 problems × 4 samples. Of five problems all samples are right by our grades; as published three are
    under 16 tokens, six under 64, and of the cell without a budget a row is not graded so."""
    rows = make_rows(["base"], ["easy"], ["separate", "unconstrained"], [16, 64], num_problems=10)
    problem, last = pl.col("problem").cast(pl.Int32), (pl.col("problem") == "009") & (pl.col("sample") == 3)
    right = pl.col("think_budget").replace_strict({16: 3, 64: 6}, default=5)
    ours, theirs = (problem < 5).cast(pl.Float64), (problem < right).cast(pl.Float64)
    published = pl.when(~last | pl.col("think_budget").is_not_null()).then(theirs)
    return rows.with_columns(score=ours, published_score=published, grade_status=pl.lit("graded"))
