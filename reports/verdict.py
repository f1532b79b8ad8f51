"""Sentences on top of a report: its finding, first in words, then with every interval and count; which budget to set,
and where more tokens hurt; whether there are answers; how much of the sweep is there."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from elastic_core.budget import Budget
from elastic_core.engines.endpoint import is_endpoint
from elastic_core.rewards.truth import UNANSWERED
from elastic_core.statistics.estimates import seed_columns
from elastic_core.statistics.intervals import LEVEL, Estimate
from elastic_core.statistics.responses import LEAK, ResponseKind
from elastic_core.statistics.which_budget import Choices, NonInferiority, Reason
from elastic_core.strategies import BASELINE, FREE, SERVED
from elastic_core.strategies.variants import split_variant
from elastic_core.sweep.grid import samples_of, within
from elastic_core.sweep.sound import Whole
from elastic_core.trajectory import CELL, ThinkFinish
from reports.content import Asked, Claim, ReportSources, Setting, Verdict
from reports.summary import BASE, TRAINED, Averaged, over_budgets
from reports.wording import MAX_NAMED, listed, ordered, plain, plural, sentence, signed, with_bounds


class Readable(NamedTuple):
    """Counts of all responses of one model, under every strategy and budget: those with an answer that the grader
    found, with a thought, and with one that the model ended. Without answers accuracy is 0, and shows nothing."""

    model: str
    num_trajectories: int
    num_answered: int
    num_thoughts: int
    num_closed: int


class Pair(NamedTuple):
    """Two things compared under separate budgeting: the name of the comparison; the beginning of "... more accurate";
    and the difference by benchmark, averaged over budgets."""

    name: str
    makes: str
    found: Mapping[str, Averaged]


def pairs_of(problems: pl.DataFrame) -> list[Pair]:
    """The trained model over base; without one every other model over base; without these separate budgeting over
    vanilla truncation, of the first model that has both. Empty where nothing can be compared."""
    limited = problems.filter(pl.col("think_budget").is_not_null())
    separate, vanilla = limited.filter(strategy=SERVED), limited.filter(strategy=BASELINE)
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


def brief(
    problems: pl.DataFrame, pairs: Sequence[Pair], settings: Sequence[Setting], responses: Sequence[Readable] = ()
) -> list[str]:
    """The first screen: the finding and the setting, in two sentences without an interval; `pairs` of `pairs_of`."""
    if _unanswered(responses):
        return [
            "Nothing can be read from this comparison: no response holds an answer that the grader can read.",
            "Read some of the responses below before anything else.",
        ]
    return [_in_words(problems, pairs, responses), to_set(settings)]


def _in_words(problems: pl.DataFrame, pairs: Sequence[Pair], responses: Sequence[Readable]) -> str:
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
    sides = (("more", more), ("less", less))
    parts = [f"{word} accurate {_where(found, len(differences))}" for word, found in sides if found]
    if not parts:
        return f"Under a token budget {pair.makes} neither more nor less accurate, as far as these problems show."
    if same := [name for name in differences if name not in more and name not in less]:
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


def verdict(
    problems: pl.DataFrame, pairs: Sequence[Pair], claims: Iterable[Claim], responses: Sequence[Readable] = ()
) -> str:
    """The paired differences with intervals and counts, how many expectations hold, and what makes them say little."""
    remarks = unreadable(responses)
    if _unanswered(responses):
        return " ".join(["Nothing can be read from this comparison.", *remarks])
    return " ".join([_differences(problems, pairs), *filter(None, [counted(claims)]), *remarks])


def counted(claims: Iterable[Claim]) -> str:
    """How many expectations have each verdict, as a sentence; "" without any."""
    counts = Counter(claim.verdict for claim in claims)
    listing = ", ".join(f"{name} {counts[name]}" for name in Verdict if counts[name])
    return f"Expectations by verdict: {listing}." if listing else ""


def _unanswered(responses: Sequence[Readable]) -> bool:
    """Whether no response of any model holds an answer."""
    return bool(responses) and all(each.num_answered == 0 for each in responses)


def _differences(problems: pl.DataFrame, pairs: Sequence[Pair]) -> str:
    if not pairs:
        cells, models = problems.select(CELL).n_unique(), ordered(problems["model"], BASE)
        return f"Nothing can be compared in the {cells} cells of {', '.join(models)}."
    if len(pairs) > 1:
        # The least and the greatest difference on each benchmark: naming only the best of many would flatter it.
        ranges = []
        for benchmark in dict.fromkeys(benchmark for pair in pairs for benchmark in pair.found):
            there = {pair.name: pair.found[benchmark].difference for pair in pairs if benchmark in pair.found}
            ends = [pick(there, key=lambda name: there[name].mean) for pick in (min, max)]
            low, high = (f"{signed(there[name])} ({name.removesuffix(' over base')})" for name in ends)
            ranges.append(f"{benchmark} from {low} to {high} points")
        compared = f"{len(pairs)} models over base, paired, simultaneous"
        return f"Accuracy, separate budgeting, {compared}: {', '.join(ranges)}."
    (name, _, found), shown = pairs[0], []
    for benchmark, (one, budgets) in found.items():
        counts = f"{plural(one.num_problems, 'problem')}, {plural(budgets, 'budget')}"
        shown.append(f"{benchmark} {signed(one)} points ({counts})")
    return f"Accuracy, separate budgeting, {name}, paired: {', '.join(shown)}."


def cut_short(rows: pl.DataFrame) -> list[str]:
    """How many responses ended otherwise than with a solution, as a sentence; none where all were answered."""
    counts = dict(rows.group_by("kind").len().iter_rows())
    answered = counts.pop(ResponseKind.ANSWERED, 0)
    others = ", ".join(f"{counts[kind]:,} {kind}" for kind in ResponseKind if kind in counts)
    return [sentence("cut_short", responses=rows.height, answered=answered, others=others)] if others else []


def coverage(rows: pl.DataFrame, asked: Asked | None) -> str:
    """Trajectories and cells, of those requested; "" where their number is not known. Rows beyond that do not count."""
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
    done, total = sum(found.values()), sum(wanted.values())
    return sentence(
        "coverage",
        done=done,
        total=total,
        percent=f"{100 * done / total:.0f}" if total else "",
        cells=len(wanted),
        complete=sum(found[key] == number for key, number in wanted.items()),
        empty=sum(number == 0 for number in found.values()),
        chosen=numbers if asked.chosen else "",
    )


def left_out(whole: Whole) -> str:
    """The number of cells that lack a complete sample, as a sentence; "" where all are shown."""
    cells = whole.left_out
    if cells.is_empty():
        return ""
    return sentence("left_out", cells=cells.height, least=min(cells["num_missing"]))


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


def unreadable(responses: Iterable[Readable]) -> list[str]:
    """A sentence for each reason why little can be read off a model's accuracies, with what to do."""
    found = []
    for each in responses:
        found += [sentence("unanswered", **each._asdict())] if each.num_answered == 0 else []
        found += [sentence("unclosed", **each._asdict())] if each.num_thoughts and each.num_closed == 0 else []
    return found


def more_tokens_hurt(falls: pl.DataFrame) -> list[str]:
    """A sentence on the deepest of `falls`, if there is any: what people decide by may be the wrong way round."""
    if falls.is_empty():
        return []
    worst = falls.row(0, named=True)
    fall = with_bounds(-worst["difference"], -worst["high"], -worst["low"])
    return [sentence("hurt", **worst, plain=plain(worst["strategy"]), fall=fall, more=falls.height - 1)]


def goes_on_thinking(leaks: pl.DataFrame) -> list[str]:
    """A sentence on the budget whose solutions go on thinking most often (`leaked`), where that is shown to be in more
    than `LEAK` of its responses."""
    over = leaks.filter(pl.col("leak_low") > LEAK).sort("leak", descending=True)
    if over.is_empty():
        return []
    worst = over.row(0, named=True)
    share = with_bounds(worst["leak"], worst["leak_low"], worst["leak_high"])
    budget = Budget(worst["think_budget"], worst["solution_budget"])
    words = {"plain": plain(worst["strategy"]), "share": share, "budget": budget, "more": over.height - 1}
    return [sentence("leaks", **worst, **words)]


def told_an_effort(differences: pl.DataFrame, summary: pl.DataFrame, model: str) -> list[str]:
    """A sentence on the effort with which a model that is given no budget samples the fewest tokens, if that is fewer
    than without being told one: what it saves, and the difference in points on each benchmark, from the differences
    between strategies."""
    tokens = summary.filter(model=model).select("benchmark", "tokens_mean", second="strategy")
    told = differences.filter(model=model, first=FREE)
    variants = {name: split_variant(name) for name in told["second"].unique()}
    efforts = {name: effort for name, (base, _, effort) in variants.items() if base == FREE and effort}
    told = told.filter(pl.col("second").is_in(list(efforts)))
    pairs = told.join(tokens, on=["second", "benchmark"])
    pairs = pairs.join(tokens.filter(second=FREE).drop("second"), on="benchmark", suffix="_free")
    ratio = pl.col("tokens_mean").sum() / pl.col("tokens_mean_free").sum()
    found = pairs.group_by("second").agg(ratio.alias("ratio")).filter(pl.col("ratio") < 1).sort("ratio", "second")
    if found.is_empty():
        return []
    cheapest, share = found.row(0)
    shown = [
        f"{with_bounds(row['difference'], row['low'], row['high'], '+.1f')} points on {row['benchmark']}"
        for row in pairs.filter(second=cheapest).sort("benchmark").iter_rows(named=True)
    ]
    saved = f"{100 * (1 - share):.0f}"
    return [sentence("effort", model=model, effort=efforts[cheapest], saved=saved, points=listed(shown))]


def to_set(settings: Sequence[Setting]) -> str:
    """The second sentence of the first screen: the budgets to set, and elsewhere the nearest or what else to do."""
    measured = [each for each in settings if each.reason != Reason.UNMEASURED]
    if not measured:
        return "Which budget to set cannot be said: measure the strategies separate and unconstrained of one model."
    model, margin, known = measured[0].model, measured[0].margin, [each for each in measured if each.budget is not None]
    texts = {each.unlimited for each in known or measured}
    unlimited = texts.pop() if len(texts) == 1 else "thinking without a budget, some of which was cut"
    if len(known) > MAX_NAMED or len(settings) > MAX_NAMED:
        near = sum(each.nearest is not None for each in settings)
        more = f"; on {near} others more problems would decide" if near else ""
        kept = f"keeps {model} within {margin} of {unlimited}"
        return f"On {len(known)} of {len(settings)} benchmarks a token budget {kept}{more}; they are below."
    places: dict[str, list[str]] = {}
    for each in sorted((each for each in measured if each.budget is None), key=lambda each: each.nearest is None):
        places.setdefault(each.told, []).append(each.benchmark)
    others = "; ".join(f"on {listed(benchmarks)} {told}" for told, benchmarks in places.items())
    if not known:
        return f"For {model}, {others}."
    named = " and ".join(f"{each.budget} for tasks like {each.benchmark}" for each in known)
    lost = f"at most {margin} below {unlimited}"
    rest = f"{others[0].upper()}{others[1:]}." if others else ""
    return f"Serve {model} with a token budget of {named}, which keeps it {lost}. {rest}".rstrip()


def settings(
    choices: Choices,
    advice: pl.DataFrame,
    advised: pl.DataFrame,
    summary: pl.DataFrame,
    model: str,
    margin: float,
    unit: str,
) -> list[Setting]:
    """The budget for `elastic serve --budget` of a model, by benchmark, from `choices` among the rows of `advice` and
    their `advised_budgets`; `margin` is in [0, 1]."""
    undecided = advised.filter(model=model, verdict=NonInferiority.UNDECIDED)
    found, points = [], f"{100 * margin:g} points"
    for benchmark in summary.filter(model=model)["benchmark"].unique().sort():
        row, unlimited = choices[model, benchmark], "unlimited thinking"
        cut = advice.filter(pl.col("free_cut") > 0, model=model, benchmark=benchmark)
        if cut.height:
            cap, share = cut["free_cap"][0], 100 * cut["free_cut"][0]
            unlimited = f"thinking without a budget, {share:.2g} % of it cut at {cap:,} tokens"
        setting = Setting(benchmark, model, points, unlimited=unlimited)
        if isinstance(row, Reason):
            reason = str(row).replace("the margin", points).replace("unlimited thinking", unlimited)
            near = next(undecided.filter(benchmark=benchmark).iter_rows(named=True), None)
            uncertified = row is Reason.NOT_CERTIFIED
            found.append(_without_a_budget(replace(setting, reason=reason), near, uncertified))
            continue
        cell = summary.filter([pl.col(name).eq_missing(pl.lit(row[name])) for name in CELL]).row(0, named=True)
        budget = Budget(row["think_budget"], row["solution_budget"])
        accuracy = with_bounds(cell["avg_at_k"], cell["ci_low"], cell["ci_high"])
        lost = with_bounds(row["difference"], row["low"], row["high"], "+.1f")
        saved = with_bounds(row["saved"], row["saved_low"], row["saved_high"], "z.0f")
        counts = {name: cell[name] for name in ("num_problems", "num_samples")}
        within_, tokens = f"{np.ceil(1000 * row['within']) / 10:g}", f"{cell['tokens_mean']:,.0f}"
        words = {"accuracy": accuracy, "lost": lost, "saved": saved, "within": within_, "tokens": tokens}
        told = sentence("advised", **words, **counts, unit=unit, cost=f"{row['cost']:,.0f}")
        found.append(replace(setting, told=told, budget=budget))
    return found


def _without_a_budget(setting: Setting, near: Mapping[str, Any] | None, uncertified: bool) -> Setting:
    """The budget that more problems might confirm and how many would decide it; without one, unlimited thinking. The
    reason is named unless it is that nothing is certified, which the words say."""
    if near is None:
        return replace(setting, told=f"leave thinking unlimited: {setting.reason}")
    nearest = Budget(near["think_budget"], near["solution_budget"])
    needed = None if near["problems_needed"] is None else int(near["problems_needed"])
    lost = with_bounds(near["difference"], near["low"], near["high"], "+.1f")
    words = {"lost": lost, "saved": f"{100 * near['saved']:.0f}", "num_problems": near["num_problems"]}
    why = "" if uncertified else setting.reason
    told = sentence("nearest", budget=nearest, needed=needed, margin=setting.margin, why=why, **words)
    return replace(setting, told=told, nearest=nearest, needed=needed)


def command(setting: Setting, sources: ReportSources) -> str:
    """The command that measures the problems which would decide on the nearest budget, where there are more; else the
    one that serves the model as advised, or "" where it is behind a server."""
    preset = str(sources.provenance.get("preset", sources.preset))
    of = ["--preset", preset] if preset else []
    if setting.needed is not None and (key := _more_problems(setting.benchmark, sources)):
        flow = "pipeline" if TRAINED in sources.trainings else "sweep"
        begun = str(sources.provenance.get("command", ""))  # Its settings stay, such as the number of samples.
        run = begun if begun.startswith("elastic run ") else shlex.join(["elastic", "run", flow, *of])
        return f"{run} --set {key}={-(-setting.needed // 10) * 10}"
    place = sources.places.get(setting.model, setting.model)
    served = {} if sources.manifest is None else sources.manifest.servers
    if isinstance(place, list) or is_endpoint(place) or setting.model in served:
        return ""
    budget = [] if setting.budget is None else ["--budget", str(setting.budget)]
    return shlex.join(["elastic", "serve", *of, "--model", place, *budget])


def _more_problems(benchmark: str, sources: ReportSources) -> str:
    """The setting of how many problems of a benchmark are measured; "" where that is all there are."""
    if sources.asked is not None and sources.asked.chosen:
        return "sweep.problems"
    generated = benchmark.split("-")[0]  # Sets of these families have as many problems as one likes.
    return f"data.{generated}.problems_per_benchmark" if generated in ("miniature", "words") else ""


def not_told(advice: pl.DataFrame, model: str) -> list[str]:
    """The limits of the advice (`budget_advice`) for a model, as a sentence; none where nothing is measured."""
    ours = advice.filter(model=model, strategy=SERVED)
    undecided = ours.filter(verdict=NonInferiority.UNDECIDED).height
    words = {"percent": f"{100 * LEVEL:g}", "undecided": undecided, "budgets": ours.height, "model": model}
    return [sentence("limits", **words)][: ours.height]
