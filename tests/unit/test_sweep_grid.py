"""The grid: which cells a sweep has, and in which order."""

import pytest

from elastic_core.budget import Budget, parse_grid
from elastic_core.sweep.grid import Cell, build_cells

BUDGETS = parse_grid(["16+32", "unlimited+32", "0+32", "128+32"])


def test_unconstrained_is_one_cell_and_every_other_strategy_one_per_budget() -> None:
    cells = build_cells(["base"], ["easy"], ["separate", "unconstrained"], BUDGETS)
    assert [cell.budget for cell in cells if cell.strategy == "unconstrained"] == [Budget(None, None)]
    assert {cell.budget for cell in cells if cell.strategy == "separate"} == set(BUDGETS)
    assert len(cells) == len(BUDGETS) + 1


def test_the_largest_budget_comes_first() -> None:
    cells = build_cells(["base"], ["easy", "hard"], ["vanilla", "unconstrained"], BUDGETS)
    assert [str(cell.budget) for cell in cells[::2]] == ["unlimited", "unlimited+32", "128+32", "16+32", "0+32"]


def test_unconstrained_alone_needs_no_budgets() -> None:
    assert build_cells(["base"], ["easy"], ["unconstrained"], []) == [
        Cell("base", "easy", "unconstrained", Budget(None, None))
    ]


def test_a_misspelt_strategy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match='no strategy "seperate", did you mean "separate"'):
        build_cells(["base"], ["easy"], ["seperate"], BUDGETS)


@pytest.mark.parametrize("models, strategies", [([], ["separate"]), (["a"], []), (["a", "a"], ["separate"])])
def test_empty_and_repeated_entries_are_refused(models: list[str], strategies: list[str]) -> None:
    with pytest.raises(ValueError, match=r"has no|appears twice"):
        build_cells(models, ["easy"], strategies, BUDGETS)


def test_a_model_runs_under_strategies_of_its_own_and_others_under_those_of_all() -> None:
    own = {"e1": ["separate"], "l1@2": ["l1_max", "vanilla"], "e1>base": ["separate", "vanilla"]}
    models = ["base", "e1", "e1@7", "l1@2", "e1>base"]
    cells = build_cells(models, ["easy"], ["budget_forcing"], parse_grid(["16+32"]), own)
    assert {model: {cell.strategy for cell in cells if cell.model == model} for model in models} == {
        "base": {"budget_forcing"},
        "e1": {"separate"},
        "e1@7": {"separate"},  # A seed of e1's training.
        "l1@2": {"l1_max", "vanilla"},
        "e1>base": {"separate"},  # Of a pair, what asks thinker and solver apart.
    }
    assert build_cells(["base"], ["easy"], ["separate"], BUDGETS, {}) == build_cells(
        ["base"], ["easy"], ["separate"], BUDGETS
    )


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"base": ["seperate"]}, 'no strategy "seperate", did you mean "separate"'),
        ({"base": []}, "has no strategies of base"),
        ({"base": ["vanilla", "vanilla"]}, '"vanilla" appears twice among the strategies of base'),
        ({"a>b": ["unconstrained"]}, '"a>b" is two models'),
    ],
)
def test_wrong_strategies_of_a_model_are_refused(own: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_cells(["base", "a>b"], ["easy"], ["separate"], BUDGETS, own)
