"""No engine of ours compiles FlashInfer's sampler, unless the user's environment asks for it."""

import gc
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from elastic_core.engines import vllm
from elastic_core.engines.parameters import SAMPLER_THREADS, EngineParameters, engine_environment
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files
from elastic_core.training.launch import job_environment

NAME = "VLLM_USE_FLASHINFER_SAMPLER"


@pytest.fixture(params=[None, "1"])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What has to arrive, when the user's environment says nothing or 1."""
    monkeypatch.setenv(NAME, request.param or "")
    if request.param is None:
        monkeypatch.delenv(NAME)
    return request.param or "0"


def test_engines_of_sweeps_and_the_playground_start_with_it(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []

    class AsyncLLM:
        model_config = SimpleNamespace(max_model_len=64)

        @classmethod
        def from_engine_args(cls, arguments: Any) -> "AsyncLLM":
            found.append(os.environ.get(NAME))
            return cls()

        def shutdown(self) -> None:
            found.append("ended")

        def __del__(self) -> None:
            self.shutdown()

    module = ModuleType("async_llm")
    module.AsyncLLM = AsyncLLM  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.async_llm", module)
    monkeypatch.setattr(vllm, "_engine_arguments", lambda *arguments: None)
    engine = vllm.VllmEngine("model", EngineParameters())
    engine.shutdown()
    del engine
    gc.collect()
    assert found == [chosen, "ended"], "ended once: at exit vLLM's modules are gone, and a second end is a traceback"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_training_jobs_run_with_it(chosen: str, device: str) -> None:
    assert job_environment(job(device, BASE))[NAME] == chosen


def job(device: str, model: Path) -> Any:
    trainer = {"device": device, "nnodes": 1, "n_gpus_per_node": 1}
    rollouts = {"model": {"path": str(model)}}
    return OmegaConf.create({"trainer": trainer, "elastic": {"strategy": "separate"}, "actor_rollout_ref": rollouts})


@pytest.mark.parametrize(("device", "policy"), [("cpu", "PASSIVE"), ("cuda", None)])
def test_threads_of_every_engine_on_a_cpu_sleep_while_they_wait(
    device: str, policy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside other work threads that spin take six times the processor's time."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    started = EngineParameters(device=device).environment, job_environment(job(device, BASE))  # type: ignore[arg-type]
    assert [each.get("OMP_WAIT_POLICY") for each in started] == [policy] * 2


@pytest.mark.parametrize(("parameters", "threads"), [(files.ONE_THREAD, "3"), (files.ONE_THREAD + 1, "4")])
def test_a_large_models_sampler_takes_every_core(
    parameters: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(files, "num_parameters", lambda model: parameters)
    environment = job_environment(job("cpu", BASE))
    assert environment[SAMPLER_THREADS] == threads and ("GLIBC_TUNABLES" in environment) == (threads == "4")


@pytest.mark.parametrize(("device", "expected"), [("cpu", "0"), ("cuda", None)])
def test_only_on_a_cpu_the_model_shares_its_engines_process(
    device: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    assert engine_environment(device).get("VLLM_ENABLE_V1_MULTIPROCESSING") == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (EngineParameters(), "1"),
        (EngineParameters(enforce_eager=False), None),
        (EngineParameters(device="cuda"), None),
    ],
)
def test_only_an_eager_cpu_engine_compiles_nothing(
    parameters: EngineParameters, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_COMPILE_DISABLE", raising=False)
    assert parameters.environment.get("TORCH_COMPILE_DISABLE") == expected
