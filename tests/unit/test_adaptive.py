"""The strategy of a stop rule: it ends where the fold over rows says, gives what `separate` gives there, and pays for
its probes."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_core.budget import Budget, parse_grid
from elastic_core.engines.base import EngineLost, drive
from elastic_core.statistics.cost import WORK, with_work
from elastic_core.statistics.stopping import REASONS, fold, read_thoughts
from elastic_core.stop_rule import Stop, StopRule
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.sound import check_rows
from elastic_core.trajectory import KEY, ThinkFinish, Trajectory
from tests.scripted import ScriptedEngine
from tests.unit.test_sweep_executor import END, EOT, MARKERS, NEWLINE, START, Mortal, sweep, table

RULES = (
    "adaptive_agree2_every2",
    "adaptive_agree2_at3-4-6-9_from4",
    "adaptive_agree3_giveup4_every2_to8",
    "adaptive_agree2_every3_probe6",
    "adaptive_agree2_giveup6_every3_probe6",
    "adaptive_agree2_sure30_every4",
)
RUNGS = (0, 2, 3, 4, 6, 8, 9, 10, 12)
LADDER = build_cells(
    ["base"],
    ["easy"],
    ["separate", "budget_forcing", "unconstrained"],
    parse_grid([f"{rung}+6" for rung in RUNGS]),
)
STOPPED = build_cells(["base"], ["easy"], list(RULES), parse_grid(["1+6", "9+6", "12+6", "unlimited+6"]))
CELLS = [*LADDER, *STOPPED]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    directory = tmp_path_factory.mktemp("adaptive")
    sweep(directory, cells=CELLS, num_samples=20)
    return table(directory)


@pytest.mark.parametrize("name", [rule for rule in RULES if "sure" not in rule])
@pytest.mark.parametrize("limit", [9, 12])
def test_rows_are_those_of_the_fold(whole: pl.DataFrame, name: str, limit: int) -> None:
    check_rows(whole, "the table")
    rows = with_work(whole.lazy()).collect()
    thoughts = read_thoughts(rows)
    rule = StopRule.parse(name)
    folded = fold(thoughts, rule, limit=limit)
    key = ["benchmark", "problem", "sample"]
    found = rows.filter(strategy=name, think_budget=limit).sort(key)
    ladder = rows.filter(strategy="separate").sort(*key, "think_budget")["response_ids"].to_list()
    given = [ladder[i * len(RUNGS) + column] for i, column in enumerate(folded.column.tolist())]
    assert found["response_ids"].to_list() == given
    assert found["probes"].list.len().fill_null(0).to_list() == folded.num_probes.tolist()
    assert found.select(WORK).to_numpy().tolist() == folded.work.tolist()
    assert {REASONS[reason] for reason in folded.reason if reason >= 0} >= {Stop.AGREED}


def test_sure_answers_stop_where_their_probabilities_were_stored(tmp_path: Path) -> None:
    """The scripted engine gives every token a probability of 37 %."""
    names = ("adaptive_sure30_every4", "adaptive_sure40_every4")
    cells = [*LADDER, *build_cells(["base"], ["easy"], list(names), parse_grid(["12+6"]))]
    sweep(tmp_path, cells=cells, sampling=Sampling(logprobs=True))
    rows = with_work(table(tmp_path).lazy()).collect()
    assert rows["solution_logprob"].drop_nulls().unique().to_list() == [-1.0]
    thoughts = read_thoughts(rows)
    for name in names:
        folded = fold(thoughts, StopRule.parse(name), limit=12)
        found = rows.filter(strategy=name).sort("benchmark", "problem", "sample")
        assert found.select(WORK).to_numpy().tolist() == folded.work.tolist()
        assert (Stop.SURE in {REASONS[reason] for reason in folded.reason if reason >= 0}) == ("sure30" in name)


@settings(max_examples=settings().max_examples // 2)
@given(lives=st.lists(st.integers(1, 90), min_size=1, max_size=3), delays=st.integers(0, 99))
def test_an_interrupted_sweep_ends_with_the_table_of_an_uninterrupted_one(
    whole: pl.DataFrame, lives: list[int], delays: int
) -> None:
    cells = [*LADDER, *(cell for cell in STOPPED if cell.strategy in RULES[1:4])]
    expected = whole.filter(pl.col("strategy").is_in([cell.strategy for cell in cells]), sample=0)
    with tempfile.TemporaryDirectory() as interrupted:
        for life in lives:
            with suppress(EngineLost):
                sweep(Path(interrupted), Mortal(life, delays), cells=cells, num_samples=1)
        sweep(Path(interrupted), cells=cells, num_samples=1)
        assert table(Path(interrupted)).equals(expected)


ANSWERS = {"4": (5, 7, 6, EOT), "5": (5, 8, 6, EOT), "": (9, EOT)}
"""Solutions of the executor's words."""


def answered(rule: str, answers: str, budget: Budget) -> Trajectory:
    """A model that thinks for ever, and whose solution after 2 n tokens of thought has the nth of some answers, the
    last one from there on; "-" is none."""

    def next_token(prefix: tuple[int, ...], seed: int) -> int:
        if END not in prefix:
            return 9
        at = (prefix.index(END) - 1) // 2 - 1
        solution = ANSWERS[answers[min(at, len(answers) - 1)].replace("-", "")]
        asked = prefix.index(END) + 1
        asked += len(MARKERS.final_answer_after) if NEWLINE in prefix else 0
        return solution[len(prefix) - asked]

    def read(trajectory: Trajectory) -> str | None:
        solution = trajectory.response_ids[trajectory.solution_start :]
        return "".join({7: "4", 8: "5"}.get(token, "") for token in solution) or None

    rollout = STRATEGIES[rule].reading(read).decode((START,), budget, MARKERS, Sampling())
    return asyncio.run(drive(rollout, {"policy": ScriptedEngine(next_token)}, 0))


@pytest.mark.parametrize(
    ("answers", "thought", "probes"),
    [
        ("4", 4, 1),  # always the same
        ("-", 20, 9),  # none: the budget is spent
        ("45" * 10, 20, 9),  # alternates
        ("5444", 6, 2),
        ("4-4-44", 12, 5),  # an answer that is missing agrees with none
    ],
)
def test_hostile_answers(answers: str, thought: int, probes: int) -> None:
    found = answered("adaptive_agree2_every2", answers, Budget(20, 6))
    assert (found.think_tokens, len(found.probes)) == (thought, probes)
    assert found.think_finish is ThinkFinish.FORCED
    assert found.forced_tokens == 1


def test_a_budget_below_the_first_rung_is_separate() -> None:
    found = answered("adaptive_agree2_every16", "4", Budget(8, 6))
    assert (found.think_tokens, found.probes) == (8, ())


def test_a_rule_gives_up_where_no_answer_came_twice() -> None:
    assert answered("adaptive_agree2_giveup6_every2", "45-", Budget(40, 6)).think_tokens == 6
    assert answered("adaptive_agree3_giveup6_every2", "445-", Budget(40, 6)).think_tokens == 40


def test_cheap_probes_are_cut_and_the_answer_is_drawn_apart() -> None:
    found = answered("adaptive_agree2_every2_probe3", "4", Budget(20, 6))
    assert (found.think_tokens, [len(probe.ids) - probe.forced for probe in found.probes]) == (4, [3, 3])
    assert found.solution_tokens == len(ANSWERS["4"])


@given(st.lists(st.sampled_from(["4", "5", None]), min_size=1, max_size=12))
def test_two_answers_agree_only_in_a_row(answers: list[str | None]) -> None:
    rule = StopRule(agree=2, every=1)
    agreed = len(answers) > 1 and answers[-1] is not None and answers[-1] == answers[-2]
    assert (rule.stops(1, answers) is Stop.AGREED) == agreed


@given(
    agree=st.none() | st.integers(2, 9),
    sure=st.none() | st.integers(1, 100),
    give_up=st.none() | st.integers(0, 999),
    rungs=st.integers(1, 999) | st.lists(st.integers(0, 999), min_size=1, unique=True).map(sorted),
    start=st.integers(0, 999),
    end=st.none() | st.integers(0, 999),
    probe=st.none() | st.integers(1, 99),
)
def test_a_rule_is_read_from_its_text(
    agree: int | None,
    sure: int | None,
    give_up: int | None,
    rungs: int | list[int],
    start: int,
    end: int | None,
    probe: int | None,
) -> None:
    every, at = (rungs, ()) if isinstance(rungs, int) else (None, tuple(rungs))
    if agree is None and sure is None:
        agree = 2
    rule = StopRule(agree, sure, give_up, every, at, start, end, probe)
    assert StopRule.parse(str(rule)) == rule
    assert all(start <= rung < 500 and (end is None or rung <= end) for rung in rule.rungs(500))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("adaptive_16", "is not a stop rule"),
        ("adaptive_agree2", "is not a stop rule"),
        ("adaptive_every16", "nothing ends a thought"),
        ("adaptive_agree1_every16", "expected 2 or more"),
        ("adaptive_agree2_at32-16", "do not rise"),
        ("adaptive_agree2_every0", "expected rungs"),
        ("adaptive_sure101_every4", "1 to 100 percent"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_sentence(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_cells(["base"], ["easy"], [name], parse_grid(["8+6"]))


def test_thoughts_that_differ_are_refused(whole: pl.DataFrame, tmp_path: Path) -> None:
    sweep(tmp_path, cells=LADDER, sharing="independent", num_samples=5)
    with pytest.raises(ValueError, match='sharing = "memo"'):
        read_thoughts(with_work(table(tmp_path).lazy()).collect())


def test_columns_of_an_older_table_are_filled(tmp_path: Path) -> None:
    sweep(tmp_path, cells=LADDER)
    before = table(tmp_path)
    for shard in tmp_path.glob("*.parquet"):
        pl.read_parquet(shard).drop("probes", "solution_logprob").write_parquet(shard)
    assert table(tmp_path).equals(before)
    sweep(tmp_path, cells=CELLS)
    assert table(tmp_path).select(KEY).n_unique() == 10 * len(CELLS)
    assert not np.isnan(with_work(table(tmp_path).lazy()).collect()["output_tokens"].to_numpy()).any()
