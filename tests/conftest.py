"""Settings of every test run."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.elastic_up import services  # noqa: F401 (a fixture of several files)

# How fast the machine is decides no test, nor does chance: nothing but a change may turn one red. `make chaos` tries
# eight times as many examples, drawn anew.
settings.register_profile(
    "elastic", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("elastic-anew", settings.get_profile("elastic"), max_examples=200, derandomize=False)
settings.load_profile("elastic-anew" if "DRAW_ANEW" in os.environ else "elastic")

TOGETHER = {
    "`elastic up`": {"test_service_pages.py", "test_services.py"},
    "the smoke pipeline": {"test_pipeline.py", "test_sweep.py", "test_tour.py", "test_deployment.py"},
    "a Ray cluster": {
        "test_local_ray.py",
        "test_private_queues.py",
        "test_transient_ray.py",
        "test_training_graders.py",
        "test_training_watchdog.py",
    },
    "`elastic serve`": {"test_examples.py", "test_serve_rules.py", "test_serve_dialects.py", "test_serve.py"},
    "`vllm serve`": {"test_serve_over.py", "test_serve_tools.py"},
    "verl's configurations": {"test_preset_verl.py", "test_settings_arrive.py"},
}
"""Files that share what takes long to start, and so a process."""
LONGEST = (
    "test_pipeline.py",
    "test_sweep.py",
    "test_tour.py",
    "test_playground_page.py",
    "test_service_pages.py",
    "test_services.py",
    "test_grade_math.py",
    "test_examples.py",
    "test_serve_rules.py",
    "test_serve_dialects.py",
    "test_serve.py",  # Its last test ends the server.
    "test_report_views.py",
    "test_warm_start.py",
    "test_sweep_ray.py",
    "test_serve_over.py",
    "test_serve_tools.py",
    "test_report_build.py",
    "test_sft_resume.py",
    "test_grade_code.py",
    "test_sandbox.py",
)
"""Files that begin first, so that all processes end together."""


class FilesTogether(LoadFileScheduling):
    """The tests of a file run in one process, which has its engine or server."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((shared for shared, files in TOGETHER.items() if Path(file).name in files), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def without_the_users_mirror() -> Iterator[None]:
    """The tree that real files are read from is not a setting of what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ELASTIC_DATA_MIRROR", raising=False)
        yield


@pytest.fixture(scope="module", autouse=True)
def with_an_environment_of_its_own() -> Iterator[None]:
    """What libraries write into the environment ends with the file, as the next one's processes would inherit it: vLLM
    on a CPU leaves LD_PRELOAD and more."""
    with patch.dict(os.environ):
        yield
