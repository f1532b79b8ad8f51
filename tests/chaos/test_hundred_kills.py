"""A hundred accidents at random moments of the pipeline: kill -9 of every kind of process, a full disk, a clock set
back. The same command afterwards finishes the work, and it is the work of a pipeline that nothing happened to.

A pipeline that got through its accidents is compared with the undisturbed one and a new one begins, until there were
enough. From the middle on, a kind that has not been drawn yet is waited for. The table of them stays in
`runs/chaos.md`; NUM_KILLS draws fewer.

Not tried here: a clock that jumps while a process runs, for which the clock of the whole machine would have to be set.
What a clock set back leaves behind is files that are younger than now, and these are made.
"""

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import psutil
import pytest
from mlflow import MlflowClient

from elastic_core.system.retry import wait_until
from elastic_core.training.grpo.step_metrics import check_metrics
from tests.elastic_command import ELASTIC, elastic, environment
from tests.exactness import assert_same_work, broken_rules, recorded, shards
from tests.processes import descendants

SEED = 20261127
NUM_KILLS = int(os.environ.get("NUM_KILLS", "100"))
TABLE = Path("runs/chaos.md")
STEPS, VALIDATE_EVERY = 12, 6
PIPELINE = (
    *("run", "pipeline", "--preset", "smoke", "--set", "base=warm-start", "--set", f"train.steps={STEPS}"),
    *("--set", f"train.validate_every={VALIDATE_EVERY}", "--set", "sweep.samples=60"),
    *("--set", 'sweep.strategies=["separate","budget_forcing","vanilla","unconstrained"]'),
)
FLOW, FULL, CLOCK = "flow", "disk full", "clock set back"
PROCESSES = {
    FLOW: "",
    "Prefect's server": "prefect.server.api.server:create_app",
    "fine-tuning": "elastic_core.training.sft",
    "trainer": "ray::ElasticTaskRunner",
    "actor that updates": "ray::WorkerDict",
    "actor that drives rollouts": "ray::RolloutWorker",
    "actor of an engine": "ray::EngineActor",
    "engine": "VLLM::EngineCor",
    "raylet": "raylet/raylet ",
    "Ray's head": "gcs/gcs_server",
}
"""What their command lines hold."""
SECONDS_FULL = 15.0
DISK = 6 * 2**30
"""Bytes; a pipeline does not start on less than four."""


@dataclass(frozen=True)
class Runs:
    """A runs directory."""

    directory: Path

    @property
    def log(self) -> Path:
        """Beside it, as its disk may be full."""
        return self.directory.with_suffix(".log")

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [ELASTIC, *PIPELINE], env=environment(self.directory), stdout=log, stderr=subprocess.STDOUT
            )

    def rows(self) -> pl.DataFrame:
        return pl.read_parquet(list(shards(self.directory)))


@pytest.mark.timeout(5 * 3600)
def test_a_pipeline_that_a_hundred_accidents_happened_to_ends_as_one_that_none_happened_to(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    calm = Runs(tmp_path / "calm")
    began = time.monotonic()
    undisturbed = elastic(*PIPELINE, runs=calm.directory)
    duration = time.monotonic() - began
    assert undisturbed.returncode == 0, undisturbed.stdout[-6000:]
    happened: list[tuple[str, str]] = []
    number = 0
    while len(happened) < NUM_KILLS:
        number += 1
        with _disk(tmp_path / f"stormy-{number}") as (directory, is_limited):
            stormy = Runs(directory)
            process, is_struck = stormy.start(), False
            while process.poll() != 0:
                if process.poll() is not None:
                    assert is_struck, f"it failed by itself:\n{stormy.log.read_text()[-6000:]}"
                    process, is_struck = stormy.start(), False
                if len(happened) == NUM_KILLS:
                    process.wait(1800)
                    continue
                late = len(happened) >= NUM_KILLS / 2
                awaited = next((kind for kind in PROCESSES if late and kind not in dict(happened)), None)
                if _is_over(process, rng.uniform(0, duration / 2), PROCESSES[awaited or FLOW]):
                    continue
                victims = {kind: descendants(process.pid, mark) for kind, mark in PROCESSES.items()}
                kinds = [*(kind for kind, found in victims.items() if found), CLOCK] + [FULL] * is_limited
                kind = awaited if awaited in kinds else rng.choice(kinds)
                happened.append((kind, _stage(directory)))
                print(f"{len(happened)}: {kind} during {happened[-1][1]}, pipeline {number}", flush=True)
                before, is_struck = shards(directory), True
                _strike(kind, process, victims.get(kind), directory)
                assert before.items() <= shards(directory).items(), f"a finished shard was written again: {kind}"
            _compare(stormy, calm)
            _write_table(happened, number, duration)
    assert NUM_KILLS < 100 or {kind for kind, _ in happened} >= PROCESSES.keys() | {CLOCK}


def _strike(
    kind: str, process: "subprocess.Popen[bytes]", victims: list[psutil.Process] | None, directory: Path
) -> None:
    if kind == FULL:
        _fill(process, directory)
    elif kind in (FLOW, CLOCK):
        process.kill()
        process.wait(600)
        if kind == CLOCK:
            _age(directory)
    elif victims:
        with suppress(psutil.NoSuchProcess):
            victims[0].kill()


def _fill(process: "subprocess.Popen[bytes]", directory: Path) -> None:
    """For so long there is no more room than what is written already."""
    _resize(directory, shutil.disk_usage(directory).used)
    with suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_FULL)
    _resize(directory, DISK)


def _resize(directory: Path, num_bytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={num_bytes}", str(directory)], check=True)


def _age(directory: Path, seconds: float = 3600) -> None:
    """Every file is younger than now."""
    for file in directory.rglob("*"):
        with suppress(OSError):
            os.utime(file, (time.time() + seconds,) * 2, follow_symlinks=False)


def _is_over(process: "subprocess.Popen[bytes]", seconds: float, awaited: str) -> bool:
    """After so many seconds; or as soon as there is a process with such a mark, as some are there for a moment only."""

    def is_there() -> bool:
        return process.poll() is not None or (bool(awaited) and bool(descendants(process.pid, awaited)))

    wait_until(is_there, None if awaited else seconds, every=0.1)
    return process.poll() is not None


def _stage(directory: Path) -> str:
    for stage in ("report", "sweep", "train", "warm-start", "data"):
        if (directory / "smoke" / stage).exists():
            return stage
    return "start"


def _compare(stormy: Runs, calm: Runs) -> None:
    rows = stormy.rows()
    assert broken_rules(rows) == {}
    assert_same_work(rows, calm.rows())
    client = MlflowClient(f"sqlite:///{stormy.directory}/mlflow.db")
    (run,) = (run for run in recorded(client) if run.info.run_name == "train")
    check_metrics(client, run.info.run_id, STEPS, VALIDATE_EVERY, validate_first=True)
    assert run.info.status == "FINISHED"
    again = elastic(*PIPELINE, runs=stormy.directory)
    assert "pipeline: done before" in again.stdout, again.stdout[-6000:]


@contextmanager
def _disk(directory: Path) -> Iterator[tuple[Path, bool]]:
    """A small disk mounted there, which can be filled; without the right to mount, a directory that cannot."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(directory)]
    is_limited = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield directory, is_limited
    finally:
        if is_limited:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


def _write_table(happened: list[tuple[str, str]], pipelines: int, duration: float) -> None:
    stages = ("start", "data", "warm-start", "train", "sweep", "report")
    counts = Counter(happened)
    lines = [
        *(f"Accidents: {len(happened)}, pipelines: {pipelines}. Undisturbed one takes {duration:.0f} s.", ""),
        *(f"| | {' | '.join(stages)} |", f"|---|{'---|' * len(stages)}"),
    ]
    for kind in [*PROCESSES, FULL, CLOCK]:
        lines.append(f"| {kind} | {' | '.join(str(counts[kind, stage]) for stage in stages)} |")
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
