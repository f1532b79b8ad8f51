"""The V2 runner's side of served budgets, on a simulated runner that keeps tokens in slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import SlotBudgets
from tests.unit.test_serving_law import END, MARKS, START, WORD, budgets, literal, tokens

SLOTS, CONTEXT, VOCABULARY = 5, 64, 8
prompts = st.sampled_from([(WORD, START), (WORD,), (WORD, START, END), (WORD, END, START, WORD)])


@dataclass
class Request:
    budget: Budget | None
    prompt: tuple[int, ...]
    output: list[int]
    prefilled: int


class Runner:
    """Requests come into slots, take part in a step or not, and are followed by others."""

    def __init__(self) -> None:
        self.tokens = torch.zeros(SLOTS, CONTEXT, dtype=torch.int32)
        self.prompt_lengths = np.zeros(SLOTS, np.int32)
        self.prefill_lengths = np.zeros(SLOTS, np.int32)
        self.budgets = SlotBudgets(MARKS, self.tokens, self.prompt_lengths, self.prefill_lengths)
        self.requests: dict[int, Request] = {}

    def add(self, slot: int, budget: Budget | None, prompt: tuple[int, ...], output: list[int]) -> None:
        self.requests[slot] = Request(budget, prompt, list(output), 0)
        self.prompt_lengths[slot] = len(prompt)
        self.prefill_lengths[slot] = len(prompt) + len(output)
        self.tokens[slot, : len(prompt) + len(output)] = torch.tensor([*prompt, *output])
        # Known of every other request; else it is read from the device.
        closed = prompt == (WORD, START, END) if len(self.requests) % 2 else None
        assert self.budgets.add(slot, budget, closed) is (budget is not None)

    def step(self, present: list[int], drawn: list[int], whole: bool, padding: int = 0) -> None:
        """One token for every slot that takes part, or a part of its prefill, in a graph with so many rows more."""
        rows = [slot for slot in present if slot in self.requests]
        lengths = []
        for slot in rows:
            request = self.requests[slot]
            total = len(request.prompt) + len(request.output)
            request.prefilled = total if whole else min(total, request.prefilled + 2)
            lengths.append(request.prefilled)
        self.budgets.begin()
        logits = torch.zeros(len(rows), VOCABULARY)
        self.budgets.apply(logits, np.array(rows, np.int32), np.array(lengths + [0] * padding, np.int32))
        for row, slot in enumerate(rows):
            request = self.requests[slot]
            if request.prefilled < len(request.prompt) + len(request.output):
                continue  # What is sampled within a prefill is thrown away.
            expected = None
            if request.budget is not None:
                closed = request.prompt == (WORD, START, END)
                expected = literal(request.output, request.budget, closed)
            possible = torch.isfinite(logits[row]).nonzero().flatten().tolist()
            assert possible == (list(range(VOCABULARY)) if expected is None else [expected])
            token = drawn[slot] if expected is None else expected
            self.tokens[slot, request.prefilled] = token
            request.output.append(token)


arrivals = st.tuples(st.integers(0, SLOTS - 1), st.none() | budgets, prompts, st.lists(tokens, max_size=6))
steps = st.tuples(
    st.lists(arrivals, max_size=2),
    st.lists(st.integers(0, SLOTS - 1), unique=True, max_size=SLOTS),
    st.lists(tokens, min_size=SLOTS, max_size=SLOTS),
    st.booleans(),
    st.integers(0, 3),
)


@given(st.lists(steps, max_size=40))
def test_every_row_gets_what_the_law_says(script: list[Any]) -> None:
    runner = Runner()
    for arrived, present, drawn, whole, padding in script:
        for slot, budget, prompt, output in arrived:
            runner.add(slot, budget, prompt, output)
        runner.step(present, drawn, whole, padding)


def test_a_request_that_comes_back_is_due_at_its_length_whatever_its_prefill_took() -> None:
    runner = Runner()
    runner.add(0, Budget(6, 2), (WORD, START), [WORD] * 5)
    for _ in range(6):
        runner.step([0], [WORD] * SLOTS, whole=False)
    assert runner.requests[0].output == [WORD] * 6 + [END, WORD]


def test_a_request_that_left_is_not_read_again() -> None:
    runner = Runner()
    runner.add(0, Budget(2, 2), (WORD, START), [])
    runner.step([0], [WORD] * SLOTS, whole=True)
    original, read = runner.budgets._read, []
    runner.budgets._read = lambda slot, start: (read.append(slot), original(slot, start))[1]  # type: ignore
    runner.add(1, Budget(50, 2), (WORD, START), [])
    for _ in range(20):
        runner.step([1], [WORD] * SLOTS, whole=True)
    assert set(read) == {1}
