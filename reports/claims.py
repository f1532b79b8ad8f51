"""What the paper leads us to expect, held against the table: each expectation with a verdict and its evidence.

A verdict of None means that the table lacks the cells; it is reported as not measured, never as holding. Thinking
budgets are sorted into thirds of the limited budgets that the compared cells share: tight, middle, wide.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import avg_at_k, paired_difference
from elastic_core.statistics.curves import MIN_LAW_CELLS, budget_law, read_curve
from elastic_core.statistics.estimates import FREE, Estimate, mean_tokens, paired_ratio, problem_table, sampled_tokens
from reports.content import Claim
from reports.wording import plain, signed

BASE, TRAINED = "base", "trained"
"""Names of the two models in the table."""
VANILLA = "vanilla"
"""The strategy that others are held against."""

MIN_GAIN = 0.15
MAX_FREE_LOSS = 0.05
MAX_FREE_TOKENS = 0.80
MIN_R2 = 0.80
MIN_LOG_BUDGET = 16
"""Below this many thinking tokens there is no thought to speak of, and the log-linear law is not expected."""


def evaluate_claims(rows: pl.DataFrame, trained_budget: Budget | None) -> list[Claim]:
    """Every claim on every benchmark of a trajectory table, then the log-linear law on the hardest one."""
    claims = []
    for benchmark in rows["benchmark"].unique().sort():
        part = rows.filter(benchmark=benchmark)
        claims += [
            gain_at_small_budgets(part, benchmark),
            gain_on_both_sides(part, benchmark, trained_budget),
            separate_leads(part, benchmark),
            free_accuracy(part, benchmark),
            free_tokens(part, benchmark),
        ]
    hardest = hardest_benchmark(rows)
    return claims if hardest is None else [*claims, rises_with_budget(rows.filter(benchmark=hardest), hardest)]


def gain_at_small_budgets(rows: pl.DataFrame, benchmark: str) -> Claim:
    """Training pays where tokens are scarce."""
    statement = (
        f"Separate budgeting: trained is at least {_points(MIN_GAIN)} above base, the two intervals apart, "
        "at most of the tight and middle thinking budgets"
    )
    base, trained = _cells(rows, BASE, "separate"), _cells(rows, TRAINED, "separate")
    tight, middle, _ = _thirds(base, trained)
    if not tight:
        return _not_measured(benchmark, statement, "separate budgeting of both models at a common budget")
    gains, found, met = [], [], 0
    for t in tight + middle:
        ours, theirs = trained.filter(think_budget=t), base.filter(think_budget=t)
        gain = paired_difference(ours, theirs)
        apart = avg_at_k(ours).low > avg_at_k(theirs).high
        met += gain.mean >= MIN_GAIN and apart
        gains.append(gain)
        found.append(f"t = {t}: {signed(gain)}{'' if apart else ' (intervals overlap)'}")
    evidence = f"{met} of {len(found)} budgets. Paired difference in points: {'; '.join(found)}{_counts(*gains)}"
    return Claim(benchmark, statement, met > len(found) / 2, evidence)


def gain_on_both_sides(rows: pl.DataFrame, benchmark: str, trained_budget: Budget | None) -> Claim:
    """What was learned at t* carries to budgets never trained, smaller and larger."""
    statement = "Separate budgeting: the gain, averaged over all budgets on a side, is above zero on both sides of t*"
    base, trained = _cells(rows, BASE, "separate"), _cells(rows, TRAINED, "separate")
    if trained_budget is None or trained_budget.think is None:
        return _not_measured(benchmark, statement, "a limited thinking budget t* that training ran under")
    star = trained_budget.think
    sides = {
        f"t < {star}": [t for t in _ladder(base, trained) if t < star],
        f"t > {star}": [t for t in _ladder(base, trained) if t > star],
    }
    if not all(sides.values()):
        return _not_measured(benchmark, statement, f"separate budgeting of both models on both sides of t* = {star}")
    gains = {side: paired_difference(_within(trained, ts), _within(base, ts)) for side, ts in sides.items()}
    found = [f"{side} ({_list(sides[side])}): {signed(gain)}" for side, gain in gains.items()]
    evidence = f"Paired difference in points: {'; '.join(found)}{_counts(*gains.values())}"
    return Claim(benchmark, statement, all(gain.low > 0 for gain in gains.values()), evidence)


def separate_leads(rows: pl.DataFrame, benchmark: str) -> Claim:
    """How the budget is enforced matters before any training."""
    statement = "Base model, tight budgets: separate above budget forcing above vanilla, each difference above zero"
    names = ("separate", "budget_forcing", VANILLA)
    cells = [_cells(rows, BASE, name) for name in names]
    tight = _thirds(*cells)[0]
    if not tight:
        return _not_measured(benchmark, statement, "the base model under the three strategies at a common budget")
    cells = [_within(cell, tight) for cell in cells]
    scores = ", ".join(f"{plain(name)} {_percent(avg_at_k(cell))}" for name, cell in zip(names, cells, strict=True))
    first, second = paired_difference(cells[0], cells[1]), paired_difference(cells[1], cells[2])
    evidence = (
        f"Averaged over t = {_list(tight)}: {scores}. Paired difference in points: separate over budget forcing "
        f"{signed(first)}; budget forcing over vanilla {signed(second)}{_counts(first, second)}"
    )
    return Claim(benchmark, statement, first.low > 0 and second.low > 0, evidence)


def free_accuracy(rows: pl.DataFrame, benchmark: str) -> Claim:
    """Training under a budget does not cost what the model can do without one."""
    statement = f"Unconstrained: trained is no more than {_points(MAX_FREE_LOSS)} below base"
    base, trained = _free(rows, BASE), _free(rows, TRAINED)
    if base.is_empty() or trained.is_empty():
        return _not_measured(benchmark, statement, "unconstrained responses of both models")
    change = paired_difference(trained, base)
    evidence = (
        f"base {_percent(avg_at_k(base))}, trained {_percent(avg_at_k(trained))}; "
        f"paired difference {signed(change)} points{_counts(change)}"
    )
    return Claim(benchmark, statement, change.mean >= -MAX_FREE_LOSS, evidence)


def free_tokens(rows: pl.DataFrame, benchmark: str) -> Claim:
    """Training under a budget makes free responses shorter too."""
    statement = f"Unconstrained: trained samples at least {100 * (1 - MAX_FREE_TOKENS):.0f} % fewer tokens than base"
    base, trained = _free(rows, BASE), _free(rows, TRAINED)
    if base.is_empty() or trained.is_empty():
        return _not_measured(benchmark, statement, "unconstrained responses of both models")
    ratio = paired_ratio(trained, base, "tokens")
    means = [mean_tokens(problem_table(cell, ["tokens"]), "tokens").mean for cell in (base, trained)]
    evidence = (
        f"base {means[0]:.1f}, trained {means[1]:.1f} tokens per response: {100 * (ratio.mean - 1):+.1f} % "
        f"[{100 * (ratio.low - 1):+.1f}, {100 * (ratio.high - 1):+.1f}]{_counts(ratio)}"
    )
    return Claim(benchmark, statement, ratio.mean <= MAX_FREE_TOKENS, evidence)


def rises_with_budget(rows: pl.DataFrame, benchmark: str) -> Claim:
    """Accuracy is linear in the logarithm of the thinking budget."""
    statement = (
        f"Hardest benchmark, separate budgeting: accuracy rises with log2 t from t = {MIN_LOG_BUDGET} up, in both "
        f"models: slope above zero and R² at least {MIN_R2:.2f}"
    )
    found, held = [], True
    for model in (BASE, TRAINED):
        cells = _cells(rows, model, "separate").filter(pl.col("think_budget") >= MIN_LOG_BUDGET)
        ladder = _ladder(cells)
        if len(ladder) < MIN_LAW_CELLS:
            return _not_measured(benchmark, statement, f"three such budgets of the {model} model")
        slope, _, r2, _ = budget_law(read_curve(cells, ["think_budget"]), ladder)
        held &= slope.low > 0 and r2 >= MIN_R2
        found.append(
            f"{model} {signed(slope)} points per doubling, R² {r2:.2f} "
            f"(t = {_list(ladder)}; {slope.num_problems} problems)"
        )
    return Claim(benchmark, statement, bool(held), "; ".join(found))


def hardest_benchmark(rows: pl.DataFrame) -> str | None:
    """The benchmark where the base model scores least over its limited separate budgets."""
    scores = _cells(rows, BASE, "separate").group_by("benchmark").agg(pl.col("score").mean()).sort("score", "benchmark")
    return None if scores.is_empty() else scores["benchmark"][0]


def _cells(rows: pl.DataFrame, model: str, strategy: str) -> pl.DataFrame:
    return rows.filter(pl.col("think_budget").is_not_null(), model=model, strategy=strategy)


def _free(rows: pl.DataFrame, model: str) -> pl.DataFrame:
    return rows.filter(model=model, strategy=FREE).with_columns(tokens=sampled_tokens())


def _within(cells: pl.DataFrame, budgets: list[int]) -> pl.DataFrame:
    return cells.filter(pl.col("think_budget").is_in(budgets))


def _ladder(*cells: pl.DataFrame) -> list[int]:
    """Thinking budgets that all of them have, ascending."""
    return sorted(set.intersection(*(set(cell["think_budget"]) for cell in cells)))


def _thirds(*cells: pl.DataFrame) -> tuple[list[int], list[int], list[int]]:
    tight, middle, wide = (part.tolist() for part in np.array_split(_ladder(*cells), 3))
    return tight, middle, wide


def _not_measured(benchmark: str, statement: str, missing: str) -> Claim:
    return Claim(benchmark, statement, None, f"needs {missing}")


def _points(share: float) -> str:
    return f"{100 * share:.0f} points"


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _counts(*estimates: Estimate) -> str:
    """On how many problems they rest (the fewest of them), and how many trajectories were compared in all."""
    problems = min(estimate.num_problems for estimate in estimates)
    return f" ({problems} problems, {sum(estimate.num_trajectories for estimate in estimates)} trajectories compared)"


def _list(budgets: list[int]) -> str:
    return ", ".join(map(str, budgets))
