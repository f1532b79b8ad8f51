"""docs/architecture.md names the files that a path goes through: the path is run, and its calls are traced."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import _lru_cache_wrapper
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx

from elastic_core.sweep.table import Manifest, TrajectoryStore
from flows import presets
from tests.architecture import PAGE, listed, shown
from tests.traced import PROJECT, ROOMS, files_of
from tests.unit.test_report_summary import make_rows


def preset_to_verl(directory: Path) -> Callable[[], object]:
    from flows.train import composed

    return lambda: composed(presets.resolve("e1-math-1.5b"))


def rollout_to_loss(directory: Path) -> Callable[[], object]:
    from tests.training_rollouts import BOX, END, EOS, WORD, Server, rollout

    return lambda: rollout(Server(WORD, WORD, END, *BOX, EOS))


def request_to_response(directory: Path) -> Callable[[], object]:
    """With a web application in place of vLLM's, whose engine writes given tokens."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from elastic_core.serving.middleware import Budgets
    from elastic_core.serving.requests import VARIABLE
    from tests.unit.test_serving_requests import DEFAULT, END, WORD, Engine, Kind, SamplingParams

    os.environ[VARIABLE] = DEFAULT.dump()

    async def chat(request: Request) -> JSONResponse:
        await request.json()
        generate = request.app.state.engine_client.generate
        prompt: Any = {"prompt_token_ids": [WORD]}
        outputs = [each async for each in generate(prompt, SamplingParams(Kind.DELTA), "1")]
        text = "".join(each.outputs[0].text for each in outputs)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": len(outputs)}})

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    app.add_middleware(Budgets)
    app.state.engine_client = Engine([WORD, WORD, END, WORD], 1, "stop")

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            body = {"messages": [{"role": "user", "content": "1+1?"}], "vllm_xargs": {"think_budget": 8}}
            response = await client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200, response.text

    return lambda: asyncio.run(ask())


def table_to_report(directory: Path) -> Callable[[], object]:
    from reports.build import build_report
    from tasks.report import report_sources

    store = TrajectoryStore(directory / "runs" / "embedded" / "sweep" / "key" / "table")
    with store.writing(Manifest({"base": "b453"}, {}, {}, {"temperature": 0.8})):
        store.append(make_rows(benchmarks=["easy"], num_problems=8, num_samples=2))
    return lambda: build_report(report_sources(store.directory, {}), directory / "report")


PATHS = {
    "A preset → verl": (preset_to_verl, "verl"),
    "A rollout → its row of the loss": (rollout_to_loss, "verl"),
    "An HTTP request → its response": (request_to_response, "vllm"),
    "A table → its report": (table_to_report, "polars"),
}
"""What runs a path, and the module that it needs."""


def trace(directory: Path) -> dict[str, list[str]]:
    """Files of the paths that can run here. What one has cached, the next one calls again."""
    found = {}
    for path, (prepare, needed) in PATHS.items():
        if find_spec(needed):
            call = prepare(directory)
            for each in gc.get_objects():
                if type(each) is _lru_cache_wrapper and each.__module__.startswith(ROOMS):
                    each.cache_clear()
            found[path] = files_of(call)
    return found


def test_paths_go_through_the_files_of_the_page_in_their_order(tmp_path: Path) -> None:
    # In a new process, for what is cached otherwise; in one, as their libraries take long to import.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        traced = pool.submit(trace, tmp_path).result()
    for path, files in traced.items():
        assert listed(path) == shown(files), path


def test_the_page_is_short_and_its_files_are_there() -> None:
    lines = PAGE.read_text().splitlines()
    assert len(lines) <= 150
    for heading in (line.removeprefix("## ") for line in lines if line.startswith("## ")):
        assert listed(heading) and all((PROJECT / file).is_file() for file in listed(heading)), heading
