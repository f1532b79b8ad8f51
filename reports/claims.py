"""What the paper leads us to expect, held against the table: each expectation with a verdict and its evidence.

Verdicts rest on the paired interval of a difference. What is expected holds when the whole interval lies on its side of
the bound (a test of superiority or non-inferiority), does not hold when the whole interval misses it, and is undecided
between. The size of an effect whose direction is shown, when only the estimate reaches it, holds as measured: a true
size just below is measured as reached half of the time. Thinking budgets are sorted into thirds of the limited budgets
that the compared cells share: tight, middle, wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import avg_at_k, paired_difference
from elastic_core.statistics.curves import MIN_LAW_BUDGET, log_law
from elastic_core.statistics.estimates import FREE, mean_tokens, paired_ratio, problem_table, sampled_tokens
from elastic_core.statistics.intervals import Estimate, problems_needed
from reports.content import Claim, Expectations, Training, Verdict
from reports.summary import BASE, SEPARATE, SWAP, VANILLA
from reports.wording import ordered, plain, signed

LEVEL = 0.01
"""Of the test that refutes a line: at this one it refutes a true line in less than 5 %, however skewed the scores."""
_SEPARATE_OF_BOTH = "separate budgeting of both models at a common budget"


class Criterion(NamedTuple):
    """An estimate, the least that is expected of it, and whether the whole interval has to lie above that; of what has
    not to, it is told whether the interval does (holds) or the estimate alone (holds as measured)."""

    estimate: Estimate
    bound: float = 0.0
    whole: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.estimate.high < self.bound:
            return Verdict.FAILS
        if self.estimate.low > self.bound:
            return Verdict.HOLDS
        return Verdict.UNDECIDED if self.whole or self.estimate.mean < self.bound else Verdict.MEASURED

    @property
    def num_problems(self) -> float:
        """How many problems like these would put the interval on one side of the bound (`problems_needed`)."""
        mean, low, high, num_problems, _, seeds = self.estimate
        half_width = math.sqrt(max(0.0, ((high - low) / 2) ** 2 - seeds**2))
        return problems_needed(mean - self.bound, half_width, seeds, num_problems)


def evaluate_claims(
    rows: pl.DataFrame,
    trainings: Mapping[str, Training] | None = None,
    expectations: Expectations | None = None,
    pairs: Sequence[tuple[str, str]] = (),
) -> list[Claim]:
    """Every claim on every benchmark of a table; `trainings` are its models', `pairs` as of `pairs_to_compare`."""
    trainings, expected = trainings or {}, expectations or Expectations()
    models = [model for model in ordered(rows["model"], BASE) if SWAP not in model]
    claims = []
    for benchmark in rows["benchmark"].unique().sort():
        part = rows.filter(benchmark=benchmark)
        for pair in pairs_to_compare(rows, pairs):
            trained = trainings.get(pair[1])
            star = trained.fixed_budget.think if trained and trained.fixed_budget else None
            claims += [
                gain_at_small_budgets(part, benchmark, pair, expected),
                gain_on_both_sides(part, benchmark, pair, star),
                *without_a_budget(part, benchmark, pair, expected),
            ]
        claims += between_trainings(part, benchmark, trainings, expected)
        claims += [separate_leads(part, benchmark, model) for model in models[:1]]
        claims += [rises_with_budget(part, benchmark, model) for model in models]
    return claims


def pairs_to_compare(rows: pl.DataFrame, pairs: Sequence[tuple[str, str]] = ()) -> Sequence[tuple[str, str]]:
    """(reference, model) to judge the second against the first: those given, by default each model against `base`."""
    models = [model for model in ordered(rows["model"], BASE) if SWAP not in model]
    return pairs or [(BASE, model) for model in models if model != BASE and BASE in models]


def gain_at_small_budgets(rows: pl.DataFrame, benchmark: str, pair: tuple[str, str], expected: Expectations) -> Claim:
    """Training pays where tokens are scarce."""
    reference, model = pair
    statement = (
        f"Separate budgeting: {model} is above {reference}, by {expected.gain:g} points or more on average over the "
        "tight and middle thinking budgets"
    )
    sides = cells_of(rows, model), cells_of(rows, reference)
    tight, middle, _ = _thirds(*sides)
    if not tight:
        return _not_measured(benchmark, statement, _SEPARATE_OF_BOTH)
    gain = _gain(sides, tight + middle)
    each = [f"t = {t}: {signed(_gain(sides, [t]))}" for t in tight + middle]
    evidence = f"Paired difference in points: {signed(gain)}; {'; '.join(each)}{counts(gain)}"
    criteria = [Criterion(gain, whole=True), Criterion(gain, expected.gain / 100)]
    return judged(benchmark, statement, criteria, evidence, pair)


def gain_on_both_sides(rows: pl.DataFrame, benchmark: str, pair: tuple[str, str], star: int | None) -> Claim:
    """What was learned at t* (`star`, thinking tokens) carries to budgets never trained, smaller and larger."""
    reference, model = pair
    statement = (
        f"Separate budgeting: {model} is above {reference} on both sides of t*, averaged over all budgets on a side"
    )
    if star is None:
        return _not_measured(benchmark, statement, f"a limited thinking budget t* that {model} was trained under")
    sides = cells_of(rows, model), cells_of(rows, reference)
    ladder = shared_budgets(*sides)
    budgets = {f"t < {star}": [t for t in ladder if t < star], f"t > {star}": [t for t in ladder if t > star]}
    if not all(budgets.values()):
        return _not_measured(benchmark, statement, f"separate budgeting of both models on both sides of t* = {star}")
    gains = {side: _gain(sides, ts) for side, ts in budgets.items()}
    found = [f"{side} ({_list(budgets[side])}): {signed(gain)}" for side, gain in gains.items()]
    evidence = f"Paired difference in points: {'; '.join(found)}{counts(*gains.values())}"
    return judged(benchmark, statement, [Criterion(gain, whole=True) for gain in gains.values()], evidence, pair)


def without_a_budget(rows: pl.DataFrame, benchmark: str, pair: tuple[str, str], expected: Expectations) -> list[Claim]:
    """Training under a budget costs little of what the model can do without one, and makes free responses shorter."""
    reference, model = pair
    accurate = f"Unconstrained: {model} is no more than {expected.free_loss:g} points below {reference}"
    shorter = f"Unconstrained: {model} samples fewer tokens than {reference}, by {expected.tokens_saved:g} % or more"
    free = rows.filter(strategy=FREE).with_columns(tokens=sampled_tokens())
    theirs, ours = free.filter(model=reference), free.filter(model=model)
    if theirs.is_empty() or ours.is_empty():
        missing = "unconstrained responses of both models"
        return [_not_measured(benchmark, statement, missing) for statement in (accurate, shorter)]
    change = paired_difference(ours, theirs)
    difference = (
        f"{reference} {percent(avg_at_k(theirs))}, {model} {percent(avg_at_k(ours))}; "
        f"paired difference {signed(change)} points{counts(change)}"
    )
    kept = [Criterion(change, -expected.free_loss / 100, whole=True)]
    ratio = paired_ratio(ours, theirs, "tokens")
    means = [mean_tokens(problem_table(cell, ["tokens"]), "tokens").mean for cell in (theirs, ours)]
    lengths = (
        f"{reference} {means[0]:.1f}, {model} {means[1]:.1f} tokens per response: {100 * (ratio.mean - 1):+.1f} % "
        f"[{100 * (ratio.low - 1):+.1f}, {100 * (ratio.high - 1):+.1f}]{counts(ratio)}"
    )
    saved = below(1, ratio)
    fewer = [Criterion(saved, whole=True), Criterion(saved, expected.tokens_saved / 100)]
    return [judged(benchmark, accurate, kept, difference, pair), judged(benchmark, shorter, fewer, lengths, pair)]


def between_trainings(
    rows: pl.DataFrame, benchmark: str, trainings: Mapping[str, Training], expected: Expectations
) -> list[Claim]:
    """The trainings of an ablation: a t* drawn anew for every problem, and thoughts cut at several, against each fixed
    one that had the same start; the fixed one that is said to be best against the others (Figure 6); iterative training
    against its first half, over which it gains little (Table 3: it loses 0.4 to 2.0 points)."""
    fixed = [name for name in trainings if trainings[name].fixed_budget is not None]
    claims = []
    for name, training in trainings.items():
        alike = [each for each in fixed if each != name and None is not trainings[each].base == training.base]
        if name not in fixed and not training.asks_length:
            how = "thoughts cut at several t" if training.cuts else "a t* drawn anew for every problem"
            for other in alike:
                statement = f"{name}, with {how}, is above {other}, with a fixed one"
                claims.append(over_all(rows, benchmark, statement, name, other))
        elif name == expected.best_fixed:
            statement = f"{name}, whose t* is said to be the best, is above"
            claims += [over_all(rows, benchmark, f"{statement} {other}", name, other) for other in alike]
        elif training.base in fixed:
            statement = (
                f"{name} gains less than {expected.gain:g} points, the gain expected of a training, over "
                f"{training.base}, from which it began"
            )
            claims.append(over_all(rows, benchmark, statement, training.base, name, -expected.gain / 100))
    return claims


def over_all(
    rows: pl.DataFrame, benchmark: str, claim: str, model: str, other: str, bound: float = 0, strategy: str = SEPARATE
) -> Claim:
    """Whether separate budgeting of the first model less a strategy of the other, averaged over all budgets that both
    have, is above the bound."""
    statement = f"Separate budgeting, averaged over all budgets: {claim}"
    sides = cells_of(rows, model), cells_of(rows, other, strategy)
    if not (ladder := shared_budgets(*sides)):
        return _not_measured(benchmark, statement, _SEPARATE_OF_BOTH)
    gain = _gain(sides, ladder)
    evidence = f"{model} over {other}, t = {_list(ladder)}: {signed(gain)} points{counts(gain)}"
    return judged(benchmark, statement, [Criterion(gain, bound, whole=True)], evidence, (model, other))


def separate_leads(rows: pl.DataFrame, benchmark: str, model: str) -> Claim:
    """How the budget is enforced matters before any training."""
    statement = f"{model}, tight budgets: separate above budget forcing above vanilla"
    names = (SEPARATE, "budget_forcing", VANILLA)
    cells = [cells_of(rows, model, name) for name in names]
    tight = _thirds(*cells)[0]
    if not tight:
        return _not_measured(benchmark, statement, f"{model} under the three strategies at a common budget")
    scores = [
        f"{plain(name)} {percent(avg_at_k(within(cell, tight)))}" for name, cell in zip(names, cells, strict=True)
    ]
    first, second = (_gain(pair, tight) for pair in pairwise(cells))
    evidence = (
        f"Averaged over t = {_list(tight)}: {', '.join(scores)}. Paired difference in points: separate over budget "
        f"forcing {signed(first)}; budget forcing over vanilla {signed(second)}{counts(first, second)}"
    )
    return judged(benchmark, statement, [Criterion(first, whole=True), Criterion(second, whole=True)], evidence)


def rises_with_budget(rows: pl.DataFrame, benchmark: str, model: str) -> Claim:
    """Accuracy is linear in the logarithm of the thinking budget, as far as the budgets' means do not refute it."""
    statement = (
        f"Separate budgeting: accuracy of {model} rises with log2 t from t = {MIN_LAW_BUDGET} up, on a line, which "
        f"lack of fit refutes at p below {LEVEL:g}"
    )
    law = log_law(cells_of(rows, model))
    if law is None:
        return _not_measured(benchmark, statement, f"three such budgets of {model}, and problems measured in all")
    if law.lack_of_fit is None:
        fit, straight = "too few problems to test the line", Verdict.UNDECIDED
    else:
        fit = f"lack of fit p {law.lack_of_fit:.2g}"
        straight = Verdict.FAILS if law.lack_of_fit < LEVEL else Verdict.NOT_REFUTED
    evidence = f"{signed(law.slope)} points per doubling, R² {law.r2:.2f}, t = {_list(law.budgets)}; {fit}"
    verdict = worst([Criterion(law.slope, whole=True).verdict, straight])
    return Claim(benchmark, statement, verdict, f"{evidence}{counts(law.slope)}")


def below(bound: float, estimate: Estimate) -> Estimate:
    """How far the estimate is below the bound."""
    return Estimate(bound - estimate.mean, bound - estimate.high, bound - estimate.low, *estimate[3:])


def judged(
    benchmark: str, statement: str, criteria: Sequence[Criterion], evidence: str, models: tuple[str, ...] = ()
) -> Claim:
    verdict = worst(criterion.verdict for criterion in criteria)
    if verdict is Verdict.UNDECIDED:
        needed = max(each.num_problems for each in criteria if each.verdict is verdict)
        evidence += f"; {needed:,.0f} problems like these would decide" if math.isfinite(needed) else ""
    return Claim(benchmark, statement, verdict, evidence, models)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Every one has to hold."""
    return max(verdicts, key=list(Verdict).index)


def _not_measured(benchmark: str, statement: str, missing: str) -> Claim:
    return Claim(benchmark, statement, Verdict.NOT_MEASURED, f"needs {missing}")


def cells_of(rows: pl.DataFrame, model: str, strategy: str = SEPARATE) -> pl.DataFrame:
    return rows.filter(pl.col("think_budget").is_not_null(), model=model, strategy=strategy)


def within(cells: pl.DataFrame, budgets: list[int]) -> pl.DataFrame:
    return cells.filter(pl.col("think_budget").is_in(budgets))


def _gain(sides: Sequence[pl.DataFrame], budgets: list[int]) -> Estimate:
    """The first minus the second, averaged over these thinking budgets."""
    return paired_difference(*(within(side, budgets) for side in sides))


def shared_budgets(*cells: pl.DataFrame) -> list[int]:
    """Thinking budgets that all of them have, ascending."""
    return sorted(set.intersection(*(set(cell["think_budget"]) for cell in cells)))


def _thirds(*cells: pl.DataFrame) -> tuple[list[int], list[int], list[int]]:
    tight, middle, wide = (part.tolist() for part in np.array_split(shared_budgets(*cells), 3))
    return tight, middle, wide


def percent(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def counts(*estimates: Estimate) -> str:
    """On how many problems they rest (the fewest of them), and how many trajectories were compared in all."""
    problems = min(estimate.num_problems for estimate in estimates)
    return f" ({problems} problems, {sum(estimate.num_trajectories for estimate in estimates)} trajectories compared)"


def _list(budgets: list[int]) -> str:
    return ", ".join(map(str, budgets))
