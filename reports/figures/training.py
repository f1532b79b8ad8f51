"""What training moved, over its steps (Elastic Reasoning, Figure 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from elastic_core.statistics.estimates import without_seed
from reports import figures as plot
from reports.content import ReportFigure, Training
from reports.wording import plural

SMOOTHING_STEPS = 5
VALIDATION = re.compile(r"val-core/(.+)/acc/mean(?:@|_at_)(\d+)")
"""verl's avg@k of a validation set: its name, and k."""
SERIES = (
    ("validation accuracy (avg@k)", VALIDATION, "validation"),
    ("mean reward", re.compile(r"critic/score/mean"), "reward"),
    ("tokens per response", re.compile(r"response_length/mean"), "response"),
    ("tokens per response", re.compile(r"rollout/think_tokens"), "thinking"),
    ("tokens per response", re.compile(r"rollout/solution_tokens"), "solution"),
    ("fraction not ended by the model", re.compile(r"rollout/forced"), "thinking"),
    ("fraction not ended by the model", re.compile(r"rollout/solution_cut"), "solution"),
)
"""Panel, metric and series, in the order of the figure. `rollout/*` are ours; the other metrics are verl's."""
STYLES = {"validation": "-", "reward": "-", "response": "-", "thinking": "--", "solution": ":"}


def training_curves(trainings: Mapping[str, Training], sheet: plot.Sheet) -> ReportFigure | None:
    """Validation accuracy, reward and lengths over the steps of every training, a colour each. None when no training
    left a metric that is known here."""
    from matplotlib.lines import Line2D

    data = _data(trainings)
    if data.is_empty():
        return None
    steps = data["step"].unique().sort().to_list()
    counts = data.group_by("model", maintain_order=True).agg(pl.col("seed").n_unique()).filter(pl.col("seed") > 1)
    several = ", ".join(f"{model}: {count}" for model, count in counts.iter_rows())
    words = {"smoothing": SMOOTHING_STEPS, "seeds": several, "validated": _validated(data, trainings)}
    target = plot.figure_files(sheet, "training_curves", steps=sum(step > 0 for step in steps), **words)
    panels = data["panel"].unique(maintain_order=True).to_list()
    with plot.figure_of(len(panels), min(len(panels), 2), target, data, sharey=False) as (figure, places):
        for axes, panel in zip(places, panels, strict=True):
            lines = data.filter(panel=panel).partition_by("model", "series", "name", as_dict=True, maintain_order=True)
            for (model, series, _), points in lines.items():
                style: dict[str, Any] = {"ls": STYLES[str(series)], "color": sheet.colours[str(model)]}
                dots: dict[str, Any] = {"marker": "o", "ms": 3} if series == "validation" else {"lw": 1.3}
                window = 1 if series == "validation" else SMOOTHING_STEPS
                of_seeds = points.partition_by("seed")
                for seed in of_seeds if len(of_seeds) > 1 or window > 1 else []:
                    shown = _smooth(seed, window) if len(of_seeds) > 1 else seed
                    axes.plot(shown["step"], shown["value"], lw=0.5, alpha=0.4, **style)
                trend = _smooth(points.group_by("step").agg(pl.col("value").mean()).sort("step"), window)
                axes.plot(trend["step"], trend["value"], **style, **dots)
            axes.set_title(panel)
            axes.set_xlabel("training step")
            axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
            axes.set_xlim(steps[0] - 0.5, steps[-1] + 0.5)
            if axes.dataLim.ymin >= 0:
                axes.set_ylim(bottom=0)
        # Colour is the model, line style the phase.
        models = data["model"].unique(maintain_order=True)
        phases = [name for name in ("response", "thinking", "solution") if name in data["series"]]
        legend = {model: Line2D([], [], color=sheet.colours[model]) for model in models}
        legend |= {phase: Line2D([], [], color=plot.INK, ls=STYLES[phase]) for phase in phases}
        plot.legend_below(figure, legend)
    return target


def _validated(data: pl.DataFrame, trainings: Mapping[str, Training]) -> str:
    """The sentence of the caption on the dots: data sets, problems and samples."""
    dots = data.filter(series="validation")
    if dots.is_empty():
        return ""
    found = [match for name in dots["name"].unique() if (match := VALIDATION.fullmatch(name))]
    drawn = [training for name, training in trainings.items() if without_seed(name)[0] in dots["model"]]
    problems = sorted({count for training in drawn if (count := training.num_validation)})
    samples = sorted({int(match[2]) for match in found})
    counts = " or ".join(map(str, problems)) or "an unknown number of"
    first = "at step 0 of the initial model" if 0 in dots["step"] else "the initial model was not validated"
    sizes = f"{plural(counts, 'problem')} × {plural(' or '.join(map(str, samples)), 'sample')}"
    return f" Dots: validation on {', '.join(sorted({match[1] for match in found}))}, {sizes}; {first}; no intervals."


def _smooth(points: pl.DataFrame, window: int) -> pl.DataFrame:
    """The centred mean over a window of steps."""
    return points.with_columns(pl.col("value").rolling_mean(window, min_samples=1, center=True))


def _data(trainings: Mapping[str, Training]) -> pl.DataFrame:
    """Columns: panel, series, model, seed (null: there is one), name, step, value; in the order of SERIES."""
    schema = {"panel": pl.String, "series": pl.String, "model": pl.String, "seed": pl.Int64, "name": pl.String}
    parts = [pl.DataFrame(schema=schema | {"step": pl.Int64, "value": pl.Float64})]
    for panel, metric, series in SERIES:
        for called, training in trainings.items():
            if training.metrics is None:
                continue
            model, seed = without_seed(called)
            known = [name for name in training.metrics["name"].unique() if metric.fullmatch(name)]
            texts = {"panel": pl.lit(panel), "series": pl.lit(series), "model": pl.lit(model)}
            found = training.metrics.filter(pl.col("name").is_in(known)).sort("name", "step")
            step = pl.col("step").cast(pl.Int64)
            parts.append(found.select(**texts, seed=pl.lit(seed, pl.Int64), name="name", step=step, value="value"))
    return pl.concat(parts)
