"""`elastic serve` before anything starts: what vLLM is told, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.serving.levels import read_levels
from elastic_core.serving.requests import VARIABLE, ServeConfiguration
from elastic_core.serving.server import conflict
from flows import presets
from flows.commands.serve import Command, command
from tests.elastic_command import elastic_here
from tests.served import BASE, BUDGETS, model_with_levels


@pytest.fixture(autouse=True)
def _runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)


def composed(model: Path = BASE, changes: dict[str, Any] | None = None, **options: Any) -> Command:
    given = {"budget": None, "host": "127.0.0.1", "port": 8000, "further": [], **options}
    return command("embedded", changes or {}, str(model), **given)


def value(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_vllm_serves_the_presets_engine_with_both_budgets() -> None:
    changes = {"engine.max_model_len": 512, "sweep.temperature": 0.7, "sweep.top_p": 0.9}
    arguments = composed(changes=changes, further=["--tool-call-parser", "hermes"]).arguments
    assert arguments[:6] == [sys.executable, "-P", "-m", "elastic_core.serving.server", "serve", str(BASE)]
    assert value(arguments, "--logits-processors") == "elastic_core.engines.budgets.v1:SeparateBudgets"
    assert value(arguments, "--middleware") == "elastic_core.serving.middleware.Budgets"
    assert value(arguments, "--max-model-len") == "512"
    assert value(arguments, "--host") == "127.0.0.1"
    assert json.loads(value(arguments, "--override-generation-config")) == {"temperature": 0.7, "top_p": 0.9}
    assert arguments[-3:] == ["--", "--tool-call-parser", "hermes"]


def test_without_a_key_only_pages_of_this_machine_may_ask_unless_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = composed(port=8001).arguments
    assert json.loads(value(arguments, "--allowed-origins")) == ["http://localhost"]
    ours = arguments[5 : arguments.index("--")]
    assert conflict(ours, ["--allowed-origins", '["https://page.example"]']) is None
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert "--allowed-origins" not in composed().arguments


def test_a_directory_that_is_called_as_one_of_the_presets_models_is_the_one_served(tmp_path: Path) -> None:
    other = shutil.copytree(BASE, tmp_path / "base")
    started = composed(other)
    assert (started.name, started.arguments[5]) == ("base", str(other))


def test_levels_beside_the_model_are_offered(tmp_path: Path) -> None:
    model = model_with_levels(tmp_path / "model")
    started = composed(model, budget=Budget.parse("512+unlimited"))
    assert started.name == "model"
    config = ServeConfiguration.load(started.environment[VARIABLE])
    assert config.default == Budget(512, None)
    assert config.levels == {name: Budget(*limits) for name, limits in BUDGETS.items()}


def offered(*given: Any, **options: Any) -> ServeConfiguration:
    return ServeConfiguration.load(composed(*given, **options).environment[VARIABLE])


def test_missing_levels_and_the_older_name_of_a_thought_are_for_the_middleware(tmp_path: Path) -> None:
    model = model_with_levels(tmp_path / "model")
    for options, expected in (({}, ("nearest", False)), ({"unmeasured": "refuse", "reasoning_content": True}, None)):
        config = offered(model, **options)
        assert (config.unmeasured, config.reasoning_content) == (expected or tuple(options.values()))


def test_a_goal_under_load_has_the_measured_budgets_from_the_floor_up(tmp_path: Path) -> None:
    model = model_with_levels(tmp_path / "model")
    assert offered(model).goal is None
    goal = offered(model, latency=2.0).goal
    assert goal is not None and (goal.latency, goal.tokens_per_second) == (2.0, None)
    assert [each.think for each in goal.points] == [4, 16, 48, 160]
    goal = offered(model, tokens_per_second=500.0, floor="low").goal
    assert goal is not None and [each.think for each in goal.points] == [16, 48, 160]


def test_a_goal_is_kept_by_one_process_before_all_replicas(tmp_path: Path) -> None:
    model, replicas = model_with_levels(tmp_path / "model"), {"engine.data_parallel_size": 2}
    assert value(composed(model, replicas, latency=2.0).arguments, "--api-server-count") == "1"
    assert "--api-server-count" not in composed(model, replicas).arguments


def test_a_goal_needs_budgets_to_choose_from(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"budgets\.json is missing"):
        composed(latency=2.0)
    model = model_with_levels(tmp_path / "model")
    with pytest.raises(UserError, match="2 measured budgets from the level medium up; expected 3 or more"):
        composed(model, latency=2.0, floor="medium")


def test_a_vllm_of_ones_own_is_told_what_elastic_serve_tells_its(tmp_path: Path) -> None:
    printed = elastic_here("model", "vllm-flags", str(BASE), "--device", "cpu", runs=tmp_path).stdout.split()
    flags = ("--logits-processors", "--middleware", "--reasoning-parser")
    assert printed == [word for flag in flags for word in (flag, value(composed().arguments, flag))]
    without = elastic_here("model", "vllm-flags", "--device", "cpu", runs=tmp_path).stdout.split()
    assert without == printed[:4]


def test_without_levels_the_terminal_says_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert not offered().levels
    assert "elastic plan budgets --from runs/PRESET/sweep/KEY/table --output" in capsys.readouterr().out


@pytest.mark.parametrize(("file", "text", "says"), [("budgets.json", "{}", ""), ("config.json", "{}", ".* weights ")])
def test_levels_that_cannot_be_read_or_are_of_other_weights_stop_the_server(
    file: str, text: str, says: str, tmp_path: Path
) -> None:
    model = model_with_levels(tmp_path / "model")
    (model / file).write_text(text)
    with pytest.raises(UserError, match=rf"budgets\.json: {says}"):
        composed(model)


def test_requests_that_say_nothing_are_sampled_as_the_levels_were(tmp_path: Path) -> None:
    model = model_with_levels(tmp_path / "model")
    levels = read_levels(model / "budgets.json")
    levels.model_copy(update={"temperature": 0.3}).write(model / "budgets.json")
    sampling = json.loads(value(composed(model).arguments, "--override-generation-config"))
    assert sampling["temperature"] == 0.3 and sampling["top_p"] == presets.resolve("embedded").sweep.top_p


def test_a_model_that_cannot_think_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    tokenizer = (model / "tokenizer.json").read_text()
    (model / "tokenizer.json").write_text(tokenizer.replace("</think>", "</other>"))
    with pytest.raises(UserError, match=r"</think> .*elastic model"):
        composed(model)


def test_weights_that_are_cut_off_are_named_also_beside_levels(tmp_path: Path) -> None:
    model = model_with_levels(tmp_path / "model")
    with (model / "model.safetensors").open("r+b") as weights:
        weights.truncate(1000)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        composed(model)


def test_budgets_over_the_context_are_refused_at_the_start(tmp_path: Path) -> None:
    """As no request could have them; the largest that leaves a prompt its one token is served."""
    context: dict[str, Any] = {"engine.max_model_len": 512}
    with pytest.raises(UserError, match=r"--budget is 480\+31, .* 512 .* 512"):
        composed(changes=context, budget=Budget.parse("480+31"))
    assert composed(changes=context, budget=Budget.parse("480+30"))
    with pytest.raises(UserError, match=r"--budget is 1024\+unlimited, .* 1024"):
        composed(budget=Budget.parse("1k+unlimited"))
    model = model_with_levels(tmp_path / "model")
    with pytest.raises(UserError, match=r"budgets\.json: .*high is 160\+24, .* 185 "):
        composed(model, {"engine.max_model_len": 128})


GPUS = "".join(f"{i}, GPU-{i}, NVIDIA H200, 143771, 143000, 580.65\n" for i in range(8))
LISTED_BY = """#!/bin/sh
[ "$1" = --query-gpu=index,uuid,name,memory.total,memory.free,driver_version ] && cat {}
"""


@pytest.mark.parametrize(("build", "gpus", "replicas", "sentence"), [
    ("gpu", 1, 8, r"8 GPUs .*--set engine\.data_parallel_size=1`"),
    ("gpu", 4, 4, None),
    ("gpu", 0, 1, "nvidia-smi"),
    ("cpu", 8, 8, "CPU build"),
])  # fmt: skip
def test_more_replicas_than_gpus_are_refused(
    build: str, gpus: int, replicas: int, sentence: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, tool = tmp_path / "gpus", tmp_path / "nvidia-smi"
    listed.write_text("".join(GPUS.splitlines(keepends=True)[:gpus]))
    tool.write_text(LISTED_BY.format(listed))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("flows.commands.serve.installed_build", lambda: build)
    engine = {"device": "cuda", "data_parallel_size": replicas}
    changes = {f"engine.{key}": value for key, value in engine.items()}
    if sentence is None:
        assert value(composed(changes=changes).arguments, "--data-parallel-size") == str(replicas)
        return
    with pytest.raises(UserError, match=sentence):
        composed(changes=changes)


def test_others_reach_a_server_with_a_key_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="VLLM_API_KEY"):
        composed(host="0.0.0.0")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert "secret" not in str(composed(host="0.0.0.0"))


def test_wrong_input_is_one_sentence(tmp_path: Path) -> None:
    refused = elastic_here("serve", "--model", str(BASE), "--budget", "many", runs=tmp_path)
    assert refused.returncode == 2
    assert refused.stdout.startswith("error: elastic serve: ") and '"many" is not a budget' in refused.stdout
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = elastic_here("serve", "--model", str(BASE), "--port", port, runs=tmp_path)
    assert refused.returncode == 2
    assert f"server cannot listen on 127.0.0.1 port {port}" in refused.stdout
