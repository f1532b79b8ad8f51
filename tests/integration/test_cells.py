"""What MLflow has of a sweep: a run per cell that says what tells it apart, and a chart of accuracy over tokens that
never mixes two states of it."""

import json
import multiprocessing
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import polars as pl
import pytest
from mlflow.entities import Run

from elastic_core.statistics.budgets import anytime_accuracy
from elastic_core.training.model_card import RECORD
from reports.summary import cell_problems, summarize_problems
from tasks.records import mlflow_cells as cells
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import Stage
from tests.unit.test_report_summary import make_rows

ROWS = make_rows(benchmarks=["easy"], budgets=[16, 48], num_problems=6, num_samples=4)
PAIR = "base>trained"


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setattr(
        cells, "create_table_artifact", lambda *args, **options: None
    )  # Prefect has a server of its own.
    found = {name: tmp_path / name for name in ("base", "trained")}
    found["trained"].mkdir()
    record = {"step": 40, "train": {"budget": "48+32", "seed": 7}}
    (found["trained"] / RECORD).write_text(json.dumps(record))
    return found


def record(tracker: Tracker, key: str, checkpoints: dict[str, Path], rows: pl.DataFrame, parent: str | None) -> str:
    sampling = {"temperature": 0.6, "top_p": 0.95, "seed": 0, "sharing": "memo"}
    fingerprints = {name: f"{name[0]}0" for name in checkpoints}
    stage = Stage(Path(), "smoke", "sweep", {"models": fingerprints, "sampling": sampling, "test": key})
    run_id = tracker.ensure(stage.label, "sweep", parent)
    problems = cell_problems(rows)
    cells.record_cells(
        tracker, run_id, parent, stage, checkpoints, summarize_problems(problems), anytime_accuracy(problems)
    )
    return run_id


def below(tracker: Tracker, parent: str, stage: str) -> dict[str, Run]:
    wanted = f"tags.`mlflow.parentRunId` = '{parent}' and tags.stage = '{stage}'"
    runs = tracker.client.search_runs([tracker.experiment_id], wanted)
    assert max(Counter(run.info.run_name for run in runs).values()) == 1
    return {run.info.run_name: run for run in runs}


def history(tracker: Tracker, run: Run, metric: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in tracker.client.get_metric_history(run.info.run_id, metric))


def expected(rows: pl.DataFrame, model: str) -> list[tuple[int, float]]:
    summary = summarize_problems(cell_problems(rows)).filter(model=model, strategy="separate").to_dicts()
    return sorted((round(cell["tokens_mean"]), 100 * cell["avg_at_k"]) for cell in summary)


def test_more_samples_replace_the_points_of_fewer(tracker: Tracker, checkpoints: dict[str, Path]) -> None:
    few, all_ = ROWS.filter(pl.col("sample") < 2), ROWS
    assert expected(few, "base") != expected(all_, "base")
    for rows, k in ((few, "2"), (all_, "4"), (all_, "4")):
        sweep = record(tracker, "grows", checkpoints, rows, None)
        curves, metric = below(tracker, sweep, "curve"), "accuracy in percent over tokens/easy/separate"
        assert curves.keys() == {"base · over tokens", "trained · over tokens"}
        for model in ("base", "trained"):
            run = curves[f"{model} · over tokens"]
            assert history(tracker, run, metric) == expected(rows, model)
            assert run.data.tags["k"] == k and run.info.status == "FINISHED"
            lows, highs = (history(tracker, run, f"{metric}/{bound}") for bound in ("low", "high"))
            points = history(tracker, run, metric)
            for (_, low), (_, accuracy), (_, high) in zip(lows, points, highs, strict=True):
                assert 0 <= low <= accuracy <= high <= 100
        colours = [curves[f"{model} · over tokens"].data.tags["mlflow.runColor"] for model in ("base", "trained")]
        assert colours == ["#0072b2", "#c04f00"], "those of the report's figures"
        ids = {name: run.info.run_id for name, run in curves.items()}
        noted = tracker.client.get_run(sweep).data.tags["mlflow.note.content"]
        assert all(run_id in noted for run_id in ids.values()), "the links lead to the runs that there are"
    again = record(tracker, "grows", checkpoints, ROWS, None)
    assert {name: run.info.run_id for name, run in below(tracker, again, "curve").items()} == ids, "nothing changed"


def test_a_cell_says_what_tells_it_apart(tracker: Tracker, checkpoints: dict[str, Path]) -> None:
    pair = ROWS.filter(model="base", strategy="separate").with_columns(model=pl.lit(PAIR), published_score="score")
    sweep = record(tracker, "named", checkpoints, pl.concat([ROWS, pair]).filter(pl.col("sample") < 2), None)
    sweep = record(tracker, "named", checkpoints | {"base": Path("/moved")}, pl.concat([ROWS, pair]), None)
    found = below(tracker, sweep, "cell")
    trained = found["trained · easy · separate 48+32"].data
    told: dict[str, Any] = {
        "model": "trained", "benchmark": "easy", "strategy": "separate", "t": "48", "s": "32",
        "model_fingerprint": "t0", "train_budget": "48+32", "train_steps": "40", "train_seed": "7",
        "temperature": "0.6", "top_p": "0.95",
    }  # fmt: skip
    assert {name: trained.params[name] for name in told} == told
    assert trained.params["sweep"] == tracker.client.get_run(sweep).data.tags["elastic.label"].rpartition("/")[2]
    assert (trained.tags["k"], trained.tags["model_path"]) == ("4", str(checkpoints["trained"]))
    assert trained.metrics["num_samples"] == 4
    base = found["base · easy · unconstrained"].data
    assert not base.params.keys() & {"t", "s", "train_budget", "train_steps", "train_seed"}
    assert (base.tags["t"], base.tags["model_path"]) == ("unlimited", "/moved")
    both = found[f"{PAIR} · easy · separate 16+32"].data
    assert (both.params["model_fingerprint"], both.params["train_budget"]) == ("b0>t0", "48+32")
    assert both.metrics["published_avg_at_k"] == both.metrics["avg_at_k"]
    assert "published_avg_at_k" not in trained.metrics, "it is graded by ours alone"


def test_a_cell_carries_the_seed_in_the_name_of_its_model(tracker: Tracker, checkpoints: dict[str, Path]) -> None:
    seeds = {f"{model}@2": path for model, path in checkpoints.items()}
    name = "trained@2"
    rows = ROWS.filter(model="trained").with_columns(model=pl.lit(name))
    sweep = record(tracker, "seeds", seeds, rows, None)
    params = below(tracker, sweep, "cell")[f"{name} · easy · separate 16+32"].data.params
    assert (params["train_seed"], params["model"]) == ("2", name), "and not the 7 of the record"


def test_the_sweep_and_its_pipeline_link_to_the_chart_of_all_models(
    tracker: Tracker, checkpoints: dict[str, Path]
) -> None:
    pipeline = tracker.ensure("smoke/pipeline/x", "pipeline")
    sweep = record(tracker, "linked", checkpoints, ROWS, pipeline)
    notes = {tracker.client.get_run(run).data.tags["mlflow.note.content"] for run in (sweep, pipeline)}
    (note,) = notes
    first, *_ = note.splitlines()  # What MLflow's page shows without a click.
    links = dict(re.findall(r"\[([^]]*)\]\(([^)]*)\)", first))
    assert list(links) == ["easy, separate", "easy, budget forcing", "easy, vanilla"]
    page, _, query = links["easy, separate"].partition("?")
    asked = {name: json.loads(values[0]) for name, values in parse_qs(query).items() if values[0][0] in '["'}
    curves = below(tracker, sweep, "curve").values()
    assert page == "#/metric" and query.startswith("runs="), "MLflow's page wants them first"
    assert asked["runs"] == [run.info.run_id for run in sorted(curves, key=lambda run: run.info.run_name)]
    assert asked["metric"] == "accuracy in percent over tokens/easy/separate"
    assert asked["experiments"] == [tracker.experiment_id]


def test_a_description_has_as_many_whole_links_as_mlflow_has_room_for(tracker: Tracker) -> None:
    run_id = tracker.ensure("smoke/described/x", "described")
    tracker.describe(run_id, "before\n{charts}\nafter", [f"[{i}](#/{'x' * 990})" for i in range(20)])
    note = tracker.client.get_run(run_id).data.tags["mlflow.note.content"]
    assert 7000 < len(note) <= 8000 and note.endswith(f" · [6](#/{'x' * 990})\nafter")


def test_any_number_of_parameters_is_logged(tracker: Tracker) -> None:
    """MLflow takes a hundred in one request; the settings of a preset are about as many."""
    run_id = tracker.ensure("smoke/many/x", "many")
    tracker.log(run_id, params={f"p{i}": i for i in range(250)}, metrics={"m": 1.0}, tags={"a": "b"})
    data = tracker.client.get_run(run_id).data
    assert len(data.params) == 250 and data.metrics == {"m": 1.0} and data.tags["a"] == "b"


def opened(runs: Path, barrier: Any) -> str:
    import mlflow  # noqa: F401  # Its import takes seconds, and would tell the processes apart.

    barrier.wait()
    experiment: str = Tracker("smoke", runs, f"sqlite:///{runs}/mlflow.db").experiment_id
    return experiment


@pytest.mark.slow
def test_runs_that_begin_at_once_create_one_database_and_one_experiment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(3) as pool:
        found = pool.map(partial(opened, tmp_path), [manager.Barrier(3)] * 3, chunksize=1)
    assert len(set(found)) == 1
