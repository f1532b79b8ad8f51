"""The containers of infra/: the image is built, its services started as compose.yaml says, and PostgreSQL and the worker
killed at their work."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import polars as pl
import pytest
from mlflow import MlflowClient

from elastic_core.system.retry import wait_until
from elastic_core.trajectory import CELL, KEY
from tests.containers import INFRA, Compose, build, require
from tests.e2e.conftest import read_table

NEEDED = ("buildah", "debootstrap", "unshare")
PORTS = (3000, 4200, 5000, 5432, 8000, 9090)
"""Of the services, which share this machine's network."""
SAMPLES = 40
SWEEP = {"preset": "smoke", "overrides": {"sweep.models": ["base"], "sweep.samples": SAMPLES}}
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),  # The image takes a lock with torch in it.
    pytest.mark.skipif(os.geteuid() != 0, reason="containers without a daemon need root"),
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason="needs buildah: apt-get install buildah debootstrap"),
]


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """Every service but Grafana, which neither Debian nor the package index has."""
    if taken := [port for port in PORTS if not socket.socket().connect_ex(("127.0.0.1", port))]:
        pytest.skip(f"the ports {taken} of compose.yaml are taken")
    directory = tmp_path_factory.mktemp("compose")
    build("cpu", directory)
    compose = Compose(directory)
    try:
        require(compose.services["postgresql"]["image"])
        compose.up("postgresql", "prefect", "mlflow", "worker")
        yield compose
    finally:
        compose.remove()


class Prefect:
    """Its API, as a client outside the containers uses it."""

    def __init__(self, compose: Compose) -> None:
        password = compose.passwords["PREFECT_PASSWORD"]
        url = "http://127.0.0.1:4200/api"
        self.client = httpx.Client(base_url=url, auth=("elastic", password), trust_env=False, timeout=60)

    def start(self) -> str:
        """Of a deployment that takes any preset."""
        ...

    def state(self, run: str) -> str:
        return self.client.get(f"/flow_runs/{run}").json()["state_type"]
