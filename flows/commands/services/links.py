"""Where the results of the last run are to be seen: MLflow's chart of accuracy over tokens, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from elastic_core.errors import UserError
from flows import presets
from flows.commands.options import recall
from tasks.records.mlflow_tracker import chart
from tasks.records.stage_directory import PAGE

_MOST_MODELS = 10
"""Lines of a chart."""
_FIRST = "separate"
"""The strategy whose chart is shown, where it was measured."""


def links(variables: Mapping[str, str], runs: Path) -> Iterator[tuple[str, str]]:
    """What there is to be seen, and its address; nothing before the first run.

    Args:
        variables: what clients of MLflow's server read of the environment.
    """
    last = recall()
    if last is None:
        return
    try:
        preset = presets.resolve(*last).preset
    except UserError:  # Its file is gone, or says something else now.
        return
    address = variables["MLFLOW_TRACKING_URI"]
    user, password = (variables.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    with (
        suppress(httpx.HTTPError),  # The services run without it.
        httpx.Client(base_url=address, auth=(user, password), trust_env=False, timeout=30) as server,
    ):
        if (page := _chart(server, preset)) is not None:
            yield f"accuracy over tokens of {preset}", f"{address}/{page}"
    report = runs / preset / "report" / PAGE
    if report.exists():
        yield f"report of {preset}", report.as_uri()


def _chart(server: httpx.Client, preset: str) -> str | None:
    """Of the newest sweep, relative to MLflow's page; None where there is none."""
    found = server.get("/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": preset})
    if found.status_code != 200:
        return None
    experiment = found.json()["experiment"]["experiment_id"]
    sweeps = _runs(server, experiment, "tags.stage = 'sweep'", 1)
    if not sweeps:
        return None
    parent = sweeps[0]["info"]["run_id"]
    curves = _runs(server, experiment, f"tags.stage = 'curve' and tags.`mlflow.parentRunId` = '{parent}'", _MOST_MODELS)
    metrics = sorted(
        {metric["key"] for run in curves for metric in run["data"].get("metrics", ())},
        key=lambda name: (not name.endswith(f"/{_FIRST}"), name),
    )
    return chart(experiment, [run["info"]["run_id"] for run in curves], metrics[0]) if metrics else None


def _runs(server: httpx.Client, experiment: str, which: str, most: int) -> list[dict[str, Any]]:
    """The newest first."""
    wanted = {
        "experiment_ids": [experiment],
        "filter": which,
        "max_results": most,
        "order_by": ["attributes.start_time DESC"],
    }
    answer = server.post("/api/2.0/mlflow/runs/search", json=wanted)
    answer.raise_for_status()
    return list(answer.json().get("runs", ()))
