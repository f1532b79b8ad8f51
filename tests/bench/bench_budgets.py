"""What keeping budgets costs an engine's step: the processor time of each runner's logits processor for 256 requests
under mixed budgets, in microseconds a request and step, without the model. Writes runs/bench/budgets.json.

Forced rows of logits are changed where the logits are; here that is the CPU, with a small vocabulary. Time under load
is not counted, as it is the process's own; the least of some rounds is reported.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import numpy as np
import torch

from elastic_core.budget import Budget
from elastic_core.engines.budgets.drafts import DraftBudgets
from elastic_core.engines.budgets.processor import Progress, Schedule, SlotBudgets, force
from tests.bench import results
from tests.marks import single

WORD, START, END, EOS, VOCABULARY = 0, 1, 2, 3, 64
MARKS, PROMPT = single(START, END, EOS), (WORD, START)
ROUNDS, STEPS, DRAFTS = 5, 256, 4


def drawn(count: int) -> list[Budget]:
    """Of responses that all last to the end, so that every step has all requests."""
    draw = random.Random(0)
    return [Budget(draw.randint(16, 160), STEPS) for _ in range(count)]


def v1(count: int) -> float:
    """`Schedule` and `force`, as v1.py calls them; the runner appends the tokens, which is not counted."""
    schedule, outputs = Schedule(), [[] for _ in range(count)]
    for index, budget in enumerate(drawn(count)):
        schedule.add(index, Progress.of(budget, MARKS, PROMPT), outputs[index])
    logits, spent = torch.zeros(count, VOCABULARY), 0.0
    for _ in range(STEPS):
        began = time.process_time()
        if forced := schedule.step():
            force(logits, forced)
        spent += time.process_time() - began
        tokens = dict(forced)
        for index, output in enumerate(outputs):
            output.append(tokens.get(index, WORD))
    return spent


def _slots(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.full((count, len(PROMPT) + STEPS + 1), WORD, dtype=torch.int32)
    tokens[:, : len(PROMPT)] = torch.tensor(PROMPT)
    return tokens, torch.full((count,), len(PROMPT), dtype=torch.int32)


def v2(count: int) -> float:
    tokens, lengths = _slots(count)
    kept = SlotBudgets(MARKS, tokens, lengths.numpy(), lengths.numpy())
    for slot, budget in enumerate(drawn(count)):
        kept.add(slot, budget, closed=False)
    kept.begin()
    slots, logits = np.arange(count), torch.zeros(count, VOCABULARY)
    began = time.process_time()
    for step in range(STEPS):
        kept.apply(logits, slots, np.full(count, len(PROMPT) + step))
    return time.process_time() - began


def drafts(count: int) -> float:
    """With DRAFTS draft tokens of each request, all accepted: in torch operations, which a GPU does side by side."""
    tokens, lengths = _slots(count)
    kept = DraftBudgets(MARKS, tokens, lengths, lengths, DRAFTS)
    for slot, budget in enumerate(drawn(count)):
        kept.add(slot, budget, closed=False)
    kept.begin()
    slots = torch.arange(count).repeat_interleave(DRAFTS + 1)
    local = torch.arange(DRAFTS + 1).repeat(count)
    ids, logits = torch.full_like(slots, WORD), torch.zeros(len(slots), VOCABULARY)
    began = time.process_time()
    for step in range(0, STEPS - DRAFTS, DRAFTS + 1):
        kept.apply(logits, slots, ids, len(PROMPT) - 1 + step + local, local)
    return (time.process_time() - began) * (DRAFTS + 1)  # As many calls as tokens.


def main(count: int) -> None:
    torch.set_num_threads(1)
    figures: dict[str, float] = {"requests": count}
    ways: dict[str, Callable[[int], float]] = {"v1": v1, "v2": v2, f"v2_{DRAFTS}_drafts": drafts}
    for name, spend in ways.items():
        least = min(spend(count) for _ in range(ROUNDS))
        figures[f"{name}_us_a_request_and_step"] = 1e6 * least / (STEPS * count)
        print(f"{name:12} {figures[f'{name}_us_a_request_and_step']:.3f} µs a request and step")
    results.write("budgets", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=256, help="requests decoded together")
    main(**vars(parser.parse_args()))
