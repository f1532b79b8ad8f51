"""A flow run whose process and worker are killed at once: the automation marks it crashed when its heartbeat stops."""

import contextlib
import signal
import subprocess
import textwrap
from pathlib import Path

import psutil
import yaml

from elastic_core.system.network import free_ports
from flows.commands.services.deployments import AUTOMATION
from tests.elastic_up import DEPLOYMENTS, begin, clean_environment, lines_until, prefect_client, start, state, wait_for

FLOW = """
    import time

    from prefect import flow

    @flow
    def touch(name: str) -> None:
        time.sleep(3600)
"""
WITHIN_SECONDS = 60
"""Two heartbeats; the repository's own automation waits longer than a test should."""


def test_a_dead_flow_run_is_marked_crashed(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(textwrap.dedent(FLOW))
    (tmp_path / "prefect.yaml").write_text(textwrap.dedent(DEPLOYMENTS))
    automation = yaml.safe_load((Path(__file__).parents[2] / AUTOMATION).read_text())
    automation["trigger"]["within"] = WITHIN_SECONDS
    (tmp_path / AUTOMATION).parent.mkdir(parents=True)
    (tmp_path / AUTOMATION).write_text(yaml.safe_dump(automation))
    process = start(tmp_path, clean_environment(), *free_ports(2))
    try:
        lines_until(process, "Ctrl-C")
        with prefect_client(tmp_path / "runs") as api:

            def heartbeats() -> int:
                filters = {"event": {"name": ["prefect.flow-run.heartbeat"]}}
                return api.post("/events/filter", json={"filter": filters}).json()["total"]

            run = begin(api, "touch/small")
            wait_for(lambda: state(api, run)["type"] == "RUNNING", 600, "running flow")
            wait_for(heartbeats, 600, "heartbeat")
            kill_worker_with_its_runs(process)
            assert state(api, run)["type"] == "RUNNING", "nobody is left to tell"
            wait_for(lambda: state(api, run)["type"] == "CRASHED", WITHIN_SECONDS + 120, "crashed flow run")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(600)


def kill_worker_with_its_runs(process: "subprocess.Popen[str]") -> None:
    for worker in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It may end while it is looked at.
            if "flows.commands.services.worker" in worker.cmdline():
                family = [worker, *worker.children(recursive=True)]
                assert len(family) > 1
                for each in family:
                    each.kill()
                return
    raise AssertionError("no worker")
