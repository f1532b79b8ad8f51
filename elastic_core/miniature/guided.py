"""What an ideal navigator and solver write about a chain, in the miniature's words. For `36+2-4+7-1+1=?`:

    plan        category: Easy chain / direction: more plus / method: five steps / knowledge: +- / flow: 4,1
    adjusted    flow: 4,1
    steps       1. 4 steps / 2. 1 steps
    instructed  +2-4+7-1                    then    +1
    solved      36+2=38-4=34+7=41-1=40.     then    40+1=41.

The conversation around it is the strategy's own, so that training data are what the strategy will show the model. A
plan's words are those of the names in the miniature's library, which are searched by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from elastic_core.budget import Budget
from elastic_core.markers import chat_prompt, resolve_markers
from elastic_core.miniature.problems import Problem
from elastic_core.miniature.tokenizer import EOS, NEWLINE, OPERATIONS, build_tokenizer
from elastic_core.reasonflux.library import MINIATURE_FILE, read_library
from elastic_core.reasonflux.parameters import TemplateParameters
from elastic_core.reasonflux.plan import Plan
from elastic_core.strategies.base import Completion, Finish, Sampling
from elastic_core.strategies.reasonflux_zero import SOLVER, Templates
from elastic_core.trajectory import Trajectory

_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
_MOST_EASY = 5
"""Operations of the longest easy problem."""
OPERATIONS_PER_STEP = 4


class GuidedChains:
    """Ideal runs of ReasonFlux-Zero on the miniature's problems, cut wherever one likes.

    Args:
        encode: token ids of a text.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._tokenizer = build_tokenizer()
        self._markers = resolve_markers(self._tokenizer)
        parameters = TemplateParameters(library="miniature", wording="miniature")
        # TF-IDF keeps nothing in a cache.
        templates = Templates(read_library(MINIATURE_FILE), parameters, cache=Path())
        self._strategy = templates.strategy(self._tokenizer, self._markers)
        self._operations = {token for operation in OPERATIONS for token in encode(operation)}

    def run(self, problem: Problem, think: int | None, solution: Callable[[int], str]) -> Trajectory:
        """The conversation about a problem.

        Args:
            think: tokens after which navigator and solver are cut; None lets them finish.
            solution: the final text, from the number of operations that the solver has written.
        """
        budget = Budget(think, None)
        prompt = chat_prompt(self._tokenizer, self._strategy.prompt(problem.question, budget))
        rollout = self._strategy.decode(prompt, budget, self._markers, Sampling())
        replies = _replies(problem)
        request = next(rollout)
        solved = 0
        while True:
            # Only the final answer is without a limit.
            text = solution(solved) if request.max_tokens is None else next(replies)
            tokens = tuple(self._encode(text + EOS)[: request.max_tokens])
            if request.role == SOLVER:
                solved += sum(token in self._operations for token in tokens)
            try:
                request = rollout.send(Completion(tokens, Finish.STOP))
            except StopIteration as stop:
                trajectory: Trajectory = stop.value
                return trajectory


def _replies(problem: Problem) -> Iterator[str]:
    """What navigator and solver say before the final answer."""
    plan = plan_of(problem.question)
    counts = divided(len(problem.operations))
    yield NEWLINE.join(f"{name}: {text}" for name, text in asdict(plan).items())
    yield f"flow: {plan.flow}"
    yield NEWLINE.join(f"{number}. {count} steps" for number, count in enumerate(counts, 1))
    done = 0
    for count in counts:
        operations = problem.operations[done : done + count]
        totals = problem.totals[done + 1 : done + count + 1]
        yield "".join(operations)
        steps = (f"{operation}={total}" for operation, total in zip(operations, totals, strict=True))
        yield f"{problem.totals[done]}{''.join(steps)}."
        done += count


def plan_of(question: str) -> Plan:
    """The plan of a chain such as `36+6-4+8=?`, from its level, length and more frequent operation."""
    signs = re.findall(r"[+-](?=\d)", question)
    more_plus = signs.count("+") >= signs.count("-")
    return Plan(
        category="Easy chain" if len(signs) <= _MOST_EASY else "Hard chain",
        direction="more plus" if more_plus else "more minus",
        method=f"{_NUMBERS[min(max(len(signs) - 2, 0), len(_NUMBERS) - 1)]} steps",
        knowledge="+-" if more_plus else "-+",
        flow=",".join(map(str, divided(len(signs)))),
    )


def divided(num_operations: int) -> list[int]:
    """How many operations each step takes."""
    whole, rest = divmod(num_operations, OPERATIONS_PER_STEP)
    return [OPERATIONS_PER_STEP] * whole + [rest] * bool(rest)
