"""What several integration tests use."""

import pytest

from tasks.tracking import Tracker


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    runs = tmp_path_factory.mktemp("runs")
    return Tracker("smoke", runs, f"sqlite:///{runs}/mlflow.db")
