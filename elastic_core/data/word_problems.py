"""Word problems in plain English, at two levels, for small pretrained models.

An amount of something begins, operations change it, a question asks for it (word_problems.toml): `easy` has 2 or 3
operations; `hard` 4 to 6, and one or two sentences with numbers that do not matter. Amounts stay within 1..40. The
thought to imitate goes from sentence to sentence, so that a thought cut anywhere says how far it came; most are longer
than they need be (`WORDY`). Every problem belongs to exactly one split, by a checksum of its question.
"""

import random
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from elastic_core.miniature.problems import LEVELS, NUM_VALIDATION, Level, MiniatureParameters, Split, split_of

OPERATIONS: dict[Level, tuple[int, int]] = {"easy": (2, 3), "hard": (4, 6)}
"""Fewest and most of each level."""
LARGEST = 40
_CHANGES = {
    "groups": (1, lambda total, a, b: a * b),
    "add": (1, lambda total, a, b: total + a),
    "subtract": (1, lambda total, a, b: total - a),
    "times": (1, lambda total, a, b: total * a),
    "half": (1, lambda total, a, b: total / 2),
    "add-groups": (2, lambda total, a, b: total + a * b),
    "subtract-groups": (2, lambda total, a, b: total - a * b),
}
"""How many operations each is, and the amount after it."""

WORDY = 0.6
"""Share of the thoughts that are longer than they need be: what a budget can teach. They are no better than the others:
else training under a budget would give up what makes them better, and accuracy without a budget with it."""
_EQUATION = re.compile(r"\d+ [*/+-] \d+ = \d+")
_SHE, _HE = ("she", "She", "her", "her"), ("he", "He", "his", "him")
DATA_SOURCE = "words"
MODULE = f"elastic_core.data.{Path(__file__).stem}"
TRAIN, VALIDATION, SFT = f"{DATA_SOURCE}-train", f"{DATA_SOURCE}-validation", f"{DATA_SOURCE}-sft"


class WordParameters(MiniatureParameters):
    """Sizes and seeds of the word problems' data sets."""

    num_sft: int = Field(gt=0)
    """Problems to fine-tune on, with thoughts to imitate; not those that are trained on."""


@dataclass(frozen=True)
class WordProblem:
    """A story with its question, and how a person would solve it."""

    question: str
    answer: int
    thought: str
    solution: str  # with the answer in a box

    def row(self) -> dict[str, str]:
        """The raw row of a data set: of problems, and of conversations in the alpaca form."""
        response = f"<think>\n{self.thought}\n</think>\n\n{self.solution}"
        exchange = {"instruction": self.question, "input": "", "output": response}
        return {"question": self.question, "answer": str(self.answer), **exchange}


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def generate(level: Level, num: int, seed: int, split: Split = "train") -> list[WordProblem]:
    """Distinct problems of a level, in an order that depends on level, seed and split only: a larger `num` extends the
    same list. Use "tune" wherever a result decides about the recipe; "evaluation" is for reported numbers only."""
    rng = random.Random(f"words/{split}/{level}/{seed}")
    found: dict[str, WordProblem] = {}
    while len(found) < num:
        problem = _draw(rng, level)
        if problem is not None and split_of(problem.question) == split:
            found[problem.question] = problem
    return list(found.values())


def _draw(rng: random.Random, level: Level) -> WordProblem | None:
    """One attempt; None where the story ran into a corner."""
    tables = _tables()
    family = tables[rng.choice([name for name in tables if name not in ("names", "women")])]
    people = rng.sample(tables["names"], 8)
    who = people.pop()
    words = {"who": who, "last": who, "thing": rng.choice(family["things"]), "friend": people.pop()}
    words |= dict(zip(("she", "She", "her", "him"), _SHE if who in tables["women"] else _HE, strict=True))
    left = rng.randint(*OPERATIONS[level])
    story, total = list[tuple[str, str]](), 0
    moves = [rng.choice(family["starts"])]
    while moves or left > 0:
        move = moves.pop() if moves else rng.choice(family["moves"])
        a, b = (rng.randint(*move.get(name, (0, 0))) for name in "ab")
        if "change" in move:
            operations, change = _CHANGES[move["change"]]
            after = change(total, a, b)
        else:
            operations, after = 0, rng.randint(*move["total"])
        if operations > left or not 1 <= after <= LARGEST or after != int(after):
            return None
        if "{other}" in move["step"]:
            words["other"] = people.pop()
        values = {**words, "a": a, "b": b, "ab": a * b, "total": total, "after": int(after)}
        story.append((rng.choice(move["tell"]).format(**values), move["step"].format(**values)))
        words["last"] = words.get("other", who)
        total, left = int(after), left - operations
    if level == "hard":
        for aside in rng.sample(family["asides"], rng.randint(1, 2)):
            story.insert(rng.randint(1, len(story)), (aside.format(**words, a=rng.randint(2, 30)), ""))
    ask, solution = rng.choice(family["asks"]), family["solution"]
    question = " ".join([*(sentence for sentence, _ in story), ask.format(**words)])
    thought = " ".join(step for _, step in story if step)
    if rng.random() < WORDY:
        check = f"Let me check: {_EQUATION.findall(thought)[-1]} is right. So the answer is {total}."
        thought = f'Okay, let me read the problem again. "{question}" Let me go step by step. {thought} {check}'
    return WordProblem(
        question, total, thought, f"{solution.format(**words, after=total)} The answer is \\boxed{{{total}}}."
    )


def of_dataset(name: str, parameters: WordParameters) -> list[WordProblem]:
    """Problems of one of the data sets; those to fine-tune on come before those to train on."""
    if name in (TRAIN, SFT):
        found = []
        for level, share in (("hard", parameters.hard_fraction), ("easy", 1 - parameters.hard_fraction)):
            first, then = round(parameters.num_sft * share), round(parameters.num_train * share)
            problems = generate(level, first + then, parameters.seed)  # type: ignore[arg-type]
            found += problems[:first] if name == SFT else problems[first:]
        random.Random(f"{name}/shuffle/{parameters.seed}").shuffle(found)
        return found
    if name == VALIDATION:
        return [each for level in LEVELS for each in generate(level, NUM_VALIDATION, parameters.seed, "tune")]
    (level,) = (level for level in LEVELS if name == f"{DATA_SOURCE}-{level}")
    return generate(level, parameters.problems_per_benchmark, parameters.evaluation_seed, "evaluation")
