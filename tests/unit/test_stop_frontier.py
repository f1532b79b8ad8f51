"""What stop rules are worth: against the mixture of fixed budgets, and at most the best of each sample."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from elastic_core.statistics.cost import TOKENS, CostModel, with_work
from elastic_core.statistics.stop_frontier import (
    BUDGETED,
    ORACLE,
    RULED,
    best_rules,
    fixed_costs,
    fixed_scores,
    mixture,
    outcomes,
    probe_price,
    rules_of,
)
from elastic_core.statistics.stopping import Thoughts, certifiable, fold, read_thoughts
from elastic_core.stop_rule import StopRule
from reports.tables.costs import stop_rules
from tests.elastic_command import elastic_here
from tests.unit.test_adaptive import LADDER, RUNGS
from tests.unit.test_sweep_executor import sweep, table


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("ladder")
    sweep(found, cells=LADDER, num_samples=20)
    return found


@pytest.fixture(scope="module")
def thoughts(directory: Path) -> Thoughts:
    return read_thoughts(with_work(table(directory).lazy()).collect())


def test_the_mixture_at_a_budgets_own_cost_is_at_least_that_budget(thoughts: Thoughts) -> None:
    costs = thoughts.by_problem(fixed_costs(thoughts, TOKENS)).mean(axis=(0, 1))
    means = thoughts.by_problem(fixed_scores(thoughts)).mean(axis=(0, 1))
    mixed = [float(thoughts.by_problem(mixture(thoughts, TOKENS, cost)).mean()) for cost in costs]
    assert all(mixed >= means - 1e-12)
    best = int(means.argmax())
    assert mixed[best] == pytest.approx(means[best])
    # Concave: dearer mixtures gain less for a token.
    grid = np.linspace(costs.min(), costs.max(), 30)
    line = [float(thoughts.by_problem(mixture(thoughts, TOKENS, cost)).mean()) for cost in grid]
    assert (np.diff(line, n=2) <= 1e-12).all()


def test_outcomes_are_whole_and_no_rule_beats_the_best_of_each_sample(thoughts: Thoughts) -> None:
    rules = rules_of(thoughts)
    found = outcomes(thoughts, rules, TOKENS)
    assert found.filter(kind=BUDGETED).height == len(RUNGS) + 1
    assert found.filter(kind=RULED)["rule"].sort().to_list() == sorted(map(str, rules))
    (best,) = found.filter(kind=ORACLE).to_dicts()
    assert best["accuracy"] >= found["accuracy"].max()
    free = found.filter(pl.col("budget").is_null(), kind=BUDGETED).row(0, named=True)
    assert (free["difference"], free["saved"]) == (0, 0)
    ruled = found.filter(kind=RULED)
    assert (ruled["gain_low"] <= ruled["gain"]).all() and (ruled["gain"] <= ruled["gain_high"]).all()
    shown = best_rules(found)
    assert shown["accuracy"].is_sorted() and shown["accuracy"].n_unique() == shown.height


def test_probes_are_charged_as_drawn_or_by_their_price_in_rungs(thoughts: Thoughts) -> None:
    rule = certifiable(thoughts)[0]
    folded, priced = fold(thoughts, rule), fold(thoughts, rule, rho=0.5)
    assert folded.column.tolist() == priced.column.tolist()
    steps = dict(zip(RUNGS, np.diff(RUNGS, prepend=0).tolist(), strict=True))
    most = sum(steps[rung] for rung in rule.rungs(None))
    assert priced.probing[:, 2].max() <= 0.5 * most and priced.probing[:, [0, 1, 3]].max() == 0
    dear = outcomes(thoughts, [rule], TOKENS).filter(kind=RULED)["cost"].item()
    cheap, free = (outcomes(thoughts, [rule], TOKENS, rho).filter(kind=RULED)["cost"].item() for rho in (0.5, 0))
    assert free < cheap < dear
    assert probe_price(thoughts, thoughts.own, TOKENS) > 0
    uncached = outcomes(thoughts, [rule], CostModel(cached_input=1)).filter(kind=RULED)["cost"].item()
    assert uncached > dear


def test_a_thought_that_goes_on_beside_its_probes_is_faster_and_draws_in_vain(thoughts: Thoughts) -> None:
    found = outcomes(thoughts, certifiable(thoughts), TOKENS, latency=CostModel(0, 0, 0.01, 0.02)).filter(kind=RULED)
    assert (found["seconds_beside"] <= found["seconds"]).all()
    assert found["wasted"].max() > 0  # type: ignore[operator]


def test_a_table_has_short_names_of_rules_that_differ_and_says_what_they_mean(thoughts: Thoughts) -> None:
    found = outcomes(thoughts, rules_of(thoughts), TOKENS).with_columns(benchmark=pl.lit("easy"), model=pl.lit("base"))
    shown = stop_rules(found, "cost")
    names = best_rules(found)["rule"]
    assert shown is not None and "adaptive" not in str(shown.lines)
    assert shown.frame["budget or rule"].n_unique() == len(RUNGS) + 2 + names.n_unique()
    assert "agree2: two probes in a row" in shown.caption
    long = found.head(1).with_columns(rule=pl.lit("adaptive_agree2_giveup48_at16-32-48-64-96_to80"), kind=pl.lit(RULED))
    (line,) = stop_rules(long, "cost").frame["budget or rule"]  # type: ignore[union-attr]
    assert line == "agree2 giveup48 at16-32-…-96 to80"


def test_rules_are_printed_and_all_of_them_written(directory: Path, tmp_path: Path, thoughts: Thoughts) -> None:
    output = tmp_path / "rules.csv"
    done = elastic_here(
        "plan", "rules", "--from", str(directory), "--rho", "0.05", "--output", str(output), runs=tmp_path
    )
    assert done.returncode == 0, done.stdout
    assert "5 problems × 20 samples" in done.stdout and "charged 0.05 instead" in done.stdout
    assert "adaptive" not in done.stdout.partition("A probe costs")[0] and "giveup96: so does" in " ".join(
        done.stdout.split()
    )
    with output.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(RUNGS) + 2 + len(rules_of(thoughts))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--rule", "adaptive_agree2_every5"), "probes at 5 tokens, where the table has no budget"),
        (("--rule", "agree"), '"agree" is not a stop rule'),
        (("--rule", "adaptive_agree2_every3_to9_probe7"), "needs rows of budget_forcing"),
        (("--rule", "adaptive_sure90_every3_to9"), "sweep.logprobs=true"),
        (("--benchmark", "hard"), "--benchmark hard: .*there are: easy"),
    ],
)
def test_what_the_table_does_not_tell_is_one_sentence(
    directory: Path, tmp_path: Path, given: tuple[str, ...], says: str
) -> None:
    import re

    done = elastic_here("plan", "rules", "--from", str(directory), *given, runs=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1), done.stdout
    assert re.search(says, done.stdout), done.stdout


def test_rules_of_a_table_can_be_read_again(thoughts: Thoughts) -> None:
    assert all(StopRule.parse(str(rule)) == rule for rule in rules_of(thoughts))


def test_a_solution_that_the_rules_budget_would_cut_is_not_counted_for_it(directory: Path) -> None:
    """Responses without a limit may solve at any length; a rule's level has s tokens."""
    rows = with_work(table(directory).lazy()).collect()
    long = pl.when(strategy="unconstrained").then(7).otherwise("solution_tokens")
    found = read_thoughts(rows.with_columns(solution_tokens=long.cast(pl.Int32)))
    assert found.scores[:, -1].max() == 0 and found.free.max() == 1
    # What separate gives there without a limit of thinking says it exactly.
    endless = rows.filter(strategy="unconstrained").with_columns(strategy=pl.lit("separate"), solution_budget=6)
    endless = endless.with_columns(pl.col("solution_budget").cast(pl.Int32))
    known = read_thoughts(pl.concat([rows.with_columns(solution_tokens=long.cast(pl.Int32)), endless]))
    assert known.scores[:, -1].tolist() == found.free.tolist()
