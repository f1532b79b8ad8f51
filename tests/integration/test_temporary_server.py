"""The Prefect server that a flow without one starts: on loopback, where everybody on the machine may call it."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from elastic_core.retry import wait_until
from tests.elastic_up import clean_environment

pytestmark = pytest.mark.timeout(240)

ATTACK = """
    from flows import environment

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
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ATTACK)],
        env={**clean_environment(), "ELASTIC_RUNS": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    )
    assert json.loads(result.stdout.splitlines()[-1]) == [[401, None], [401, None], [401, None], [400, None]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_ends_with_its_server(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "flows.cli", "run", "prepare-data", "--preset", "smoke"]
    environment = {**clean_environment(), "ELASTIC_RUNS": str(tmp_path)}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # Tests may run under nohup.
    )
    started = psutil.Process(process.pid)

    def servers() -> list[psutil.Process]:
        return [child for child in started.children() if "prefect.server.api.server:create_app" in child.cmdline()]

    assert wait_until(lambda: bool(servers()), 120, every=0.05)
    (server,) = servers()
    process.send_signal(number)
    told, _ = process.communicate(timeout=100)
    assert process.returncode == 1 and told.endswith("Aborted!\n"), told
    assert wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, 10)
