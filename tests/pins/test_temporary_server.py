"""The Prefect server that a flow without one starts: on loopback, where everybody on the machine may call it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from elastic_core.system.retry import wait_until
from tests.elastic_up import clean_environment
from tests.processes import python

ATTACK = """
    from flows.runtime import environment

    environment.prepare()

    import json

    import httpx
    from prefect import flow
    from prefect.client.orchestration import get_client

    @flow
    def attacked() -> None:
        '''Its own requests are answered, or it would not run.'''
        with get_client(sync_client=True) as client:
            url = str(client.api_url).rstrip("/")
        page = {"origin": "http://evil.example"}
        asks = [
            httpx.post(f"{url}/flow_runs/filter", json={}, headers=page, trust_env=False),
            httpx.post(f"{url}/flows/", json={"name": "planted"}, headers=page, trust_env=False),
            httpx.post(f"{url}/flows/count", auth=("elastic", "guessed"), headers=page, trust_env=False),
            httpx.options(f"{url}/flows/", headers={**page, "access-control-request-method": "POST"}, trust_env=False),
        ]
        found = [[ask.status_code, ask.headers.get("access-control-allow-origin")] for ask in asks]
        print(json.dumps(found))

    attacked()
"""


def test_nobody_else_is_answered_by_the_server_of_a_run(tmp_path: Path) -> None:
    result = python(ATTACK, environment={**clean_environment(), "ELASTIC_RUNS": str(tmp_path)})
    assert json.loads(result.stdout.splitlines()[-1]) == [[401, None], [401, None], [401, None], [400, None]]


PATIENT = """
    from elastic_core.system import processes
    from flows.commands.cli import main

    processes._GRACE_SECONDS = 100  # However busy the machine, the server can be told.
    main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_end_ends_with_its_server(tmp_path: Path, number: signal.Signals) -> None:
    """The whole process group is told, as by a terminal: with its server gone a run asked on for minutes."""
    command = [sys.executable, "-c", textwrap.dedent(PATIENT), "run", "prepare-data", "--preset", "smoke"]
    process = subprocess.Popen(
        command,
        env={**clean_environment(), "ELASTIC_RUNS": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # Tests may run in the background.
    )
    log = tmp_path / "smoke" / "prepare-data.log"
    assert wait_until(lambda: log.exists() and "Beginning flow run" in log.read_text(), 600, every=0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("prefect.server.api.server:create_app" in child.cmdline() for child in family)
    os.killpg(process.pid, number)
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 128 + number, told
    assert told.splitlines()[-1].endswith("; to go on: elastic run prepare-data --preset smoke")
    assert "Traceback" not in told and "Error" not in told
    assert not [child for child in family if child.is_running()]
    with closing(sqlite3.connect(tmp_path / "prefect" / "prefect.db")) as database:
        assert database.execute("SELECT DISTINCT state_type FROM flow_run").fetchall() == [("CRASHED",)]
