"""What the paper's text says beside what training gains, on tables made to pass, to fail, and to lack the cells, and on
the published numbers, which meet it."""

import polars as pl
import pytest

from flows import presets
from reports.claims import between_trainings, claims_of_the_text, without_a_budget
from reports.content import RATINGS, Claim, Expectations, Verdict
from reports.tables import everything
from tests.unit.test_report_claims import AIME, as_rows, cells, published_cells, training

HOLDS, MEASURED, _, UNDECIDED, FAILS, _ = Verdict
PAIR = ("base", "E1")
NO_RATINGS = RATINGS.to_frame()
TWO = (1024, 2048)


def judged(
    rows: pl.DataFrame, words: str, expected: Expectations | None = None, ratings: pl.DataFrame = NO_RATINGS
) -> list[Verdict]:
    """The verdicts of the claims that have these words."""
    expected = expected or Expectations()
    found = claims_of_the_text(rows.with_columns(solution_budget=1024), ratings, expected, [PAIR])
    return [claim.verdict for claim in found if words in claim.statement]


def rates(cells_of: dict[tuple[str, str], float], budgets: tuple[int | None, ...] = TWO) -> pl.DataFrame:
    return cells({key: [rate] * len(budgets) for key, rate in cells_of.items()}, budgets)


@pytest.mark.parametrize(("e1", "verdict"), [(0.8, HOLDS), (0.5, UNDECIDED), (0.2, FAILS)])
def test_e1_is_held_against_s1_and_l1_exact_each_in_its_own_way(e1: float, verdict: Verdict) -> None:
    others = {("base", "budget_forcing"): 0.5, ("L1-Exact", "l1_exact"): 0.5, ("L1-Max", "l1_max"): 0.5}
    rows = rates({("E1", "separate"): e1} | others)
    assert judged(rows, "E1 is above budget forcing of base") == [verdict]
    assert judged(rows, "E1 is above l1 exact of L1-Exact") == [verdict]
    assert judged(rows, "L1-Max") == [], "which is said to be as good under a limit"


@pytest.mark.parametrize(("e1", "verdict"), [(0.8, HOLDS), (0.5, UNDECIDED), (0.2, FAILS)])
def test_without_a_limit_e1_is_held_against_both_l1(e1: float, verdict: Verdict) -> None:
    limited = rates({("E1", "separate"): 0.5, ("L1-Exact", "l1_exact"): 0.5, ("L1-Max", "l1_max"): 0.5})
    free = {("E1", "unconstrained"): e1, ("L1-Exact", "unconstrained"): 0.5, ("L1-Max", "unconstrained"): 0.5}
    assert judged(pl.concat([limited, rates(free, (None,))]), "Unconstrained: E1 is above L1") == [verdict] * 2
    assert judged(limited, "Unconstrained: E1") == []


@pytest.mark.parametrize(("solves", "verdict"), [(0.8, HOLDS), (0.5, UNDECIDED), (0.2, FAILS)])
def test_solutions_are_held_against_thoughts(solves: float, verdict: Verdict) -> None:
    rows = rates({("E1", "separate"): 0.9, ("base>E1", "separate"): solves, ("E1>base", "separate"): 0.5})
    assert judged(rows, "by its solutions") == [verdict]
    assert judged(rows.filter(pl.col("model") != "E1>base"), "by its solutions") == []


@pytest.mark.parametrize(
    ("thoughts", "solutions", "verdict"),
    [((500, 900), (250, 240), HOLDS), ((500, 900), (150, 240), FAILS), ((900, 900), (250, 240), UNDECIDED)],
)
def test_a_tighter_budget_shortens_thoughts_and_not_solutions(
    thoughts: tuple[int, int], solutions: tuple[int, int], verdict: Verdict
) -> None:
    tight = pl.col("think_budget") == TWO[0]
    rows = rates({("E1", "separate"): 0.5}).with_columns(
        think_tokens=pl.when(tight).then(thoughts[0]).otherwise(thoughts[1]),
        solution_tokens=pl.when(tight).then(solutions[0]).otherwise(solutions[1]),
    )
    assert judged(rows, "its solutions are not") == [verdict]
    assert judged(rows.filter(tight), "its solutions are not") == []
    assert judged(rows.with_columns(solution_tokens=0), "its solutions are not") == []


def test_pairs_that_share_a_model_say_once_what_is_said_of_it_alone() -> None:
    rows = rates({(model, "separate"): 0.5 for model in ("base", "other", "E1")}).with_columns(solution_budget=1024)
    found = claims_of_the_text(rows, NO_RATINGS, Expectations(), [PAIR, ("other", "E1")])
    assert found and len(found) == len(set(found))


@pytest.mark.parametrize(("think", "verdict"), [(950, HOLDS), (800, FAILS)])
def test_thinking_is_most_of_the_tokens_of_the_base(think: int, verdict: Verdict) -> None:
    rows = rates({("base", "unconstrained"): 0.5, ("E1", "unconstrained"): 0.5}, (None,))
    rows = rows.with_columns(think_tokens=think, solution_tokens=1000 - think)
    assert judged(rows, "are thinking") == [verdict]
    assert judged(rows.with_columns(think_tokens=0), "are thinking") == [], "not told apart"


@pytest.mark.parametrize(("tight", "verdict"), [(0.0, HOLDS), (0.4, FAILS)])
def test_the_base_fails_under_4k_tokens_in_all_as_far_as_its_preset_says(tight: float, verdict: Verdict) -> None:
    rows = cells({("base", "vanilla"): [0.0, tight, 0.9]}, (1024, 2048, 3072), num_problems=100)
    expected = Expectations(most_when_scarce={"hard": 10})
    assert judged(rows, "less than 4096", expected) == [verdict], "3072 + 1024 is not less"
    assert judged(rows, "less than 4096") == []


def rated(base: float, e1: float, half: float) -> pl.DataFrame:
    lines = [
        {"model": model, "benchmark": "codeforces", "strategy": "unconstrained", "rating": rating}
        | {"rating_low": rating - half, "rating_high": rating + half, "num_contests": 20}
        for model, rating in zip(PAIR, (base, e1), strict=True)
    ]
    return pl.DataFrame(lines, schema=RATINGS)


@pytest.mark.parametrize(
    ("e1", "half", "verdict"),
    [(2010, 10, HOLDS), (1987, 10, MEASURED), (1987, 60, UNDECIDED), (1965, 10, FAILS), (1900, 10, FAILS)],
)
def test_a_rating_rises_by_as_much_as_its_preset_says(e1: float, half: float, verdict: Verdict) -> None:
    rows = rates({("base", "unconstrained"): 0.5}, (None,)).with_columns(benchmark=pl.lit("codeforces"))
    expected = Expectations(rating_gain=42)
    assert judged(rows, "is rated above", expected, rated(1945, e1, half)) == [verdict]
    assert judged(rows, "is rated above", Expectations(), rated(1945, e1, half)) == []
    assert judged(rows, "is rated above", expected) == []


@pytest.mark.parametrize(("best", "verdict"), [(0.8, HOLDS), (0.5, UNDECIDED), (0.2, FAILS)])
def test_the_fixed_budget_that_is_said_to_be_best_is_held_against_the_others(best: float, verdict: Verdict) -> None:
    trainings = {"t1k": training("1k+1k"), "t2k": training("2k+1k"), "after": training("2k+1k", base="t1k")}
    rows = rates({("t1k", "separate"): best, ("t2k", "separate"): 0.5, ("after", "separate"): 0.5})
    found = between_trainings(rows, "hard", trainings, Expectations(best_fixed="t1k"))
    assert [claim.verdict for claim in found if "said to be the best" in claim.statement] == [verdict]


# As published.


def text(benchmark: str, model: str, metric: str | None = None) -> dict[str, float | None]:
    """A line of the paper's text or Table 1, of a response without a limit."""
    lines = everything().filter(pl.col("source").str.starts_with("Elastic Reasoning"), benchmark=benchmark, model=model)
    lines = lines.filter(pl.col("think_budget").is_null() | (pl.col("think_budget") == "unlimited"))
    (line,) = lines.filter(metric=metric or "accuracy").iter_rows(named=True)
    return line


def test_table_2_says_that_solutions_gain_more_than_thoughts() -> None:
    names = {"DeepScaleR-1.5B>E1-Math-1.5B": "base>E1", "E1-Math-1.5B>DeepScaleR-1.5B": "E1>base"}
    points = published_cells(names | {"E1-Math-1.5B>E1-Math-1.5B": "E1"}, "Table 2")
    assert judged(as_rows(points, num_problems=3000), "by its solutions") == [HOLDS]


def test_the_text_puts_e1_above_l1_without_a_limit() -> None:
    models = {"E1-Math-1.5B": "E1", "L1-Exact-1.5B": "L1-Exact", "L1-Max-1.5B": "L1-Max"}
    free = {(ours, None): (text(AIME, theirs)["value"] / 100, 1000) for theirs, ours in models.items()}
    asked = rates({("L1-Exact", "l1_exact"): 0.2, ("L1-Max", "l1_max"): 0.2, ("E1", "separate"): 0.2})
    asked = asked.with_columns(benchmark=pl.lit(AIME))
    rows = pl.concat([as_rows(free, num_problems=3000), asked.drop("sample")], how="diagonal_relaxed")
    assert judged(rows, "Unconstrained: E1 is above L1") == [HOLDS] * 2


def test_table_1_says_that_the_rating_rises_by_42() -> None:
    rating = [text("codeforces", model, "rating")["value"] for model in ("DeepCoder-14B", "E1-Code-14B")]
    rows = rates({("base", "unconstrained"): 0.5}, (None,)).with_columns(benchmark=pl.lit("codeforces"))
    expected = presets.resolve("evaluate-e1-code-14b").report.expectations
    assert judged(rows, "is rated above", expected, rated(*rating, half=0.5)) == [MEASURED]


SAVED = {
    "e1-math-1.5b": ("E1-Math-1.5B", AIME, 32),
    "e1-math-7b": ("E1-Math-7B", AIME, 14),
    "e1-acereason-14b": ("E1-AceReason-14B", "livecodebench", 35),
    "e1-code-14b": ("E1-Code-14B", "livecodebench", 37),
}


@pytest.mark.parametrize("preset", SAVED)
def test_the_bar_of_tokens_saved_is_what_was_published_of_the_presets_model(preset: str) -> None:
    model, benchmark, bar = SAVED[preset]
    for name in (preset, f"evaluate-{preset}"):
        expected = presets.resolve(name).report.expectations
        assert expected.tokens_saved == bar
    lines = everything().filter(pl.col("tokens").is_not_null(), family=model, benchmark=benchmark)
    tokens = [lines.filter((pl.col("model") == model) == is_e1)["tokens"].max() for is_e1 in (False, True)]
    rows = pl.concat(
        as_rows({(name, None): (0.5, count)}, num_problems=20) for name, count in zip(PAIR, tokens, strict=True)
    )
    claim: Claim = without_a_budget(rows, AIME, PAIR, expected)[1]
    assert claim.verdict is HOLDS
    assert bar == int(100 * (1 - tokens[1] / tokens[0]))
