"""kill -9 of the driver, of an engine and of Ray at random moments of a sweep: the same command afterwards finishes the
table, and it is the table of a run that nothing happened to."""

import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import polars as pl
import psutil
import pytest

from elastic_core.trajectory import KEY
from tests.elastic_command import ELASTIC, elastic, environment
from tests.exactness import broken_rules

SEED = 20261121
NUM_KILLS = 20
LONGEST_WAIT = 35.0
"""Seconds from an engine's first sign to the kill: most of it is start-up."""
LATE = 0.3
"""Share of kills that come only when this attempt has stored rows, up to ten seconds after."""

SWEEP = (
    *("run", "sweep", "--preset", "smoke", "--set", 'sweep.models=["base"]'),
    *("--set", "sweep.samples=600", "--set", "data.miniature.problems_per_benchmark=8"),
    *("--set", 'sweep.strategies=["separate","budget_forcing","budget_forcing_wait1","vanilla","unconstrained"]'),
)
VICTIMS = {
    "driver": (),
    "engine actor": ("ray::EngineActor",),
    "engine core": ("VLLM::EngineCor",),
    "raylet": ("raylet",),
    "gcs": ("gcs_server",),
}
"""How the names of processes begin, as the kernel keeps them."""


@pytest.mark.timeout(7200)
def test_a_sweep_killed_at_random_moments_ends_as_if_nothing_had_happened(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    calm, stormy = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("stormy")
    rng = random.Random(SEED)
    process = _start(stormy)
    kills = 0
    while kills < NUM_KILLS:
        if process.poll() is not None:  # Of the last kill; an engine's death it survives.
            assert process.returncode != 0, f"the sweep was finished after {kills} kills; give it more samples"
            process = _start(stormy)
        victim = rng.choice(list(VICTIMS))
        late, wait = rng.random() < LATE, rng.random()
        if late:
            _await_rows(process, stormy)
        target = _await(process, victim)
        if target is None:
            continue
        time.sleep(wait * (10 if late else LONGEST_WAIT))
        shards = _shards(stormy)
        with suppress(psutil.NoSuchProcess):
            target.kill()
            kills += 1
            print(f"kill {kills}: {victim}, {'late' if late else 'early'}, {_rows(stormy)} rows stored", flush=True)
        if victim == "driver":
            process.wait(60)
        assert shards.items() <= _shards(stormy).items(), "finished shards are never written again"
    # Without Ray's control service the sweep may end well, or with an error, but it ends.
    process.wait(1800)

    again = elastic(*SWEEP, runs=stormy, timeout=1800)
    assert again.returncode == 0, again.stdout[-6000:]
    undisturbed = elastic(*SWEEP, runs=calm, timeout=1800)
    assert undisturbed.returncode == 0, undisturbed.stdout[-6000:]

    table, expected = (pl.read_parquet(list(_shards(runs))).sort(KEY) for runs in (stormy, calm))
    assert table.height == table.n_unique(KEY)
    assert table.equals(expected)
    assert broken_rules(table) == {}


def _start(runs: Path) -> "subprocess.Popen[bytes]":
    log = (runs / "log").open("ab")
    return subprocess.Popen([ELASTIC, *SWEEP], env=environment(runs), stdout=log, stderr=subprocess.STDOUT)


def _await(process: "subprocess.Popen[bytes]", victim: str, seconds: float = 240) -> psutil.Process | None:
    """The process to kill, once an engine has shown up; None when the command ended before."""
    until = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < until, f"no {victim} within {seconds:.0f} s"
        try:
            driver = psutil.Process(process.pid)
            family = {child.name(): child for child in driver.children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
        if any(name.startswith("ray::EngineActo") for name in family):
            if victim == "driver":
                return driver
            for name, child in family.items():
                if any(name.startswith(begin[:15]) for begin in VICTIMS[victim]):
                    return child
        time.sleep(0.2)
    return None


def _await_rows(process: "subprocess.Popen[bytes]", runs: Path, seconds: float = 600) -> None:
    """Until a new shard is there, or the command has ended."""
    before, until = _shards(runs), time.monotonic() + seconds
    while process.poll() is None and _shards(runs) == before:
        assert time.monotonic() < until, f"no rows within {seconds:.0f} s"
        time.sleep(0.2)


def _shards(runs: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in runs.glob("smoke/tables/*/*.parquet")}


def _rows(runs: Path) -> int:
    files = list(_shards(runs))
    return int(pl.scan_parquet(files).select(pl.len()).collect().item()) if files else 0
