"""What is left out of training, and why: rows that overlap with an evaluation set, and prompts that are too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from elastic_core.data.manifest import OverlapRecord
from elastic_core.data.overlap import Ngrams, count_duplicates, count_near_empty, find_overlaps

COMMON = 10
"""Training rows that a 13-gram may occur in before GPT-3 took it for a common phrase."""

REMOVED = pl.Schema(
    {
        "dataset": pl.String(),
        "id": pl.String(),
        "reason": pl.String(),  # "exact", "13-gram" or "too long"
        "evaluation": pl.String(),  # the evaluation set that it overlaps with
        "evaluation_id": pl.String(),
        "evidence": pl.String(),  # the words in common, or the tokens of the prompt
    }
)
"""Every row of a clean table that was left out, one line per reason and evaluation set."""


@dataclass(frozen=True)
class Questions:
    """Ids and questions of one data set, and prompt lengths in tokens where they were taken."""

    ids: pl.Series
    text: pl.Series
    lengths: np.ndarray | None = None

    def counts(self) -> tuple[int, int]:
        """Duplicates and near-empty rows."""
        return count_duplicates(self.text), count_near_empty(self.text)


def overlaps(
    name: str, train: Questions, evaluations: Mapping[str, Questions], common: int | None
) -> tuple[pl.DataFrame, dict[str, OverlapRecord]]:
    """Rows of a training set that overlap with evaluation sets, as `REMOVED`, and their numbers by evaluation set.

    Args:
        common: as in `find_overlaps`.
    """
    prepared = Ngrams.of(train.text)
    found = [pl.DataFrame(schema=REMOVED)]
    numbers = {}
    for evaluation, questions in evaluations.items():
        ngrams = Ngrams.of(questions.text)
        rows = find_overlaps(prepared, ngrams, common=common)
        rare = rows if common == COMMON else find_overlaps(prepared, ngrams, common=COMMON)
        numbers[evaluation] = OverlapRecord(
            exact=_count(rows, "exact"), ngram=_count(rows, "13-gram"), ngram_rare=_count(rare, "13-gram")
        )
        found.append(
            rows.select(
                dataset=pl.lit(name),
                id=train.ids.gather(rows["train_row"]),
                reason="kind",
                evaluation=pl.lit(evaluation),
                evaluation_id=questions.ids.gather(rows["evaluation_row"]),
                evidence="evidence",
            )
        )
    return pl.concat(found), {name: count for name, count in numbers.items() if any(count.values())}


def too_long(name: str, train: Questions, max_prompt_tokens: int) -> pl.DataFrame:
    """Rows whose prompt has more tokens than training allows, as `REMOVED`."""
    assert train.lengths is not None
    lengths = pl.Series(train.lengths, dtype=pl.Int64)
    rows = pl.DataFrame({"id": train.ids, "tokens": lengths}).filter(pl.col("tokens") > max_prompt_tokens)
    return rows.select(
        dataset=pl.lit(name),
        id="id",
        reason=pl.lit("too long"),
        evaluation=pl.lit(None, pl.String),
        evaluation_id=pl.lit(None, pl.String),
        evidence=pl.format("{} tokens", "tokens"),
    )


def _count(rows: pl.DataFrame, kind: str) -> int:
    return rows.filter(pl.col("kind") == kind).height
