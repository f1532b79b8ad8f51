"""Settings of every test run."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

# How fast the machine is decides no test. Half of hypothesis' usual examples keep the unit tests under a minute; every
# run draws others.
settings.register_profile("elastic", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic")


class FilesTogether(LoadFileScheduling):
    """The tests of a file run in one process, which has its engine or server; those of tests/e2e too, as they share the
    smoke pipeline, but for the rehearsal, which takes as long as they do."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "tests/e2e" if file.startswith("tests/e2e/") and not file.endswith("test_rehearse.py") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None
