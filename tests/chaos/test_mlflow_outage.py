"""MLflow's server away for a minute: what is logged meanwhile waits, and arrives."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from elastic_core.system.network import free_ports
from tasks.records.mlflow_tracker import Tracker

OUTAGE_SECONDS = 60


def test_what_is_logged_while_the_server_is_away_arrives(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = _serve(tmp_path, port)
    try:
        tracker = Tracker("outage", tmp_path, f"http://127.0.0.1:{port}")
        run = tracker.ensure("run", "run")
        tracker.log_points(run, [("reward", 1, 1.0)])
        _stop(server)
        with ThreadPoolExecutor(1) as training:
            logged = training.submit(tracker.log_points, run, [("reward", 2, 2.0)])
            time.sleep(OUTAGE_SECONDS)
            assert not logged.done(), "it must wait for the server, neither fail nor be lost"
            server = _serve(tmp_path, port)
            logged.result(timeout=600)
        history = tracker.client.get_metric_history(run, "reward")
        assert [(metric.step, metric.value) for metric in history] == [(1, 1.0), (2, 2.0)]
    finally:
        _stop(server)


def _stop(server: "subprocess.Popen[bytes]") -> None:
    """With the workers that it starts."""
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _serve(directory: Path, port: int) -> "subprocess.Popen[bytes]":
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{directory}/mlflow.db", "--artifacts-destination", str(directory)),
    ]
    with (directory / "server.log").open("ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory, start_new_session=True)
    until = time.monotonic() + 600
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).raise_for_status()
            return server
        except httpx.HTTPError:
            assert server.poll() is None, (directory / "server.log").read_text()
            assert time.monotonic() < until, "MLflow did not start within 600 s"
            time.sleep(0.5)
