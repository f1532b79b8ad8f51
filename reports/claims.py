"""Expectations of the paper, held against the table: each with a verdict and its evidence.

Verdicts rest on the paired interval of a difference. An expectation holds when the interval lies on its side of the
bound (a test of superiority or non-inferiority), does not hold when the interval misses it, and is undecided between.
The size of an effect, when the interval shows the direction and only the estimate the size, holds as measured: a true
size just below is measured as reached half of the time. Thinking budgets are sorted into thirds of the limited budgets
that the compared cells share: tight, middle, wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import avg_at_k, paired_difference
from elastic_core.statistics.curves import MIN_LAW_BUDGET, log_law
from elastic_core.statistics.estimates import mean_tokens, paired_ratio, problem_table, sampled_tokens
from elastic_core.statistics.intervals import Estimate, problems_needed
from elastic_core.strategies import BASELINE, FREE, SERVED
from reports.comparison import ASKED_LENGTH
from reports.content import Claim, Expectations, Training, Verdict
from reports.summary import BASE, SWAP
from reports.tables.codeforces import BENCHMARK as CODEFORCES
from reports.wording import ordered, plain, plural, sentence, signed, with_bounds

SCARCE = 4096  # tokens t + s, below which an untrained model is said to fail
LEVEL = 0.01
"""Of the test that refutes a line: at this one it refutes a true line in less than 5 %, however skewed the scores."""
_SEPARATE_OF_BOTH = "separate budgeting of both models at a common budget"


class Criterion(NamedTuple):
    """An estimate, the least that is expected of it, and whether the `whole` interval has to lie above that; otherwise
    the verdict distinguishes the interval (holds) from the estimate (holds as measured)."""

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
    pairs: Sequence[tuple[str, str]],
    trainings: Mapping[str, Training],
    expected: Expectations,
    ratings: pl.DataFrame,
) -> list[Claim]:
    """Claims on what training gains, and those of the paper's text with measured cells, benchmark by benchmark.

    Args:
        pairs: of `pairs_to_compare`.
        trainings: of the table's models.
        ratings: in schema `RATINGS`.
    """
    models = [model for model in ordered(rows["model"], BASE) if SWAP not in model]
    claims: list[Claim] = []
    for benchmark in rows["benchmark"].unique().sort():
        part = rows.filter(benchmark=benchmark)
        for pair in pairs:
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
        claims += _of_the_base(part, benchmark, ordered(rows["model"], BASE)[0], expected)
        for pair in pairs:
            claims += _of_a_pair(part, benchmark, pair)
            if benchmark == CODEFORCES and expected.rating_gain is not None:
                claims += _of_ratings(ratings, pair, expected.rating_gain)
    return list(dict.fromkeys(claims))  # Pairs that share a model share the claims on it alone.


def pairs_to_compare(rows: pl.DataFrame, pairs: Sequence[tuple[str, str]] = ()) -> Sequence[tuple[str, str]]:
    """(reference, model) to judge the second against the first: those given, by default each model against `base`."""
    models = [model for model in ordered(rows["model"], BASE) if SWAP not in model]
    return pairs or [(BASE, model) for model in models if model != BASE and BASE in models]


def gain_at_small_budgets(rows: pl.DataFrame, benchmark: str, pair: tuple[str, str], expected: Expectations) -> Claim:
    """Training pays where tokens are scarce."""
    reference, model = pair
    names = {"model": model, "reference": reference}
    statement = sentence("gain_at_small_budgets", **names, points=f"{expected.gain:g}")
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
    """A gain learned at t* (`star`, thinking tokens) carries to budgets never trained, smaller and larger."""
    reference, model = pair
    statement = sentence("gain_on_both_sides", model=model, reference=reference)
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
    """Training under a budget costs little accuracy without one, and makes free responses shorter."""
    reference, model = pair
    accurate = f"Unconstrained: {model} is no more than {expected.free_loss:g} points below {reference}"
    shorter = f"Unconstrained: {model} samples fewer tokens than {reference}, by {expected.tokens_saved:g} % or more"
    free = rows.filter(strategy=FREE).with_columns(tokens=sampled_tokens())
    theirs, ours = free.filter(model=reference), free.filter(model=model)
    if not shared_budgets(theirs, ours):
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
    mean, low, high = (end - 1 for end in ratio[:3])
    lengths = (
        f"{reference} {means[0]:.1f}, {model} {means[1]:.1f} tokens per response: "
        f"{with_bounds(mean, low, high, '+.1f').replace(' [', ' % [')}{counts(ratio)}"
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
            statement = sentence("iterative", model=name, points=f"{expected.gain:g}", base=training.base)
            claims.append(over_all(rows, benchmark, statement, training.base, name, -expected.gain / 100))
    return claims


def over_all(
    rows: pl.DataFrame, benchmark: str, claim: str, model: str, other: str, bound: float = 0, strategy: str = SERVED
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
    names = (SERVED, "budget_forcing", BASELINE)
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
    statement = sentence("rises_with_budget", model=model, smallest=MIN_LAW_BUDGET, level=f"{LEVEL:g}")
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


def _of_the_base(rows: pl.DataFrame, benchmark: str, model: str, expected: Expectations) -> Iterator[Claim]:
    free = rows.filter(strategy=FREE, model=model)
    if free["think_tokens"].sum():  # Responses of a chat server may have no thoughts.
        thought, both = (free.with_columns(tokens=tokens) for tokens in (pl.col("think_tokens"), sampled_tokens()))
        share = paired_ratio(thought, both, "tokens")
        statement = f"Unconstrained: more than {expected.thinking_share:g} % of the tokens of {model} are thinking"
        criteria = [Criterion(share, expected.thinking_share / 100, whole=True)]
        yield judged(benchmark, statement, criteria, f"{percent(share)}{counts(share)}")
    most = expected.most_when_scarce.get(benchmark, 0) / 100
    few = rows.filter(pl.col("think_budget") + pl.col("solution_budget") < SCARCE)
    for strategy in (BASELINE, SERVED) if most else ():  # Figure 5; it is not said which.
        scarce = cells_of(few, model, strategy)
        if scores := {t: avg_at_k(within(scarce, [t])) for t in shared_budgets(scarce)}:
            words = {"strategy": plain(strategy), "percent": f"{100 * most:g}", "tokens": SCARCE}
            statement = sentence("scarce", model=model, **words)
            evidence = "; ".join(f"t = {t}: {percent(score)}" for t, score in scores.items())
            criteria = [Criterion(below(most, score), whole=True) for score in scores.values()]
            yield judged(benchmark, statement, criteria, f"{evidence}{counts(*scores.values())}")


def _of_a_pair(rows: pl.DataFrame, benchmark: str, pair: tuple[str, str]) -> Iterator[Claim]:
    reference, model = pair
    ours, free = cells_of(rows, model), rows.filter(strategy=FREE, model=model)
    if not (ladder := shared_budgets(ours)):
        return
    # Figure 4: s1 and L1, each under its strategy. Under a limit L1-Max is said to be as good.
    asked = rows.filter(pl.col("strategy").is_in(ASKED_LENGTH), pl.col("model") != model)
    others = sorted(asked.select("model", "strategy").unique().iter_rows())
    for other, strategy in [(reference, "budget_forcing"), *others]:
        if strategy != "l1_max" and shared_budgets(ours, cells_of(rows, other, strategy)):
            statement = f"{model} is above {plain(strategy)} of {other}"
            yield over_all(rows, benchmark, statement, model, other, strategy=strategy)
        theirs = rows.filter(strategy=FREE, model=other)
        if strategy in ASKED_LENGTH and shared_budgets(free, theirs):
            gain = paired_difference(free, theirs)
            statement, evidence = f"Unconstrained: {model} is above {other}", f"{signed(gain)}{counts(gain)}"
            criteria, evidence = [Criterion(gain, whole=True)], f"Difference in points: {evidence}"
            yield judged(benchmark, statement, criteria, evidence, (model, other))
    # Table 2.
    solves, thinks = SWAP.join(pair), SWAP.join(reversed(pair))
    if shared_budgets(cells_of(rows, solves), cells_of(rows, thinks)):
        statement = f"{model} gains more by its solutions than by its thoughts: {solves} is above {thinks}"
        yield over_all(rows, benchmark, statement, solves, thinks)
    # Figure 7.
    tight, wide = within(ours, ladder[:1]), within(ours, ladder[-1:])
    if len(ladder) > 1 and wide["think_tokens"].sum() and wide["solution_tokens"].sum():
        thought, solution = (paired_ratio(tight, wide, f"{phase}_tokens") for phase in ("think", "solution"))
        shorter = f"thoughts of {model} are shorter at t = {ladder[0]} than at {ladder[-1]}, its solutions are not"
        lengths = f"Thoughts {percent(thought)} as long, solutions {percent(solution)}"
        criteria = [Criterion(below(1, thought), whole=True), Criterion(solution, 1)]
        yield judged(benchmark, f"Separate budgeting: {shorter}", criteria, f"{lengths}{counts(thought)}")


def _of_ratings(ratings: pl.DataFrame, pair: tuple[str, str], least: float) -> Iterator[Claim]:
    """Table 1. The interval is that of unrelated ratings, which is wider than one of contests that both share."""
    free = {row["model"]: row for row in ratings.filter(strategy=FREE).iter_rows(named=True)}
    if free.keys() >= {*pair}:
        theirs, ours = (free[name] for name in pair)
        mean, contests = ours["rating"] - theirs["rating"], ours["num_contests"]
        half = math.hypot(*((each["rating_high"] - each["rating_low"]) / 2 for each in (theirs, ours)))
        gain = Estimate(mean, mean - half, mean + half, contests, 0)
        verdict = worst(each.verdict for each in (Criterion(gain, whole=True), Criterion(gain, least)))
        statement = f"Unconstrained: {pair[1]} is rated above {pair[0]}, by {least:g} or more"
        evidence = f"Difference {with_bounds(*gain[:3], form='+.0f', scale=1)} ({contests} contests)"
        yield Claim(CODEFORCES, statement, verdict, evidence, pair)


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


def cells_of(rows: pl.DataFrame, model: str, strategy: str = SERVED) -> pl.DataFrame:
    return rows.filter(pl.col("think_budget").is_not_null(), model=model, strategy=strategy)


def within(cells: pl.DataFrame, budgets: list[int]) -> pl.DataFrame:
    return cells.filter(pl.col("think_budget").is_in(budgets))


def _gain(sides: Sequence[pl.DataFrame], budgets: list[int]) -> Estimate:
    """The first minus the second, averaged over these thinking budgets."""
    return paired_difference(*(within(side, budgets) for side in sides))


def shared_budgets(*cells: pl.DataFrame) -> list[int]:
    """Thinking budgets that all of them have on some problem in common, ascending."""
    keys = ({*cell.select("think_budget", "problem").unique().iter_rows()} for cell in cells)
    return sorted({budget for budget, _ in set.intersection(*keys)})


def _thirds(*cells: pl.DataFrame) -> tuple[list[int], list[int], list[int]]:
    tight, middle, wide = (part.tolist() for part in np.array_split(shared_budgets(*cells), 3))
    return tight, middle, wide


def percent(estimate: Estimate) -> str:
    return with_bounds(*estimate[:3]).replace(" [", " % [")


def counts(*estimates: Estimate) -> str:
    """The number of problems (the smallest of the estimates), and of trajectories compared in all."""
    problems = min(estimate.num_problems for estimate in estimates)
    trajectories = sum(estimate.num_trajectories for estimate in estimates)
    return f" ({plural(problems, 'problem')}, {trajectories} trajectories compared)"


def _list(budgets: list[int]) -> str:
    return ", ".join(map(str, budgets))
