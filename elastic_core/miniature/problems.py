"""The miniature task: chains of additions and subtractions such as `36+6-4+8=?`, at two levels of difficulty.

- The first operand is 10 to 60, every other a single digit; running totals stay within 10..99 (two tokens each).
- No signed operand occurs twice in a problem, so "the operation after +8" is an unambiguous look-up.
- `easy` has 3 to 6 operands, `hard` 8 to 12. A thought cut anywhere still says how far it came.

Every problem belongs to exactly one split, by a checksum of its question, so splits never overlap.
"""

import random
import re
import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["easy", "hard"]
Split = Literal["train", "tune", "evaluation"]

LEVELS: tuple[Level, ...] = get_args(Level)
SPLITS: tuple[Split, ...] = get_args(Split)
OPERANDS: dict[Level, tuple[int, int]] = {"easy": (3, 6), "hard": (8, 12)}
"""Fewest and most operands of each level, the first operand included."""

MIN_TOTAL, MAX_TOTAL = 10, 99
MIN_FIRST, MAX_FIRST = 10, 60
_CHAIN = re.compile(r"\s*(\d{1,9})((?:\s*[+-]\s*\d{1,9}){1,99})\s*=?\s*\??\s*")
_SIGNED_DIGITS = tuple(x for x in range(-9, 10) if x)

DATA_SOURCE = "miniature"  # prefix of the benchmark names: `miniature-easy` and `miniature-hard`
TRAIN, VALIDATION = f"{DATA_SOURCE}-train", f"{DATA_SOURCE}-validation"
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


@dataclass(frozen=True)
class Problem:
    """One chain, its intermediate results included."""

    question: str  # as the user writes it: `36+6-4+8=?`
    answer: int
    operations: tuple[str, ...]
    """Everything after the first operand: `("+6", "-4", "+8")`."""
    totals: tuple[int, ...]  # the running total before each operation and at the end: `(36, 42, 38, 46)`


def read_chain(question: str) -> Problem | None:
    """The problem of a question like `36+6-4+8=?`, with numbers of any size; None for any other text."""
    if (found := _CHAIN.fullmatch(question)) is None:
        return None
    operations = tuple(re.findall(r"[+-]\d+", "".join(found[2].split())))
    totals = tuple(accumulate(map(int, operations), initial=int(found[1])))
    return Problem(question, totals[-1], operations, totals)


def beyond_task(problem: Problem) -> str:
    """What makes a chain unlike the task's, in words; "" for one of the task's."""
    fewest, most = OPERANDS["easy"][0], OPERANDS["hard"][1]
    reasons = {
        f"a first number beyond {MIN_FIRST} to {MAX_FIRST}": not MIN_FIRST <= problem.totals[0] <= MAX_FIRST,
        "a later number that is no single digit": any(int(x) not in _SIGNED_DIGITS for x in problem.operations),
        f"a total beyond {MIN_TOTAL} to {MAX_TOTAL}": any(not MIN_TOTAL <= x <= MAX_TOTAL for x in problem.totals),
        "an operation that occurs twice": len(set(problem.operations)) < len(problem.operations),
        f"fewer numbers than {fewest}": len(problem.totals) < fewest,
        f"more numbers than {most}": len(problem.totals) > most,
    }
    return ", ".join(reason for reason, applies in reasons.items() if applies)


def split_of(question: str) -> Split:
    """The split a question belongs to: 1/8 of all problems evaluate, 1/8 tune, the rest train."""
    bucket = zlib.crc32(question.encode()) % 8
    return "evaluation" if bucket == 0 else "tune" if bucket == 1 else "train"


def draw_problem(rng: random.Random, num_operands: int, split: Split = "train") -> Problem:
    """Draw a problem with `num_operands` operands (2 to 13), uniformly in sign first, then in digit."""
    while True:
        problem = _draw_chain(rng, num_operands)
        if problem is not None and split_of(problem.question) == split:
            return problem


def _draw_chain(rng: random.Random, num_operands: int) -> Problem | None:
    """One attempt; None where the chain ran into a corner with no operation left."""
    total = rng.randint(MIN_FIRST, MAX_FIRST)
    totals, operations, unused = [total], [], set(_SIGNED_DIGITS)
    for _ in range(num_operands - 1):
        possible = [x for x in sorted(unused) if MIN_TOTAL <= total + x <= MAX_TOTAL]
        if not possible:
            return None
        add = rng.random() < 0.5
        x = rng.choice([x for x in possible if (x > 0) == add] or possible)
        unused.remove(x)
        total += x
        totals.append(total)
        operations.append(f"{x:+d}")
    return Problem(f"{totals[0]}{''.join(operations)}=?", total, tuple(operations), tuple(totals))


def generate(level: Level, num: int, seed: int, split: Split = "train") -> list[Problem]:
    """Distinct problems of a level, in an order that depends on level, seed and split only: a larger `num` extends the
    same list. Use "tune" wherever a result decides about the recipe; "evaluation" is for reported numbers only.
    ValueError for an unknown level or split."""
    if level not in OPERANDS:
        raise ValueError(f"unknown miniature level {level!r}: expected one of {', '.join(LEVELS)}")
    if split not in SPLITS:
        raise ValueError(f"unknown miniature split {split!r}: expected one of {', '.join(SPLITS)}")
    rng = random.Random(f"{DATA_SOURCE}/{split}/{level}/{seed}")
    found: dict[str, Problem] = {}
    while len(found) < num:
        problem = draw_problem(rng, rng.randint(*OPERANDS[level]), split)
        found[problem.question] = problem
    return list(found.values())


def training_problems(num: int, seed: int, hard_fraction: float = 0.5) -> list[Problem]:
    """`num` training problems, both levels shuffled together; `hard_fraction` within 0..1."""
    num_hard = round(num * hard_fraction)
    problems = [*generate("hard", num_hard, seed), *generate("easy", num - num_hard, seed)]
    random.Random(f"{DATA_SOURCE}/shuffle/{seed}").shuffle(problems)
    return problems


def of_dataset(name: str, parameters: MiniatureParameters) -> list[Problem]:
    """Problems of one of the miniature's data sets."""
    if name == TRAIN:
        return training_problems(parameters.num_train, parameters.seed, parameters.hard_fraction)
    if name == VALIDATION:
        return [each for level in LEVELS for each in generate(level, NUM_VALIDATION, parameters.seed, "tune")]
    (level,) = (level for level in LEVELS if name == f"{DATA_SOURCE}-{level}")
    return generate(level, parameters.problems_per_benchmark, parameters.evaluation_seed, "evaluation")
