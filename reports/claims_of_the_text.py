"""What the text of Elastic Reasoning says beside what training gains, held against the table as in `reports.claims`. A
claim is listed where its cells are measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import polars as pl

from elastic_core.statistics.accuracy import avg_at_k, paired_difference
from elastic_core.statistics.estimates import FREE, paired_ratio, sampled_tokens
from elastic_core.statistics.intervals import Estimate
from reports import claims as judge
from reports.claims import Criterion
from reports.comparison import ASKED_LENGTH
from reports.content import Claim, Expectations
from reports.summary import BASE, SEPARATE, SWAP, VANILLA
from reports.tables.codeforces import BENCHMARK as CODEFORCES
from reports.wording import ordered, plain, signed, with_bounds

SCARCE = 4096  # tokens t + s, below which an untrained model is said to fail


def claims_of_the_text(
    rows: pl.DataFrame, ratings: pl.DataFrame, expected: Expectations, pairs: Sequence[tuple[str, str]]
) -> list[Claim]:
    """The claims on every benchmark; `ratings` in schema RATINGS, `pairs` as `pairs_to_compare` gives them."""
    found: list[Claim] = []
    for benchmark in rows["benchmark"].unique().sort():
        part = rows.filter(benchmark=benchmark)
        found += _of_the_base(part, benchmark, ordered(rows["model"], BASE)[0], expected)
        for pair in pairs:
            found += _of_a_pair(part, benchmark, pair)
            if benchmark == CODEFORCES and expected.rating_gain is not None:
                found += _of_ratings(ratings, pair, expected.rating_gain)
    return list(dict.fromkeys(found))  # Pairs that share a model share what is claimed of it alone.


def _of_the_base(rows: pl.DataFrame, benchmark: str, model: str, expected: Expectations) -> Iterator[Claim]:
    free = rows.filter(strategy=FREE, model=model)
    if free["think_tokens"].sum():  # A server asked in text may not tell thoughts apart.
        thought, both = (free.with_columns(tokens=tokens) for tokens in (pl.col("think_tokens"), sampled_tokens()))
        share = paired_ratio(thought, both, "tokens")
        statement = f"Unconstrained: more than {expected.thinking_share:g} % of the tokens of {model} are thinking"
        criteria = [Criterion(share, expected.thinking_share / 100, whole=True)]
        yield judge.judged(benchmark, statement, criteria, f"{judge.percent(share)}{judge.counts(share)}")
    most = expected.most_when_scarce.get(benchmark, 0) / 100
    few = rows.filter(pl.col("think_budget") + pl.col("solution_budget") < SCARCE)
    for strategy in (VANILLA, SEPARATE) if most else ():  # Figure 5; it is not said which.
        scarce = judge.cells_of(few, model, strategy)
        if scores := {t: avg_at_k(judge.within(scarce, [t])) for t in judge.shared_budgets(scarce)}:
            statement = (
                f"{model}, {plain(strategy)}: below {100 * most:g} % at each budget of less than {SCARCE} tokens"
            )
            evidence = "; ".join(f"t = {t}: {judge.percent(score)}" for t, score in scores.items())
            criteria = [Criterion(judge.below(most, score), whole=True) for score in scores.values()]
            yield judge.judged(benchmark, statement, criteria, f"{evidence}{judge.counts(*scores.values())}")


def _of_a_pair(rows: pl.DataFrame, benchmark: str, pair: tuple[str, str]) -> Iterator[Claim]:
    reference, model = pair
    ours, free = judge.cells_of(rows, model), rows.filter(strategy=FREE, model=model)
    if not (ladder := judge.shared_budgets(ours)):
        return
    # Figure 4: s1 and L1, each in its own way. Under a limit L1-Max is said to be as good.
    asked = rows.filter(pl.col("strategy").is_in(ASKED_LENGTH), pl.col("model") != model)
    others = sorted(asked.select("model", "strategy").unique().iter_rows())
    for other, strategy in [(reference, "budget_forcing"), *others]:
        if strategy != "l1_max" and judge.shared_budgets(ours, judge.cells_of(rows, other, strategy)):
            statement = f"{model} is above {plain(strategy)} of {other}"
            yield judge.over_all(rows, benchmark, statement, model, other, strategy=strategy)
        theirs = rows.filter(strategy=FREE, model=other)
        if strategy in ASKED_LENGTH and not (free.is_empty() or theirs.is_empty()):
            gain = paired_difference(free, theirs)
            statement, evidence = f"Unconstrained: {model} is above {other}", f"{signed(gain)}{judge.counts(gain)}"
            criteria, evidence = [Criterion(gain, whole=True)], f"Difference in points: {evidence}"
            yield judge.judged(benchmark, statement, criteria, evidence, (model, other))
    # Table 2.
    solves, thinks = SWAP.join(pair), SWAP.join(reversed(pair))
    if judge.shared_budgets(judge.cells_of(rows, solves), judge.cells_of(rows, thinks)):
        statement = f"{model} gains more by its solutions than by its thoughts: {solves} is above {thinks}"
        yield judge.over_all(rows, benchmark, statement, solves, thinks)
    # Figure 7.
    tight, wide = judge.within(ours, ladder[:1]), judge.within(ours, ladder[-1:])
    if len(ladder) > 1 and wide["think_tokens"].sum() and wide["solution_tokens"].sum():
        thought, solution = (paired_ratio(tight, wide, f"{phase}_tokens") for phase in ("think", "solution"))
        shorter = f"thoughts of {model} are shorter at t = {ladder[0]} than at {ladder[-1]}, its solutions are not"
        lengths = f"Thoughts {judge.percent(thought)} as long, solutions {judge.percent(solution)}"
        criteria = [Criterion(judge.below(1, thought), whole=True), Criterion(solution, 1)]
        yield judge.judged(benchmark, f"Separate budgeting: {shorter}", criteria, f"{lengths}{judge.counts(thought)}")


def _of_ratings(ratings: pl.DataFrame, pair: tuple[str, str], least: float) -> Iterator[Claim]:
    """Table 1. The interval is that of unrelated ratings, which is wider than one of contests that both share."""
    free = {row["model"]: row for row in ratings.filter(strategy=FREE).iter_rows(named=True)}
    if free.keys() >= {*pair}:
        theirs, ours = (free[name] for name in pair)
        mean, contests = ours["rating"] - theirs["rating"], ours["num_contests"]
        half = math.hypot(*((each["rating_high"] - each["rating_low"]) / 2 for each in (theirs, ours)))
        gain = Estimate(mean, mean - half, mean + half, contests, 0)
        verdict = judge.worst(each.verdict for each in (Criterion(gain, whole=True), Criterion(gain, least)))
        statement = f"Unconstrained: {pair[1]} is rated above {pair[0]}, by {least:g} or more"
        evidence = f"Difference {with_bounds(*gain[:3], form='+.0f', scale=1)} ({contests} contests)"
        yield Claim(CODEFORCES, statement, verdict, evidence, pair)
