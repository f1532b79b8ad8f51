"""The plugin loads in processes that import verl, or says why it did not."""

import os
from importlib.metadata import PackageNotFoundError

import pytest

from elastic_core.training import requirements
from elastic_core.training.requirements import check_versions
from tests.processes import python

ON_CPU = os.environ | {"VERL_PLATFORM": "cpu"}
PROBE = """
import sys
from elastic_core.training.requirements import require_plugin
require_plugin()
needless = {"peft", "mlflow", "vllm", "sklearn", "verl.workers.engine"} & set(sys.modules)
import verl.checkpoint_engine, transformers.generation
needless |= {"vllm", "sklearn"} & set(sys.modules)
assert not needless, needless
from importlib.metadata import version
from verl.plugin.platform import get_platform
from verl.workers.engine import EngineRegistry
from verl.workers.rollout.replica import get_rollout_replica_class
from elastic_core.training import micro_batches
from verl.workers.engine import utils
print(get_platform().device_name, EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__,
      version("vllm").endswith("+cpu"), utils.rearrange_micro_batches is micro_batches.rearrange_micro_batches)
"""


def test_verl_runs_on_a_cpu_once_the_plugin_is_loaded() -> None:
    result = python(PROBE, environment=ON_CPU)
    assert result.stdout.splitlines()[-1] == "cpu FSDPEngineWithLMHead True True"


def test_a_plugin_that_verl_never_tried_is_an_error() -> None:
    result = python(PROBE, status=1, environment=ON_CPU | {"VERL_USE_EXTERNAL_PLUGINS": "none"})
    assert "verl did not load elastic_core.training.plugin" in result.stderr


def test_a_failing_plugin_fails_with_its_own_reason() -> None:
    # The tests' environment holds vLLM's CPU build; the other platforms require the CUDA one.
    result = python(PROBE, status=1, environment=os.environ | {"VERL_PLATFORM": ""})
    assert "RuntimeError: vllm is not installed" in result.stderr


@pytest.mark.parametrize(("found", "expected"), [("0.9.2", "verl is 0.9.2"), (None, "verl is not installed")])
def test_another_version_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, found: str | None, expected: str
) -> None:
    def version(distribution: str) -> str:
        if found is None:
            raise PackageNotFoundError(distribution)
        return found

    monkeypatch.setattr(requirements, "version", version)
    with pytest.raises(RuntimeError, match=f"{expected}; .* was written for verl==0.9.1"):
        check_versions(cpu=True)


def test_the_expected_versions_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "version", lambda name: {"verl": requirements.VERL, **requirements.VLLM}[name])
    check_versions(cpu=True)
    check_versions(cpu=False)
