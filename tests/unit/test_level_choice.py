"""Which budgets become effort levels, and `elastic plan budgets` as a user runs it."""

import re
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_core.serving.choice import COLUMNS, Choice, Leaky, choose_levels
from elastic_core.serving.levels import EFFORTS, read_levels
from elastic_core.statistics.which_budget import Reason, budget_advice, choose_budgets
from elastic_core.sweep.table import Manifest, TrajectoryStore
from tests.elastic_command import elastic_here
from tests.tables import advisable, frame, sweep_of
from tests.unit.test_report_summary import make_rows


class Measured(NamedTuple):
    """A cell: thinking budget, None where there is no limit; mean accuracy, tokens of each response."""

    think: int | None
    accuracy: float
    tokens: int


def make_table(cells: list[Measured], problems: int = 40, samples: int = 2) -> pl.DataFrame:
    """Rows in which the first problems are right, as many as the accuracy says: cells differ by no more than that."""
    return frame(
        {
            "benchmark": "hard", "problem": f"{problem:03}", "sample": sample, "prompt_tokens": 10, "answer": None,
            "strategy": "unconstrained" if cell.think is None else "separate", "think_budget": cell.think,
            "solution_budget": None if cell.think is None else 32, "think_tokens": cell.tokens - 3,
            "score": float(problem < round(cell.accuracy * problems)), "solution_tokens": 2, "forced_tokens": 1,
            "think_finish": "closed" if cell.think is None else "forced", "solution_finish": "stop",
            "solution_logprob": None, "leak": False,
        }
        for cell, problem, sample in product(cells, range(problems), range(samples))
    )  # fmt: skip


def budgets(choice: Choice) -> dict[str, int]:
    return {name: level.think for name, level in choice.levels.items()}


def test_levels_are_shares_of_what_thinking_gains() -> None:
    cells = [Measured(0, 0.2, 30), Measured(16, 0.3, 45), Measured(32, 0.5, 60), Measured(64, 0.7, 90)]
    choice = choose_levels(make_table([*cells, Measured(128, 0.9, 150)], problems=200))
    assert budgets(choice) == {"minimal": 0, "low": 32, "medium": 64, "high": 128}
    assert (choice.num_budgets, choice.num_frontier, choice.left_out, choice.rule) == (5, 5, 0, Reason.UNMEASURED)
    low, high = choice.levels["low"], choice.levels["high"]
    assert (low.accuracy, low.tokens_mean, low.tokens_p95) == (0.5, 60, 60)
    assert (low.num_problems, low.num_samples) == (200, 2)
    assert choice.levels["minimal"].gain is None
    assert high.gain is not None and high.gain.mean == pytest.approx(0.2) and high.gain.low > 0


def test_a_budget_that_fits_two_levels_has_the_higher_name() -> None:
    jump = [Measured(0, 0.2, 30), Measured(64, 0.8, 90), Measured(128, 0.9, 150)]
    assert budgets(choose_levels(make_table(jump))) == {"minimal": 0, "medium": 64, "high": 128}
    assert budgets(choose_levels(make_table(jump[:1]))) == {"high": 0}


def test_high_is_cheaper_than_the_best_only_where_enough_problems_show_that_it_is_as_good_as_no_limit() -> None:
    cells = [Measured(0, 0.2, 30), Measured(64, 0.895, 90), Measured(128, 0.9, 150), Measured(None, 0.9, 300)]
    few, many = (choose_levels(make_table(cells, problems), margin=0.02) for problems in (300, 2000))
    assert not isinstance(few.rule, Reason) and not isinstance(many.rule, Reason)
    assert few.levels["high"].think == 128 and few.rule.mean == 0
    assert many.levels["high"].think == 64
    assert many.rule.mean == pytest.approx(-0.005) and many.rule.low >= -0.02


def test_high_is_the_budget_that_a_report_advises() -> None:
    rows = make_rows(["base"], ["hard"], ["separate", "unconstrained"], num_problems=400)
    rows = rows.with_columns(score=pl.col("think_budget").fill_null(500).ge(48).cast(pl.Float64))
    problems = advisable(rows)
    advised = choose_budgets(budget_advice(problems), problems)["base", "hard"]
    choice = choose_levels(rows.select(COLUMNS))
    assert not isinstance(advised, Reason) and not isinstance(choice.rule, Reason)
    assert choice.levels["high"].think == advised["think_budget"]
    for name, value in choice.rule:
        assert value == pytest.approx(advised["difference" if name == "mean" else name], abs=1e-6)


def test_without_responses_without_a_limit_high_is_the_most_accurate_budget() -> None:
    cells = [Measured(64, 0.895, 90), Measured(128, 0.9, 150)]
    choice = choose_levels(make_table(cells, 2000))
    assert choice.rule is Reason.UNMEASURED and choice.levels["high"].think == 128


def test_a_budget_that_is_beaten_is_no_level() -> None:
    beaten = [Measured(0, 0.6, 30), Measured(32, 0.5, 60), Measured(64, 0.9, 90), Measured(128, 0.9, 150)]
    choice = choose_levels(make_table(beaten))
    assert budgets(choice) == {"minimal": 0, "high": 64}
    assert choice.num_frontier == 2


def test_a_cell_without_all_problems_is_left_out() -> None:
    whole = make_table([Measured(0, 0.2, 30), Measured(64, 0.7, 90)])
    part = make_table([Measured(128, 1.0, 150)], problems=10)
    choice = choose_levels(pl.concat([whole, part]))
    assert budgets(choice) == {"minimal": 0, "high": 64} and choice.left_out == 1


def test_problems_of_two_benchmarks_count_alike() -> None:
    table = make_table([Measured(0, 0.5, 30), Measured(64, 1.0, 90)], problems=10)
    easy = make_table([Measured(0, 1.0, 20), Measured(64, 1.0, 30)], problems=30)
    choice = choose_levels(pl.concat([table, easy.with_columns(benchmark=pl.lit("easy"))]))
    assert choice.levels["minimal"].accuracy == pytest.approx((0.5 * 10 + 30) / 40)
    assert choice.levels["minimal"].num_problems == 40


FEWER = settings(max_examples=settings().max_examples // 3)
"""Each chooses levels at least eleven times."""
CELLS = st.lists(
    st.builds(Measured, st.integers(0, 500), st.sampled_from([i / 8 for i in range(9)]), st.integers(3, 60)),
    min_size=1,
    max_size=7,
    unique_by=lambda cell: cell.think,
)


@FEWER
@given(CELLS, st.sampled_from([0.02, 0.1, 0.5]))
def test_levels_ascend_on_the_frontier_and_high_is_within_the_margin(cells: list[Measured], margin: float) -> None:
    table = make_table(cells, problems=8, samples=1)
    choice = choose_levels(table, margin)
    chosen = list(choice.levels.values())
    assert list(choice.levels) == [name for name in EFFORTS if name in choice.levels] and "high" in choice.levels
    for below, level in pairwise(chosen):
        assert below.tokens_mean < level.tokens_mean
    measured = {cell.think: (cell.accuracy, cell.tokens) for cell in cells}
    for level in chosen:
        own = measured[level.think]
        assert own[1] == level.tokens_mean
        assert not any(
            accuracy >= own[0] and tokens <= own[1] and (accuracy, tokens) != own
            for accuracy, tokens in measured.values()
        )
        assert level.accuracy_low <= level.accuracy <= level.accuracy_high
    assert measured[choice.levels["high"].think][0] >= max(cell.accuracy for cell in cells) - margin
    assert chosen[0].tokens_mean == min(cell.tokens for cell in cells)
    shuffled = table.sample(fraction=1, shuffle=True, seed=1)
    assert choose_levels(shuffled, margin) == choice


@FEWER
@given(CELLS, st.sampled_from([0.02, 0.5, 1.0]), st.sampled_from([0.25, 0.5, 1.0]))
def test_with_responses_without_a_limit_high_is_what_is_shown_or_the_most_accurate(
    cells: list[Measured], margin: float, free: float
) -> None:
    choice = choose_levels(make_table([*cells, Measured(None, free, 80)], problems=16, samples=1), margin)
    levels, measured = choice.levels, {cell.think: cell.accuracy for cell in cells}
    assert all(below.tokens_mean < level.tokens_mean for below, level in pairwise(levels.values()))
    if isinstance(choice.rule, Reason):
        assert measured[levels["high"].think] == max(measured.values())
    else:
        assert choice.rule.mean == pytest.approx(measured[levels["high"].think] - free)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "mine" / "sweep" / "key" / "table"
    store = TrajectoryStore(directory)
    models, sampling = {"base": "b0", "trained": "a1"}, {"temperature": 0.8, "top_p": 0.95}
    told = {"base": {"reasoning_effort": "medium"}, "trained": {}}
    with store.writing(Manifest(models, {}, {}, sampling, template_settings=told)):
        store.append(make_rows(models=("base", "trained", "base>trained"), num_problems=40, num_samples=2))
    return directory


def test_a_table_becomes_a_file_of_levels(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "levels" / "budgets.json"
    done = elastic_here(
        "plan", "budgets", "--from", str(table), "--model", "base", "--output", str(file), runs=tmp_path
    )
    assert done.returncode == 0, done.stdout
    levels = read_levels(file)
    assert (levels.model, levels.weights, levels.strategy) == ("base", "b0", "separate")
    assert (levels.temperature, levels.top_p, levels.margin) == (0.8, 0.95, 0.02)
    assert levels.benchmarks == ["easy", "hard"] and len(levels.table) == 64
    rows = TrajectoryStore(table).read().filter(pl.col("strategy").is_in(["separate", "unconstrained"]), model="base")
    template = {"reasoning_effort": "medium"}  # So it was measured, and so it is served.
    chosen = choose_levels(rows.select(COLUMNS)).levels
    assert levels.levels == {name: level.model_copy(update={"template": template}) for name, level in chosen.items()}
    assert levels.offered["template"] == dict.fromkeys(chosen, template)
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()[0] in EFFORTS[:-1]}
    assert shown.keys() == levels.levels.keys() - {"high"}
    for name, line in shown.items():
        assert str(levels.levels[name].budget) in line and f"{100 * levels.levels[name].accuracy:.1f} [" in line
    assert "80 problems × 2 samples under 8 budgets of separate" in done.stdout
    assert "within 2 points" in done.stdout


def test_one_benchmark_and_a_certified_risk_are_chosen_by(table: Path, tmp_path: Path) -> None:
    given = ("--benchmark", "hard", "--risk", "100", "--output", str(tmp_path / "x.json"))
    done = elastic_here("plan", "budgets", "--from", str(table), *given, runs=tmp_path)
    assert done.returncode == 0, done.stdout
    levels = read_levels(tmp_path / "x.json")
    assert (levels.benchmarks, levels.margin, levels.weights) == (["hard"], 1, "a1")
    assert levels.levels.keys() == {"minimal", "high"} and levels.budget("minimal").think == 0
    assert levels.loss is not None and levels.loss.low >= -1
    assert levels.offered["template"] == {}
    assert "100 points" in done.stdout and "low, medium" in done.stdout


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--model", "trian"), '--model trian: .*"trained"'),
        (("--model", "base>trained"), "--model base>trained: "),
        (("--model", "base", "--benchmark", "harder"), "--benchmark harder: .*easy, hard"),
    ],
)
def test_what_the_table_does_not_have_is_one_sentence(
    table: Path, tmp_path: Path, given: tuple[str, ...], says: str
) -> None:
    done = elastic_here("plan", "budgets", "--from", str(table), *given, "--output", str(tmp_path / "x"), runs=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1)
    assert re.search(says, done.stdout), done.stdout
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([make_rows(strategies=["vanilla"], num_problems=2)], "--set sweep.strategies='[\"separate\"]'"),
        ([make_rows(["base"], [n], ["separate"], [t], 4) for n, t in (("easy", 16), ("hard", 64))], "--benchmark"),
        ([make_rows(["base", "mine"], strategies=["separate"], num_problems=2)], "--model with one of: base, mine"),
    ],
)  # fmt: skip
def test_a_table_without_a_budget_to_choose_says_what_to_give(
    parts: list[pl.DataFrame], says: str, tmp_path: Path
) -> None:
    store = TrajectoryStore(tmp_path / "table")
    with store.writing(Manifest({}, {}, {}, {})):
        store.append(pl.concat(parts))
    done = elastic_here("plan", "budgets", "--from", str(tmp_path / "table"), runs=tmp_path)
    assert done.returncode == 2 and says in done.stdout


@pytest.mark.parametrize("names", [["[/x]\x1b]0;y\x07"], ["[/x]\x1b[2J", "b"]], ids=["chosen", "refused"])
def test_a_strangers_names_are_shown_as_they_are_and_move_no_cursor(names: list[str], tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "table")
    with store.writing(Manifest({}, {}, {}, {})):
        store.append(make_rows(names, ["easy"], ["separate"], num_problems=4))
    given = ("--from", str(tmp_path / "table"), "--output", str(tmp_path / "x"))
    done = elastic_here("plan", "budgets", *given, runs=tmp_path)
    assert done.returncode == (2 if len(names) > 1 else 0) and "[/x]" in done.stdout
    assert not {"\x1b", "\x07"} & {*done.stdout}


def test_what_cannot_be_certified_is_refused_with_the_number_of_problems(table: Path, tmp_path: Path) -> None:
    given = ("--model", "base", "--risk", "1", "--confidence", "90", "--output", str(tmp_path / "x.json"))
    done = elastic_here("plan", "budgets", "--from", str(table), *given, runs=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1), done.stdout
    assert "no certificate of 1 points with 90 %" in done.stdout and "without any loss it takes" in done.stdout
    advice = ("would do: measure more, or give", "would not do: give a larger --risk")
    assert [each in done.stdout for each in advice].count(True) == 1, "more problems are advised where they would do"
    assert not (tmp_path / "x.json").exists()


def test_high_may_be_certified_on_another_table() -> None:
    """Where the first one is too small to show anything, and where the second one says otherwise."""
    cells = [Measured(0, 0.2, 30), Measured(64, 0.9, 90), Measured(128, 0.9, 150), Measured(None, 0.9, 300)]
    small, large = make_table(cells, 20), make_table(cells, 400)
    assert isinstance(choose_levels(small, 0.05).rule, Reason)
    found = choose_levels(small, 0.05, calibration=large)
    assert not isinstance(found.rule, Reason) and found.levels["high"].think == 64
    worse = make_table([cells[0], Measured(64, 0.5, 90), *cells[2:]], 400)
    assert choose_levels(small, 0.05, calibration=worse).levels["high"].think == 128


def test_a_model_that_guesses_has_no_level_that_is_advised(tmp_path: Path) -> None:
    """Of multiple choice one in four is right by guessing, in a report as here; of other problems none is."""
    rows = make_rows(["base"], ["hard"], ["separate", "unconstrained"], [16, 64], num_problems=400, num_samples=2)
    rows = rows.with_columns(score=(pl.col("problem").cast(pl.Int32) % 4 == 0).cast(pl.Float64))
    for grader, says in (
        ("choice", "not shown to be better than guessing"),
        ("math", "certified, with 95 % confidence"),
    ):
        table = sweep_of(tmp_path / grader, rows, [f"{i}?" for i in range(400)], grader)
        done = elastic_here(
            "plan", "budgets", "--from", str(table), "--output", str(tmp_path / "x.json"), runs=tmp_path
        )
        assert done.returncode == 0 and says in done.stdout.replace("\n", " "), done.stdout


def test_a_rule_becomes_a_level_where_it_is_the_cheapest_that_is_certified() -> None:
    """Half of the problems are known at 16 tokens, the others at 96; thoughts go on all the same. The rule stops at 32
    and at 112, where a fixed budget needs 96 for all of them."""
    places = list(product(range(400), (*range(16, 129, 16), None)))
    known = [think is None or think >= (16 if problem % 2 else 96) for problem, think in places]
    table = frame(
        {
            "benchmark": "mixed", "problem": f"{problem:03}", "sample": 0, "think_budget": think, "prompt_tokens": 5,
            "strategy": "unconstrained" if think is None else "separate", "solution_budget": think and 8,
            "think_tokens": think or 400, "solution_tokens": 1, "forced_tokens": int(think is not None),
            "think_finish": "closed" if think is None else "forced", "solution_finish": "stop", "score": float(right),
            "answer": "1" if right else f"{problem}/{think}", "solution_logprob": None, "leak": False,
        }
        for (problem, think), right in zip(places, known, strict=True)
    )  # fmt: skip
    choice = choose_levels(table, 0.02)
    high = choice.levels["high"]
    assert not isinstance(choice.rule, Reason) and (high.rule, high.think, high.accuracy) == (
        "adaptive_agree2_every16_to128",
        None,
        1,
    )
    # The responses, with two tokens for each of one and of six probes.
    assert high.tokens_mean == pytest.approx(((32 + 2 + 2) + (112 + 2 + 12)) / 2)
    fixed = choose_levels(table, 0.02, with_rules=False).levels["high"]
    assert (fixed.rule, fixed.think) == (None, 96) and fixed.tokens_mean > high.tokens_mean


def test_a_budget_that_is_shown_to_go_on_thinking_is_no_level() -> None:
    cells = [Measured(0, 0.2, 30), Measured(64, 0.8, 90), Measured(128, 0.9, 150)]
    often, seldom = (pl.col("think_budget").eq(64) & pl.col("problem").lt(end) for end in ("010", "001"))
    choice = choose_levels(make_table(cells).with_columns(leak=often))
    assert choice.num_leaky == 1 and 64 not in budgets(choice).values()
    assert choose_levels(make_table(cells).with_columns(leak=often), leak=0.3).num_leaky == 0
    assert choose_levels(make_table(cells).with_columns(leak=seldom)).num_leaky == 0, "one of 40 shows nothing"
    with pytest.raises(Leaky, match="every budget goes on thinking in more than 5 % of its solutions"):
        choose_levels(make_table(cells).with_columns(leak=pl.lit(True)))


def test_efforts_closings_and_budgets_are_one_frontier() -> None:
    cells = [Measured(0, 0.2, 30), Measured(64, 0.5, 90), Measured(128, 0.6, 150), Measured(None, 0.9, 300)]
    low = make_table([Measured(64, 0.895, 70)], 2000).with_columns(strategy=pl.lit("separate_effort-low"))
    soft = make_table([Measured(32, 0.6, 50)], 2000).with_columns(strategy=pl.lit("separate_closing-soft"))
    choice = choose_levels(pl.concat([make_table(cells, 2000), low, soft]))
    high, cheaper = choice.levels["high"], choice.levels["low"]
    assert (high.effort, high.closing, high.rule, high.think) == ("low", None, None, 64), "certified against no limit"
    assert (cheaper.effort, cheaper.closing, cheaper.think) == (None, "soft", 32)
    assert cheaper.shown == "closing soft, 32+32" and not isinstance(choice.rule, Reason)
    assert choice.num_budgets == 5 and [point.think for point in choice.points] == [64]
