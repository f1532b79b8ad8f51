"""The report of one trajectory table: what it shows, and every file, each written whole or not at all."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.errors import UserError
from elastic_core.statistics.accuracy import paired_differences
from elastic_core.statistics.at_k import Parallel, parallel_problems
from elastic_core.statistics.budgets import anytime_accuracy, anytime_differences, falls, marginal_accuracy
from elastic_core.statistics.cost import best_under
from elastic_core.statistics.curves import area_differences
from elastic_core.statistics.responses import is_cut, response_kind, response_kinds, thinking_spent
from elastic_core.statistics.seeds import seeds_as_one, without_seed
from elastic_core.statistics.which_budget import advised_budgets, budget_advice, cheapest_within, choose_budgets
from elastic_core.sweep.sound import check_rows, whole_samples
from elastic_core.system.files import replacing, write_csv, write_text
from reports.advice import guesses, main_model, more_tokens_hurt, not_told, settings
from reports.claims import evaluate_claims, pairs_to_compare
from reports.content import ReportContent, ReportSources, ReportTable, Verdict
from reports.figures import Sheet, accuracy, differences, tokens, training
from reports.figures.styles import model_colours, strategy_styles
from reports.markdown import render_markdown
from reports.page import write_page
from reports.published import published
from reports.summary import (
    BASE,
    SEPARATE,
    TRAINED,
    VANILLA,
    cell_problems,
    headline,
    report_rows,
    summarize_problems,
    write_summary_json,
)
from reports.tables import budgets as budget_tables
from reports.tables import comparisons
from reports.tables import costs as cost_tables
from reports.verdict import brief, coverage, cut_short, left_out, readable, verdict
from reports.wording import ordered

FIGURES, TABLES = "figures", "tables"
"""Directories of a report."""
FILES = "files.json"
"""What a report wrote, by which the next one knows what to replace."""
_WRITTEN = re.compile(rf"report\.md|report\.html|summary\.json|({FIGURES}|{TABLES})/\w+\.(png|svg|csv)")
"""Names of a report's files. The list may be anyone's, and what else it names is not removed."""
_UNREAD = "needs answers that the grader can read"


def build_report(sources: ReportSources, directory: Path) -> ReportContent:
    """Write report.md, report.html, summary.json, figures and tables to `directory`; an earlier report there is
    replaced.

    A figure or table whose cells the trajectory table lacks is left out.

    Raises:
        UserError: when rows break a rule of the table, no cell has a sample of every problem, or the list of an earlier
            report there is none; then nothing is written.
    """
    earlier = _earlier(directory)
    content = _collect(sources, directory)
    for table in content.tables:
        with replacing(table_file(directory, table)) as temporary:
            write_csv(table.frame, temporary, float_precision=4)
    write_summary_json(content.summary, content.anytime, sources.ratings, directory / "summary.json")
    write_text(directory / "report.md", render_markdown(content))
    write_page(content, directory / "report.html")
    _replace_earlier(content, earlier)
    return content


def files_of(content: ReportContent) -> list[Path]:
    """Every file of a report."""
    figures = [file for figure in content.figures for file in (figure.png, figure.svg, figure.data)]
    return [
        content.directory / "report.md",
        content.directory / "report.html",
        content.directory / "summary.json",
        *figures,
        *(table_file(content.directory, table) for table in content.tables),
    ]


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
    if not isinstance(name, str) or not _WRITTEN.fullmatch(name):
        return False
    # A folder of the report may be a link to one of the user's.
    return (directory / name).parent.resolve().is_relative_to(directory.resolve())


def _replace_earlier(content: ReportContent, earlier: list[str]) -> None:
    """Remove what an earlier report wrote here and this one did not: a figure that is no longer true. The directory may
    hold the user's own files too."""
    listing = content.directory / FILES
    written = [file.relative_to(content.directory).as_posix() for file in files_of(content)]
    for name in set(earlier) - set(written):
        (content.directory / name).unlink(missing_ok=True)
    write_text(listing, json.dumps(written, indent=1) + "\n")


def _with_parallel(summary: pl.DataFrame, problems: pl.DataFrame, rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Cells of thinking in parallel beside all others. Each rests on all rows of a cell of separate budgeting."""
    found = summarize_problems(parallel_problems(rows, problems, [Parallel.parse(name) for name in names]))
    place = ["model", "benchmark"]
    counts = summary.filter(strategy=SEPARATE).group_by(place).agg(pl.col("num_trajectories").max())
    found = found.drop("num_trajectories").join(counts, on=place).select(summary.columns)
    return pl.concat([summary, found])


def _collect(sources: ReportSources, directory: Path) -> ReportContent:
    # The text of solutions is read in pieces, and only to tell the responses apart.
    told = response_kind().alias("kind"), is_cut().alias("cut")
    asked_for = report_rows(sources.rows, *told).collect(engine="streaming")
    place = sources.provenance.get("table", "the table")
    check_rows(asked_for, place)
    whole = whole_samples(asked_for, sources.asked.num_problems if sources.asked else None)
    if whole.rows.is_empty():
        raise UserError(
            f"{place}: no cell has a sample of every problem yet, and problems that end first are not like the others: "
            "nothing can be reported before the sweep is further (elastic sweep status says how far it is)"
        )
    rows = seeds_as_one(whole.rows)
    # Seeds of one training differ in what it went through, not in what it is.
    trainings = {
        without_seed(name)[0]: replace(training, base=training.base and without_seed(training.base)[0])
        for name, training in sources.trainings.items()
    }
    star = trainings[TRAINED].fixed_budget if TRAINED in trainings else None
    problems = cell_problems(rows)
    summary = summarize_problems(problems)
    beside = _with_parallel(summary, problems, rows, sources.parameters.parallel)
    responses = readable(asked_for)
    pairs = pairs_to_compare(rows, sources.parameters.pairs)
    claims = evaluate_claims(rows, trainings, sources.parameters.expectations, pairs)
    if all(each.num_answered == 0 for each in responses):
        claims = [claim._replace(verdict=Verdict.NOT_MEASURED, evidence=_UNREAD) for claim in claims]
    idle = [sentence for name, training in sources.trainings.items() if (sentence := training.idle(name))]
    theirs = published(summary["benchmark"].unique(), [*summary["model"].unique(), sources.preset])
    first_model, first_strategy = ordered(summary["model"], BASE)[0], ordered(summary["strategy"], VANILLA)[0]
    by_model = paired_differences(rows, "model", first_model)
    by_strategy = paired_differences(rows, "strategy", first_strategy)
    models = cost_tables.cost_models(sources.parameters, sources.latency, summary["model"].unique().sort())
    costs = cost_tables.costs_by_unit(rows, models)
    unit = cost_tables.MONEY if cost_tables.MONEY in models else cost_tables.TOKENS_PROCESSED
    margin, advised_on = sources.parameters.margin / 100, main_model(summary["model"])
    advised = budget_advice(problems, models[unit][first_model], margin)
    gains, spent, hurt = marginal_accuracy(problems), thinking_spent(rows), falls(problems)
    anytime = anytime_accuracy(problems, sources.parameters.distribution)
    guessed = guesses(sources.problems.values())
    choices = choose_budgets(advised, problems, guessed)
    priced, chosen = cost_tables.priced(summary, costs[unit]), advised_budgets(advised, choices)
    under, within = best_under(problems, models[unit]), cheapest_within(advised, problems, guessed)
    to_set = settings(choices, summary, advised_on, margin, unit)
    colours, styles = model_colours([*summary["model"], *trainings]), strategy_styles(beside["strategy"])
    drawn = Sheet(directory / FIGURES, colours, styles)
    figures = [
        accuracy.accuracy_vs_tokens(beside, drawn, star, theirs),
        accuracy.accuracy_vs_budget(summary, drawn, star),
        accuracy.pareto_frontier(priced, chosen, drawn, unit),
        differences.paired(by_model, drawn, "model", first_model),
        differences.paired(by_strategy, drawn, "strategy", first_strategy),
        accuracy.training_ablation(summary, drawn, trainings),
        training.training_curves(sources.trainings, drawn),
        tokens.tokens_by_phase(rows, drawn, SEPARATE),
        accuracy.forced_vs_accuracy(summary, drawn),
        differences.marginal(gains, drawn),
        tokens.thinking_spent(spent, drawn, SEPARATE),
        tokens.sufficient_budgets(spent, drawn),
    ]
    shown = [
        comparisons.model_comparison(summary, sources.ratings, theirs),
        budget_tables.under_limit(under, unit),
        budget_tables.within_points(within, unit),
        budget_tables.advice(chosen, costs[unit], unit),
        cost_tables.frontier(priced, chosen, unit),
        budget_tables.falls(hurt),
        budget_tables.anytime(anytime, sources.parameters.distribution),
        budget_tables.anytime_compared(
            anytime_differences(problems, pairs, sources.parameters.distribution), sources.parameters.distribution
        ),
        comparisons.paired(by_model, "model", first_model),
        comparisons.paired(by_strategy, "strategy", first_strategy),
        comparisons.parallel(beside, sources.parameters.parallel),
        comparisons.equal_tokens(
            area_differences(rows, "strategy", first_strategy), area_differences(rows, "model", first_model)
        ),
        comparisons.variance(rows, BASE),
        comparisons.templates(by_strategy, summary),
        comparisons.trainings_side_by_side(summary, trainings, theirs),
        comparisons.swap_ablation(summary, theirs),
        budget_tables.thinking(spent),
        budget_tables.responses(response_kinds(rows)),
        budget_tables.marginal(gains),
        cost_tables.costs(summary, models, costs),
    ]
    return ReportContent(
        sources=sources,
        directory=directory,
        brief=brief(problems, to_set, responses),
        settings=to_set,
        unit=unit,
        choices={
            benchmark: budget_tables.side_by_side(under, within, unit, benchmark, advised_on)
            for benchmark in summary.filter(model=advised_on)["benchmark"].unique().sort()
        },
        verdict=" ".join([*more_tokens_hurt(hurt), verdict(problems, claims, responses), *cut_short(rows), *idle]),
        advice=not_told(advised, advised_on),
        coverage=" ".join(filter(None, [coverage(asked_for, sources.asked), left_out(whole)])),
        summary=summary,
        priced=priced,
        anytime=anytime,
        headline=headline(problems, summary, anytime, trainings),
        claims=claims,
        tables=[table for table in shown if table is not None],
        figures=[figure for figure in figures if figure is not None],
    )
