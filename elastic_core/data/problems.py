"""Problems as every stage reads them: parquet in verl's schema, for training and for benchmarks alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from elastic_core.data.prompts import Template

VERL_SCHEMA = pl.Schema(
    {
        "data_source": pl.String(),
        "prompt": pl.List(pl.Struct({"role": pl.String(), "content": pl.String()})),
        "ability": pl.String(),
        "reward_model": pl.Struct({"style": pl.String(), "ground_truth": pl.String()}),
        "extra_info": pl.Struct({"split": pl.String(), "index": pl.Int64(), "id": pl.String(), "grader": pl.String()}),
    }
)


@dataclass(frozen=True)
class Problem:
    """One problem of a benchmark.

    `id` is unique within the benchmark; `question` is the whole prompt; `grader` is the kind that
    `elastic_core.rewards.grade` takes.
    """

    benchmark: str
    id: str
    question: str
    truth: str
    grader: str


def to_verl(
    clean: pl.DataFrame, *, name: str, split: str, domain: str, grader: str, template: Template, first_index: int = 0
) -> pl.DataFrame:
    """Rows of verl's schema from rows of a clean table.

    Args:
        clean: columns of `elastic_core.data.dataset.PROBLEMS`.
        name: of the data set; becomes `data_source`.
        domain: becomes `ability`.
        first_index: position of the first row in the data set.
    """
    message = pl.struct(role=pl.lit("user"), content=template.render())
    return clean.select(
        data_source=pl.lit(name),
        prompt=pl.concat_list(message),
        ability=pl.lit(domain),
        reward_model=pl.struct(style=pl.lit("rule"), ground_truth="truth"),
        extra_info=pl.struct(
            split=pl.lit(split),
            index=pl.int_range(first_index, first_index + pl.len(), dtype=pl.Int64),
            id="id",
            grader=pl.lit(grader),
        ),
    )


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
            id=row["extra_info"]["id"],
            question=row["prompt"][-1]["content"],
            truth=row["reward_model"]["ground_truth"],
            grader=row["extra_info"]["grader"],
        )
        for row in frame.iter_rows(named=True)
    ]
