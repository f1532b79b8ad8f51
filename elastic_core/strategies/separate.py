"""Separate budgeting (Elastic Reasoning, section 3.2): thinking gets t tokens, the solution s."""

from collections.abc import Generator
from dataclasses import replace

from elastic_core.budget import Budget
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import (
    CLOSES_ALL,
    Completion,
    Draft,
    Finish,
    Generate,
    Sampling,
    Strategy,
    StrategyRun,
    closed_early,
    solve,
    think,
)
from elastic_core.trajectory import BudgetExceeded, ThinkFinish, Trajectory


def separate(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """When think-end has not come by t it is appended, and nothing else; unused thinking is not transferred."""
    draft = Draft(prompt_ids, sampling.logprobs)
    thinking = yield from think(draft, budget.think, markers, sampling)
    thinking = yield from closed_early(draft, thinking, budget.think, markers, sampling)
    return (yield from answer(draft, thinking, budget, markers, sampling))


def answer(
    draft: Draft,
    finish: ThinkFinish | None,
    budget: Budget,
    markers: Markers,
    sampling: Sampling,
    meanwhile: Generate | None = None,
) -> Generator[Generate, Completion, Trajectory]:
    """Close a thought, and solve. `finish` is how the thought ended, None where it would go on; `meanwhile` as of
    `solve`."""
    if finish is not ThinkFinish.CLOSED:
        rest = markers.rest_of_end(draft.tokens) if finish is None else ()
        draft.force(rest or markers.closing(draft.tokens))
        finish = ThinkFinish.CLOSED if rest else finish or ThinkFinish.FORCED
    start = draft.solution_start(markers)
    solution = yield from solve(draft, budget.solution, markers, sampling, meanwhile)
    return draft.finish(start, finish, solution).check(budget)


SEPARATE = Strategy(
    separate, roles=("thinker", "solver"), max_forced_tokens=lambda markers: markers.max_forced, rules=CLOSES_ALL
)


def separate_native(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    """The same distribution in one request: the engine closes the thought after t tokens and ends the solution after s,
    as `elastic serve` does. The thought is not prefilled again for its solution, and budgets share nothing.

    The response answers the requests of `separate`, as far as it goes. A model that ends its text inside its thought
    ends it: a second request samples the solution. BudgetExceeded when the engine kept no budget.
    """
    most = None if budget.total is None else budget.total + markers.max_forced
    worded = Marks.of(markers) if markers.words or markers.soft else None
    response = yield Generate(prompt_ids, most, markers.end_of_text, sampling, budget=budget, marks=worded)
    given, taken = response.tokens, 0
    # What stands in the window of a soft closing was written there: its tokens do not tell.
    budget, markers = Budget(markers.soft_end(given, budget.think), budget.solution), replace(markers, soft=None)
    rollout = separate(prompt_ids, budget, markers, sampling)
    request = next(rollout)
    while True:
        before = request.prefix[len(prompt_ids) :]
        if before[: len(given)] == given[: len(before)]:
            known = given[len(before) :][: request.max_tokens]
            stop = next((number for number, token in enumerate(known, 1) if token in request.stop), None)
            taken = len(before) + (stop or len(known))
            completion = response.part(len(before), taken, Finish.STOP if stop else Finish.LENGTH)
        elif taken < len(given):
            raise BudgetExceeded(f"the engine did not close a thought of {taken} tokens under a budget of {budget}")
        else:
            completion = yield request
        try:
            request = rollout.send(completion)
        except StopIteration as done:
            trajectory: Trajectory = done.value
            return trajectory


SEPARATE_NATIVE = replace(SEPARATE, decode=separate_native, roles=("policy",), shares=False)
