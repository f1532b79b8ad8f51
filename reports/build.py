"""The report of one run, from its trajectory table: every file, each written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from elastic_core.atomic import replacing
from elastic_core.budget import Budget
from reports.claims import evaluate_claims
from reports.figures import accuracy_vs_budget, accuracy_vs_tokens, tokens_by_phase, training_curve
from reports.markdown import render_markdown
from reports.summary import COLUMNS, summarize, write_summary_json


class ReportFiles(NamedTuple):
    """Where the report lies. `training_curve` and `tokens_by_phase` are None where there was nothing to draw."""

    summary: Path
    markdown: Path
    accuracy_vs_tokens: Path
    accuracy_vs_budget: Path
    tokens_by_phase: Path | None
    training_curve: Path | None


def build_report(
    rows: pl.DataFrame | pl.LazyFrame,
    training_metrics: pl.DataFrame | None,
    out_dir: Path,
    provenance: dict[str, Any],
    trained_budget: Budget | None,
    remarks: Mapping[str, str] | None = None,
) -> ReportFiles:
    """Write summary.json, report.md and the figures to `out_dir`; files of an earlier report are replaced.

    Args:
        rows: the trajectory table (elastic_core.trajectory.SCHEMA); its models are named "base" and "trained" where
            the two are to be compared.
        training_metrics: columns step, name, value (see reports.figures.TRAINING_PANELS); None without training.
        provenance: shown as given. Suggested: preset, date, machine, models with fingerprints, seed, packages,
            command.
        trained_budget: (t*, s*) of training, marked in the figures and needed by one claim.
        remarks: Markdown for the part of a benchmark, by its name.

    Raises:
        ValueError: as `summarize` and `training_curve`.
    """
    rows = rows.lazy().select(COLUMNS).collect()
    summary = summarize(rows)
    separate = not rows.filter(strategy="separate").is_empty()
    files = ReportFiles(
        summary=out_dir / "summary.json",
        markdown=out_dir / "report.md",
        accuracy_vs_tokens=out_dir / "accuracy_vs_tokens.png",
        accuracy_vs_budget=out_dir / "accuracy_vs_budget.png",
        tokens_by_phase=_wanted(out_dir / "tokens_by_phase.png", separate),
        training_curve=_wanted(out_dir / "training_curve.png", training_metrics is not None),
    )
    accuracy_vs_tokens(summary, files.accuracy_vs_tokens, trained_budget)
    accuracy_vs_budget(summary, files.accuracy_vs_budget, trained_budget)
    figures = {
        "Accuracy over tokens spent": files.accuracy_vs_tokens,
        "Accuracy by thinking budget": files.accuracy_vs_budget,
    }
    if files.tokens_by_phase is not None:
        tokens_by_phase(rows, files.tokens_by_phase, "separate")
        figures["Tokens by phase"] = files.tokens_by_phase
    if training_metrics is not None and files.training_curve is not None:
        training_curve(training_metrics, files.training_curve)
        figures["Training curve"] = files.training_curve
    text = render_markdown(summary, evaluate_claims(rows, trained_budget), figures, provenance, remarks or {})
    write_summary_json(summary, files.summary)
    with replacing(files.markdown) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return files


def _wanted(path: Path, wanted: bool) -> Path | None:
    """`path`, or None and no stale file of an earlier report."""
    if wanted:
        return path
    path.unlink(missing_ok=True)
    return None
