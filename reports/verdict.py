"""The sentences on top of a report: what its table says, from paired differences and claims, whether there are answers
to say it of, and how much of the sweep is there. They say no more than the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from elastic_core.rewards.grade import UNANSWERED
from elastic_core.statistics.accuracy import score_differences
from elastic_core.statistics.estimates import Estimate, pooled, seed_columns
from elastic_core.statistics.responses import ResponseKind
from elastic_core.sweep.grid import samples_of, within
from elastic_core.sweep.sound import Whole
from elastic_core.trajectory import BUDGET, CELL, ThinkFinish
from reports.claims import BASE, TRAINED, VANILLA
from reports.content import Asked, Claim, Verdict
from reports.wording import ordered, signed


class Readable(NamedTuple):
    """Of all responses of one model, under every strategy and budget. Without answers every accuracy is 0, and says
    nothing of budgets.

    Attributes:
        num_answered: in which the grader found an answer.
        num_thoughts: that had a phase of thinking.
        num_closed: whose thinking the model ended by itself.
    """

    model: str
    num_trajectories: int
    num_answered: int
    num_thoughts: int
    num_closed: int


Found = dict[str, tuple[Estimate, int]]
"""By benchmark: a paired difference of accuracy, averaged over budgets, and how many budgets."""


class Pair(NamedTuple):
    """What the verdict is about.

    Attributes:
        subject: "Training", "Separate budgeting", or a model's name.
        pair: what is held against what.
    """

    subject: str
    pair: str
    found: Found


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
    return " ".join([_compared(problems, closed) + _held(claims), *remarks])


def pairs_of(problems: pl.DataFrame) -> list[Pair]:
    """The trained model over base; without one every other model over base; without these separate budgeting over
    vanilla truncation, of the first model that has both. Empty where nothing can be compared."""
    limited = problems.filter(pl.col("think_budget").is_not_null())
    separate, vanilla = limited.filter(strategy="separate"), limited.filter(strategy=VANILLA)
    models = ordered(problems["model"], BASE)
    names = [TRAINED] if separate.filter(model=TRAINED).height else [name for name in models if name != BASE]
    base = separate.filter(model=BASE)
    others = over_budgets({name: (separate.filter(model=name), base) for name in names})
    if TRAINED in others:
        seeds = len(seed_columns(separate.filter(model=TRAINED), "score"))
        again = f"{seeds} seeds of training" if seeds > 1 else "one seed of training"
        return [Pair("Training", f"trained over base, {again}, separate budgeting", others[TRAINED])]
    if others:
        return [Pair(name, f"{name} over base, separate budgeting", found) for name, found in others.items()]
    for name in models:
        sides = separate.filter(model=name), vanilla.filter(model=name)
        if found := over_budgets({name: sides}):
            return [Pair("Separate budgeting", f"over vanilla truncation of {name}", found[name])]
    return []


def _compared(problems: pl.DataFrame, closed: bool) -> str:
    pairs = pairs_of(problems)
    if not pairs:
        cells, models = problems.select(CELL).n_unique(), ordered(problems["model"], BASE)
        return f"Nothing can be compared in the {cells} cells of {', '.join(models)}."
    return _sentence(*pairs[0], closed) if len(pairs) == 1 else _spread({pair.subject: pair.found for pair in pairs})


def over_budgets(pairs: Mapping[str, tuple[pl.DataFrame, pl.DataFrame]]) -> dict[str, Found]:
    """The first minus the second of each pair, over the problems and budgets that both have, by name of the pair; left
    out where there are none. All of them hold together, on every benchmark: a reader picks from them.

    Args:
        pairs: rows of `cell_problems` of one model and strategy on each side.
    """
    place = ["benchmark", "problem", *BUDGET]
    names, sides = [], []
    for name, (ours, theirs) in pairs.items():
        shared = ours.select(place).join(theirs.select(place), on=place, nulls_equal=True)
        for (benchmark,), places in shared.sort("benchmark").partition_by("benchmark", as_dict=True).items():
            joined = (side.join(places, on=place, how="semi", nulls_equal=True) for side in (ours, theirs))
            first, second = (pooled(side) for side in joined)
            sides.append((first, second))
            names.append((name, str(benchmark), places.n_unique(BUDGET)))
    found: dict[str, Found] = {}
    for (name, benchmark, budgets), estimate in zip(names, score_differences(sides), strict=True):
        found.setdefault(name, {})[benchmark] = estimate, budgets
    return found


def _spread(others: dict[str, Found]) -> str:
    """The least and the greatest difference on each benchmark: naming only the best of many would flatter it."""
    benchmarks = dict.fromkeys(benchmark for found in others.values() for benchmark in found)
    ranges = []
    for benchmark in benchmarks:
        differences = {name: found[benchmark][0] for name, found in others.items() if benchmark in found}
        ends = [pick(differences, key=lambda name: differences[name].mean) for pick in (min, max)]
        low, high = (f"{signed(differences[name])} ({name})" for name in ends)
        ranges.append(f"{benchmark} from {low} to {high} points")
    what = "each over base, separate budgeting, paired, simultaneous"
    return f"{len(others)} models beside base ({what}): {', '.join(ranges)}."


def _sentence(subject: str, pair: str, found: Found, closed: bool) -> str:
    listed = ", ".join(
        f"{name} {signed(one)} points ({one.num_problems} problems, {budgets} budget{'s' if budgets > 1 else ''})"
        for name, (one, budgets) in found.items()
    )
    return f"{_headline(subject, found, closed)} ({pair}, paired): {listed}."


def _headline(subject: str, found: Found, closed: bool) -> str:
    """Gains and losses are those whose interval excludes zero.

    Args:
        closed: whether any thought was closed by its model. If not, budgets that make no difference say nothing.
    """
    gains = sum(estimate.low > 0 for estimate, _ in found.values())
    losses = sum(estimate.high < 0 for estimate, _ in found.values())
    total = f"{len(found)} benchmark{'s' if len(found) > 1 else ''}"
    for verb, count in (("raises", gains), ("lowers", losses)):
        if count == len(found):
            return f"{subject} {verb} accuracy under a thinking budget on {'all ' if count > 1 else ''}{total}"
    if gains or losses:
        return f"{subject} raises accuracy under a thinking budget on {gains} of {total} and lowers it on {losses}"
    if not closed:
        return f"{subject}: no difference can be read on {total}, as no thought was closed by its model"
    return f"{subject} makes no difference to accuracy under a thinking budget that {total} could show"


def _held(claims: list[Claim]) -> str:
    verdicts = [claim.verdict for claim in claims if claim.verdict is not Verdict.NOT_MEASURED]
    if not verdicts:
        return ""
    open_ones = verdicts.count(Verdict.UNDECIDED)
    undecided = f", {open_ones} {'is' if open_ones == 1 else 'are'} undecided" if open_ones else ""
    return f" {verdicts.count(Verdict.HOLDS)} of {len(verdicts)} measurable expectations hold{undecided}."


def cut_short(rows: pl.DataFrame) -> list[str]:
    """How many responses ended otherwise than with a solution, as a sentence; none where all were answered.

    Args:
        rows: of a trajectory table, with `kind`.
    """
    counts = dict(rows.group_by("kind").len().iter_rows())
    others = [
        f"{counts[kind]:,} {kind}" for kind in ResponseKind if kind is not ResponseKind.ANSWERED and kind in counts
    ]
    if not others:
        return []
    return [
        f"Of {rows.height:,} responses {counts.get(ResponseKind.ANSWERED, 0):,} were answered. The others count as "
        f"wrong unless they hold the answer: {', '.join(others)}."
    ]


def coverage(rows: pl.DataFrame, asked: Asked | None) -> str:
    """Trajectories and cells, of those asked for; "" where their number is not known. What is there beyond that
    does not count.

    Args:
        rows: of the trajectory table, of no other problems than were asked for.
    """
    if asked is None:
        return ""
    counts = rows.filter(within(asked.num_samples)).group_by(CELL).len()
    there = {tuple(row[:-1]): row[-1] for row in counts.select(*CELL, "len").iter_rows()}
    wanted = {
        cell.key: asked.num_problems[cell.benchmark] * samples_of(asked.num_samples, cell.benchmark)
        for cell in asked.cells
    }
    found = {key: min(there.get(key, 0), number) for key, number in wanted.items()}
    numbers = ", ".join(f"{num} of {name}" for name, num in asked.num_problems.items())
    of = f" It measures only some of the problems, chosen by a hash of their names: {numbers}." if asked.chosen else ""
    done, total = sum(found.values()), sum(wanted.values())
    if done == total:
        cells = "1 cell" if len(wanted) == 1 else f"{len(wanted):,} cells"
        return f"The sweep is complete: {total:,} trajectories in {cells}.{of}"
    complete = sum(found[key] == number for key, number in wanted.items())
    empty = sum(number == 0 for number in found.values())
    return (
        f"The sweep is not complete: {done:,} of {total:,} trajectories ({100 * done / total:.0f} %) are there, "
        f"{complete:,} of {len(wanted):,} cells are complete and {empty:,} are empty.{of}"
    )


def left_out(whole: Whole) -> str:
    """How many cells are not shown for want of a whole sample, as a sentence; "" where all are."""
    cells = whole.left_out
    if cells.is_empty():
        return ""
    least = min(cells["num_missing"])
    are = "1 cell is" if cells.height == 1 else f"{cells.height} cells are"
    return (
        f"{are} left out of this report, as some problems have no first sample yet, and the responses that end first "
        f"are not like the others (the fullest lacks {least} problem{'' if least == 1 else 's'})."
    )


def readable(rows: pl.DataFrame) -> list[Readable]:
    """Counts of each model of a trajectory table, by name."""
    finish = pl.col("think_finish")
    counts = rows.group_by("model").agg(
        pl.len().alias("num_trajectories"),
        (~pl.col("grade_status").is_in(UNANSWERED)).sum().alias("num_answered"),
        (finish != ThinkFinish.NOT_APPLICABLE).sum().alias("num_thoughts"),
        (finish == ThinkFinish.CLOSED).sum().alias("num_closed"),
    )
    return [Readable(**row) for row in counts.sort("model").iter_rows(named=True)]


def unreadable(found: Readable) -> list[str]:
    """A sentence for each reason why little can be read off the model's accuracies, with what to do."""
    sentences = []
    if found.num_answered == 0:
        sentences.append(
            f"None of the {found.num_trajectories:,} responses of {found.model} holds an answer that the grader can "
            "read: read some of them; the model may need fine-tuning to end with its answer, or more solution tokens."
        )
    if found.num_thoughts and found.num_closed == 0:
        sentences.append(
            f"None of the {found.num_thoughts:,} thoughts of {found.model} was closed by the model: every answer "
            "follows a cut; give larger thinking budgets, or a model that was trained to think between these markers."
        )
    return sentences
