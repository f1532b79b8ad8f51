"""The law of served budgets, and a schedule that finds every due row.

That it is the law of `separate`: tests/unit/test_marks.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.budgets.parameters import V1, V2, read_budget, runner
from elastic_core.engines.budgets.processor import Progress, Schedule
from elastic_core.errors import UserError
from tests.marks import markers, single

START, END, EOS, OTHER_EOS, WORD = range(5)
MARKS = single(START, END, EOS, OTHER_EOS)
MARKERS = markers(MARKS, (WORD,), (WORD,), (WORD,))
PROMPT = (WORD, START)

tokens = st.sampled_from([START, END, WORD, WORD, WORD, WORD])
limits = st.none() | st.integers(0, 12)
budgets = st.builds(Budget, limits, st.none() | st.integers(1, 12))


def literal(output: list[int], budget: Budget, closed: bool) -> int | None:
    """The law as one would say it, from the whole output at every step."""
    if not closed and END not in output:
        return END if budget.think is not None and len(output) >= budget.think else None
    start = 0 if closed else output.index(END) + 1
    return EOS if budget.solution is not None and len(output) - start >= budget.solution else None


@dataclass
class Response:
    budget: Budget
    closed: bool
    output: list[int] = field(default_factory=list)


changes = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), budgets, st.booleans(), st.lists(tokens, max_size=8)),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("move"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("swap"), st.integers(0, 5), st.integers(0, 5)),
)


@given(st.lists(st.tuples(st.lists(changes, max_size=3), st.lists(st.none() | tokens, min_size=6, max_size=6))))
def test_a_schedule_forces_what_the_law_says_of_every_row_in_every_step(steps: list) -> None:
    """Rows come with a part of their output, as a preempted one does, leave, change places, and stand still for steps,
    as in a prefill of several."""
    schedule, rows = Schedule(), {}
    for operations, drawn in steps:
        for kind, index, *rest in operations:
            if kind == "add":
                budget, closed, output = rest
                rows[index] = Response(budget, closed)
                for token in output:  # As the law has it so far.
                    forced = literal(rows[index].output, budget, closed)
                    rows[index].output.append(token if forced is None else forced)
                schedule.add(index, Progress(budget, MARKS, 0 if closed else None), rows[index].output)
            elif kind == "remove":
                rows.pop(index, None)
                schedule.remove(index)
            elif rest[0] != index:
                moved, displaced = rows.pop(index, None), rows.pop(rest[0], None)
                if moved:
                    rows[rest[0]] = moved
                if displaced and kind == "swap":
                    rows[index] = displaced
                getattr(schedule, kind)(index, rest[0])
        due = {i: literal(row.output, row.budget, row.closed) for i, row in rows.items()}
        forced = {index: token for index, token, _ in schedule.step()}
        assert forced == {i: token for i, token in due.items() if token is not None}
        assert len(schedule) == len(rows)
        for i, row in rows.items():
            if drawn[i] is not None:
                row.output.append(forced.get(i, drawn[i]))
    for index in range(6):
        schedule.remove(index)
    schedule.step()
    assert len(schedule) == 0, "nothing remains of rows that left"


def test_a_step_looks_at_due_rows_alone() -> None:
    class Watched(list):
        reads = 0

        def __len__(self) -> int:
            Watched.reads += 1
            return super().__len__()

    schedule = Schedule()
    outputs = [Watched() for _ in range(1000)]
    for i, output in enumerate(outputs):
        schedule.add(i, Progress(Budget(100 + i, 2000), MARKS), output)
    schedule.step()
    Watched.reads = 0
    for _ in range(99):
        for output in outputs:
            output.append(WORD)
        assert schedule.step() == []
    assert Watched.reads == 0
    for output in outputs:
        output.append(WORD)
    assert schedule.step() == [(0, END, 0)]
    assert Watched.reads == 1


@pytest.mark.parametrize(
    ("arguments", "default", "budget"),
    [
        ({}, None, None),
        ({"other": 1}, Budget(1, 2), Budget(1, 2)),
        ({"think_budget": 0, "solution_budget": 1}, None, Budget(0, 1)),
        ({"think_budget": 5}, None, Budget(5, None)),
        ({"think_budget": 5}, Budget(1, 2), Budget(5, 2)),
        ({"think_budget": None, "solution_budget": 3}, Budget(1, 2), Budget(1, 3)),
        ({"think_budget": "unlimited", "solution_budget": "unlimited"}, Budget(1, 2), Budget(None, None)),
    ],
)
def test_what_a_request_leaves_open_is_the_default(
    arguments: dict, default: Budget | None, budget: Budget | None
) -> None:
    assert read_budget(arguments, default) == budget


@pytest.mark.parametrize("value", [-1, 1.5, 2.0, True, "512", [3], float("nan"), 2**31])
def test_what_is_no_number_of_tokens_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"think_budget is .* from 0 to"):
        read_budget({"think_budget": value})
    with pytest.raises(ValueError, match=r"solution_budget is 0; .* from 1 to"):
        read_budget({"solution_budget": 0})


@pytest.mark.parametrize(
    ("version", "device", "expected"),
    [
        ("0.24.0", "cuda", V1), ("0.29.0", "cpu", V1), ("0.30.1", "cuda", V1), ("0.31.0", "cuda", V2),
        ("0.33.0+cu129", "cuda", V2), ("0.32.0", "cpu", V1),
    ],
)  # fmt: skip
def test_each_version_gets_its_runner(version: str, device: str, expected: object) -> None:
    assert runner(version, device) == expected


def test_an_unknown_version_is_refused() -> None:
    for version in ("0.9.2", "0.34.0", "1.0.0"):
        with pytest.raises(UserError, match=f"{version} .* 0.24 "):
            runner(version, "cuda")
