"""A model's size decides how many threads it is trained with."""

import os
from pathlib import Path

import pytest

from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.training.launch import KEPT_MEMORY
from tasks.warm_start import Launch
from tests.unit.test_prepared_model import checkpoint


def test_the_miniature_takes_one_thread_and_a_larger_model_every_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model_files.num_parameters(BASE) == 763_008 and model_files.num_threads(BASE) == 1
    small = checkpoint(tmp_path / "m")
    monkeypatch.setattr(model_files, "ONE_THREAD", model_files.num_parameters(small) - 1)
    assert model_files.num_threads(small) == len(os.sched_getaffinity(0))


def test_the_trainer_is_told_its_threads_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Launch(threads=2).environment()["OMP_NUM_THREADS"] == "2"
    assert KEPT_MEMORY.items() <= Launch(threads=2).environment().items()
    assert not KEPT_MEMORY.items() & Launch(threads=1).environment().items()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Launch(threads=2).environment()["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in Launch(cpu=False, num_processes=8).environment()
