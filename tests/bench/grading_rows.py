"""How long it takes to turn a sweep's trajectories into rows, against the engine that makes them: decoding, grading and
the frame. All of it runs in the sweep's own process, beside the requests.

The trajectories are written and not sampled: thoughts of the miniature, cut by a grid of budgets, so that the cells of
one sample repeat each other as they do in a sweep.

python -m tests.bench.grading_rows
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from elastic_core.budget import Budget, parse_grid
from elastic_core.data.problems import Problem
from elastic_core.miniature import grammar, problems
from elastic_core.miniature.grammar import encode, prompt_ids
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import Markers, load_markers
from elastic_core.sweep import rows
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.rows import RowBuilder, Sample
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory

NUM_PROBLEMS = 200
NUM_SAMPLES = 8
BUDGETS = [Budget(None, None), *parse_grid([f"{think}+32" for think in (192, 128, 96, 64, 48, 32, 16, 0)])]
STRATEGIES = ("vanilla", "budget_forcing", "separate")
SHARD = 4096
"""Rows that are graded together."""
RIGHT = 0.6
"""Share of right answers."""


def measure() -> dict[str, float]:
    """Seconds for 40,000 rows, with nothing remembered of earlier ones."""
    tokenizer, markers = load_markers(BASE)
    finished = list(_finished(markers))
    builder = RowBuilder(tokenizer, markers, "model", "engine")
    spent = {"decode": 0.0, "grade": 0.0, "all": 0.0}
    decode = _timed(rows.response_texts, "decode", spent)
    grade = _timed(rows.grade_many, "grade", spent)
    build = _timed(builder.frame, "all", spent)
    with patch.object(rows, "response_texts", decode), patch.object(rows, "grade_many", grade):
        for start in range(0, len(finished), SHARD):
            build(finished[start : start + SHARD])
    per_40k = {name: seconds * 40_000 / len(finished) for name, seconds in spent.items()}
    frame = per_40k["all"] - per_40k["decode"] - per_40k["grade"]
    responses = {trajectory.response_ids for _, trajectory in finished}
    print(
        f"rows: {len(finished)}, {sum(len(trajectory.response_ids) for _, trajectory in finished)} tokens, "
        f"{len(responses)} different responses\n"
        f"seconds for 40,000: decode {per_40k['decode']:.2f}, grade {per_40k['grade']:.2f}, frame {frame:.2f}, "
        f"all {per_40k['all']:.2f}"
    )
    return {"row_seconds_per_40k": per_40k["all"]}


def _timed(work: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        began = time.perf_counter()
        result = work(*args)
        spent[name] += time.perf_counter() - began
        return result

    return timed


def _finished(markers: Markers) -> Iterator[tuple[Sample, Trajectory]]:
    draw = random.Random(0)
    for level in problems.LEVELS:
        for chain in problems.generate(level, NUM_PROBLEMS // len(problems.LEVELS), seed=0, split="tune"):
            problem = Problem(f"miniature-{level}", chain.question, chain.question, str(chain.answer), "math")
            for number in range(NUM_SAMPLES):
                rechecks = draw.choices((0, 1, 2), (0.5, 0.35, 0.15))[0]
                thought = encode(grammar.thought(chain, "verbose", rechecks))
                solution = _solution(draw, chain, markers)
                for budget in BUDGETS:
                    if budget.think is not None and len(thought) >= budget.think:
                        solution = _solution(draw, chain, markers)  # the thought is cut, so it is another
                    for strategy in STRATEGIES:
                        cell = Cell("base", problem.benchmark, strategy, budget)
                        yield (
                            Sample(cell, problem, number, 0),
                            _trajectory(prompt_ids(chain.question), thought, solution, cell, markers),
                        )


def _solution(draw: random.Random, chain: problems.Problem, markers: Markers) -> list[int]:
    answer = chain.answer if draw.random() < RIGHT else draw.randint(problems.MIN_TOTAL, problems.MAX_TOTAL)
    return [*encode(f"\nFinal Answer:\\boxed{{{answer}}}"), markers.end_of_text[0]]


def _trajectory(prompt: list[int], thought: list[int], solution: list[int], cell: Cell, markers: Markers) -> Trajectory:
    """What a strategy makes of a thought and a solution."""
    limit = cell.budget.think
    if limit is None or len(thought) < limit:
        sampled, forced, think_finish = [*thought, markers.close[0]], [], ThinkFinish.CLOSED
    elif cell.strategy == "vanilla":
        sampled, forced, think_finish = thought[:limit], [], ThinkFinish.LENGTH
    else:
        newline = markers.final_answer_before if cell.strategy == "budget_forcing" else ()
        sampled, forced, think_finish = thought[:limit], [*newline, markers.close[0]], ThinkFinish.FORCED
    has_solution = think_finish is not ThinkFinish.LENGTH
    rest = solution if has_solution else []
    return Trajectory(
        prompt_ids=tuple(prompt),
        response_ids=(*sampled, *forced, *rest),
        forced=(*[False] * len(sampled), *[True] * len(forced), *[False] * len(rest)),
        solution_start=len(sampled) + len(forced) if has_solution else None,
        think_finish=think_finish,
        solution_finish=SolutionFinish.STOP if has_solution else SolutionFinish.NOT_APPLICABLE,
    )


if __name__ == "__main__":
    measure()
