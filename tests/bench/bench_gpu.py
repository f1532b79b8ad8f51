"""On a machine with a GPU: tokens per second of rollouts, seconds of a training step by phase, memory. Writes
runs/bench/gpu.json; says why it does not where there is none.

Without a model it measures a twin of E1-Math-1.5B's base, whose architecture most presets train: Qwen2, with an output
layer of its own. For a real model, by hand:

    python -m tests.bench.bench_gpu --model DIRECTORY --think 1024 --solution 1024
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elastic_core.engines.parameters import EngineParameters
from elastic_core.miniature.problems import TRAIN, VALIDATION, MiniatureParameters, generate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.models.twins import make_twin, origin_of
from elastic_core.strategies import Generate, Sampling
from elastic_core.system.accelerators import installed_gpus
from elastic_core.system.ray_cluster import local_cluster
from elastic_core.training import launch
from elastic_core.training.grpo.config import compose
from elastic_core.training.grpo.parameters import GrpoParameters
from flows import presets
from flows.commands.doctor.machine import GIB, installed_build
from tests.bench import results
from tests.gpu.check import GPU_TWIN, PRESET
from tests.miniature_data import build_miniature

STEPS = 4
"""Of training; the last but one is measured: the first compiles kernels, and in the last verl saves a checkpoint."""
_TIMING = re.compile(r"timing_s/(\w+):(?:np\.float64\()?([\d.e+-]+)")
_MEMORY = re.compile(r"perf/max_memory_(allocated|reserved)_gb:(?:np\.float64\()?([\d.e+-]+)")


def missing() -> str | None:
    """Why nothing can be measured here."""
    if not installed_gpus():
        return "nvidia-smi shows no GPU"
    if installed_build() == "cpu":
        return "the CPU build of vLLM is installed; run first: make install ENGINE=gpu"
    return None


async def rollouts(options: argparse.Namespace, device: Any, runner: Any = None) -> dict[str, float]:
    """Tokens per second with as many requests under way as the engine decodes together, and some waiting, each with its
    seed; of one of vLLM's model runners."""
    from elastic_core.engines.vllm import VllmEngine

    parameters = EngineParameters(
        device=device,
        dtype="float32" if device == "cpu" else "bfloat16",
        max_num_seqs=options.sequences,
        enforce_eager=device == "cpu",
        model_runner=runner,
    )
    os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)  # What the engine before this one has set.
    engine = VllmEngine(str(options.model), parameters)
    tokenizer, _ = load_markers(options.model)
    problems = generate("hard", 64, seed=0, split="tune")
    prompts = [chat_prompt(tokenizer, problem.question) for problem in problems]
    length = options.think + options.solution
    # Without stop tokens every request has the same length, so that the number is the engine's and not the model's.
    requests = [Generate(prompts[i % len(prompts)], length, (), Sampling()) for i in range(2 * options.sequences)]
    try:
        await engine.warm_up()
        started = time.perf_counter()
        done = await asyncio.gather(*(engine.generate(request, seed) for seed, request in enumerate(requests)))
        seconds = time.perf_counter() - started
        used = sum(gpu.total - gpu.free for gpu in installed_gpus())
    finally:
        engine.shutdown()
    tokens = sum(len(completion.tokens) for completion in done)
    of_runner = f"_{runner}" if runner else ""
    return {f"rollout{of_runner}_tokens_per_second": tokens / seconds, f"engine{of_runner}_memory_gib": used / GIB}


def training(options: argparse.Namespace, device: Any) -> dict[str, float]:
    """As `step_figures`, of a training on the miniature's problems."""
    parameters = GrpoParameters(
        budget=f"{options.think}+{options.solution}",
        steps=STEPS,
        batch_size=16,
        mini_batch_size=16,
        save_every=STEPS,
        validate_every=0,
        prompt_tokens=256,
        tokens_per_device=max(16384, 256 + options.think + options.solution + 1),
        device=device,
        gpus_per_node=1,
        rollout_workers=2,
    )
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sizes = MiniatureParameters(num_train=64, hard_fraction=0.5, evaluation_seed=0, problems_per_benchmark=2)
        build_miniature(sizes, directory / "data", parameters.prompt_tokens)
        config = compose(
            parameters,
            model=options.model,
            train_files=[directory / "data" / f"{TRAIN}.parquet"],
            validation_files=[directory / "data" / f"{VALIDATION}.parquet"],
            out_dir=directory / "checkpoints",
            run_name="bench",
        )
        with local_cluster() as cluster:
            job = launch.submit(cluster, config, directory / "verl.yaml", launch.job_environment(config))
            launch.follow(cluster, job, log_file=directory / "train.log", on_line=lines.append)
    return step_figures(lines)


def step_figures(lines: Iterable[str]) -> dict[str, float]:
    """Seconds of the measured step by phase, as verl times them, and the trainer's memory in GiB.

    Args:
        lines: of the training's log.
    """
    found = {int(step[1]): line for line in lines if (step := launch.FINISHED_STEP.search(line))}
    line = found[STEPS - 1]
    timings = {f"step_seconds_{phase}": float(value) for phase, value in _TIMING.findall(line)}
    memory = {f"trainer_memory_{kind}_gib": float(value) for kind, value in _MEMORY.findall(line)}
    return timings | memory


def main(options: argparse.Namespace) -> None:
    if reason := missing():
        print(f"{results.SKIPPED}{reason}")
        return
    with tempfile.TemporaryDirectory() as directory:
        if options.model is None:
            base = presets.resolve(PRESET).base
            options.model = Path(directory) / f"twin of {base.rpartition('/')[2]}"
            make_twin(base, origin_of(base), options.model, size=GPU_TWIN)
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Both, printed and written."""
    figures: dict[str, Any] = {"model": str(options.model), "budget": f"{options.think}+{options.solution}"}
    figures["gpus"] = [gpu.name for gpu in installed_gpus()]
    for runner in (None, "v1", "v2"):
        figures |= asyncio.run(rollouts(options, "cuda", runner))
    figures |= training(options, "gpu")
    for name, value in figures.items():
        print(f"{name:36} {format(value, '.4g') if isinstance(value, float) else value}")
    results.write("gpu", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--think", type=int, default=96)
    parser.add_argument("--solution", type=int, default=32)
    parser.add_argument("--sequences", type=int, default=256, help="decoded together")
    main(parser.parse_args())
