"""A GRPO step under a budget beside plain verl's: the same trainer, model, rows and batch, with our agent loop and
with verl's own, whose responses may be as long and are cut nowhere else. Writes runs/bench/grpo.json.

    python -m tests.bench.bench_grpo                       # the miniature on this machine's CPU
    python -m tests.bench.bench_grpo --training DIRECTORY  # beside a training that has ended, on any device

Seconds are those of generation, log-probabilities, advantages, update and weights, without validation and checkpoints.
The first step, which warms up, is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from omegaconf import OmegaConf

from elastic_core.errors import UserError
from elastic_core.training.launch import FINISHED_STEP, job_environment
from flows.commands.checks.runner import newest
from tasks.records.stage_directory import METRICS
from tests.bench import results

STEPS = 6
TOKENS = "perf/total_num_tokens"
PARTS = ("gen", "reward", "old_log_prob", "ref", "adv", "update_actor", "update_weights")
_METRIC = re.compile(r"([\w/]+):(?:np\.\w+\()?(-?[\d.]+(?:e[+-]?\d+)?)")
_PLAIN = {
    "actor_rollout_ref.rollout.agent.default_agent_loop": "single_turn_agent",
    "actor_rollout_ref.rollout.agent.num_workers": 1,
    "algorithm.adv_estimator": "grpo",
    # Its responses are scored by a worker of its own, with our grader.
    "reward.num_workers": 1,
    "trainer.val_before_train": False,
    "trainer.test_freq": -1,
    "trainer.save_freq": -1,
    "trainer.resume_mode": "disable",
    "trainer.logger": ["console"],
}


def ours(directory: Path) -> Path:
    """A training of the miniature; its stage directory."""
    changes = {"steps": STEPS, "save_every": STEPS, "validate_every": STEPS}
    sets = [part for name, value in changes.items() for part in ("--set", f"train.{name}={value}")]
    command = [sys.executable, "-m", "flows.commands", "run", "train", "--preset", "embedded", *sets]
    subprocess.run(command, env={**os.environ, "ELASTIC_RUNS": str(directory)}, check=True, stdout=subprocess.DEVNULL)
    return newest(directory / "embedded", "train/*")


def plain(training: Path, directory: Path) -> dict[int, dict[str, float]]:
    """Metrics of each step of verl's `main_ppo`, with the configuration of a training of ours but for _PLAIN. UserError
    where it ends with an error."""
    config = OmegaConf.load(training / "verl.yaml")
    environment = job_environment(config)  # type: ignore[arg-type]
    changed = _PLAIN | {"trainer.default_local_dir": str(directory / "checkpoints")}
    if config.trainer.device == "cpu":  # Ray finds no accelerators, and few cores.
        ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
        changed |= {"ray_kwargs.ray_init.num_gpus": ranks, "ray_kwargs.ray_init.num_cpus": 32}
    for key, value in changed.items():
        OmegaConf.update(config, key, value, merge=False)
    OmegaConf.save(config, directory / "plain.yaml")
    log = directory / "plain.log"
    command = [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-path={directory}", "--config-name=plain"]
    with log.open("w") as output:
        done = subprocess.run(
            [*command, f"hydra.run.dir={directory}"],
            env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    lines = log.read_text(errors="replace").splitlines()
    if done.returncode:
        raise UserError(f"plain verl ended with exit status {done.returncode}:\n" + "\n".join(lines[-20:]))
    found = ((FINISHED_STEP.search(line), line) for line in lines)
    return {int(step[1]): {name: float(value) for name, value in _METRIC.findall(line)} for step, line in found if step}


def figures(steps: Mapping[int, Mapping[str, float]]) -> dict[str, float | int]:
    """Medians over all steps but the first. Tokens are those of prompts and responses."""
    rows = [values for step, values in sorted(steps.items()) if step > 1]
    if not rows:
        raise UserError("expected two steps or more, as the first is left out")
    seconds = [sum(row.get(f"timing_s/{part}", 0.0) for part in PARTS) for row in rows]
    return {
        "steps": len(rows),
        "tokens": statistics.median(row[TOKENS] for row in rows),
        "step_seconds": statistics.median(seconds),
        "generation_seconds": statistics.median(row["timing_s/gen"] for row in rows),
        "update_seconds": statistics.median(row["timing_s/update_actor"] for row in rows),
        "tokens_per_second": statistics.median(row[TOKENS] / s for row, s in zip(rows, seconds, strict=True)),
    }


def beside(training: Path, directory: Path) -> dict[str, Any]:
    """Figures of a training of ours, of plain verl's, and the ratio of their tokens per second."""
    recorded: dict[int, dict[str, float]] = {}
    for step, name, value in pl.read_parquet(training / METRICS).select("step", "name", "value").iter_rows():
        recorded.setdefault(step, {})[name] = value
    budget, without = figures(recorded), figures(plain(training, directory))
    ratio = budget["tokens_per_second"] / without["tokens_per_second"]
    return {"budget": budget, "plain": without, "tokens_per_second_ratio": ratio}


def main(training: Path | None, out: Path | None) -> None:
    with tempfile.TemporaryDirectory() as made:
        found = beside(training or ours(Path(made)), Path(made))
    budget, without = found["budget"], found["plain"]
    found["finding"] = (
        f"{budget['step_seconds']:.1f} s a step of {budget['tokens']:.0f} tokens, plain verl's "
        f"{without['step_seconds']:.1f} s of {without['tokens']:.0f}: {found['tokens_per_second_ratio']:.2f} of its "
        "tokens per second"
    )
    if out is None:
        results.write("grpo", found)
    else:
        out.write_text(json.dumps(found, indent=2) + "\n")
    print(found["finding"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=Path, help="directory of a training's stage that has ended")
    parser.add_argument("--out", type=Path, help="file of the figures, instead of runs/bench/grpo.json")
    given = parser.parse_args()
    main(given.training, given.out)
