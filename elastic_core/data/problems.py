"""Problems as every stage reads them: parquet in verl's schema, for training and for benchmarks alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

VERL_SCHEMA = pl.Schema(
    {
        "data_source": pl.String(),
        "prompt": pl.List(pl.Struct({"role": pl.String(), "content": pl.String()})),
        "ability": pl.String(),
        "reward_model": pl.Struct({"style": pl.String(), "ground_truth": pl.String()}),
        "extra_info": pl.Struct({"split": pl.String(), "index": pl.Int64()}),
    }
)


@dataclass(frozen=True)
class Problem:
    """One problem of a benchmark.

    `id` is unique within the benchmark; `grader` is the kind that `elastic_core.rewards.grade` takes.
    """

    benchmark: str
    id: str
    question: str
    truth: str
    grader: str


def to_verl(problems: list[Problem], split: str) -> pl.DataFrame:
    """Rows of verl's schema; data_source is the benchmark's name, ability the grader's kind."""
    rows = [
        {
            "data_source": problem.benchmark,
            "prompt": [{"role": "user", "content": problem.question}],
            "ability": problem.grader,
            "reward_model": {"style": "rule", "ground_truth": problem.truth},
            "extra_info": {"split": split, "index": int(problem.id)},
        }
        for problem in problems
    ]
    return pl.DataFrame(rows, schema=VERL_SCHEMA)


def read_problems(file: Path) -> list[Problem]:
    """Problems of a parquet file in verl's schema.

    Raises:
        ValueError: when the file's schema is another.
        FileNotFoundError: when there is none.
    """
    frame = pl.read_parquet(file)
    if frame.schema != VERL_SCHEMA:
        raise ValueError(f"{file}: columns {dict(frame.schema)}; expected {dict(VERL_SCHEMA)}")
    return [
        Problem(
            benchmark=row["data_source"],
            id=str(row["extra_info"]["index"]),
            question=row["prompt"][-1]["content"],
            truth=row["reward_model"]["ground_truth"],
            grader=row["ability"],
        )
        for row in frame.iter_rows(named=True)
    ]
