"""What responses are like: tokens, forced thoughts, the error of length, and whether there is anything to read."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.estimates import (
    forced_close,
    length_error,
    mean_tokens,
    problem_table,
    sampled_tokens,
)
from elastic_core.statistics.intervals import Estimate
from elastic_core.statistics.responses import (
    ResponseKind,
    is_cut,
    leaked,
    leaks,
    response_kind,
    response_kinds,
    thinking_spent,
)
from reports.verdict import Readable, goes_on_thinking, readable, unreadable
from tests.tables import frame


def responses(**columns: list[object]) -> pl.DataFrame:
    """Rows of one cell at 16+32; a problem each, unless given."""
    height = len(next(iter(columns.values())))
    defaults = {
        "problem": [f"{i:02}" for i in range(height)],
        "think_budget": [16] * height,
        "solution_budget": [32] * height,
        "think_tokens": [16] * height,
        "solution_tokens": [10] * height,
        "forced_tokens": [1] * height,
        "think_finish": ["forced"] * height,
    }
    return pl.DataFrame(defaults | columns)


def mean(rows: pl.DataFrame, column: str) -> Estimate:
    return mean_tokens(problem_table(rows, [column]), column)


def forced_fraction(rows: pl.DataFrame) -> Estimate:
    return mean_score(problem_table(rows.with_columns(forced=forced_close()), ["forced"]), "forced")


def test_tokens_are_means_over_problems() -> None:
    rows = responses(problem=["a", "a", "a", "b"], think_tokens=[4, 4, 4, 8], forced_tokens=[1, 0, 2, 5])
    assert mean(rows, "think_tokens").mean == 6
    assert mean(rows.with_columns(tokens=sampled_tokens()), "tokens")[::3] == (16, 2), "forced ones are apart"
    assert mean(rows, "forced_tokens").mean == 3
    assert mean(rows, "forced_tokens").num_trajectories == 4


def test_token_intervals_are_of_the_problems_and_never_below_zero() -> None:
    rows = responses(think_tokens=[0, 0, 0, 12] * 25, solution_tokens=[10, 12, 14, 16] * 25)
    thinking, solving = mean(rows, "think_tokens"), mean(rows, "solution_tokens")
    assert 0 <= thinking.low < 3 < thinking.high
    # At least Student's t of 100 problems, 1.984 x 2.247 / 10, and not much more where nothing is skewed.
    assert solving.mean - solving.low == pytest.approx(0.446, rel=0.25) and solving.mean - solving.low >= 0.446
    assert solving.high - solving.mean == pytest.approx(0.446, rel=0.25) and solving.high - solving.mean >= 0.446


def test_few_problems_bound_no_length() -> None:
    """None of 29 may have shown how long a response can be."""
    assert mean(responses(think_tokens=[8, 9] * 14), "think_tokens")[:3] == (8.5, 0, np.inf)
    assert mean(responses(think_tokens=[8, 9] * 15), "think_tokens").high < 9
    assert mean(responses(think_tokens=[8] * 2), "think_tokens")[:3] == (8, 8, 8)


@pytest.mark.parametrize(("finish", "fraction"), [("forced", 1.0), ("closed", 0.0)])
def test_all_forced_and_none_forced_leave_room(finish: str, fraction: float) -> None:
    forced = forced_fraction(responses(think_finish=[finish] * 30))
    assert forced.mean == fraction
    assert 0.05 < forced.high - forced.low < 0.15


def test_a_thought_left_as_it_stopped_is_not_forced() -> None:
    rows = responses(think_finish=["end_of_text", "end_of_text", "length"], forced_tokens=[1, 0, 0])
    assert forced_fraction(rows).mean == pytest.approx(1 / 3)


def test_the_length_error_is_signed_and_counts_all_sampled_tokens() -> None:
    error = length_error(responses(think_tokens=[48, 40, 50], solution_tokens=[10, 2, 4]))
    assert error.mean == pytest.approx((10 - 6 + 6) / 3)
    assert error.low < 0 < error.high


def test_an_unlimited_budget_asks_for_no_length() -> None:
    with pytest.raises(ValueError, match="error"):
        length_error(responses(think_budget=[None, 16]))


def finished(*responses: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(responses, schema=["model", "think_finish", "grade_status"], orient="row")


def test_answers_and_closed_thoughts_are_counted_by_model() -> None:
    table = finished(
        ("base", "closed", "correct"),
        ("base", "forced", "wrong"),
        ("base", "length", "truncated"),
        ("base", "not_applicable", "no_answer"),
        ("other", "end_of_text", "timeout"),
    )
    assert readable(table) == [Readable("base", 4, 2, 3, 1), Readable("other", 1, 1, 1, 0)]


def test_what_is_missing_is_named_with_how_many_responses_lack_it() -> None:
    answers, thoughts = unreadable([Readable("base", 1260, 0, 1200, 0)])
    assert "1,260 responses of base" in answers and "1,200 thoughts of base" in thoughts
    assert unreadable([Readable("base", 100, 1, 100, 1)]) == unreadable([Readable("no thinking", 100, 1, 0, 0)]) == []


ANSWERED, CUT_SOLUTION = ResponseKind.ANSWERED, ResponseKind.CUT_SOLUTION
CUT_THOUGHT, EMPTY, WENT_ON = ResponseKind.CUT_THOUGHT, ResponseKind.EMPTY, ResponseKind.WENT_ON


def kind(solution: str | None, think: str = "forced", end: str = "stop", forced: int = 1) -> str:
    row = {"think_finish": think, "solution_finish": end, "forced_tokens": forced, "solution": solution}
    return str(pl.DataFrame([row], schema_overrides={"solution": pl.String}).select(response_kind()).item())


@pytest.mark.parametrize(
    ("think", "end", "solution", "found"),
    [
        ("closed", "stop", "The answer is 4.", ANSWERED),
        ("forced", "stop", "The answer is 4.", ANSWERED),
        ("closed", "length", "The answer", CUT_SOLUTION),
        ("forced", "length", "The answer", CUT_SOLUTION),
        ("length", "not_applicable", None, CUT_THOUGHT),
        ("end_of_text", "not_applicable", None, EMPTY),
        ("closed", "stop", " \n", EMPTY),
        ("forced", "stop", "\nFinal Answer:", EMPTY),
        ("forced", "stop", "\n</think>\n", EMPTY),
    ],
)
def test_every_response_has_one_kind(think: str, end: str, solution: str | None, found: str) -> None:
    assert kind(solution, think, end) == found


@pytest.mark.parametrize(
    "solution",
    [
        "<think>\nThat is 4.",
        ", so 25 cars * 20 = 400 cars.\n</think>\n\nThe answer is \\boxed{400}.",  # SmolLM2-135M, as the next two
        "\nFinal Answer: 7 - 10 = 7\n</think>\n\nThe answer is \\boxed{7}.",
        ": $400 - $200 = $180\n</think>\n</think>\n</think>\n\nThe answer is",
        "Wait, let me check this again. 17-5=12.",  # the miniature's corpus
        "That is 21. Hmm, 17+4 is 21.",
        "\nBut wait, the train stops twice.",
        "so it is 12.\n\nLet me double-check: 3*4=12.",
        "Okay, so we have 3 trains.",
        "Got it, let's look at the picture.",  # GLM-4.1V with a forced think-end
    ],
)
def test_a_thought_that_goes_on_after_it_was_closed_is_told_by_its_words(solution: str) -> None:
    assert kind(solution) == kind(solution, end="length") == WENT_ON
    assert kind(solution, think="closed", forced=0) == ANSWERED, "the model closed it, and may say what it likes"


@pytest.mark.parametrize(
    "solution",
    [
        "\n</think>\n\nThe answer is \\boxed{40}.",  # closed a second time at once, and answered
        "\nFinal Answer:</think>\n\nThe answer is \\boxed{32}.",
        "They await 3 trains. The wait is 5 minutes.",
        "Wait times add to 12.",
        "Let me know if 4 is what you expected.",
        "Okay. The answer is 4.",
    ],
)
def test_ordinary_words_of_a_solution_are_not_taken_for_a_thought(solution: str) -> None:
    assert kind(solution) == ANSWERED


def test_cells_are_counted_with_and_without_what_was_cut() -> None:
    ends = ["stop", "length", "stop", "length", "length"]
    rows = responses(
        problem=["a", "a", "b", "b", "c"],
        solution_finish=ends,
        solution=["4", "4", "5", "Wait, 5", ""],
        score=[1.0, 0.0, 1.0, 0.0, 0.0],
    ).with_columns(model=pl.lit("base"), benchmark=pl.lit("hard"), strategy=pl.lit("separate"))
    rows = rows.with_columns(kind=response_kind(), cut=is_cut())
    (cell,) = response_kinds(rows).to_dicts()
    assert [cell[each] for each in ResponseKind] == [0, 1, 2, 0, 2]
    assert sum(cell[each] for each in ResponseKind) == cell["num_trajectories"] == 5
    assert cell["avg_at_k"] == pytest.approx(1 / 3)
    assert (cell["uncut_avg_at_k"], cell["uncut_trajectories"], cell["uncut_problems"]) == (1, 2, 2)
    assert 0 < cell["uncut_avg_at_k_low"] < 1
    (lost,) = response_kinds(rows.filter("cut")).to_dicts()
    assert (lost["uncut_avg_at_k"], lost["uncut_trajectories"]) == (None, 0)


def test_with_several_seeds_a_problem_counts_as_uncut_where_every_seed_has_such_a_response() -> None:
    rows = responses(problem=["a", "a", "b", "b"], score=[1.0, 1.0, 1.0, 0.0]).with_columns(
        model=pl.lit("trained"),
        benchmark=pl.lit("hard"),
        strategy=pl.lit("separate"),
        train_seed=pl.Series([1, 2, 1, 2]),
        cut=pl.Series([False, False, False, True]),
        kind=pl.lit("answered"),
    )
    (cell,) = response_kinds(rows).to_dicts()
    assert (cell["uncut_problems"], cell["uncut_trajectories"], cell["uncut_avg_at_k"]) == (1, 2, 1.0)
    assert (cell["num_problems"], cell["num_trajectories"]) == (2, 4)


# The thinking: b* of a problem, and the three parts of its tokens.


def ladder(scores: dict[str, dict[int | None, list[float]]], thought: int = 100) -> pl.DataFrame:
    """Rows of one model under `separate` by problem and budget: a score per sample, every thought of one length.

    A budget of None is the unconstrained cell.
    """
    return frame(
        {
            "model": "base", "benchmark": "hard", "problem": problem, "sample": sample, "think_budget": t,
            "strategy": "unconstrained" if t is None else "separate", "solution_budget": None if t is None else 32,
            "think_tokens": thought if t is None else min(t, thought), "score": score,
            "forced_tokens": int(t is not None and t < thought),
            "think_finish": "forced" if t is not None and t < thought else "closed",
        }
        for problem, rungs in scores.items()
        for t, samples in rungs.items()
        for sample, score in enumerate(samples)
    )  # fmt: skip


def solved(rows: pl.DataFrame) -> dict[int | None, float]:
    """The share of problems that are solved within each budget."""
    return dict(thinking_spent(rows).select("think_budget", "solved_within").iter_rows())


def test_the_smallest_budget_from_which_on_this_and_every_larger_one_suffice() -> None:
    rows = ladder({"a": {16: [0, 0], 32: [1, 0.5], 64: [1, 1]}, "b": {16: [1, 1], 32: [0, 0], 64: [1, 1]}})
    assert solved(rows) == {16: 0, 32: 0.5, 64: 1}


def test_what_one_half_of_the_samples_says_has_to_hold_in_the_other() -> None:
    # At 16 only the first sample is right: one half says that it suffices, the other that it does not.
    assert solved(ladder({"a": {16: [1, 0], 64: [1, 1]}})) == {16: 0, 64: 1}


def test_half_of_the_samples_right_on_every_rung_is_no_problem_solved_for_sure() -> None:
    # Every problem is right half of the time whatever the budget; on the same samples all would count as solved.
    random = np.random.default_rng(0)
    rungs = [0, 16, 32, 48]
    rows = ladder({f"{i}": {t: list(random.integers(0, 2, 8)) for t in rungs} for i in range(100)})
    assert 0.1 < solved(rows)[48] < 0.6


def test_unlimited_thinking_is_the_last_rung_and_never_solved_has_no_budget() -> None:
    rows = ladder({"free": {16: [0, 0], None: [1, 1]}, "never": {16: [0, 0], None: [0, 0]}})
    assert solved(rows) == {16: 0, None: 0.5}


def test_a_problem_that_a_rung_or_a_half_lacks_is_left_out() -> None:
    rows = ladder({"a": {16: [1, 1], 32: [1, 1]}, "b": {16: [0, 0]}, "c": {16: [0], 32: [0]}})
    assert solved(rows) == {16: 1, 32: 1}
    assert thinking_spent(rows)["num_problems"].to_list() == [1, 1]
    assert thinking_spent(ladder({"a": {16: [1], 32: [1]}})).is_empty()
    assert thinking_spent(ladder({"a": {None: [1, 1]}})).is_empty(), "without a ladder"
    with pytest.raises(ValueError, match="outside"):
        thinking_spent(ladder({"a": {16: [2, 2]}}))


def test_tokens_past_what_was_needed_are_overthinking_and_those_of_the_unsolved_futile() -> None:
    rows = ladder({"solved": {16: [0, 0], 64: [1, 1], None: [1, 1]}, "never": {16: [0, 0], 64: [0, 0], None: [0, 0]}})
    spent = thinking_spent(rows)
    # Two problems: every part is halved by the mean over them.
    assert spent["think_budget"].to_list() == [16, 64, None]
    assert spent["needed"].to_list() == [8, 32, 32]
    assert spent["overthinking"].to_list() == [0, 0, 18]
    assert spent["futile"].to_list() == [8, 32, 50]
    assert spent["starved"].to_list() == [0.5, 0, 0]
    assert spent["solved_within"].to_list() == [0, 0.5, 0.5]
    assert spent["num_problems"].to_list() == [2, 2, 2]


def test_a_thought_that_ended_by_itself_is_not_starved() -> None:
    rows = ladder({"a": {16: [0, 0], 64: [1, 1]}}, thought=10)
    assert thinking_spent(rows)["starved"].to_list() == [0, 0]


def test_vanilla_truncation_starves_too() -> None:
    rows = ladder({"a": {16: [0, 0], 64: [1, 1]}}).with_columns(
        strategy=pl.lit("vanilla"), forced_tokens=pl.lit(0, pl.Int32), think_finish=pl.lit("length")
    )
    assert thinking_spent(rows)["starved"].to_list() == [1, 0]


BUDGETS = (0, 16, 64, None)
tables = st.dictionaries(
    st.sampled_from("abcdef"),
    st.fixed_dictionaries({t: st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=2) for t in BUDGETS}),
    min_size=1,
)


@given(tables, st.integers(0, 200))
def test_the_parts_add_up_to_the_thinking(scores: dict[str, dict[int | None, list[float]]], thought: int) -> None:
    rows = ladder(scores, thought)
    spent = thinking_spent(rows)
    total = spent["needed"] + spent["overthinking"] + spent["futile"]
    assert total.to_list() == pytest.approx([thought if t is None else min(t, thought) for t in BUDGETS])
    for name in ("needed", "overthinking", "futile", "starved", "solved_within"):
        known = spent.drop_nulls(f"{name}_low")
        assert (known[f"{name}_low"] <= known[name] + 1e-9).all()
        assert (known[name] <= known[f"{name}_high"] + 1e-9).all()


@given(tables)
def test_more_budget_never_needs_less(scores: dict[str, dict[int | None, list[float]]]) -> None:
    spent = thinking_spent(ladder(scores))
    for name in ("needed", "overthinking", "futile"):
        assert spent[name].is_sorted()
    assert (spent["starved"] + spent["solved_within"] <= 1 + 1e-9).all()


@given(tables)
def test_better_scores_never_solve_later(scores: dict[str, dict[int | None, list[float]]]) -> None:
    rows = ladder(scores)
    better = thinking_spent(rows.with_columns(score=(pl.col("score") + 0.25).clip(0, 1)))
    assert (better["solved_within"] >= thinking_spent(rows)["solved_within"]).all()


def test_solutions_after_forced_ends_are_held_against_those_after_own_ends() -> None:
    rows = frame(
        {
            "model": "base", "benchmark": "hard", "strategy": "separate", "problem": f"{i:02}", "sample": sample,
            "think_budget": budget, "solution_budget": 32, "think_tokens": 16, "forced_tokens": int(budget == 16),
            "think_finish": "forced" if budget == 16 else "closed", "solution_finish": "stop",
            "solution_tokens": 30 if budget == 16 else 10,
            "solution": "Wait, let me check." if budget == 16 and i < 10 else "4</think>5" if i < 15 else "",
        }
        for i in range(40) for sample in range(2) for budget in (16, 64)
    )  # fmt: skip
    rows = rows.with_columns(leak=leaks(), marked=leaks(marked=True), kind=response_kind())
    (cell,) = leaked(rows).to_dicts()
    assert (cell["think_budget"], cell["num_problems"], cell["num_trajectories"]) == (16, 40, 80)
    assert (cell["leak"], cell["marked"], cell["empty"]) == pytest.approx((15 / 40, 5 / 40, 25 / 40))
    assert cell["leak_low"] < 15 / 40 < cell["leak_high"]
    assert (cell["after_forced"], cell["after_own"]) == (30, 10)
    (said,) = goes_on_thinking(leaked(rows))
    assert "base on hard under separate 16+32 in 37.5 [" in said and "of 80 responses" in said
    assert not goes_on_thinking(leaked(rows.with_columns(leak=pl.lit(False))))
