"""Figures of whole, partial and single-cell tables. What they look like is for eyes; that they say what they show, and
that their data is what was measured, for tests."""

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.statistics.accuracy import paired_differences
from elastic_core.statistics.responses import thinking_spent
from elastic_core.strategies import STRATEGIES
from reports.content import Training
from reports.figures import (
    COLOURS,
    NUM_COLOURS,
    Sheet,
    accuracy,
    differences,
    lines_of,
    model_colours,
    strategy_styles,
    tokens,
    training,
)
from reports.summary import summarize
from reports.tables import PUBLISHED, published
from tests.unit.test_report_summary import make_rows

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
PNG = b"\x89PNG\r\n\x1a\n"
NOTHING = PUBLISHED.to_frame()
METRICS = pl.DataFrame(
    [
        {"step": step, "name": name, "value": step / 10}
        for step in range(8)
        for name in ("critic/score/mean", "rollout/think_tokens", "val-core/miniature/acc/mean_at_1", "actor/lr")
    ]
)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text of the figures that are written, lines joined, in no order."""
    found: list[str] = []
    write = FigureCanvasAgg.print_png

    def noted(canvas: FigureCanvasAgg, *args: Any, **kwargs: Any) -> None:
        found.extend(text.get_text().replace("\n", " ") for text in canvas.figure.findobj(Text))
        write(canvas, *args, **kwargs)

    monkeypatch.setattr(FigureCanvasAgg, "print_png", noted)
    return found


def sheet(directory: Path, rows: pl.DataFrame, trainings: Mapping[str, Training] | None = None) -> Sheet:
    models = [*rows["model"], *(trainings or {})]
    return Sheet(directory, model_colours(models), strategy_styles(rows["strategy"]))


def trained(budget: str, base: str | None = "base", metrics: pl.DataFrame | None = None) -> Training:
    return Training(TrainingBudget.parse(budget), asks_length=False, base=base, metrics=metrics, num_validation=64)


TRAININGS = {"trained": trained("48+32", metrics=METRICS)}


TABLES = {
    "whole": {},
    "one cell": {"models": ["base"], "benchmarks": ["hard"], "strategies": ["separate"], "budgets": [16]},
    "unlimited only": {"strategies": ["unconstrained"]},
    "another model": {"models": ["base", "other"], "strategies": ["separate", "another"]},
    "many models": {"models": list("abcde"), "budgets": [0, 48]},
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_accuracy_of_any_table_is_drawn(table: dict[str, list[str]], tmp_path: Path) -> None:
    rows = make_rows(num_problems=3, num_samples=2, **table)
    summary = summarize(rows)
    first = accuracy.accuracy_vs_tokens(summary, sheet(tmp_path, rows), Budget(48, 32), NOTHING)
    strategies = accuracy.strategies_vs_tokens(summary, sheet(tmp_path, rows))
    for figure in (first, accuracy.accuracy_vs_budget(summary, sheet(tmp_path, rows), Budget(48, 32))):
        assert figure.png.read_bytes().startswith(PNG)
        assert figure.svg.read_text().startswith("<?xml")
    # What the first figure leaves out is in that of the strategies.
    assert set(pl.read_csv((strategies or first).data)["model"]) == set(rows["model"])


def test_a_figure_says_its_counts_and_its_lines_and_leaves_title_and_caption_to_the_text(
    texts: list[str], tmp_path: Path
) -> None:
    rows = make_rows(num_problems=5, num_samples=3)
    figure = accuracy.accuracy_vs_tokens(summarize(rows), sheet(tmp_path, rows), Budget(48, 32), NOTHING)
    assert "hard (5 problems × 3 samples)" in texts
    assert not {figure.title, figure.caption} & set(texts)
    assert "95 % intervals, clustered by problem" in figure.caption
    assert "48+32" in figure.caption
    tex = figure.tex.read_text()
    assert rf"\caption{{\textbf{{{figure.title}.}} {figure.caption.replace('%', chr(92) + '%')}}}" in tex
    assert r"\includegraphics{accuracy_vs_tokens.pdf}" in tex and r"\label{fig:accuracy_vs_tokens}" in tex


def test_the_first_figure_has_separate_and_vanilla_and_the_stars_and_another_one_every_strategy(
    texts: list[str], tmp_path: Path
) -> None:
    rows = make_rows(num_problems=3)
    first = accuracy.accuracy_vs_tokens(summarize(rows), sheet(tmp_path, rows), None, NOTHING)
    lines = {f"{model}, {name}" for model in ("base", "trained") for name in ("separate (s = 32)", "vanilla (s = 32)")}
    assert {text for text in texts if text.startswith(("base, ", "trained, "))} == lines | {
        "base, unconstrained",
        "trained, unconstrained",
    }
    assert "Drawn: separate and vanilla; the tables have the others." in first.caption
    others = accuracy.strategies_vs_tokens(summarize(rows), sheet(tmp_path, rows))
    assert others is not None and "trained, budget forcing (s = 32)" in texts
    assert pl.read_csv(others.data).select("model", "strategy").n_unique() == 2 * 4
    few = summarize(rows.filter(pl.col("strategy") != "budget_forcing"))
    assert accuracy.strategies_vs_tokens(few, sheet(tmp_path, rows)) is None


@pytest.mark.parametrize("is_apart", [True, False])
def test_a_line_has_its_label_beside_it_where_it_is_apart_and_else_in_the_legend(
    is_apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    write = FigureCanvasSVG.print_svg

    def kept(canvas: FigureCanvasSVG, *args: Any, **named: Any) -> None:
        drawn.append(canvas.figure)
        write(canvas, *args, **named)

    monkeypatch.setattr(FigureCanvasSVG, "print_svg", kept)
    rows = make_rows(benchmarks=["hard"], strategies=["separate", "unconstrained"], num_problems=5)
    cells = summarize(rows)
    accuracy.accuracy_vs_budget(cells if is_apart else cells.with_columns(avg_at_k=0.5), sheet(tmp_path, rows), None)
    (axes,), (legend,) = drawn[0].axes, drawn[0].legends
    for text, line in product(axes.texts, axes.lines):
        assert not text.get_window_extent().count_contains(axes.transData.transform(line.get_xydata()))
    beside = {text.get_text().replace("\n", " ") for text in axes.texts}
    lines = {f"{model}, separate (s = 32)" for model in ("base", "trained")}
    assert beside == (lines if is_apart else set())
    stars = {"base, unconstrained", "trained, unconstrained"}
    assert {text.get_text() for text in legend.get_texts()} == stars | lines - beside


def test_marks_of_models_differ_without_their_colours(tmp_path: Path) -> None:
    rows = make_rows(models=["base", "control", "trained"], strategies=["separate", "unconstrained"], num_problems=3)
    lines = lines_of(summarize(rows), sheet(tmp_path, rows))
    marks = {(line.dots["fillstyle"], line.dots["mfc"] == "white") for line in lines}
    assert len(marks) == 3 and {line.style.marker for line in lines} == {"o", "*"}


@pytest.mark.parametrize(("benchmarks", "inches"), [(["hard"], 3.25), (["easy", "hard"], 6.75)])
def test_a_figure_is_as_wide_as_a_column_or_both_with_text_as_text(
    benchmarks: list[str], inches: float, tmp_path: Path
) -> None:
    rows = make_rows(num_problems=3, benchmarks=benchmarks, strategies=["separate"])
    figure = accuracy.accuracy_vs_tokens(summarize(rows), sheet(tmp_path, rows), None, NOTHING)
    svg, pdf = figure.svg.read_text(), figure.pdf.read_bytes()
    assert f'width="{72 * inches:g}pt"' in svg and f"/MediaBox [ 0 0 {72 * inches:g} ".encode() in pdf
    assert re.search(r"font-size: 8px[^>]+>mean tokens sampled<", svg)
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf and b"Date" not in pdf
    assert figure.tex.read_text().startswith(r"\begin{figure*}" if inches > 4 else r"\begin{figure}")


def test_a_dollar_in_a_name_is_no_formula(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(num_problems=2, models=["base"]).with_columns(model=pl.lit("a$\\frac$b_{"))
    figure = accuracy.accuracy_vs_tokens(summarize(rows), sheet(tmp_path, rows), None, NOTHING)
    assert "a$\\frac$b_{, separate" in figure.svg.read_text()


def test_cells_of_a_half_done_sweep_are_marked_and_counted(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(benchmarks=["hard"], num_problems=5)
    half = rows.filter((pl.col("strategy") != "vanilla") | (pl.col("problem") < "003"))
    figure = accuracy.accuracy_vs_budget(summarize(half), sheet(tmp_path, rows), None)
    assert "hard (3 to 5 problems × 4 samples)" in texts
    assert "Crossed" in figure.caption
    assert "Crossed" not in accuracy.accuracy_vs_budget(summarize(rows), sheet(tmp_path, rows), None).caption


def test_of_many_models_one_strategy_is_drawn_and_the_caption_says_so(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(models=["base", "a", "b", "c"], budgets=[16, 48], num_problems=3)
    figure = accuracy.accuracy_vs_tokens(summarize(rows), sheet(tmp_path, rows), None, NOTHING)
    assert "Drawn: separate; the tables have the others." in figure.caption
    assert not any("vanilla" in text for text in texts)


def test_published_numbers_are_called_published_and_name_their_source(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(num_problems=3).with_columns(benchmark=pl.col("benchmark").replace({"hard": "aime-2024"}))
    theirs = published(["aime-2024", "easy"], ["E1-Math-1.5B"])
    figure = accuracy.accuracy_vs_tokens(summarize(rows), sheet(tmp_path, rows), None, theirs)
    assert "published: E1-Math-1.5B" in texts
    assert "not measured here" in figure.caption
    assert "Salesforce/E1-Math-1.5B, model card" in figure.caption
    data = pl.read_csv(figure.data)
    theirs = data.filter(pl.col("source") != "measured")
    assert theirs["source"].str.starts_with("published: ").all()
    assert (35.0 / 100, 6825) in theirs.select("avg_at_k", "tokens_mean").rows()


def test_equal_tables_make_equal_bytes(tmp_path: Path) -> None:
    rows = make_rows(num_problems=3, budgets=[0, 48])
    shuffled = rows.sample(fraction=1, shuffle=True, seed=1)
    figures = [
        accuracy.accuracy_vs_tokens(summarize(table), sheet(tmp_path / name, rows), None, NOTHING)
        for name, table in (("a", rows), ("b", shuffled))
    ]
    for first, second in zip(*(figure.files for figure in figures), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_trainings_stand_side_by_side_with_what_they_were_trained_under(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(models=["base", "t24", "t96", "t24>base"], strategies=["separate"], num_problems=3)
    trainings = {"t24": trained("24+32"), "t96": trained("24..96+32")}
    figure = accuracy.training_ablation(summarize(rows), sheet(tmp_path, rows), trainings)
    assert figure is not None
    assert "t24 under 24+32, t96 under 24..96+32" in figure.caption
    assert not any("t24>base" in text for text in texts)
    assert accuracy.training_ablation(summarize(rows), sheet(tmp_path, rows), {"t24": trained("24+32")}) is None


def test_tokens_by_phase_leaves_out_what_was_not_measured(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(num_problems=3).filter((pl.col("model") == "base") | (pl.col("benchmark") == "hard"))
    figure = tokens.tokens_by_phase(rows, sheet(tmp_path, rows), "separate")
    assert figure is not None
    assert "easy, base (3 problems × 4 samples)" in texts
    assert not any(text.startswith("easy, trained") for text in texts)
    cell = rows.filter(benchmark="hard", model="trained", strategy="separate", think_budget=48)
    data = pl.read_csv(figure.data).filter(benchmark="hard", model="trained", think_budget=48)
    assert data["thinking_med"].to_list() == [cell["think_tokens"].median()]
    assert tokens.tokens_by_phase(rows, sheet(tmp_path, rows), "beam") is None


def test_differences_are_those_of_the_statistics_and_none_without_a_pair(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(num_problems=4, budgets=[16, 48])
    paired = paired_differences(rows, "model", "base")
    figure = differences.paired(paired, sheet(tmp_path, rows), "model", "base")
    assert figure is not None
    assert "trained, separate (s = 32)" in texts
    drawn = pl.read_csv(figure.data)
    assert drawn["difference"].to_list() == pytest.approx(paired["difference"].to_list(), abs=1e-6)
    strategies = paired_differences(rows, "strategy", "vanilla")
    against_vanilla = differences.paired(strategies, sheet(tmp_path, rows), "strategy", "vanilla")
    assert against_vanilla is not None
    assert "Vanilla may think t + s tokens" in against_vanilla.caption
    assert 'the table "At equal tokens"' in against_vanilla.caption
    assert differences.paired(strategies, sheet(tmp_path, rows), "strategy", "beam") is None


def test_thinking_is_drawn_from_its_statistics(tmp_path: Path) -> None:
    rows = make_rows(num_problems=6, budgets=[0, 32, 96])
    spent, place = thinking_spent(rows), sheet(tmp_path, rows)
    figures = [tokens.thinking_spent(spent, place, "separate"), tokens.sufficient_budgets(spent, place)]
    assert all(figure is not None and figure.png.read_bytes().startswith(PNG) for figure in figures)
    nothing = thinking_spent(make_rows(models=["base"], strategies=["unconstrained"], num_problems=2))
    assert tokens.thinking_spent(nothing, place, "separate") is None
    assert tokens.sufficient_budgets(nothing, place) is None


def test_every_strategy_has_a_mark_of_its_own_wherever_it_is_drawn(tmp_path: Path) -> None:
    styles = strategy_styles(STRATEGIES)
    assert len({style.marker for style in styles.values()}) == len(STRATEGIES) == len(styles)
    assert strategy_styles(reversed(STRATEGIES)) == styles
    rows = make_rows(strategies=["separate", "reasonflux_zero", "unconstrained", "another"], num_problems=3)
    pairs = paired_differences(rows, "model", "base").rename({"second": "model"})
    lines = lines_of(pairs, sheet(tmp_path, rows))
    assert len({line.style.marker for line in lines}) == 4


@pytest.mark.parametrize("name", ["thinking_spent", "sufficient_budgets"])
def test_responses_without_a_budget_are_called_so_in_the_data_of_every_ladder(name: str, tmp_path: Path) -> None:
    rows = make_rows(num_problems=4, strategies=["separate", "unconstrained"], budgets=[16, 48])
    longest = (pl.col("model") == "trained") & (pl.col("think_budget") == 48)
    own = rows.filter(longest).with_columns(think_budget=pl.lit(None, pl.Int32))
    spent, place = thinking_spent(pl.concat([rows, own])), sheet(tmp_path, rows)
    figure = {
        "thinking_spent": lambda: tokens.thinking_spent(spent, place, "separate"),
        "sufficient_budgets": lambda: tokens.sufficient_budgets(spent, place),
    }[name]()
    assert figure is not None
    last = pl.read_csv(figure.data).filter(pl.col("think_budget").is_null(), ladder="separate", benchmark="easy")
    assert dict(last.select("model", "strategy").rows()) == {"base": "unconstrained", "trained": "separate"}
    assert last.filter(strategy="unconstrained")["solution_budget"].to_list() == [None]


def test_training_draws_the_metrics_it_knows(texts: list[str], tmp_path: Path) -> None:
    trainings = {**TRAININGS, "t24": trained("24+32", metrics=None)}
    figure = training.training_curves(trainings, sheet(tmp_path, make_rows(num_problems=1), trainings))
    assert figure is not None
    assert {"validation accuracy (avg@k)", "mean reward", "tokens per response", "thinking", "trained"} <= set(texts)
    assert not {"solution", "t24"} & set(texts)
    assert figure.caption.startswith("7 steps")  # 0 is not a step of training.
    assert "validation on miniature, 64 problems × 1 sample; at step 0 of the initial model" in figure.caption
    assert "actor/lr" not in pl.read_csv(figure.data)["name"]


def test_training_that_did_not_validate_its_initial_model_says_so(tmp_path: Path) -> None:
    late = {"trained": trained("48+32", metrics=METRICS.filter((pl.col("step") > 0) | (pl.col("name") == "actor/lr")))}
    figure = training.training_curves(late, Sheet(tmp_path, model_colours(late)))
    assert "the initial model was not validated" in getattr(figure, "caption", "")


def test_training_without_any_known_metric_is_no_figure(tmp_path: Path) -> None:
    trainings = {"trained": trained("48+32", metrics=METRICS.filter(name="actor/lr"))}
    assert training.training_curves(trainings, Sheet(tmp_path, model_colours(trainings))) is None
    assert list(tmp_path.iterdir()) == []


def test_models_have_colours_of_their_own_as_long_as_there_are_any() -> None:
    names = [f"model {i}" for i in range(NUM_COLOURS - len(COLOURS))]
    colours = model_colours(["trained", "base", *names])
    assert colours == model_colours([*reversed(names), "base", "trained"])
    assert len(set(colours.values())) == NUM_COLOURS
