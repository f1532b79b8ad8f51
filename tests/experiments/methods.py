"""The comparison of docs/methods.md: keep the scores of its sweep; put its table and its picture into the page.

    elastic run ablation --preset tests/experiments/miniature-methods.toml --set 'train.seeds=[0]'   # then [0,1] …
    python -m tests.experiments.methods --keep    # scores of the newest sweep, to tests/experiments/methods/
    python -m tests.experiments.methods --write   # table and picture of what is there

A sweep of one seed names no seeds: its trainings are those of seed 0.
"""

from __future__ import annotations

import re
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from elastic_core.statistics.accuracy import mean_score
from elastic_core.statistics.budgets import anytime_accuracy, differences_together, trapezoid_weights
from elastic_core.statistics.estimates import TRAIN_SEED, mean_tokens, problem_table, seeds_as_one
from elastic_core.sweep.table import SweepTable
from elastic_core.system.files import replacing
from flows.runtime.environment import runs_directory
from tasks.records.stage_directory import TABLE
from tests.pictures import redraw

SCORES = Path(__file__).with_suffix("") / "scores.parquet"
PAGE, FIGURE = (Path(__file__).parents[2] / "docs" / f"methods.{suffix}" for suffix in ("md", "png"))
HEADING = "| training | seeds | anytime accuracy | over E1 | no budget | tokens without | ended at 48 | cut at 48 |"
BASELINE = "e1"
CELL = ["model", "benchmark", "problem", "strategy", "think_budget"]
BUDGETS = (12, 24, 48, 72, 96, 144, 192)


def keep() -> None:
    """Counts of every cell and problem of the newest sweep: samples, right ones, tokens, solutions that the model
    ended, and thoughts that a budget cut. They replace those kept of the same trainings; others stay, so that a
    machine may measure some of the methods or seeds."""
    tables = (runs_directory() / "miniature-methods").glob(f"sweep/*/{TABLE}")
    rows = SweepTable(max(tables, key=lambda table: table.stat().st_mtime)).read()
    unseeded = ~pl.col("model").str.contains("@") & (pl.col("model") != "base")
    rows = rows.with_columns(model=pl.when(unseeded).then(pl.col("model") + "@0").otherwise("model"))
    counts = rows.group_by(CELL).agg(
        samples=pl.len().cast(pl.UInt16),
        right=pl.col("score").sum().cast(pl.UInt16),
        tokens=(pl.col("think_tokens") + pl.col("solution_tokens")).sum().cast(pl.UInt32),
        ended=(pl.col("solution_finish") == "stop").sum().cast(pl.UInt16),
        cut=(pl.col("think_finish") == "forced").sum().cast(pl.UInt16),
    )
    SCORES.parent.mkdir(exist_ok=True)
    if SCORES.exists():
        measured = counts["model"].unique().implode()
        counts = pl.concat([pl.read_parquet(SCORES).filter(~pl.col("model").is_in(measured)), counts])
    with replacing(SCORES) as temporary:
        counts.sort(CELL).write_parquet(temporary, compression="zstd")


def scores() -> pl.DataFrame:
    """Means of every model, seed, problem and cell, both levels as one benchmark."""
    found = pl.read_parquet(SCORES).with_columns(
        problem=pl.concat_str("benchmark", "problem", separator="/"),
        benchmark=pl.lit("both"),
        solution_budget=pl.when(pl.col("strategy") == "separate").then(32).cast(pl.Int64),
        score=pl.col("right") / pl.col("samples"),
        **{name: pl.col(name) / pl.col("samples") for name in ("tokens", "ended", "cut")},
    )
    return seeds_as_one(found)


def table(rows: pl.DataFrame) -> list[str]:
    """Lines of anytime accuracy, the difference from E1 with intervals that hold together, and the secondary
    figures."""
    by = ["model", "benchmark", "strategy", "think_budget", "solution_budget"]
    separate, free = rows.filter(strategy="separate"), rows.filter(strategy="unconstrained")
    arms = [model for model in rows["model"].unique().sort() if model not in ("base", BASELINE)]
    pairs = [(_areas(separate.filter(model=arm)), _areas(separate.filter(model=BASELINE))) for arm in arms]
    over = dict(zip(arms, differences_together(pairs), strict=True))
    anytime = anytime_accuracy(problem_table(separate, ["score"], by)).sort("anytime", descending=True)
    lines = [HEADING, "|---" * 8 + "|"]
    for found in anytime.iter_rows(named=True):
        model = found["model"]
        seeds = sorted(separate.filter(model=model)[TRAIN_SEED].drop_nulls().unique())
        cells = [model, ", ".join(map(str, seeds))]
        cells.append(_percent((found["anytime"], found["anytime_low"], found["anytime_high"])))
        cells.append(_percent(over[model], "+") if model in over else "")
        unlimited = problem_table(free.filter(model=model), ["score", "tokens"])
        cells.append(_percent(mean_score(unlimited)))
        cells.append("{:.0f} [{:.0f}, {:.0f}]".format(*mean_tokens(unlimited, "tokens")[:3]))
        hard = separate.filter(model=model, think_budget=48)
        cells += [_percent(mean_score(problem_table(hard, [name]), name)) for name in ("ended", "cut")]
        lines.append(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |"))
    return lines


def rank_stability(rows: pl.DataFrame) -> list[str]:
    """Kendall's tau between the orders of the trained models by anytime accuracy, of each pair of seeds, a
    line each."""
    separate = rows.filter(pl.col("model") != "base", strategy="separate")
    areas = _by_problem(separate).group_by("model", TRAIN_SEED).agg(pl.col("score").mean())
    lines = []
    for a, b in combinations(sorted(areas[TRAIN_SEED].unique()), 2):
        both = areas.filter(pl.col(TRAIN_SEED) == a).join(areas.filter(pl.col(TRAIN_SEED) == b), on="model")
        pairs = combinations(both.select("score", "score_right").rows(), 2)
        signs = [np.sign((x - y) * (u - v)) for (x, u), (y, v) in pairs]
        lines.append(f"- Seeds {a} and {b}: tau {np.mean(signs):+.2f} over {both.height} trainings.")
    return lines


def page_with_results(text: str) -> str:
    """The page with the table and the lines on rank stability replaced."""
    rows = scores()
    found = "\n".join([*table(rows), "", *rank_stability(rows)]).rstrip() + "\n"
    text, number = re.subn(
        rf"^{re.escape(HEADING)}\n(?:\|.*\n)+(?:\n(?:- Seeds .*\n)+)?", lambda _: found, text, flags=re.M
    )
    assert number == 1, f"{number} tables with the heading {HEADING}"
    return text


def draw(target: Path) -> None:
    """Accuracy over mean tokens of each method, in a panel of its own beside base and E1."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    separate = scores().filter(strategy="separate")
    means = separate.group_by("model", "think_budget").agg(pl.col("score", "tokens").mean()).sort("think_budget")
    arms = sorted(set(means["model"]) - {"base", BASELINE})
    across = 4
    figure = Figure(figsize=(10, 2.3 * -(-len(arms) // across)), layout="constrained")
    places = list(figure.subplots(-(-len(arms) // across), across, sharex=True, sharey=True, squeeze=False).flat)
    for axes in places[len(arms) :]:
        axes.set_visible(False)
    for axes, arm in zip(places, arms, strict=False):
        for model, style in (("base", "k:"), (BASELINE, "C0o-"), (arm, "C1s-")):
            line = means.filter(model=model)
            axes.plot(line["tokens"], 100 * line["score"], style, ms=3, lw=1.2, label={arm: "method"}.get(model, model))
        axes.set_title(arm, fontsize=9)
        axes.set_ylim(-3, 103)
    figure.supxlabel("mean tokens sampled", fontsize=9)
    figure.supylabel("accuracy (%)", fontsize=9)
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, fontsize=8)
    figure.set_dpi(110)
    FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})


def _areas(separate: pl.DataFrame) -> pl.DataFrame:
    return problem_table(_by_problem(separate), ["score"])


def _by_problem(separate: pl.DataFrame) -> pl.DataFrame:
    """Anytime accuracy of each model, seed and problem."""
    weights = dict(zip(BUDGETS, trapezoid_weights(BUDGETS, "log-uniform"), strict=True))
    weight = pl.col("think_budget").replace_strict(weights, return_dtype=pl.Float64)
    cells = separate.filter(pl.col("think_budget").is_in(BUDGETS)).with_columns(pl.col("score") * weight)
    return cells.group_by("model", TRAIN_SEED, "problem").agg(pl.col("score").sum().clip(0, 1))


def _percent(estimate: tuple[float, ...], sign: str = "") -> str:
    mean, low, high = estimate[:3]
    return f"{100 * mean:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


if __name__ == "__main__":
    if "--keep" in sys.argv:
        keep()
    if "--write" in sys.argv:
        PAGE.write_text(page_with_results(PAGE.read_text()))
        redraw(draw, SCORES, FIGURE)
