"""What people see of a sweep on the pages of MLflow and Prefect: a tiny recorded run and its report on the servers of
`elastic up`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow import MlflowClient
from playwright.sync_api import Browser, Page, expect

from flows.commands.services import links
from flows.presets import remember
from tests.browser import PAGE_MS, watched
from tests.elastic_up import Services, clean_environment, clients
from tests.processes import python

# What the runs hold is checked every day by tests/integration/test_cells.py.
pytestmark = pytest.mark.slow

NUM_CELLS = 2 * (3 * 2 + 1)
"""Of two models: three strategies under two budgets, and one without."""

RECORD = """
    import os
    from pathlib import Path

    from prefect import flow, task

    from elastic_core.statistics.budgets import anytime_accuracy
    from elastic_core.sweep.table import Manifest, TrajectoryStore
    from reports.summary import cell_problems, summarize_problems
    from tasks.records.terminal import progress
    from tasks.records.mlflow_cells import record_cells
    from tasks.report import write_report
    from tasks.records.stage_directory import Stage
    from tasks.records.mlflow_tracker import Tracker
    from tests.unit.test_report_summary import make_rows

    RUNS = Path(os.environ["ELASTIC_RUNS"])
    SAMPLING = {"temperature": 0.6, "top_p": 0.95}
    SWEEP = Stage(RUNS, "embedded", "sweep", {"models": {"base": "b0", "trained": "t0"}, "sampling": SAMPLING})
    TABLE = SWEEP.directory / "table"

    @task
    def measure() -> None:
        tracker = Tracker("embedded", RUNS)
        run_id = tracker.ensure(SWEEP.label, "sweep")
        with tracker.running(run_id), progress("sweep", 8, "rows") as shown:
            shown.reach(8)
            rows = make_rows(benchmarks=["easy"], budgets=[16, 48], num_problems=6, num_samples=2)
            problems = cell_problems(rows)
            checkpoints = {name: RUNS / name for name in ("base", "trained")}
            summary, anytime = summarize_problems(problems), anytime_accuracy(problems)
            record_cells(tracker, run_id, None, SWEEP, checkpoints, summary, anytime)
        store = TrajectoryStore(TABLE)
        with store.writing(Manifest({}, {}, {}, {})):
            store.append(rows)

    @flow(name="sweep")
    def sweep() -> None:
        measure()
        settings = {"sweep": {"checkpoints": {}}, "report": {"pairs": [], "expectations": {}}}
        stage = Stage(RUNS, "embedded", "report", {}, {"table": str(TABLE), "provenance": {}, "settings": settings})
        write_report(stage, Tracker("embedded", RUNS), None)

    sweep()
"""


class Servers(NamedTuple):
    """Where both are, what their clients are told, and where results lie."""

    prefect: str
    mlflow: str
    variables: dict[str, str]
    runs: Path


@pytest.fixture(scope="module")
def servers(services: Services) -> Servers:
    project, variables = services.project, clients(services.project / "runs")
    python(RECORD, environment={**clean_environment(), **variables, "ELASTIC_RUNS": str(project / "runs")})
    return Servers(f"http://127.0.0.1:{services.prefect_port}", services.mlflow, variables, project / "runs")


@contextmanager
def visited(browser: Browser, **context: Any) -> Iterator[Page]:
    """A page that asks nothing of another host. Its console is that of MLflow and Prefect, not ours."""
    outside: list[str] = []
    with browser.new_context(viewport={"width": 1500, "height": 950}, **context) as tabs:
        page = tabs.new_page()
        page.set_default_timeout(PAGE_MS)
        page.on("request", lambda asked: outside.append(asked.url) if not _is_inside(asked.url) else None)
        yield page
    assert not outside


def _is_inside(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))


@pytest.fixture
def mlflow_page(browser: Browser, servers: Servers) -> Iterator[Page]:
    user, password = (servers.variables[f"MLFLOW_TRACKING_{name}"] for name in ("USERNAME", "PASSWORD"))
    with visited(browser, http_credentials={"username": user, "password": password}) as page:
        yield page


@pytest.fixture(scope="module")
def sweep_run(servers: Servers) -> tuple[str, str]:
    """Ids of the experiment and of the sweep's run."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in servers.variables.items():
            patch.setenv(name, value)
        client = MlflowClient()
        experiment = client.get_experiment_by_name("embedded")
        assert experiment is not None
        (run,) = client.search_runs([experiment.experiment_id], "tags.stage = 'sweep'")
        cells = client.search_runs([experiment.experiment_id], "tags.stage = 'cell' and tags.t = '48'")
    assert len(cells) == 6
    # Numbers, so that charts have axes of numbers.
    assert {(cell.data.params["t"], cell.data.params["s"]) for cell in cells} == {("48", "32")}
    return experiment.experiment_id, run.info.run_id


def test_three_clicks_lead_from_mlflows_start_to_accuracy_over_tokens_of_two_models(
    mlflow_page: Page, servers: Servers, sweep_run: tuple[str, str], tmp_path: Path
) -> None:
    """The path that docs/operate.md describes, in a browser that has never been there."""
    page = mlflow_page
    page.goto(servers.mlflow)
    page.get_by_role("button", name="Model training").first.click()
    page.get_by_role("link", name="embedded", exact=True).first.click()
    expect(page).to_have_url(re.compile(f"/experiments/{sweep_run[0]}/runs"))
    page.get_by_role("link", name="sweep", exact=True).first.click()
    expect(page.get_by_text("Accuracy over tokens").first).to_be_visible()
    chart = page.get_by_role("link", name="easy, separate", exact=True)
    chart.evaluate("link => link.removeAttribute('target')")  # It would open in a tab of its own.
    chart.click()
    plot = page.locator(".js-plotly-plot").first
    expect(plot).to_be_visible()
    for model in ("base", "trained"):
        expect(page.get_by_text(f"{model} · over tokens").first).to_be_visible()
    page.screenshot(path=tmp_path / "chart.png")
    lines = plot.evaluate("plot => plot.data.map(line => Array.from(line.x))")
    assert sum(len(set(tokens)) == 2 for tokens in lines) >= 2, "a line per model, a point per budget"


def test_elastic_up_leads_to_the_chart_and_to_the_report(
    browser: Browser, mlflow_page: Page, servers: Servers, sweep_run: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the last run; the links are printed when the servers have started."""
    runs = servers.runs
    monkeypatch.setenv("ELASTIC_RUNS", str(runs))
    remember("embedded", {})
    (what, chart), (which, report) = links(servers.variables, runs)
    assert (what, which) == ("accuracy over tokens of embedded", "report of embedded")
    page = mlflow_page
    page.goto(chart)
    plot = page.locator(".js-plotly-plot").first
    expect(plot).to_be_visible()
    for model in ("base", "trained"):
        expect(page.get_by_text(f"{model} · over tokens").first).to_be_visible()
    expect(page.get_by_text("accuracy in percent over tokens/easy/separate").first).to_be_visible()
    with watched(browser) as page:
        page.goto(report)
        expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_before_the_first_run_and_without_mlflow_there_are_no_links(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    assert list(links(servers.variables, tmp_path)) == []
    remember("smoke", {})
    assert list(links(servers.variables, tmp_path)) == [], "a preset that MLflow has nothing of"
    nowhere = {**servers.variables, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    assert list(links(nowhere, tmp_path)) == []


def test_mlflow_shows_the_cells_as_a_table(mlflow_page: Page, servers: Servers, sweep_run: tuple[str, str]) -> None:
    page = mlflow_page
    page.goto(f"{servers.mlflow}/#/experiments/{sweep_run[0]}/runs/{sweep_run[1]}/artifacts/cells.json")
    expect(page.get_by_text("View as table")).to_be_visible()
    expect(page.get_by_text("budget_forcing").first).to_be_visible()


def test_mlflow_lists_cells_to_be_compared(mlflow_page: Page, servers: Servers, sweep_run: tuple[str, str]) -> None:
    """The filter of the sweep's description finds the cells, below the sweep itself."""
    page = mlflow_page
    page.goto(f"{servers.mlflow}/#/experiments/{sweep_run[0]}/runs?searchFilter=tags.stage%20%3D%20%22cell%22")
    expect(page.get_by_text("matching runs")).to_have_text(f"{NUM_CELLS + 1} matching runs")
    expect(page.get_by_text("sweep", exact=True).first).to_be_visible()


def test_mlflow_holds_the_page_and_the_figures_of_the_report(
    servers: Servers, sweep_run: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in servers.variables.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient()
    (run,) = client.search_runs([sweep_run[0]], "tags.stage = 'report'")
    assert "report.html" in {file.path for file in client.list_artifacts(run.info.run_id)}
    figures = {file.path for file in client.list_artifacts(run.info.run_id, "figures")}
    assert "figures/accuracy_vs_tokens.png" in figures


def test_prefect_shows_table_link_and_progress(browser: Browser, servers: Servers, tmp_path: Path) -> None:
    with visited(browser) as page:
        page.goto(servers.prefect)
        page.locator("input[type=password]").fill(servers.variables["PREFECT_API_AUTH_STRING"])
        page.get_by_role("button", name="Login").click()
        expect(page.get_by_text("Flow Runs").first).to_be_visible()
        page.goto(f"{servers.prefect}/artifacts")
        for key in ("sweep", "sweep-progress", "sweep-mlflow"):
            expect(page.get_by_text(key, exact=True)).to_be_visible()
        page.screenshot(path=tmp_path / "artifacts.png")
        page.goto(f"{servers.prefect}/artifacts/key/sweep")
        page.get_by_role("link", name=re.compile("^[0-9a-f]{8}$")).first.click()
        expect(page.get_by_text("accuracy (%)")).to_be_visible()
        expect(page.get_by_text("budget forcing").first).to_be_visible()
        page.screenshot(path=tmp_path / "table.png", full_page=True)
        page.goto(f"{servers.prefect}/artifacts/key/report-embedded")
        page.get_by_role("link", name=re.compile("^[0-9a-f]{8}$")).first.click()
        expect(page.get_by_text(re.compile("^Under a token budget training makes"))).to_be_visible()
        figure = page.get_by_role("img", name="Accuracy over tokens spent")
        assert figure.evaluate("image => image.decode().then(() => image.naturalWidth > 100)")
        page.screenshot(path=tmp_path / "report.png", full_page=True)
