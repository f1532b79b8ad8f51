"""The sentences on top of a report: what its table shows, first in words, then with every interval and count; whether
there are answers to say it of; how much of the sweep is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from elastic_core.rewards.truth import UNANSWERED
from elastic_core.statistics.estimates import Estimate, seed_columns
from elastic_core.statistics.responses import ResponseKind
from elastic_core.sweep.grid import samples_of, within
from elastic_core.sweep.sound import Whole
from elastic_core.trajectory import CELL, ThinkFinish
from reports.advice import to_set
from reports.content import Asked, Claim, Setting, Verdict
from reports.summary import BASE, SEPARATE, TRAINED, VANILLA, Averaged, over_budgets
from reports.wording import MAX_NAMED, listed, ordered, signed


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


class Pair(NamedTuple):
    """Two things that the table compares under separate budgeting.

    Attributes:
        name: what is held against what.
        makes: the beginning of "... more accurate".
        found: by benchmark the difference, averaged over budgets.
    """

    name: str
    makes: str
    found: Mapping[str, Averaged]


def pairs_of(problems: pl.DataFrame) -> list[Pair]:
    """The trained model over base; without one every other model over base; without these separate budgeting over
    vanilla truncation, of the first model that has both. Empty where nothing can be compared.

    Args:
        problems: of `reports.summary.cell_problems`.
    """
    limited = problems.filter(pl.col("think_budget").is_not_null())
    separate, vanilla = limited.filter(strategy=SEPARATE), limited.filter(strategy=VANILLA)
    models = ordered(problems["model"], BASE)
    names = [TRAINED] if separate.filter(model=TRAINED).height else [name for name in models if name != BASE]
    base = separate.filter(model=BASE)
    others = over_budgets({name: (separate.filter(model=name), base) for name in names})
    if TRAINED in others:
        seeds = len(seed_columns(separate.filter(model=TRAINED), "score"))
        again = f"{seeds} seeds of training" if seeds > 1 else "one seed of training"
        return [Pair(f"trained over base, {again}", "training makes the model", others[TRAINED])]
    if others:
        return [Pair(f"{name} over base", f"{name} is, compared with {BASE},", found) for name, found in others.items()]
    makes = "limiting thought and answer apart, instead of cutting the response off, makes the model"
    for name in models:
        sides = separate.filter(model=name), vanilla.filter(model=name)
        if found := over_budgets({name: sides}):
            return [Pair(f"over vanilla truncation of {name}", makes, found[name])]
    return []


def brief(problems: pl.DataFrame, settings: Sequence[Setting], responses: Sequence[Readable] = ()) -> list[str]:
    """The first screen: what was found and what to set, in two sentences without an interval."""
    if _unanswered(responses):
        return [
            "Nothing can be read from this comparison: no response holds an answer that the grader can read.",
            "Read some of the responses below before anything else.",
        ]
    return [_in_words(problems, responses), to_set(settings)]


def _in_words(problems: pl.DataFrame, responses: Sequence[Readable]) -> str:
    pairs = pairs_of(problems)
    if not pairs:
        models = problems["model"].unique().sort()
        if len(models) == 1:
            return f"Only {models[0]} was measured, so there is nothing to compare it with."
        return f"{', '.join(models)} were measured, and no two of them under the same budgets on the same problems."
    if responses and not any(each.num_closed for each in responses):
        return "No difference can be read, because no model closed a thought."
    return _one(pairs[0]) if len(pairs) == 1 else _many(pairs)


def _one(pair: Pair) -> str:
    differences = {name: each.difference for name, each in pair.found.items()}
    more = {name: each for name, each in differences.items() if each.low > 0}
    less = {name: each for name, each in differences.items() if each.high < 0}
    if not more and not less:
        return f"Under a token budget {pair.makes} neither more nor less accurate, as far as these problems show."
    sides = (("more", more), ("less", less))
    parts = [f"{word} accurate {_where(found, len(differences))}" for word, found in sides if found]
    same = [name for name in differences if name not in more and name not in less]
    if same:
        parts.append(f"neither on {listed(same)}, as far as these problems show")
    return f"Under a token budget {pair.makes} {', '.join(parts)}."


def _where(found: Mapping[str, Estimate], num_benchmarks: int) -> str:
    """ "by 12 points on easy and by 15 points on hard"."""
    if num_benchmarks <= MAX_NAMED:
        named = [f"by {100 * abs(each.mean):.0f} points on {name}" for name, each in found.items()]
        return " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    sizes = sorted(100 * abs(each.mean) for each in found.values())
    return f"on {len(found)} of {num_benchmarks} benchmarks, by {sizes[0]:.0f} to {sizes[-1]:.0f} points"


def _many(pairs: Sequence[Pair]) -> str:
    """How many of the models, and none by name: to name only the best of many would flatter it."""
    estimates = [[each.difference for each in pair.found.values()] for pair in pairs]
    more = sum(any(each.low > 0 for each in found) for found in estimates)
    less = sum(any(each.high < 0 for each in found) for found in estimates)
    counts = [
        f"{count} {'is' if count == 1 else 'are'} {word} accurate on some benchmark"
        for word, count in (("more", more), ("less", less))
        if count
    ]
    shown = " and ".join(counts) or "none is shown to differ"
    return f"Of {len(pairs)} models compared with {BASE} under a token budget, {shown}."


def verdict(problems: pl.DataFrame, claims: Iterable[Claim], responses: Sequence[Readable] = ()) -> str:
    """The paired differences with intervals and counts, how many expectations hold, and what makes them say little."""
    remarks = [sentence for each in responses for sentence in unreadable(each)]
    if _unanswered(responses):
        return " ".join(["Nothing can be read from this comparison.", *remarks])
    return " ".join([_differences(problems), *_held(claims), *remarks])


def _unanswered(responses: Sequence[Readable]) -> bool:
    """Whether no response of any model holds an answer."""
    return bool(responses) and all(each.num_answered == 0 for each in responses)


def _differences(problems: pl.DataFrame) -> str:
    pairs = pairs_of(problems)
    if not pairs:
        cells, models = problems.select(CELL).n_unique(), ordered(problems["model"], BASE)
        return f"Nothing can be compared in the {cells} cells of {', '.join(models)}."
    if len(pairs) > 1:
        return _spread(pairs)
    (name, _, found), shown = pairs[0], []
    for benchmark, (one, budgets) in found.items():
        counts = f"{one.num_problems} problems, {budgets} budget{'s' if budgets > 1 else ''}"
        shown.append(f"{benchmark} {signed(one)} points ({counts})")
    return f"Accuracy, separate budgeting, {name}, paired: {', '.join(shown)}."


def _spread(pairs: Sequence[Pair]) -> str:
    """The least and the greatest difference on each benchmark: naming only the best of many would flatter it."""
    ranges = []
    for benchmark in dict.fromkeys(benchmark for pair in pairs for benchmark in pair.found):
        there = {pair.name: pair.found[benchmark].difference for pair in pairs if benchmark in pair.found}
        ends = [pick(there, key=lambda name: there[name].mean) for pick in (min, max)]
        low, high = (f"{signed(there[name])} ({name.removesuffix(' over base')})" for name in ends)
        ranges.append(f"{benchmark} from {low} to {high} points")
    return f"Accuracy, separate budgeting, {len(pairs)} models over base, paired, simultaneous: {', '.join(ranges)}."


def _held(claims: Iterable[Claim]) -> list[str]:
    verdicts = [claim.verdict for claim in claims if claim.verdict is not Verdict.NOT_MEASURED]
    if not verdicts:
        return []
    open_ones = verdicts.count(Verdict.UNDECIDED)
    undecided = f", {open_ones} {'is' if open_ones == 1 else 'are'} undecided" if open_ones else ""
    return [f"{verdicts.count(Verdict.HOLDS)} of {len(verdicts)} measurable expectations hold{undecided}."]


def cut_short(rows: pl.DataFrame) -> list[str]:
    """How many responses ended otherwise than with a solution, as a sentence; none where all were answered.

    Args:
        rows: of a trajectory table, with `kind`.
    """
    counts = dict(rows.group_by("kind").len().iter_rows())
    answered = counts.pop(ResponseKind.ANSWERED, 0)
    others = ", ".join(f"{counts[kind]:,} {kind}" for kind in ResponseKind if kind in counts)
    told = f"Of {rows.height:,} responses {answered:,} were answered."
    return [f"{told} The others count as wrong unless they hold the answer: {others}."] if others else []


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
        f"{are} left out of this report: some problems have no first sample there yet, and the responses that end "
        f"first differ from the others (the fullest lacks {least} problem{'' if least == 1 else 's'})."
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
