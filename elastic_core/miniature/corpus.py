"""The warm-start corpus: a curriculum of solved problems, in the order in which they must be trained on.

The base has to learn arithmetic, and to think at length and never to stop early, and yet to make the best of a thought
that was cut. For that, many examples have their thought cut at a random point, with **no loss on the tokens that end a
cut thought**. Corpus order is training order: nothing is shuffled or bucketed by length afterwards.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.miniature import grammar
from elastic_core.miniature.grammar import SolutionKind, Style, encode, prompt_ids, vocabulary
from elastic_core.miniature.problems import Problem, draw_problem
from elastic_core.system.files import replacing

STYLES: tuple[Style, ...] = ("verbose", "medium", "concise")
DERIVABLE = 5  # most operations a derived or continued solution of 32 tokens can hold


@dataclass(frozen=True)
class Stage:
    """A stretch of the curriculum. Every field but `name` and `steps` is a range or a probability."""

    name: str
    steps: int  # optimiser steps this stage lasts
    styles: tuple[float, float, float]  # shares of verbose, medium and concise thoughts
    cut: float  # share of examples with a cut thought
    cut_empty: float = 0.15  # of the cut thoughts, the share with nothing left
    cut_first_pass: float = 0.6  # of the others, the share cut before the first pass through the chain is complete
    continued: float = 0.55
    """Of the unfinished thoughts, the share whose solution goes on from where the thought stopped."""
    rederived: float = 0.15  # and the share with a solution that starts over, if that fits; the rest guess
    grow: bool = False  # chains grow from 4 to 12 operands over the stage, instead of mixing two ranges
    hard: float = 0.5  # share of hard chains
    hard_operands: tuple[int, int] = (8, 12)
    easy_operands: tuple[int, int] = (3, 6)
    guided: float = 0.0
    """Share of examples that are a conversation of navigator and solver (`elastic_core.miniature.grammar`)."""


@dataclass(frozen=True)
class Recipe:
    """The corpus, a function of these fields and nothing else."""

    stages: tuple[Stage, ...]
    seed: int = 0
    batch_size: int = 8  # examples per optimiser step
    rechecks: tuple[float, float, float] = (0.50, 0.35, 0.15)
    """Shares of verbose thoughts that re-check themselves 0, 1 and 2 times."""
    derive_finished: float = 0.35
    """Share of finished thoughts on short chains whose solution derives the answer once more."""
    newline_before_end: float = 0.15  # share of cut thoughts that end in a newline, as under budget forcing
    efforts: tuple[tuple[str, tuple[float, float, float]], ...] = ()
    """Effort words before the question, with the shares of styles under each; as many examples have none."""

    @property
    def steps(self) -> int:
        """Optimiser steps over all stages."""
        return sum(stage.steps for stage in self.stages)


def default_recipe(seed: int = 0) -> Recipe:
    """The curriculum: the first of the two runs that made the shipped base."""
    return Recipe(
        seed=seed,
        stages=(
            Stage("grow", 2400, styles=(0.25, 0.35, 0.40), cut=0.60, cut_first_pass=0.85, continued=0.60, grow=True),
            Stage("pickup", 2400, styles=(0.50, 0.30, 0.20), cut=0.95, cut_empty=0.06, cut_first_pass=0.97,
                  continued=0.85, rederived=0.08, hard=0.75, hard_operands=(7, 12)),
            Stage("mixture", 3200, styles=(0.68, 0.20, 0.12), cut=0.55, guided=0.35),
            Stage("settle", 1000, styles=(0.80, 0.20, 0.00), cut=0.55, guided=0.35),
        ),
    )  # fmt: skip


def consolidation_recipe(seed: int = 0) -> Recipe:
    """The second run, which goes on from the curriculum's end: more full thoughts on long chains, as their re-checks
    reach positions that cut thoughts and conversations rarely do."""
    stage = Stage("mixture", 2000, styles=(0.75, 0.15, 0.10), cut=0.40, hard=0.7, guided=0.2)
    settle = replace(stage, name="settle", steps=700, styles=(0.80, 0.20, 0.00))
    return Recipe(seed=seed + 1, stages=(stage, settle))


def effort_recipe(seed: int = 0) -> Recipe:
    """Further training of the shipped base: "low" before a question asks for a concise thought, "high" for a verbose
    one."""
    stage = Stage("effort", 600, styles=(0.80, 0.15, 0.05), cut=0.40)
    return Recipe(seed=seed + 2, stages=(stage,), efforts=(("low", (0.0, 0.0, 1.0)), ("high", (1.0, 0.0, 0.0))))


RECIPES = {"curriculum": default_recipe, "consolidation": consolidation_recipe, "effort": effort_recipe}
"""Recipes by name, as functions of the seed."""


class Example(NamedTuple):
    """One training sequence. `loss_mask[i]` says whether predicting `input_ids[i]` counts."""

    input_ids: list[int]
    loss_mask: list[int]
    stage: str
    question: str
    kind: SolutionKind
    cut: bool
    guided: bool = False


def examples(recipe: Recipe) -> Iterator[Example]:
    """The corpus in training order."""
    rng = random.Random(f"miniature/corpus/{recipe.seed}")
    for stage in recipe.stages:
        num = stage.steps * recipe.batch_size
        for i in range(num):
            if stage.grow:  # The last twentieth already trains on full length.
                num_operands = rng.randint(3, min(12, 4 + int(9 * (i / num) / 0.95)))
            else:
                num_operands = rng.randint(*(stage.hard_operands if rng.random() < stage.hard else stage.easy_operands))
            problem = draw_problem(rng, num_operands)
            draw = _guided_example if rng.random() < stage.guided else _example
            yield draw(rng, recipe, stage, problem)


def _example(rng: random.Random, recipe: Recipe, stage: Stage, problem: Problem) -> Example:
    ids = vocabulary()
    effort, styles = rng.choice([(None, stage.styles), *recipe.efforts]) if recipe.efforts else (None, stage.styles)
    style = rng.choices(STYLES, styles)[0]
    thinking = encode(grammar.thought(problem, style, _draw_rechecks(rng, style, recipe.rechecks)))
    # For every prefix length k the operations of the first pass that have their two-digit result within k tokens.
    written = (k > 2 and thinking[k - 3] == ids["="] for k in range(len(thinking) + 1))
    done = [min(count, len(problem.operations)) for count in accumulate(written)]
    ending = [ids[grammar.END_THINK]]
    cut = rng.random() < stage.cut
    if cut:
        length = _draw_cut(rng, stage, done, len(problem.operations))
        thinking, done = thinking[:length], done[: length + 1]
        if rng.random() < recipe.newline_before_end:
            ending = [ids[grammar.NEWLINE], ids[grammar.END_THINK]]
    kind = _draw_kind(rng, recipe, stage, problem, finished=done[-1] == len(problem.operations))
    # Operations in the thought's current pass: each step of each style names its operation exactly once.
    num_operations, operations = len(problem.operations), {ids[operation] for operation in grammar.OPERATIONS}
    total = sum(token in operations for token in thinking)
    mentioned = total if total <= num_operations else (total - 1) % num_operations + 1
    answer = [*encode(grammar.solution(problem, kind, mentioned)), ids[grammar.EOS]]
    prompt = prompt_ids(problem.question, effort)
    mask = [0] * len(prompt) + [1] * len(thinking) + [0 if cut else 1] * len(ending) + [1] * len(answer)
    return Example([*prompt, *thinking, *ending, *answer], mask, stage.name, problem.question, kind, cut)


def _guided_example(rng: random.Random, recipe: Recipe, stage: Stage, problem: Problem) -> Example:
    """A conversation, cut anywhere at the stage's rate; all that was forced bears no loss."""
    num_operations = len(problem.operations)
    kinds: list[SolutionKind] = []

    def solution(num_solved: int) -> str:
        kinds.append(_draw_kind(rng, recipe, stage, problem, finished=num_solved == num_operations))
        return grammar.solution(problem, kinds[-1], num_solved)

    whole = grammar.guided_chain(problem, None, lambda num_solved: grammar.solution(problem, "direct", num_solved))
    cut = rng.random() < stage.cut
    run = grammar.guided_chain(problem, rng.randrange(whole.think_tokens) if cut else None, solution)
    ids, mask = [*run.prompt_ids, *run.response_ids], [0] * len(run.prompt_ids) + [int(not each) for each in run.forced]
    return Example(ids, mask, stage.name, problem.question, kinds[-1], cut, guided=True)


def _draw_rechecks(rng: random.Random, style: Style, weights: tuple[float, float, float]) -> int:
    """How often a thought re-checks itself: 0, 1 or 2 times by `weights` if verbose, 30 % once if medium."""
    if style == "verbose":
        return rng.choices((0, 1, 2), weights)[0]
    return int(style == "medium" and rng.random() < 0.3)


def _draw_cut(rng: random.Random, stage: Stage, done: list[int], num_operations: int) -> int:
    """How many tokens of the thought remain."""
    if rng.random() < stage.cut_empty:
        return 0
    if rng.random() < stage.cut_first_pass:
        return rng.randint(0, done.index(num_operations))
    return rng.randint(0, len(done) - 1)


def _draw_kind(rng: random.Random, recipe: Recipe, stage: Stage, problem: Problem, finished: bool) -> SolutionKind:
    fits = len(problem.operations) <= DERIVABLE
    u = rng.random()
    if finished:
        return "derived" if fits and u < recipe.derive_finished else "direct"
    if u < stage.continued:
        return "continued"
    if u < stage.continued + stage.rederived:
        return "derived" if fits else "continued"
    return "direct"


def write_corpus(recipe: Recipe, path: Path) -> None:
    """Write the corpus as parquet, one `Example` a row, in training order."""
    import polars as pl

    schema: dict[str, Any] = {"input_ids": pl.List(pl.Int32), "loss_mask": pl.List(pl.Int8)}
    schema |= dict.fromkeys(("stage", "question", "kind"), pl.String) | dict.fromkeys(("cut", "guided"), pl.Boolean)
    with replacing(path) as temporary:
        pl.DataFrame(list(examples(recipe)), schema=schema, orient="row").write_parquet(temporary)
