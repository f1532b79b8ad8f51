"""The report in one sentence, computed from paired differences and claims: it says no more than its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from elastic_core.statistics.accuracy import score_difference
from elastic_core.statistics.estimates import Estimate
from elastic_core.statistics.responses import Readable, unreadable
from elastic_core.trajectory import BUDGET, CELL
from reports.claims import BASE, TRAINED, Claim, signed


def verdict(problems: pl.DataFrame, claims: list[Claim], responses: Sequence[Readable] = ()) -> str:
    """What training changed under separate budgeting; without a trained model, how far other models are from base;
    without these, what separate budgeting changes over vanilla truncation; without any, what was measured. Where there
    is nothing to read it says that instead.

    Args:
        problems: of `reports.summary.cell_problems`.
        responses: how many of each model's can be read.
    """
    remarks = [sentence for each in responses for sentence in unreadable(each)]
    if responses and all(each.num_answered == 0 for each in responses):
        return " ".join(["Nothing can be read from this comparison.", *remarks])
    closed = not responses or any(each.num_closed for each in responses)
    return " ".join([_compared(problems, claims, closed), *remarks])


def _compared(problems: pl.DataFrame, claims: list[Claim], closed: bool) -> str:
    limited = problems.filter(pl.col("think_budget").is_not_null())
    separate, vanilla = limited.filter(strategy="separate"), limited.filter(strategy="vanilla")
    models = sorted(problems["model"].unique(), key=lambda name: (name != BASE, name))
    base = separate.filter(model=BASE)
    if found := _by_benchmark(separate.filter(model=TRAINED), base):
        return _sentence("Training", "trained over base, separate budgeting", found, closed) + _held(claims)
    over_base = {name: _by_benchmark(separate.filter(model=name), base) for name in models if name != BASE}
    others = {name: found for name, found in over_base.items() if found}
    if len(others) > 1:
        return _spread(others) + _held(claims)
    if others:
        ((name, found),) = others.items()
        return _sentence(name, f"{name} over base, separate budgeting", found, closed) + _held(claims)
    for name in models:
        if found := _by_benchmark(separate.filter(model=name), vanilla.filter(model=name)):
            return _sentence("Separate budgeting", f"over vanilla truncation of {name}", found, closed) + _held(claims)
    cells = problems.select(CELL).n_unique()
    return f"Nothing can be held against anything else in the {cells} cells of {', '.join(models)}.{_held(claims)}"


def _by_benchmark(ours: pl.DataFrame, theirs: pl.DataFrame) -> dict[str, tuple[Estimate, int]]:
    """The paired difference on each benchmark, averaged over the budgets that both have, and how many those are."""
    place = ["benchmark", "problem", *BUDGET]
    shared = ours.select(place).join(theirs.select(place), on=place, nulls_equal=True)
    found = {}
    for (benchmark,), places in shared.sort("benchmark").partition_by("benchmark", as_dict=True).items():
        first, second = (_means(side.join(places, on=place, how="semi", nulls_equal=True)) for side in (ours, theirs))
        found[str(benchmark)] = score_difference(first, second), places.n_unique(BUDGET)
    return found


def _means(cells: pl.DataFrame) -> pl.DataFrame:
    """A row per problem: its mean score over cells."""
    return cells.group_by("problem").agg(pl.col("score").mean(), pl.col("num_samples").sum()).sort("problem")


def _sentence(subject: str, pair: str, found: dict[str, tuple[Estimate, int]], closed: bool) -> str:
    return f"{_headline(subject, found, closed)} ({pair}, paired): {_listed(found)}."


def _spread(others: dict[str, dict[str, tuple[Estimate, int]]]) -> str:
    """The least and the greatest difference on each benchmark: naming only the best of many would flatter it."""
    benchmarks = dict.fromkeys(benchmark for found in others.values() for benchmark in found)
    ranges = []
    for benchmark in benchmarks:
        differences = {name: found[benchmark][0] for name, found in others.items() if benchmark in found}
        ends = [pick(differences, key=lambda name: differences[name].mean) for pick in (min, max)]
        low, high = (f"{signed(differences[name])} ({name})" for name in ends)
        ranges.append(f"{benchmark} from {low} to {high} points")
    return f"{len(others)} models beside base (each over base, separate budgeting, paired): {', '.join(ranges)}."


def _headline(subject: str, found: dict[str, tuple[Estimate, int]], closed: bool) -> str:
    """Gains and losses are those whose interval excludes zero.

    Args:
        closed: whether any thought was closed by its model. If not, budgets that make no difference say nothing.
    """
    gains = [name for name, (estimate, _) in found.items() if estimate.low > 0]
    losses = [name for name, (estimate, _) in found.items() if estimate.high < 0]
    total = f"{len(found)} benchmark{'s' if len(found) > 1 else ''}"
    if len(gains) == len(found):
        return f"{subject} raises accuracy under a thinking budget on {'all ' if len(found) > 1 else ''}{total}"
    if len(losses) == len(found):
        return f"{subject} lowers accuracy under a thinking budget on {'all ' if len(found) > 1 else ''}{total}"
    if not gains and not losses and not closed:
        return f"{subject}: no difference can be read on {total}, as no thought was closed by its model"
    if not gains and not losses:
        return f"{subject} makes no difference to accuracy under a thinking budget that {total} could show"
    return (
        f"{subject} raises accuracy under a thinking budget on {len(gains)} of {total} and lowers it on {len(losses)}"
    )


def _listed(found: dict[str, tuple[Estimate, int]]) -> str:
    return ", ".join(
        f"{name} {signed(one)} points ({one.num_problems} problems, {budgets} budget{'s' if budgets > 1 else ''})"
        for name, (one, budgets) in found.items()
    )


def _held(claims: list[Claim]) -> str:
    measured = [claim for claim in claims if claim.holds is not None]
    if not measured:
        return ""
    held = sum(claim.holds is True for claim in measured)
    return f" {held} of {len(measured)} measurable expectations hold."
