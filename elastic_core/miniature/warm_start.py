"""From a recipe to a warm start: everything the shipped base was made from, in one function."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core.atomic import replacing_directory
from elastic_core.miniature.corpus import Recipe, default_recipe, write_corpus

if TYPE_CHECKING:
    from elastic_core.training.sft import WarmStart

BASE = Path(__file__).parent / "base"
"""The shipped base: a Hugging Face checkpoint of about 3 MB."""

MICRO_BATCH_TOKENS = 400
"""Attention over a pack is quadratic in its length: on a CPU packs barely longer than the longest example are best."""


def prepare(
    work_dir: Path, output_dir: Path, recipe: Recipe | None = None, num_batches: int | None = None
) -> "WarmStart":
    """Write the initial model and the corpus under `work_dir`, and describe the training run that makes the base.

    What is there already is kept: both are functions of the recipe, and a different one is refused by the run's record.

    Args:
        recipe: defaults to that of the shipped base; its seed also initialises the model.
        num_batches: shorten every stage in proportion to this many steps in all, for tests.

    Raises:
        ValueError: `num_batches` leaves a stage without a step.
    """
    from elastic_core.miniature.model import save_initial
    from elastic_core.training.sft import WarmStart

    recipe = recipe or default_recipe()
    if num_batches is not None:
        recipe = shortened(recipe, num_batches)
    initial, corpus = work_dir / "initial", work_dir / "corpus.parquet"
    if not initial.exists():
        with replacing_directory(initial) as temporary:
            save_initial(temporary, recipe.seed)
    if not corpus.exists():
        write_corpus(recipe, corpus)
    return WarmStart(
        model=initial,
        train_file=corpus,
        work_dir=work_dir / "run",
        output_dir=output_dir,
        total_steps=recipe.steps,
        batch_size=recipe.batch_size,
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        learning_rate=1.2e-3,
        warmup_steps=100,
        min_learning_rate_ratio=0.03,
        reshard=False,
        save_every=400,
    )


def shortened(recipe: Recipe, steps: int) -> Recipe:
    """The same curriculum, its stages in the same proportions, in `steps` optimiser steps.

    Raises:
        ValueError: a stage would be left without a step.
    """
    ends = [sum(s.steps for s in recipe.stages[: i + 1]) * steps // recipe.steps for i in range(len(recipe.stages))]
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if min(lengths) < 1:
        raise ValueError(f"{steps} steps are too few for {len(recipe.stages)} stages of {recipe.steps} steps in all")
    return replace(recipe, stages=tuple(replace(s, steps=n) for s, n in zip(recipe.stages, lengths, strict=True)))
