"""Settings of every test run."""

import pytest
from hypothesis import HealthCheck, settings

# How fast the machine is decides no test. Half of hypothesis' usual examples keep the unit tests under a minute; every
# run draws others.
settings.register_profile("elastic", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic")


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what is slow to make run in one process: those of a file its engine or server, and those of any
    file the smoke pipeline's results."""
    for item in items:
        shares_pipeline = "first" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("pipeline" if shares_pipeline else item.location[0]))
