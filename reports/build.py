"""The report of one trajectory table: its content, and every file, each written completely or not at all."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.errors import UserError
from elastic_core.rewards.truth import guesses
from elastic_core.statistics.accuracy import paired_differences, published_differences
from elastic_core.statistics.at_k import Parallel, parallel_problems
from elastic_core.statistics.budgets import anytime_accuracy, anytime_differences, falls, marginal_accuracy
from elastic_core.statistics.certificates import with_looks
from elastic_core.statistics.cost import CostModel, best_under
from elastic_core.statistics.curves import area_differences
from elastic_core.statistics.estimates import seeds_as_one, without_seed
from elastic_core.statistics.responses import (
    is_cut,
    leaked,
    leaks,
    response_kind,
    response_kinds,
    thinking_spent,
)
from elastic_core.statistics.stop_frontier import OUTCOMES, outcomes, rules_of
from elastic_core.statistics.stopping import NotComparable, read_thoughts
from elastic_core.statistics.which_budget import advised_budgets, budget_advice, cheapest_within, choose_budgets
from elastic_core.strategies import BASELINE, SERVED
from elastic_core.sweep.sound import Whole, checked_rows, copies, whole_samples
from elastic_core.system.files import replacing, write_csv, write_text
from reports import latex, verdict
from reports.claims import evaluate_claims, pairs_to_compare
from reports.content import Claim, ReportFigure, ReportSources, ReportTable, Verdict
from reports.figures import Sheet, accuracy, differences, model_colours, strategy_styles, tokens, training
from reports.page import render_markdown, write_page
from reports.summary import (
    BASE,
    READ,
    TRAINED,
    cell_problems,
    headline,
    main_model,
    summarize_problems,
    write_summary_json,
)
from reports.tables import budgets as budget_tables
from reports.tables import codeforces, comparisons, published
from reports.tables import costs as cost_tables
from reports.wording import of_one_training, ordered

FIGURES, TABLES = "figures", "tables"  # Directories of a report.
FILES = "files.json"  # Files of the report, which the next one replaces.
_WRITTEN = re.compile(rf"report\.md|report\.html|summary\.json|({FIGURES}|{TABLES})/\w+\.(png|svg|pdf|csv|tex)")
"""Names of a report's files. The list may be anyone's, and what else it names is not removed."""
_UNREAD = "needs answers that the grader can read"


def build_report(sources: ReportSources, directory: Path) -> Report:
    """Write report.md, report.html, summary.json, figures and tables to `directory`; replacing an earlier report. A
    figure or table is left out where the trajectory table lacks its cells. UserError when rows break a rule of the
    table, no cell has a sample of every problem, or the list of an earlier report is broken; nothing is written
    then."""
    earlier = _earlier(directory)
    report = read_report(sources, directory)
    for table in report.tables:
        with replacing(table_file(directory, table)) as temporary:
            write_csv(table.frame, temporary, float_precision=4)
        if sources.parameters.latex:
            write_text(table_file(directory, table, "tex"), latex.table(table))
    write_summary_json(report.summary, report.anytime, sources.ratings, directory / "summary.json")
    write_text(directory / "report.md", render_markdown(report))
    write_page(report, directory / "report.html")
    # Files of an earlier report that this one did not write are outdated; the user's files may lie here too.
    written = [file.relative_to(directory).as_posix() for file in files_of(report)]
    for name in set(earlier) - set(written):
        (directory / name).unlink(missing_ok=True)
    write_text(directory / FILES, json.dumps(written, indent=1) + "\n")
    return report


def files_of(report: Report) -> list[Path]:
    """Every file of a report."""
    texts = [report.directory / name for name in ("report.md", "report.html", "summary.json")]
    figures = [file for figure in report.figures for file in figure.files]
    forms = ("csv", "tex") if report.sources.parameters.latex else ("csv",)
    tables = [table_file(report.directory, table, form) for table in report.tables for form in forms]
    return [*texts, *figures, *tables]


def table_file(directory: Path, table: ReportTable, form: str = "csv") -> Path:
    return directory / TABLES / f"{table.name}.{form}"


def _earlier(directory: Path) -> list[str]:
    """Files of the report that was written here before."""
    listing = directory / FILES
    if not listing.exists():
        return []
    try:
        names = json.loads(listing.read_text(encoding="utf-8"))
    except ValueError:
        names = None
    wrong = [name for name in names if not _is_written(directory, name)] if isinstance(names, list) else ["no list"]
    if wrong:
        raise UserError(
            f"{listing}: found {str(wrong[0])[:200]!r}; expected names of a report's files in {directory}: remove the "
            "list, or report to another directory"
        )
    return list(names)


def _is_written(directory: Path, name: Any) -> bool:
    known = isinstance(name, str) and _WRITTEN.fullmatch(name) is not None
    # A folder of the report may be a link to one of the user's.
    return known and (directory / name).parent.resolve().is_relative_to(directory.resolve())


def read_report(sources: ReportSources, directory: Path) -> Report:
    """The report of the requested rows, and of their complete samples. UserError as `build_report`."""
    # The text of solutions is read in pieces, and only to tell the responses apart.
    kinds = response_kind().alias("kind"), is_cut().alias("cut"), leaks(marked=True).alias("marked")
    place = sources.provenance.get("table", "the table")
    rows = checked_rows(sources.rows, (*READ, *kinds), place, sources.manifest, sources.problems)
    whole = whole_samples(rows, sources.asked.num_problems if sources.asked else None)
    if whole.rows.is_empty():
        raise UserError(
            f"{place}: no cell has a sample of every problem yet, and problems that end first are not like the others: "
            "nothing can be reported before the sweep is further (elastic status says how far it is)"
        )
    return Report(sources, directory, rows, whole)


class Report:
    """Everything that a report shows of one trajectory table; tables and figures are made when they are first read.

    Differences are from the first model and the first strategy, the advice is for the model `on`.

    Attributes:
        rows: complete samples of the requested rows, with seeds of one training as one model.
        summary: a row per cell, in schema `reports.summary.SUMMARY`; `beside` with cells of thinking in parallel;
            `priced` with the cost in `unit`, by which budgets are compared, and the frontier.
        trainings: by model; `lone` have a single seed, where others have several.
        pairs: models to judge against each other.
        anytime: a row per ladder of thinking budgets, of `anytime_accuracy`.
        advised, chosen: every budget against unlimited thinking, and those to name; `settings` are these in words.
        choices: by benchmark the best cells under a limit of cost, and within a number of points.
        brief: the finding and the setting, in two sentences; `verdict` has the numbers of the first.
        advice: the limits of the advice.
        headline: the metrics of `reports.summary.headline`.
    """

    def __init__(self, sources: ReportSources, directory: Path, requested: pl.DataFrame, whole: Whole) -> None:
        self.sources, self.directory, parameters = sources, directory, sources.parameters
        self.rows = rows = seeds_as_one(whole.rows)
        self.problems = problems = cell_problems(rows)
        self.summary = summary = summarize_problems(problems)
        # Each cell of thinking in parallel rests on all rows of a cell of separate budgeting.
        given, place = [Parallel.parse(name) for name in parameters.parallel], ["model", "benchmark"]
        counts = summary.filter(strategy=SERVED).group_by(place).agg(pl.col("num_trajectories").max())
        found = summarize_problems(parallel_problems(rows, problems, given)).drop("num_trajectories")
        self.beside = pl.concat([summary, found.join(counts, on=place).select(summary.columns)])
        # Seeds of one training have the same settings.
        self.trainings = {
            without_seed(name)[0]: replace(training, base=training.base and without_seed(training.base)[0])
            for name, training in sources.trainings.items()
        }
        # No interval tells how another training like one of a single seed would differ.
        seeds = dict(summary.group_by("model").agg(pl.col("num_seeds").max()).iter_rows())
        self.lone = [name for name in self.trainings if seeds.get(name) == 1 < max(seeds.values())]
        self.pairs = pairs_to_compare(rows, parameters.pairs)
        self.first_model = ordered(summary["model"], BASE)[0]
        self.first_strategy = ordered(summary["strategy"], BASELINE)[0]
        self.by_model = paired_differences(rows, "model", self.first_model)
        self.by_strategy = paired_differences(rows, "strategy", self.first_strategy)
        self.spent, self.hurt, self.leaks = thinking_spent(rows), falls(problems), leaked(rows)
        self.anytime = anytime_accuracy(problems, parameters.distribution)
        self.theirs = published(summary["benchmark"].unique(), [*summary["model"].unique(), sources.preset])
        self.headline = headline(problems, summary, self.anytime, self.trainings)
        self.on = main_model(summary["model"])
        self._choose()
        self._say(requested, whole)

    def _choose(self) -> None:
        """Costs in each unit, and which budget to set."""
        problems, margin = self.problems, self.sources.parameters.margin / 100
        models = self.summary["model"].unique().sort()
        self.cost_models = cost_tables.cost_models(self.sources.parameters, self.sources.latency, models)
        self.costs = cost_tables.costs_by_unit(self.rows, self.cost_models)
        self.unit = cost_tables.MONEY if cost_tables.MONEY in self.cost_models else cost_tables.TOKENS_PROCESSED
        of_unit = self.cost_models[self.unit]
        self.priced = cost_tables.priced(self.summary, self.costs[self.unit])
        self.advised = budget_advice(with_looks(problems, self.rows), of_unit[self.first_model], margin)
        guessed = guesses(self.sources.problems.values())
        picked = choose_budgets(self.advised, problems, guessed)
        self.chosen = advised_budgets(self.advised, picked)
        found = verdict.settings(picked, self.advised, self.chosen, self.summary, self.on, margin, self.unit)
        self.settings = [replace(each, command=verdict.command(each, self.sources)) for each in found]
        self.advice = verdict.not_told(self.advised, self.on)
        self.under, self.within = best_under(problems, of_unit), cheapest_within(self.advised, problems, guessed)
        beside = partial(budget_tables.side_by_side, self.under, self.within, self.unit, model=self.on)
        self.choices = {each.benchmark: beside(each.benchmark) for each in self.settings}
        self.stopping = _stopping(self.rows, self.on, of_unit[self.on])

    def _say(self, requested: pl.DataFrame, whole: Whole) -> None:
        """The sentences and the claims."""
        responses, compared = verdict.readable(requested), verdict.pairs_of(self.problems)
        ratings, expected = self.sources.ratings, self.sources.parameters.expectations
        claims = evaluate_claims(self.rows, self.pairs, self.trainings, expected, ratings)
        self.claims = list(map(self._with_note, claims))
        if all(each.num_answered == 0 for each in responses):
            self.claims = [claim._replace(verdict=Verdict.NOT_MEASURED, evidence=_UNREAD) for claim in self.claims]
        self.brief = verdict.brief(self.problems, compared, self.settings, responses)
        told = [
            *verdict.more_tokens_hurt(self.hurt),
            *verdict.goes_on_thinking(self.leaks),
            *verdict.told_an_effort(self.by_strategy, self.summary, self.on),
            verdict.verdict(self.problems, compared, self.claims, responses),
            *verdict.cut_short(self.rows),
            *(training.idle(name) for name, training in self.sources.trainings.items()),
        ]
        self.verdict = " ".join(filter(None, told))
        there = [verdict.coverage(requested, self.sources.asked), verdict.left_out(whole)]
        self.coverage = " ".join(filter(None, [*there, *copies(whole.rows, self.sources.manifest)]))

    @property
    def next_commands(self) -> dict[str, list[str]]:
        """What to run next, and for which benchmarks."""
        found: dict[str, list[str]] = {}
        for setting in self.settings:
            if setting.command:
                found.setdefault(setting.command, []).append(setting.benchmark)
        return found

    def _with_note(self, claim: Claim) -> Claim:
        note = of_one_training(claim.models, self.lone)
        return claim._replace(evidence=f"{claim.evidence}. {note}") if note else claim

    def _note(self, pairs: pl.DataFrame) -> str:
        """Say which of the compared models is one training."""
        return of_one_training({*pairs["first"], *pairs["second"]}, self.lone)

    def _noted(self, table: ReportTable | None, pairs: pl.DataFrame) -> ReportTable | None:
        note = self._note(pairs)
        return replace(table, caption=f"{table.caption} {note}") if table and note else table

    @cached_property
    def figures(self) -> list[ReportFigure]:
        """The figures, written when they are first read."""
        colours = model_colours([*self.summary["model"], *self.trainings])
        sheet = Sheet(self.directory / FIGURES, colours, strategy_styles(self.beside["strategy"]))
        star = self.trainings[TRAINED].fixed_budget if TRAINED in self.trainings else None
        figures = [
            accuracy.accuracy_vs_tokens(self.beside, sheet, star, self.theirs),
            accuracy.strategies_vs_tokens(self.beside, sheet),
            accuracy.accuracy_vs_budget(self.summary, sheet, star),
            accuracy.pareto_frontier(self.priced, self.chosen, sheet, self.unit),
            accuracy.stop_frontier(self.stopping, sheet, self.unit),
            differences.paired(self.by_model, sheet, "model", self.first_model, self._note(self.by_model)),
            differences.paired(self.by_strategy, sheet, "strategy", self.first_strategy),
            accuracy.training_ablation(self.summary, sheet, self.trainings),
            training.training_curves(self.sources.trainings, sheet),
            tokens.tokens_by_phase(self.rows, sheet, SERVED),
            tokens.thinking_spent(self.spent, sheet, SERVED),
            tokens.sufficient_budgets(self.spent, sheet),
            tokens.leaks(self.summary, sheet),
        ]
        return [figure for figure in figures if figure is not None]

    @cached_property
    def tables(self) -> list[ReportTable]:
        unit, parameters = self.unit, self.sources.parameters
        at_any = anytime_differences(self.problems, self.pairs, parameters.distribution)
        between_strategies = area_differences(self.rows, "strategy", self.first_strategy)
        between_models = area_differences(self.rows, "model", self.first_model)
        tables = [
            comparisons.model_comparison(self.summary, self.sources.ratings, self.theirs),
            codeforces.rated(self.sources.ratings, self.summary),
            comparisons.as_published(published_differences(self.problems), self.summary),
            budget_tables.under_limit(self.under, unit),
            budget_tables.within_points(self.within, unit),
            budget_tables.advice(self.chosen, self.costs[unit], unit),
            cost_tables.frontier(self.priced, self.chosen, unit),
            cost_tables.stop_rules(self.stopping, unit),
            budget_tables.falls(self.hurt),
            budget_tables.anytime(self.anytime, parameters.distribution),
            self._noted(budget_tables.anytime_compared(at_any, parameters.distribution), at_any),
            self._noted(comparisons.paired(self.by_model, "model", self.first_model), self.by_model),
            comparisons.paired(self.by_strategy, "strategy", self.first_strategy),
            comparisons.variants(self.rows, self.summary),
            comparisons.parallel(self.beside, parameters.parallel),
            self._noted(comparisons.equal_tokens(between_strategies, between_models), between_models),
            comparisons.variance(self.rows, BASE),
            comparisons.templates(self.by_strategy, self.summary),
            comparisons.trainings_side_by_side(self.summary, self.trainings, self.theirs),
            comparisons.swap_ablation(self.summary, self.theirs),
            budget_tables.thinking(self.spent),
            budget_tables.responses(response_kinds(self.rows)),
            budget_tables.leaks(self.leaks),
            budget_tables.marginal(marginal_accuracy(self.problems)),
            cost_tables.costs(self.summary, self.cost_models, self.costs),
        ]
        return [table for table in tables if table is not None]


def _stopping(rows: pl.DataFrame, on: str, model: CostModel) -> pl.DataFrame:
    """`outcomes` of stop rules for a model on each benchmark; none where the rows do not tell."""
    found = [pl.DataFrame(schema={"benchmark": pl.String, "model": pl.String, **OUTCOMES})]
    for (benchmark,), part in rows.filter(model=on).partition_by("benchmark", as_dict=True).items():
        with suppress(NotComparable):
            thoughts = read_thoughts(part)
            frame = outcomes(thoughts, rules_of(thoughts), model)
            found.append(frame.select(pl.lit(str(benchmark)).alias("benchmark"), pl.lit(on).alias("model"), pl.all()))
    return pl.concat(found)
