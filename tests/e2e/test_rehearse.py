"""A rehearsal as a user runs it: of e1-math-1.5b, and in the same run of what e1-code-14b and reasonflux-f1-7b have
beyond it (fine-tuning on conversations, programs as data, graded in the loop, thought templates)."""

from pathlib import Path

import polars as pl
import pytest

from elastic_core.sweep.table import SweepTable
from elastic_core.training.checkpoints import checkpoint_steps
from tests.elastic_command import elastic, elastic_here
from tests.exactness import broken_rules

pytestmark = [pytest.mark.timeout(2700), pytest.mark.slow]

PRESET = """
extends = "e1-math-1.5b"
base = "warm-start"

[warm_start]
initial = "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"

[warm_start.sft]
data = "reasonflux-f1-sft"
chat_template = "deepseekr1"
gpus = 8

[data]
train = ["deepscaler", "deepcoder-primeintellect", "deepcoder-taco", "deepcoder-lcbv5"]
validation = ["aime-2024", "livecodebench"]
# One of each grader.
benchmarks = ["aime-2024", "gpqa-diamond", "livecodebench"]

[engine]
tensor_parallel_size = 2
# Two engines side by side are test_sweep_ray's.
data_parallel_size = 1

[sweep]
# Every model by itself is in the smoke pipeline, and in each preset's own rehearsal.
models = ["base>trained"]
strategies = ["separate", "reasonflux_zero"]
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def told(runs: Path) -> str:
    """What `elastic rehearse` prints."""
    preset = runs / "everything.toml"
    preset.write_text(PRESET)
    done = elastic("rehearse", "--preset", str(preset), runs=runs, timeout=2600)
    logs = sorted((runs / "rehearsals" / "everything" / "logs").glob("*.log"), key=lambda log: log.stat().st_mtime)
    assert done.returncode == 0, done.stdout[-3000:] + "".join(log.read_text()[-6000:] for log in logs[-1:])
    return done.stdout


@pytest.fixture(scope="module")
def results(told: str, runs: Path) -> Path:
    return runs / "rehearsals" / "everything" / "rehearse-everything"


def test_every_stage_is_in_the_table_with_what_was_exercised(told: str) -> None:
    for stage in ("twins", "rows", "kill-warm-start", "kill-train", "data", "export", "sweep", "report"):
        assert stage in told
    words = " ".join(told.replace("│", " ").split())
    assert "2 FSDP2 ranks over gloo" in words and "KL to the reference" in words
    assert "everything passes its rehearsal" in told


def test_what_a_cpu_cannot_show_is_named(told: str) -> None:
    words = " ".join(told.split())
    for name in ("CUDA kernels", "NCCL", "CUDA graphs", "tensor parallel", "the CUDA build of vLLM"):
        assert name in words


def test_the_killed_training_resumed_and_every_step_is_there(results: Path) -> None:
    (training,) = (results / "train").iterdir()
    assert checkpoint_steps(training / "checkpoints")[-1] == 2
    assert {"train.log", "train.1.log"} <= {file.name for file in training.iterdir()}
    metrics = pl.read_parquet(training / "metrics.parquet")
    assert metrics.filter(pl.col("name") == "rollout/forced")["step"].to_list() == [1, 2]


def test_some_thoughts_are_closed_and_some_forced(results: Path) -> None:
    (training,) = (results / "train").iterdir()
    metrics = pl.read_parquet(training / "metrics.parquet")
    forced = metrics.filter(pl.col("name") == "rollout/forced")["value"].to_list()
    assert 0 < sum(forced) < len(forced)


def test_the_table_is_exact(results: Path) -> None:
    (sweep,) = (results / "sweep").iterdir()
    table = SweepTable(sweep / "table").read()
    assert broken_rules(table) == {}
    assert set(table["model"]) == {"base>trained"}
    assert {"closed", "forced"} <= set(table["think_finish"])


def test_it_is_listed_as_usable_where_it_passed(told: str, runs: Path) -> None:
    assert (runs / "rehearsals" / "everything" / "rehearsal.json").exists()


def test_what_cannot_be_rehearsed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    unheard = elastic_here("rehearse", "--preset", "e1-math-1.5b", "--set", "base=owner/Unheard-1B", runs=tmp_path)
    assert unheard.returncode == 2
    assert "twins: owner/Unheard-1B: no twin can be made" in unheard.stdout.strip().splitlines()[-1]
