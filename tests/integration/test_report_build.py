"""The report as a whole: its files, its text, and that it can be made again."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.budget import TrainingBudget, parse_grid
from elastic_core.errors import UserError
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.table import TrajectoryStore
from elastic_core.system.imported import DECLARED, DIRECTORY
from elastic_core.trajectory import SCHEMA
from flows.sweep import closing
from reports.build import Report, build_report, files_of, read_report
from reports.content import ReportParameters, ReportSources, Training, Verdict
from tests import simulated
from tests.documents import REPOSITORY
from tests.unit.test_report_summary import make_rows

PROVENANCE: dict[str, Any] = {
    "preset": "embedded",
    "models": {"base": "1f2e", "trained": "3d4c"},
    "packages": ["polars 2.1.0", "verl 0.9.1"],
    "command": "elastic run pipeline --set a|b",
}
METRICS = pl.DataFrame({"step": [1, 2], "name": ["critic/score/mean"] * 2, "value": [0.1, 0.2]})
TRAININGS = {"trained": Training(TrainingBudget.parse("48+32"), asks_length=False, base="base", metrics=METRICS)}


def files_below(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def sources() -> ReportSources:
    rows = make_rows(num_problems=4, num_samples=2, budgets=[0, 32, 64], benchmarks=["easy", "hard"])
    return ReportSources(rows.lazy(), TRAININGS, provenance=PROVENANCE)


@pytest.fixture(scope="module")
def built(sources: ReportSources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    build_report(sources, directory)
    return directory


def test_a_report_is_its_text_its_summary_its_figures_and_its_tables(built: Path) -> None:
    listed = json.loads((built / "files.json").read_text())
    assert sorted([*listed, "files.json"]) == [path.relative_to(built).as_posix() for path in files_below(built)]
    assert len(json.loads((built / "summary.json").read_text())["cells"]) == 2 * 2 * (3 * 3 + 1)
    text = (built / "report.md").read_text()
    for figure in (built / "figures").glob("*.png"):
        assert f"](figures/{figure.name})" in text
        assert all(figure.with_suffix(form).exists() for form in (".svg", ".pdf", ".tex"))
        assert pl.read_csv(figure.with_suffix(".csv")).height > 0
    for table in (built / "tables").glob("*.csv"):
        assert f"(tables/{table.name})" in text


def test_the_text_shows_provenance_tables_and_claims(built: Path) -> None:
    lines = (built / "report.md").read_text().splitlines()
    assert "| models | base 1f2e; trained 3d4c |" in lines
    assert r"| command | elastic run pipeline --set a\|b |" in lines
    assert any(line.startswith("4 problems × 2 samples, 160 trajectories") for line in lines)
    tables = [line for line in lines if line.startswith("| budget |")]
    assert len(tables) == 4  # accuracy and tokens, of two benchmarks
    assert tables[0].startswith("| budget | base, budget forcing | base, separate | base, unconstrained |")
    assert sum(line.startswith(("| easy | Sep", "| easy | Unc", "| easy | base, tight")) for line in lines) == 10
    assert lines[2].startswith("**Under a token budget training makes ")
    parts = [line for line in lines if line.startswith("## ")]
    assert (parts[0], parts[-1]) == ("## Intervals and counts", "## Provenance")


def test_a_run_ends_with_the_verdict_what_to_run_next_and_the_page(built: Path) -> None:
    verdict, *commands, page = closing(built / "report.md").splitlines()
    assert verdict.startswith("Under a token budget training makes ") and page == str(built / "report.html")
    assert commands == ["Next: elastic serve --preset embedded --model trained"]


def test_the_strategy_shown_is_measured_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By import path, as in its README."""
    monkeypatch.setenv(DIRECTORY, str(REPOSITORY / "examples/strategy"))
    monkeypatch.setenv(DECLARED, name := "mine:no_thinking")
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    cells = build_cells(["base"], ["simulated"], ["separate", name], parse_grid(["48+32", "16+8"]))
    plan = plan_sweep(cells, simulated.problems(4), num_samples=2, seed=0, finished=pl.DataFrame(schema=SCHEMA))
    engine = simulated.SimulatedEngine(lambda problem, seed: (20 + 5 * problem, 40))
    simulated.swept(tmp_path / "table", plan, [engine], max_in_flight=8)
    rows = TrajectoryStore(tmp_path / "table").read()
    assert rows.filter(strategy=name, think_budget=48)["solution_tokens"].unique().to_list() == [41]
    content = build_report(ReportSources(rows.lazy()), tmp_path / "report")
    assert set(content.summary["strategy"]) == {"separate", name}
    del sys.modules["mine"]


def test_one_cell_is_a_report_too(tmp_path: Path) -> None:
    rows = make_rows(models=["base"], benchmarks=["hard"], strategies=["vanilla"], budgets=[16], num_problems=2)
    content = build_report(ReportSources(rows.lazy()), tmp_path)
    drawn = [figure.name for figure in content.figures]
    assert drawn == ["accuracy_vs_tokens", "accuracy_vs_budget", "sufficient_budgets"]
    assert [table.name for table in content.tables] == [
        "best_under_limit",
        "thinking_spent",
        "responses",
        "costs",
    ]
    assert "Expectations by verdict: not measured 2." in (tmp_path / "report.md").read_text()


def test_the_same_table_makes_the_same_report_and_no_stale_figure(tmp_path: Path) -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[32], num_problems=2, num_samples=1)
    sources = ReportSources(rows.lazy(), TRAININGS)
    build_report(sources, tmp_path)
    first = {path: path.read_bytes() for path in files_below(tmp_path)}
    (tmp_path / "figures" / "mine.png").write_bytes(b"of the user's own")
    content = build_report(sources, tmp_path)
    assert {path: path.read_bytes() for path in files_below(tmp_path) if path.name != "mine.png"} == first
    build_report(ReportSources(sources.rows), tmp_path)
    gone = set(first) - set(files_below(tmp_path))
    assert {path.stem for path in gone} == {"training_curves", "trainings"}
    assert (tmp_path / "figures" / "mine.png").exists()
    assert set(files_of(content)) == set(first) - {tmp_path / "files.json"}


def test_an_empty_table_leaves_the_earlier_report(built: Path) -> None:
    before = (built / "report.md").read_text()
    with pytest.raises(UserError, match="no cell has a sample of every problem"):
        build_report(ReportSources(make_rows(models=[]).lazy()), built)
    assert (built / "report.md").read_text() == before


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = "import sys, reports.build; sys.exit(bool({'matplotlib', 'jinja2', 'prefect', 'mlflow'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_report_of_responses_without_answers_compares_nothing(sources: ReportSources, tmp_path: Path) -> None:
    silent = sources.rows.with_columns(grade_status=pl.lit("no_answer"), score=0.0)
    content = build_report(replace(sources, rows=silent), tmp_path)
    assert content.verdict.startswith("Nothing ")
    assert {claim.verdict for claim in content.claims} == {Verdict.NOT_MEASURED}


@pytest.mark.parametrize(
    "listed",
    [
        '["../precious.txt"]',
        '["figures/../../precious.txt"]',
        '["thesis.docx"]',
        '["elsewhere/precious.csv"]',
        '["figures/linked.csv"]',
        '{"figures/a.png": 1}',
        "[1]",
        "not JSON",
    ],
)
def test_a_list_of_files_that_is_not_a_reports_removes_nothing(
    sources: ReportSources, tmp_path: Path, listed: str
) -> None:
    directory = tmp_path / "report"
    outside = tmp_path / "outside"
    for folder in (directory / "elsewhere", outside):
        folder.mkdir(parents=True)
    (directory / "figures").symlink_to(outside)
    kept = [tmp_path / "precious.txt", directory / "thesis.docx", directory / "elsewhere/precious.csv"]
    kept += [outside / "linked.csv"]
    for file in kept:
        file.write_text("precious")
    (directory / "files.json").write_text(listed)
    with pytest.raises(UserError, match=r"files\.json: .*expected"):
        build_report(sources, directory)
    assert all(file.read_text() == "precious" for file in kept)
    assert not (directory / "report.md").exists()


def test_seeds_of_one_training_are_one_model_everywhere_and_each_is_drawn(tmp_path: Path) -> None:
    rows = make_rows(strategies=["separate", "unconstrained"], budgets=[16, 48, 96], num_problems=6, num_samples=2)
    tuned = rows.filter(model="trained")
    names = [f"trained@{seed}" for seed in (1, 2, 3)]
    seeds = [tuned.with_columns(model=pl.lit(name), score=pl.col("score") * (i < 2)) for i, name in enumerate(names)]
    metrics = pl.DataFrame({"step": [1, 2], "name": ["critic/score/mean"] * 2, "value": [0.1, 0.5]})
    training = Training(TrainingBudget.parse("48+32"), asks_length=False, base="base", metrics=metrics)
    table = pl.concat([rows.filter(model="base"), *seeds])
    content = build_report(ReportSources(table.lazy(), trainings=dict.fromkeys(names, training)), tmp_path)
    assert "3 seeds of training" in content.verdict
    cells = json.loads((tmp_path / "summary.json").read_text())["cells"]
    assert {(cell["model"], cell["num_seeds"]) for cell in cells} == {("base", 1), ("trained", 3)}
    for cell in cells:
        each = cell["avg_at_k_by_seed"]
        assert each is None if cell["model"] == "base" else cell["avg_at_k"] == pytest.approx(sum(each) / 3, abs=1e-5)
        assert cell["num_samples"] == 2 and cell["num_trajectories"] == 12 * cell["num_seeds"]
    text = (tmp_path / "report.md").read_text()
    assert "@" not in text.replace("avg@k", "").replace("pass@k", "").replace("maj@k", "")
    assert "6 × 2 × 3 seeds" in text and "What would make it surer" in text and "†" not in text
    curves = pl.read_csv(tmp_path / "figures" / "training_curves.csv")
    assert curves.select("model", "seed").unique().sort("seed").rows() == [("trained", seed) for seed in (1, 2, 3)]
    drawn = pl.read_csv(tmp_path / "figures" / "accuracy_vs_budget.csv").filter(model="trained")
    assert all(len(values.split(" ")) == 3 for values in drawn["avg_at_k_by_seed"])


def test_a_control_of_one_seed_is_said_to_be_one_training_and_base_is_none(tmp_path: Path) -> None:
    names = ["base", "control", "trained@1", "trained@2"]
    rows = make_rows(models=names, strategies=["separate", "unconstrained"], budgets=[16, 48], num_problems=6)
    training, alone = TRAININGS["trained"], "About just one training of control: another may differ by more"
    parameters = ReportParameters(pairs=[("base", "trained"), ("control", "trained"), ("base", "control")])

    def report(**trainings: Training) -> Report:
        return read_report(ReportSources(rows.lazy(), trainings, parameters=parameters), tmp_path)

    content = report(**dict.fromkeys(names[1:], training))
    with_control = [claim for claim in content.claims if "control" in claim.models]
    assert len(with_control) == 2 * 2 * 3 and {"base", "trained"} in [{*claim.models} for claim in content.claims]
    assert all((alone in claim.evidence) == ("control" in claim.models) for claim in content.claims)
    noted = {each.name for each in [*content.tables, *content.figures] if alone in each.caption}
    assert noted == {"model_differences", "anytime_differences", "equal_tokens"}
    # A released checkpoint is one model, and no draw of a training.
    content = report(**dict.fromkeys(names[2:], training))
    told = [*(claim.evidence for claim in content.claims), *(table.caption for table in content.tables)]
    assert told and not [text for text in told if alone in text]


def test_names_of_models_and_benchmarks_are_text_wherever_they_stand(tmp_path: Path) -> None:
    rows = make_rows(benchmarks=["hard"], strategies=["separate"], budgets=[32], num_problems=2, num_samples=1)
    script, formula = "<script>alert(1)</script>", "=cmd|' /C calc'!A0"
    rows = rows.with_columns(benchmark=pl.lit(script), model=pl.col("model").replace("base", formula))
    build_report(ReportSources(rows.lazy()), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "\n## \\<script>" in text
    assert re.search(r"(?<!\\)<script", text) is None
    assert r"=cmd\|' /C" in text and "=cmd|" not in text
    for file in tmp_path.rglob("*.csv"):
        with file.open(newline="") as lines:
            assert [place for line in csv.reader(lines) for place in line if place.startswith("=")] == []
