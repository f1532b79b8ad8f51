"""Budgets under speculative decoding, on a simulated runner: a row for each draft, of which some are rejected."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from elastic_core.budget import Budget
from elastic_core.engines.budgets.drafts import DraftBudgets
from elastic_core.engines.budgets.processor import Progress
from elastic_core.models.marks import Marks
from tests.marks import single

CONTEXT, VOCABULARY = 128, 10
EOS = 9
ONE = single(1, 2, EOS)
TWO = Marks((1,), ((2, 3),), (2, 3), (2, 3), (EOS,))
THREE = Marks((1, 4, 5), ((2, 3, 4), (2, 6)), (7, 2, 3, 4), (1, 2, 6), (EOS,))
CALLS = Marks((1,), ((2,),), (2,), (2,), (EOS,), calls=((3, 4), (2,)))
FAMILIES = [ONE, TWO, THREE, CALLS]

PROMPTS = [(8, 1), (8,), (8, 1, 2), (8, 2, 3, 4)]


def budget(draw: random.Random) -> Budget | None:
    think, solution = draw.choice([None, *range(13)]), draw.choice([None, 1, 1, 2, 3, 8])
    return draw.choice([Budget(think, solution)] * 4 + [None])


class Runner:
    """Slots of requests; a step has rows for each present request's committed end and its drafts."""

    def __init__(self, marks: Marks, slots: int, drafts: int) -> None:
        self.marks = marks
        self.tokens = torch.zeros(slots, CONTEXT, dtype=torch.int32)
        self.prompts, self.prefills = (torch.zeros(slots, dtype=torch.int32) for _ in range(2))
        self.budgets = DraftBudgets(marks, self.tokens, self.prompts, self.prefills, drafts)
        self.asked: dict[int, tuple[Budget | None, tuple[int, ...]]] = {}
        self.outputs: dict[int, list[int]] = {}

    def add(self, slot: int, budget: Budget | None, prompt: tuple[int, ...], output: list[int]) -> None:
        self.asked[slot], self.outputs[slot] = (budget, prompt), list(output)
        whole = [*prompt, *output]
        self.prompts[slot], self.prefills[slot] = len(prompt), len(whole)
        self.tokens[slot, : len(whole)] = torch.tensor(whole, dtype=torch.int32)
        known = self.marks.is_closed(prompt) if slot % 2 else None
        assert self.budgets.add(slot, budget, known) is (budget is not None)

    def possible(self, drafts: dict[int, list[int]], chunks: int = 1) -> dict[int, list[int | None]]:
        """The token that each row of each slot is left with, None where it may choose. vLLM calls a processor once for
        each chunk of logits, which splits no request."""
        self.budgets.begin()
        found: dict[int, list[int | None]] = {}
        for chunk in np.array_split(list(drafts), min(chunks, len(drafts))):
            slots, ids, positions, local = [], [], [], []
            for slot in chunk.tolist():
                whole = [*self.asked[slot][1], *self.outputs[slot], *drafts[slot]]
                for j in range(len(drafts[slot]) + 1):
                    at = len(whole) - len(drafts[slot]) - 1 + j
                    slots.append(slot), ids.append(whole[at]), positions.append(at), local.append(j)
            logits = torch.zeros(len(slots), VOCABULARY)
            self.budgets.apply(logits, *map(torch.tensor, (slots, ids, positions, local)))  # type: ignore[arg-type]
            for slot, row in zip(slots, torch.isfinite(logits).tolist(), strict=True):
                assert sum(row) in (1, VOCABULARY)
                found.setdefault(slot, []).append(row.index(True) if sum(row) == 1 else None)
        return found

    def law(self, slot: int, drafts: list[int]) -> list[int | None]:
        budget, prompt = self.asked[slot]
        if budget is None:
            return [None] * (len(drafts) + 1)
        whole = [*self.outputs[slot], *drafts]
        ends = range(len(self.outputs[slot]), len(whole) + 1)
        return [Progress.of(budget, self.marks, prompt).update(whole[:end]).token for end in ends]

    def commit(self, slot: int, tokens: list[int]) -> None:
        at = len(self.asked[slot][1]) + len(self.outputs[slot])
        self.tokens[slot, at : at + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.outputs[slot] += tokens


@pytest.mark.parametrize("marks", FAMILIES, ids=["one token", "two", "three", "calls"])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_every_row_gets_what_the_law_says_of_what_precedes_it(marks: Marks, k: int) -> None:
    """Requests come and go, with a part of their response at times, or stand still; drafts are right at times."""
    for seed in range(25):
        draw = random.Random(seed)
        runner = Runner(marks, 4, k)
        for _ in range(8):
            if draw.random() < 0.4 or not runner.asked:
                output = [draw.randrange(8) for _ in range(draw.choice([0, 0, 1, 7]))]
                runner.add(draw.randrange(4), budget(draw), draw.choice(PROMPTS), output)
            present = [slot for slot in runner.asked if draw.random() < 0.8]
            drafts = {slot: [draw.randrange(8) for _ in range(draw.randint(0, k))] for slot in present}
            for slot in present:
                forced = runner.law(slot, [])[0]
                if forced is not None and drafts[slot] and draw.random() < 0.5:
                    drafts[slot][0] = forced
            if not present:
                continue
            possible = runner.possible(drafts, chunks=draw.randint(1, 2))
            for slot in present:
                assert possible[slot] == runner.law(slot, drafts[slot])
                accepted: list[int] = []
                for forced, draft in zip(possible[slot], [*drafts[slot], None], strict=True):
                    likely = draft if draft is not None and draw.random() < 0.7 else draw.randrange(8)
                    accepted.append(likely if forced is None else forced)
                    if accepted[-1] != draft:
                        break
                runner.commit(slot, accepted)


def test_what_precedes_a_prefills_end_is_neither_forced_nor_kept() -> None:
    runner = Runner(ONE, 1, 2)
    runner.add(0, Budget(3, 2), (8, 1), [7, 7, 7, 2, 7])
    runner.budgets.begin()
    for at in (3, 4, 5):  # A prefill in parts.
        logits = torch.zeros(1, VOCABULARY)
        runner.budgets.apply(logits, *map(torch.tensor, ([0], [7], [at], [0])))  # type: ignore[arg-type]
        assert torch.isfinite(logits).all()
    assert runner.possible({0: [7]}) == {0: [None, EOS]}


# A model of three words beside think-end, whose next token depends on the last one.
WORDS = (2, 3, 4, EOS)
TARGET = {1: (0.2, 0.5, 0.2, 0.1), 2: (0.1, 0.3, 0.4, 0.2), 3: (0.3, 0.1, 0.5, 0.1), 4: (0.2, 0.5, 0.2, 0.1)}
DRAFTER = {1: (0.1, 0.6, 0.2, 0.1), 2: (0.4, 0.2, 0.2, 0.2), 3: (0.1, 0.6, 0.2, 0.1), 4: (0.3, 0.3, 0.3, 0.1)}


@cache
def _law(marks: Marks, budget: Budget, output: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """The probability of every response of `separate`, token by token."""
    forced = Progress.of(budget, marks, (8, 1)).update(output).token
    choices = [(forced, 1.0)] if forced is not None else zip(WORDS, TARGET[output[-1] if output else 1], strict=True)
    law: Counter[tuple[int, ...]] = Counter()
    for token, p in choices:
        longer = (*output, token)
        for response, q in ({longer: 1.0} if token == EOS else _law(marks, budget, longer)).items():
            law[response] += p * q
    return law


def _respond(runner: Runner, slots: int, k: int, draw: random.Random) -> list[tuple[int, ...]]:
    """A response in each slot, by standard rejection sampling: a draft is accepted with probability min(1, p / q)."""
    running = list(range(slots))
    while running:
        drafts, chances = {}, {}
        for slot in running:
            drafts[slot], chances[slot] = [], []
            last = (runner.outputs[slot] or [1])[-1]
            for _ in range(draw.randint(1, k)):
                if last == EOS:
                    break
                chances[slot].append(DRAFTER[last])
                (last,) = draw.choices(WORDS, DRAFTER[last])
                drafts[slot].append(last)
        possible = runner.possible(drafts)
        for slot in running:
            last, accepted = (runner.outputs[slot] or [1])[-1], []
            for j, forced in enumerate(possible[slot]):
                p = TARGET[last] if forced is None else [float(word == forced) for word in WORDS]
                if j < len(drafts[slot]):
                    q, at = chances[slot][j], WORDS.index(drafts[slot][j])
                    if draw.random() < p[at] / q[at]:
                        accepted.append(last := drafts[slot][j])
                        if last == EOS:
                            break
                        continue
                    p = [max(0.0, one - other) for one, other in zip(p, q, strict=True)]
                accepted += draw.choices(WORDS, p)
                break
            runner.commit(slot, accepted)
        running = [slot for slot in running if runner.outputs[slot][-1] != EOS]
    return [tuple(runner.outputs[slot]) for slot in range(slots)]


@pytest.mark.parametrize(
    ("marks", "budget", "k", "responses"),
    [
        (ONE, Budget(2, 2), 1, 3000),
        (TWO, Budget(3, 2), 4, 3000),
        pytest.param(ONE, Budget(3, 2), 4, 50_000, marks=pytest.mark.slow),
        pytest.param(TWO, Budget(3, 2), 8, 50_000, marks=pytest.mark.slow),
    ],
)
def test_responses_have_the_distribution_of_separate(marks: Marks, budget: Budget, k: int, responses: int) -> None:
    law, draw, slots = _law(marks, budget), random.Random(0), 500
    assert sum(law.values()) == pytest.approx(1)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(responses // slots):
        runner = Runner(marks, slots, k)
        for slot in range(slots):
            runner.add(slot, budget, (8, 1), [])
        seen.update(_respond(runner, slots, k, draw))
    assert set(seen) <= set(law)  # No budget was missed.
    common = [response for response, p in law.items() if p * responses >= 5]
    counts = [seen[response] for response in common]
    expected = [law[response] * responses for response in common]
    rest = responses - sum(expected)
    assert chisquare([*counts, responses - sum(counts)], [*expected, rest]).pvalue > 1e-4
