"""What several integration tests use."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from elastic_core.rewards import as_published
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.math import Pool
from elastic_core.system.ray_cluster import RayCluster, local_cluster
from tasks.records.mlflow_tracker import Tracker
from tests.served import plain, shared, twin  # noqa: F401 (fixtures of several files)


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that takes seconds to be made, to be copied."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture(scope="module")
def tracker(empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    runs = tmp_path_factory.mktemp("runs")
    shutil.copy(empty_mlflow, runs)
    return Tracker("smoke", runs, f"sqlite:///{runs}/mlflow.db")


@pytest.fixture(scope="session")
def patient_pool() -> Iterator[Pool]:
    """Workers for mathematics, which take seconds to start."""
    pool = Pool(deadline=60.0)
    yield pool
    pool.close()


@pytest.fixture
def patient(patient_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not hurry them: what is right is asked, not how fast."""
    for module in (rewards_math, as_published):
        monkeypatch.setattr(module, "shared_pool", lambda: patient_pool)


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
