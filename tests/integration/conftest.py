"""What several integration tests use."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from elastic_core.system.ray_cluster import RayCluster, local_cluster
from tasks.records.mlflow_tracker import Tracker


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    runs = tmp_path_factory.mktemp("runs")
    return Tracker("smoke", runs, f"sqlite:///{runs}/mlflow.db")


@pytest.fixture(scope="session")
def started_ray() -> Iterator[tuple[RayCluster, dict[str, str]]]:
    """A cluster, and the environment of a process that may call it."""
    with ExitStack() as stack:
        with patch.dict(os.environ):
            cluster = stack.enter_context(local_cluster(cpus=8, gpus=0, object_store_bytes=100 << 20))
            environment = dict(os.environ)
        yield cluster, environment


@pytest.fixture
def cluster(started_ray: tuple[RayCluster, dict[str, str]]) -> Iterator[RayCluster]:
    """The cluster that files share, whose processes' ends are their own business. Ray's token is in the environment of
    a test and of its processes, and does not outlive it."""
    cluster, environment = started_ray
    with patch.dict(os.environ, environment):
        yield cluster
