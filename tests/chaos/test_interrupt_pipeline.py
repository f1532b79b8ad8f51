"""Ctrl-C at every moment of the pipeline: one line, nothing left running; the same command finishes the work."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from elastic_core.system.retry import wait_until
from tests.elastic_command import ELASTIC, elastic, environment
from tests.processes import descendants

COMMAND = ("run", "pipeline", "--preset", "smoke", "--set", "base=warm-start")
MOMENTS = {
    "the server starts": "prefect.server.api.server:create_app",
    "the trainer of the warm start starts": "elastic_core.training.sft",
    "Ray starts": "ray.scripts.scripts",
    "the training's engine starts": "VLLM::EngineCor",
    "the training has a checkpoint": "smoke/train/*/checkpoints/latest_checkpointed_iteration.txt",
    "the sweep has rows": "smoke/tables/*/*.parquet",
    "the sweep is done": "smoke/sweep/*/result*.json",
}
"""Files that are there then, or the process."""


@pytest.mark.timeout(3600)
def test_ctrl_c_ends_the_pipeline_at_any_moment(tmp_path: Path) -> None:
    for moment, sign in MOMENTS.items():
        process = subprocess.Popen(
            [ELASTIC, *COMMAND],
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        root = psutil.Process(process.pid)
        assert wait_until(lambda root=root, sign=sign: is_reached(root, tmp_path, sign), 900, every=0.05), moment
        family = root.children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        # 164 to 306 s before a run outlived its server's SIGINT; a machine may be as busy as it likes.
        _, told = process.communicate(timeout=600)
        assert process.returncode == 130, f"{moment}: {told}"
        assert told.splitlines()[-1] == f"Interrupt; what was finished is kept; to go on: elastic {' '.join(COMMAND)}"
        assert "Traceback" not in told and "Error" not in told, f"{moment}: {told}"
        left = [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"{moment}: {left}"
    finished = elastic(*COMMAND, runs=tmp_path)
    assert finished.returncode == 0, finished.stdout[-6000:]
    assert "sweep: done before, nothing to do" in finished.stdout


def is_reached(root: psutil.Process, runs: Path, sign: str) -> bool:
    return bool(list(runs.glob(sign)) if "/" in sign else descendants(root.pid, sign))
