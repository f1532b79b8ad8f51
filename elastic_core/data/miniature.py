"""The miniature's own data sets: generated from seeds, built like every other."""

from __future__ import annotations

from functools import partial

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from elastic_core.data.dataset import ROW, Dataset, Generated, reads
from elastic_core.miniature import problems
from elastic_core.miniature.problems import DATA_SOURCE, LEVELS

TRAIN = f"{DATA_SOURCE}-train"
VALIDATION = f"{DATA_SOURCE}-validation"
NUM_VALIDATION = 32
"""Problems per level that validate during training: of a split of their own, neither trained on nor reported."""


class MiniatureParameters(BaseModel):
    """Sizes and seeds of the miniature's data sets."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seed: int = 0
    """Seed of the training and validation problems."""
    num_train: int = Field(gt=0)
    """Training problems."""
    hard_fraction: float = Field(0.5, ge=0, le=1)
    """Share of training problems of the hard level."""
    evaluation_seed: int
    """Seed of the benchmark problems; choose one that no design choice was made on."""
    problems_per_benchmark: int = Field(gt=0)
    """Problems in each benchmark."""


@reads()
def _arithmetic(raw: pl.DataFrame) -> pl.DataFrame:
    return raw.select(ROW, question="question", truth="answer")


_generated = partial(
    Dataset,
    source=Generated(f"elastic_core.{DATA_SOURCE}"),
    files=(),
    licence="that of this project",
    domain="arithmetic",
    map=_arithmetic,
    grader="math",
    prompt="plain-v1",
)

ENTRIES = (
    _generated(name=TRAIN, description="chains of additions and subtractions, both levels", split="train"),
    _generated(name=VALIDATION, description="what training is watched on, both levels", split="validation"),
    *(
        _generated(name=f"{DATA_SOURCE}-{level}", description=f"the {level} level", split="evaluation")
        for level in LEVELS
    ),
)


def generate(name: str, parameters: MiniatureParameters) -> pl.DataFrame:
    """Raw rows of one of the sets: ROW, question, answer."""
    p = parameters
    if name == TRAIN:
        found = problems.training_problems(p.num_train, p.seed, p.hard_fraction)
    elif name == VALIDATION:
        found = [each for level in LEVELS for each in problems.generate(level, NUM_VALIDATION, p.seed, "tune")]
    else:
        (level,) = (level for level in LEVELS if name == f"{DATA_SOURCE}-{level}")
        found = problems.generate(level, p.problems_per_benchmark, p.evaluation_seed, "evaluation")
    rows = [(each.question, str(each.answer)) for each in found]
    frame = pl.DataFrame(rows, schema={"question": pl.String, "answer": pl.String}, orient="row")
    return frame.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).alias(ROW))
