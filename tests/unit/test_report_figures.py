"""Figures of whole, partial and single-cell tables. What they look like is for eyes; that they are whole, for tests."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure
from test_report_summary import make_rows

from elastic_core.budget import Budget
from reports.figures import accuracy_vs_budget, accuracy_vs_tokens, tokens_by_phase, training_curve
from reports.summary import summarize

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text of the figures that are saved, in no order."""
    from matplotlib.text import Text

    found: list[str] = []
    save = Figure.savefig

    def savefig(figure: Figure, *args: object, **kwargs: object) -> None:
        found.extend(text.get_text() for text in figure.findobj(Text))
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return found


@pytest.fixture
def metrics() -> pl.DataFrame:
    names = ("critic/score/mean", "rollout/think_tokens", "rollout/forced", "actor/lr")
    return pl.DataFrame([{"step": step, "name": name, "value": step / 10} for step in range(8) for name in names])


TABLES = {
    "whole": {},
    "only base": {"models": ["base"]},
    "one cell": {"models": ["base"], "benchmarks": ["hard"], "strategies": ["separate"], "budgets": [16]},
    "unlimited only": {"strategies": ["unconstrained"]},
    "another model": {"models": ["base", "other"], "strategies": ["separate", "another"]},
}


@pytest.mark.parametrize("draw", [accuracy_vs_tokens, accuracy_vs_budget])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_accuracy_of_any_table_is_drawn(draw: Callable[..., None], table: dict[str, list[str]], tmp_path: Path) -> None:
    draw(summarize(make_rows(num_problems=3, **table)), tmp_path / "figure.png", Budget(48, 32))
    assert (tmp_path / "figure.png").read_bytes().startswith(PNG)


def test_a_figure_says_its_counts_its_band_and_its_lines(texts: list[str], tmp_path: Path) -> None:
    accuracy_vs_tokens(summarize(make_rows(num_problems=5, num_samples=3)), tmp_path / "figure.png", Budget(48, 32))
    assert "hard (5 problems × 3 samples)" in texts
    assert any("95 % Wilson intervals, clustered by problem" in text and "48+32" in text for text in texts)
    assert {"base, separate (s = 32)", "trained, budget forcing (s = 32)", "base, unconstrained"} <= set(texts)


def test_counts_that_differ_between_cells_are_a_range(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(benchmarks=["hard"], num_problems=5)
    summary = summarize(rows.filter((pl.col("strategy") != "vanilla") | (pl.col("problem") < "003")))
    accuracy_vs_budget(summary, tmp_path / "figure.png")
    assert "hard (3 to 5 problems × 4 samples)" in texts


def test_equal_tables_make_equal_bytes(tmp_path: Path) -> None:
    rows = make_rows(num_problems=3)
    for name, table in (("a", rows), ("b", rows.sample(fraction=1, shuffle=True, seed=1))):
        accuracy_vs_tokens(summarize(table), tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_tokens_by_phase_leaves_out_what_was_not_measured(texts: list[str], tmp_path: Path) -> None:
    rows = make_rows(num_problems=3).filter((pl.col("model") == "base") | (pl.col("benchmark") == "hard"))
    tokens_by_phase(rows, tmp_path / "figure.png", "separate")
    assert "easy, base (3 problems × 4 samples)" in texts
    assert not any(text.startswith("easy, trained") for text in texts)
    with pytest.raises(ValueError, match="no rows of strategy beam"):
        tokens_by_phase(rows, tmp_path / "none.png", "beam")


def test_training_draws_the_metrics_it_knows(metrics: pl.DataFrame, texts: list[str], tmp_path: Path) -> None:
    training_curve(metrics, tmp_path / "figure.png")
    assert {"mean reward", "tokens per response", "fraction not ended by the model", "thinking"} <= set(texts)
    assert not any(text == "response" or "lr" in text for text in texts)
    assert any(text.startswith("8 steps") for text in texts)


def test_training_without_any_known_metric_says_what_it_expected(metrics: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"actor/lr.*expected.*critic/score/mean"):
        training_curve(metrics.filter(name="actor/lr"), tmp_path / "figure.png")


def test_a_figure_that_fails_leaves_the_earlier_one(metrics: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    path.write_bytes(b"earlier")
    with pytest.raises(ValueError, match="expected"):
        training_curve(metrics.clear(), path)
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]
