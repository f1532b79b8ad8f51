"""The page: one HTML file with everything in it. It asks the network for nothing, and its policy forbids it to.

It holds all trajectories of a small table, and whole problems of a large one.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.atomic import write_text
from elastic_core.statistics.responses import sampled_tokens
from elastic_core.sweep.subset import problem_digest
from elastic_core.trajectory import BUDGET
from reports.content import ReportContent, ReportFigure
from reports.html.payload import PROBLEM, Problems, build_payload
from reports.summary import is_partial
from reports.tables import every_cell

TITLE = "Accuracy under a token budget"
_STYLE = "report.css"
_SCRIPTS = (
    "elements.js",
    "tables.js",
    "payload.js",
    "trajectories.js",
    "search.js",
    "text.js",
    "list.js",
    "detail.js",
    "reader.js",
)
"""Each may use what those before it define."""
_VERDICTS = {
    True: {"text": "holds", "style": "right"},
    False: {"text": "does not hold", "style": "wrong"},
    None: {"text": "not measured", "style": "unknown"},
}

MAX_TRAJECTORIES = 50_000
MAX_TOKENS = 30_000_000
"""Sampled tokens of all trajectories: what is in memory at a time is about 100 MB of text."""


def write_page(content: ReportContent, rows: pl.LazyFrame, problems: Problems, path: Path) -> None:
    """Write the report as one HTML file; an earlier one is replaced.

    Args:
        rows: the trajectory table that `content` is about; read twice, and never wholly in memory.
        problems: questions and reference answers that the reader shows, of problems where they are known.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawing = draw_problems(rows)
    payload = build_payload(rows, drawing.problems, problems)
    style, scripts = _asset(_STYLE), [_asset(name) for name in _SCRIPTS]
    page = environment.get_template("report.html.j2").render(
        title=TITLE,
        policy=_policy(style, scripts),
        style=style,
        scripts=scripts,
        content=content,
        verdicts=_VERDICTS,
        totals=_totals(content.summary),
        figures=[_figure(figure, content.directory) for figure in content.figures],
        tables=[*content.tables, every_cell(content.summary)],
        partial=is_partial(content.summary),
        remarks=[(name, _html(remark)) for name, remark in content.remarks.items()],
        provenance=[(name, _pairs(value)) for name, value in content.provenance.items()],
        documents=[
            (name, json.dumps(value, indent=2, ensure_ascii=False)) for name, value in content.documents.items()
        ],
        held=drawing.note(len(payload.chunks), payload.num_trajectories),
        payload=payload,
    )
    write_text(path, page)


@dataclass(frozen=True)
class Drawing:
    """Problems in the order in which the page takes them, as long as it has room.

    Attributes:
        problems: columns benchmark, problem, and turn: 1 for the first of its benchmark, and so on.
        num_problems: of the whole table.
        num_trajectories: of the whole table.
    """

    problems: pl.DataFrame
    num_problems: int
    num_trajectories: int

    def note(self, num_problems: int, num_trajectories: int) -> str:
        """What of the table is held, as a sentence."""
        if num_problems == self.num_problems:
            return f"Holds all {num_trajectories:,} trajectories of {num_problems:,} problems."
        return (
            f"Shows {num_trajectories:,} of {self.num_trajectories:,} trajectories: every one of {num_problems:,} of "
            f"the {self.num_problems:,} problems, drawn by a hash of their names and not by their results. Figures and "
            "tables are of all trajectories."
        )


def draw_problems(
    rows: pl.LazyFrame, max_trajectories: int = MAX_TRAJECTORIES, max_tokens: int = MAX_TOKENS
) -> Drawing:
    """All problems, or as many as keep both limits, the benchmarks in turn and at least one of each.

    The order within a benchmark is that of a hash of the problem's name: the same in every report, and blind to what
    became of the problem.
    """
    sizes = (
        rows.group_by(PROBLEM)
        .agg(pl.len().alias("trajectories"), sampled_tokens().cast(pl.Int64).sum().alias("tokens"))
        .collect(engine="streaming")
    )
    digests = pl.Series([problem_digest(*names) for names in sizes.select(PROBLEM).iter_rows()], dtype=pl.String)
    drawn = (
        sizes.with_columns(digest=digests)
        .sort("digest")
        .with_columns(turn=pl.int_range(1, pl.len() + 1).over("benchmark"))
        .sort("turn", "benchmark")
    )
    fits = (pl.col("trajectories").cum_sum() <= max_trajectories) & (pl.col("tokens").cum_sum() <= max_tokens)
    shown = drawn.filter(fits | (pl.col("turn") == 1)).select(*PROBLEM, "turn")
    return Drawing(shown, sizes.height, int(sizes["trajectories"].sum()))


def _asset(name: str) -> str:
    return (files("reports") / "assets" / name).read_text(encoding="utf-8")


def _policy(style: str, scripts: Iterable[str]) -> str:
    """Nothing but the page's own style, scripts and pictures: what slipped through escaping could still not run."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {' '.join(map(_digest, scripts))}; base-uri 'none'; form-action 'none'"
    )


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _totals(summary: pl.DataFrame) -> list[tuple[str, str]]:
    counts = {
        ("trajectory", "trajectories"): summary["num_trajectories"].sum(),
        ("benchmark", "benchmarks"): summary.n_unique("benchmark"),
        ("model", "models"): summary.n_unique("model"),
        ("strategy", "strategies"): summary.n_unique("strategy"),
        ("budget", "budgets"): summary.n_unique(BUDGET),
    }
    return [(one if count == 1 else many, f"{count:,}") for (one, many), count in counts.items()]


def _figure(figure: ReportFigure, directory: Path) -> dict[str, str]:
    """The smaller of its files, as an address that holds it."""
    file = min(figure.svg, figure.png, key=lambda file: file.stat().st_size)
    kind = {".svg": "image/svg+xml", ".png": "image/png"}[file.suffix]
    return {
        "title": figure.title,
        "caption": figure.caption,
        "source": f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}",
        "file": str(figure.data.relative_to(directory)),
    }


def _html(markdown: str) -> str:
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))


def _pairs(value: Any) -> str:
    """A value of the provenance on one line."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_pairs(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_pairs, value))
    return str(value)
