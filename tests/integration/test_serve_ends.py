"""How `elastic serve` starts, by vLLM's own parser of arguments, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_core.engines.parameters import EngineParameters
from elastic_core.models.special_tokens import load_markers
from elastic_core.serving.server import arguments as server_arguments
from elastic_core.serving.server import conflict
from elastic_core.strategies import Sampling
from tests.served import BASE, elastic_serve, streams


def refused_arguments(tmp_path: Path) -> Iterator[tuple[list[str], str]]:
    settings = tmp_path / "settings.yaml"
    settings.write_text("host: 0.0.0.0\n")
    for spelling in (
        ["--logits-processors", "my:Processor"],
        ["--logits_processors=my:Processor"],
        ["--logits-proc", "my:Processor"],
    ):
        yield spelling, "--logits-processors after the --: `elastic serve` sets this itself; leave it out"
    yield ["--additional-config.x", "1"], "--additional-config after"
    yield ["-dp", "2"], r"--data-parallel-size after .*; give --set engine\.data_parallel_size=VALUE before the --"
    yield ["--no-enable-prefix-caching"], "--enable-prefix-caching after"
    yield ["--max-model-len", "1k"], r"give --set engine\.max_model_len=VALUE"
    yield ["--host", "::"], "--host after .*; give --host before the --"
    yield ["--disable-log-stats", "--config", str(settings)], "--host after"
    yield ["--api-key", ""], r"is in \$VLLM_API_KEY"
    yield ["--uds", "socket"], "--uds after"
    yield ["other"], "--model after"
    for speculative in (["--speculative_config.method", "ngram"], ["-sc", "{}"], ["--spec-model", "small"]):
        yield speculative, "speculative decoding on vLLM's V2 runner alone"


def test_after_the_dashes_nothing_is_taken_that_budgets_or_checks_hang_on(tmp_path: Path) -> None:
    """In whatever spelling vLLM takes it. A test of vLLM's parser: it takes seconds to import."""
    _, markers = load_markers(BASE)
    arguments = server_arguments(BASE, "base", EngineParameters(), Sampling(), markers, "127.0.0.1", 8000)[1:]
    for further, sentence in refused_arguments(tmp_path):
        assert re.search(sentence, conflict(arguments, further) or ""), further
    for further in (
        [],
        ["--middleware", "my.Middleware", "--shutdown_timeout=300"],
        ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--disable-log-stats", "-O3"],
    ):
        assert conflict(arguments, further) is None
    with pytest.raises(SystemExit):
        conflict(arguments, ["--no-such-argument"])


@pytest.mark.slow
def test_a_server_ends_though_responses_take_longer_than_they_may(tmp_path: Path) -> None:
    with elastic_serve(BASE, tmp_path / "log", "--", "--shutdown-timeout", "1") as (address, process):
        cut = streams(address, process.terminate, count=48, model="base", max_tokens=900)
        assert not all("[DONE]" in text for text in cut)
        assert process.wait(600) == 0


@pytest.mark.slow
def test_a_server_whose_engine_dies_ends_as_one_that_failed(tmp_path: Path) -> None:
    with elastic_serve(BASE, tmp_path / "log") as (_, process):
        (engine,) = [child for child in process.children(recursive=True) if "EngineCore" in "".join(child.cmdline())]
        engine.kill()
        assert process.wait(600) == 1
    assert "error: the server ended without a signal" in (tmp_path / "log").read_text()
