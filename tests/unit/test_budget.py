import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget, TokenRange, TrainingBudget, parse_grid


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("1k+1k", Budget(1024, 1024)), ("0.5K+1k", Budget(512, 1024)), ("48 + 32", Budget(48, 32)),
        ("0+32", Budget(0, 32)), ("unlimited", Budget(None, None)), ("unlimited+32", Budget(None, 32)),
    ],
)  # fmt: skip
def test_budgets_are_read_as_the_paper_writes_them(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget
    assert (Budget(1024, 1024).total, Budget(None, 32).total) == (2048, None)


@given(st.none() | st.integers(0, 10**6), st.none() | st.integers(1, 10**6))
def test_a_budget_survives_its_own_notation(think: int | None, solution: int | None) -> None:
    assert Budget.parse(str(Budget(think, solution))) == Budget(think, solution)


@pytest.mark.parametrize("text", ["", "12", "a+b", "1+2+3", "-1+3", "0.3+1", "1k+", "4+0", "nan+1", "1e3+1"])
def test_what_is_no_budget_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="budget"):
        Budget.parse(text)


def test_a_grid_keeps_its_order_and_refuses_repetition() -> None:
    assert parse_grid(["64+32", "16+32"]) == [Budget(64, 32), Budget(16, 32)]
    with pytest.raises(ValueError, match="appears twice"):
        parse_grid(["1k+1k", "1024+1024"])
    with pytest.raises(ValueError, match="empty"):
        parse_grid([])


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 5000), st.integers(0, 2**63))
def test_a_drawn_budget_lies_in_its_range_and_is_drawn_again_alike(
    low: int, more: int, solution: int, seed: int
) -> None:
    budget = TrainingBudget(TokenRange(low, low + more), solution)
    drawn = budget.draw(seed)
    assert drawn == budget.draw(seed)
    assert low <= (drawn.think or 0) <= low + more and drawn.solution == solution
    assert TrainingBudget.parse(str(budget)) == budget
    assert {TokenRange(3, 5).draw(seed) for seed in range(50)} == {3, 4, 5}, "both ends are drawn"


@pytest.mark.parametrize(
    ("text", "largest", "fixed"),
    [
        ("1k+1k", Budget(1024, 1024), Budget(1024, 1024)),
        ("512..3k+1k", Budget(3072, 1024), None),
        ("7..7 + 2", Budget(7, 2), Budget(7, 2)),
    ],
)
def test_training_budgets_are_fixed_or_drawn(text: str, largest: Budget, fixed: Budget | None) -> None:
    budget = TrainingBudget.parse(text)
    assert (budget.largest, budget.fixed) == (largest, fixed)


@pytest.mark.parametrize(
    "text", ["unlimited", "unlimited+1k", "1k+unlimited", "3k..1k+1k", "1..+4", "..2+4", "1..2", "1..2+0"]
)
def test_what_cannot_be_trained_under_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"budget|range"):
        TrainingBudget.parse(text)
