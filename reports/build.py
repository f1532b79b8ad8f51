"""The report of one trajectory table: its content, and every file, each written completely or not at all."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
from elastic_core.statistics.responses import is_cut, response_kind, response_kinds, thinking_spent
from elastic_core.statistics.stop_frontier import OUTCOMES, outcomes, rules_of
from elastic_core.statistics.stopping import NotComparable, read_thoughts
from elastic_core.statistics.which_budget import advised_budgets, budget_advice, cheapest_within, choose_budgets
from elastic_core.strategies import BASELINE, SERVED
from elastic_core.sweep.sound import Whole, checked_rows, copies, whole_samples
from elastic_core.system.files import replacing, write_csv, write_text
from reports import verdict as sentences
from reports.claims import claims_of_the_text, evaluate_claims, pairs_to_compare
from reports.content import ReportContent, ReportFigure, ReportSources, ReportTable, Verdict
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
from reports.tables import comparisons, published
from reports.tables import costs as cost_tables
from reports.wording import of_one_training, ordered

_Shown = TypeVar("_Shown", ReportFigure, ReportTable)
FIGURES, TABLES = "figures", "tables"  # Directories of a report.
FILES = "files.json"  # Files of the report, which the next one replaces.
_WRITTEN = re.compile(rf"report\.md|report\.html|summary\.json|({FIGURES}|{TABLES})/\w+\.(png|svg|csv)")
"""Names of a report's files. The list may be anyone's, and what else it names is not removed."""
_UNREAD = "needs answers that the grader can read"


def build_report(sources: ReportSources, directory: Path) -> ReportContent:
    """Write report.md, report.html, summary.json, figures and tables to `directory`; replacing an earlier report. A
    figure or table whose cells the trajectory table lacks is left out. UserError when rows break a rule of the table,
    no cell has a sample of every problem, or the list of an earlier report is broken; then nothing is written."""
    earlier = _earlier(directory)
    content = _collect(sources, directory)
    for table in content.tables:
        with replacing(table_file(directory, table)) as temporary:
            write_csv(table.frame, temporary, float_precision=4)
    write_summary_json(content.summary, content.anytime, sources.ratings, directory / "summary.json")
    write_text(directory / "report.md", render_markdown(content))
    write_page(content, directory / "report.html")
    # Files of an earlier report that this one did not write are outdated; the user's files may lie here too.
    written = [file.relative_to(directory).as_posix() for file in files_of(content)]
    for name in set(earlier) - set(written):
        (directory / name).unlink(missing_ok=True)
    write_text(directory / FILES, json.dumps(written, indent=1) + "\n")
    return content


def files_of(content: ReportContent) -> list[Path]:
    """Every file of a report."""
    texts = [content.directory / name for name in ("report.md", "report.html", "summary.json")]
    figures = [file for figure in content.figures for file in (figure.png, figure.svg, figure.data)]
    return [*texts, *figures, *(table_file(content.directory, table) for table in content.tables)]


def table_file(directory: Path, table: ReportTable) -> Path:
    return directory / TABLES / f"{table.name}.csv"


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


class ReportData:
    """Numbers of one table that several parts show: `beside` adds cells of thinking in parallel to those of `summary`;
    differences are from the first model and the first strategy."""

    def __init__(self, sources: ReportSources, rows: pl.DataFrame) -> None:
        self.rows = rows
        self.problems = cell_problems(rows)
        self.summary = summary = summarize_problems(self.problems)
        # Each cell of thinking in parallel rests on all rows of a cell of separate budgeting.
        given, place = [Parallel.parse(name) for name in sources.parameters.parallel], ["model", "benchmark"]
        counts = summary.filter(strategy=SERVED).group_by(place).agg(pl.col("num_trajectories").max())
        found = summarize_problems(parallel_problems(rows, self.problems, given)).drop("num_trajectories")
        self.beside = pl.concat([summary, found.join(counts, on=place).select(summary.columns)])
        # Seeds of one training have the same settings.
        self.trainings = {
            without_seed(name)[0]: replace(training, base=training.base and without_seed(training.base)[0])
            for name, training in sources.trainings.items()
        }
        # No interval tells how another training like one of a single seed would differ.
        seeds = dict(summary.group_by("model").agg(pl.col("num_seeds").max()).iter_rows())
        self.lone = [name for name in self.trainings if seeds.get(name) == 1 < max(seeds.values())]
        self.pairs = pairs_to_compare(rows, sources.parameters.pairs)
        self.first_model = ordered(summary["model"], BASE)[0]
        self.first_strategy = ordered(summary["strategy"], BASELINE)[0]
        self.by_model = paired_differences(rows, "model", self.first_model)
        self.by_strategy = paired_differences(rows, "strategy", self.first_strategy)
        self.gains, self.spent, self.hurt = marginal_accuracy(self.problems), thinking_spent(rows), falls(self.problems)
        self.anytime = anytime_accuracy(self.problems, sources.parameters.distribution)
        self.theirs = published(summary["benchmark"].unique(), [*summary["model"].unique(), sources.preset])

    def of_pairs(self, shown: _Shown | None, pairs: pl.DataFrame) -> _Shown | None:
        """Note in the caption which of the compared models is one training."""
        note = of_one_training({*pairs["first"], *pairs["second"]}, self.lone)
        return replace(shown, caption=f"{shown.caption} {note}") if shown and note else shown


class _Budgets:
    """Costs in each unit, and in the `unit` that budgets are compared by: the `advised` and `chosen` budgets, the cells
    with their cost, the best `under` a limit, the cheapest `within` a number of points; `to_set` for the model that the
    report advises `on`, with the `choices` that it has on each benchmark."""

    def __init__(self, sources: ReportSources, found: ReportData) -> None:
        summary, margin = found.summary, sources.parameters.margin / 100
        self.models = cost_tables.cost_models(sources.parameters, sources.latency, summary["model"].unique().sort())
        self.costs = cost_tables.costs_by_unit(found.rows, self.models)
        self.unit = cost_tables.MONEY if cost_tables.MONEY in self.models else cost_tables.TOKENS_PROCESSED
        of_unit = self.models[self.unit]
        self.advised = budget_advice(with_looks(found.problems, found.rows), of_unit[found.first_model], margin)
        guessed = guesses(sources.problems.values())
        picked = choose_budgets(self.advised, found.problems, guessed)
        self.chosen = advised_budgets(self.advised, picked)
        self.priced = cost_tables.priced(summary, self.costs[self.unit])
        self.under = best_under(found.problems, of_unit)
        self.within = cheapest_within(self.advised, found.problems, guessed)
        self.on = main_model(summary["model"])
        self.stopping = _stopping(found.rows, self.on, of_unit[self.on])
        self.to_set = sentences.settings(picked, self.advised, self.chosen, summary, self.on, margin, self.unit)
        beside = partial(budget_tables.side_by_side, self.under, self.within, self.unit, model=self.on)
        self.choices = {each.benchmark: beside(each.benchmark) for each in self.to_set}


def _stopping(rows: pl.DataFrame, on: str, model: CostModel) -> pl.DataFrame:
    """`outcomes` of stop rules for a model on each benchmark; none where the rows do not tell."""
    found = [pl.DataFrame(schema={"benchmark": pl.String, "model": pl.String, **OUTCOMES})]
    for (benchmark,), part in rows.filter(model=on).partition_by("benchmark", as_dict=True).items():
        with suppress(NotComparable):
            thoughts = read_thoughts(part)
            frame = outcomes(thoughts, rules_of(thoughts), model)
            found.append(frame.select(pl.lit(str(benchmark)).alias("benchmark"), pl.lit(on).alias("model"), pl.all()))
    return pl.concat(found)


def _collect(sources: ReportSources, directory: Path) -> ReportContent:
    requested, whole = _whole(sources)
    found = ReportData(sources, seeds_as_one(whole.rows))
    budgets = _Budgets(sources, found)
    responses = sentences.readable(requested)
    expected = sources.parameters.expectations
    claims = evaluate_claims(found.rows, found.trainings, expected, found.pairs)
    claims += claims_of_the_text(found.rows, sources.ratings, expected, found.pairs)
    claims.sort(key=lambda claim: claim.benchmark)
    for place, claim in enumerate(claims):
        if note := of_one_training(claim.models, found.lone):
            claims[place] = claim._replace(evidence=f"{claim.evidence}. {note}")
    if all(each.num_answered == 0 for each in responses):
        claims = [claim._replace(verdict=Verdict.NOT_MEASURED, evidence=_UNREAD) for claim in claims]
    idle = [sentence for name, training in sources.trainings.items() if (sentence := training.idle(name))]
    told = [
        *sentences.more_tokens_hurt(found.hurt),
        sentences.verdict(found.problems, claims, responses),
        *sentences.cut_short(found.rows),
        *idle,
    ]
    there = [sentences.coverage(requested, sources.asked), sentences.left_out(whole)]
    return ReportContent(
        sources=sources,
        directory=directory,
        brief=sentences.brief(found.problems, budgets.to_set, responses),
        settings=budgets.to_set,
        unit=budgets.unit,
        choices=budgets.choices,
        verdict=" ".join(told),
        advice=sentences.not_told(budgets.advised, budgets.on),
        coverage=" ".join(filter(None, [*there, *copies(whole.rows, sources.manifest)])),
        summary=found.summary,
        priced=budgets.priced,
        anytime=found.anytime,
        headline=headline(found.problems, found.summary, found.anytime, found.trainings),
        claims=claims,
        tables=_tables(sources, found, budgets),
        figures=_figures(sources, found, budgets, directory),
    )


def _whole(sources: ReportSources) -> tuple[pl.DataFrame, Whole]:
    """The requested rows, and their complete samples."""
    # The text of solutions is read in pieces, and only to tell the responses apart.
    kinds = response_kind().alias("kind"), is_cut().alias("cut")
    place = sources.provenance.get("table", "the table")
    rows = checked_rows(sources.rows, (*READ, *kinds), place, sources.manifest, sources.problems)
    whole = whole_samples(rows, sources.asked.num_problems if sources.asked else None)
    if whole.rows.is_empty():
        raise UserError(
            f"{place}: no cell has a sample of every problem yet, and problems that end first are not like the others: "
            "nothing can be reported before the sweep is further (elastic status says how far it is)"
        )
    return rows, whole


def _figures(sources: ReportSources, found: ReportData, budgets: _Budgets, directory: Path) -> list[ReportFigure]:
    colours = model_colours([*found.summary["model"], *found.trainings])
    sheet = Sheet(directory / FIGURES, colours, strategy_styles(found.beside["strategy"]))
    star = found.trainings[TRAINED].fixed_budget if TRAINED in found.trainings else None
    figures = [
        accuracy.accuracy_vs_tokens(found.beside, sheet, star, found.theirs),
        accuracy.accuracy_vs_budget(found.summary, sheet, star),
        accuracy.pareto_frontier(budgets.priced, budgets.chosen, sheet, budgets.unit),
        accuracy.stop_frontier(budgets.stopping, sheet, budgets.unit),
        found.of_pairs(differences.paired(found.by_model, sheet, "model", found.first_model), found.by_model),
        differences.paired(found.by_strategy, sheet, "strategy", found.first_strategy),
        accuracy.training_ablation(found.summary, sheet, found.trainings),
        training.training_curves(sources.trainings, sheet),
        tokens.tokens_by_phase(found.rows, sheet, SERVED),
        accuracy.forced_vs_accuracy(found.summary, sheet),
        differences.marginal(found.gains, sheet),
        tokens.thinking_spent(found.spent, sheet, SERVED),
        tokens.sufficient_budgets(found.spent, sheet),
    ]
    return [figure for figure in figures if figure is not None]


def _tables(sources: ReportSources, found: ReportData, budgets: _Budgets) -> list[ReportTable]:
    unit, distribution = budgets.unit, sources.parameters.distribution
    at_any = anytime_differences(found.problems, found.pairs, distribution)
    between_strategies = area_differences(found.rows, "strategy", found.first_strategy)
    between_models = area_differences(found.rows, "model", found.first_model)
    tables = [
        comparisons.model_comparison(found.summary, sources.ratings, found.theirs),
        comparisons.as_published(published_differences(found.problems), found.summary),
        budget_tables.under_limit(budgets.under, unit),
        budget_tables.within_points(budgets.within, unit),
        budget_tables.advice(budgets.chosen, budgets.costs[unit], unit),
        cost_tables.frontier(budgets.priced, budgets.chosen, unit),
        cost_tables.stop_rules(budgets.stopping, unit),
        budget_tables.falls(found.hurt),
        budget_tables.anytime(found.anytime, distribution),
        found.of_pairs(budget_tables.anytime_compared(at_any, distribution), at_any),
        found.of_pairs(comparisons.paired(found.by_model, "model", found.first_model), found.by_model),
        comparisons.paired(found.by_strategy, "strategy", found.first_strategy),
        comparisons.parallel(found.beside, sources.parameters.parallel),
        found.of_pairs(comparisons.equal_tokens(between_strategies, between_models), between_models),
        comparisons.variance(found.rows, BASE),
        comparisons.templates(found.by_strategy, found.summary),
        comparisons.trainings_side_by_side(found.summary, found.trainings, found.theirs),
        comparisons.swap_ablation(found.summary, found.theirs),
        budget_tables.thinking(found.spent),
        budget_tables.responses(response_kinds(found.rows)),
        budget_tables.marginal(found.gains),
        cost_tables.costs(found.summary, budgets.models, budgets.costs),
    ]
    return [table for table in tables if table is not None]
