"""What `make gpu` trains, how it judges a training, and what it leaves."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.errors import UserError
from elastic_core.models.special_tokens import load_markers
from elastic_core.models.twins import family_of, make_twin, shrunk
from elastic_core.system.accelerators import Gpu
from elastic_core.training.grpo.step_metrics import AGREEMENT
from flows import presets
from flows.commands.checks.runner import Commands, begin, failure, last_lines
from flows.commands.checks.shortened import Inputs
from flows.presets import toml
from flows.runtime.settings import Settings
from tests.gpu import evidence
from tests.gpu.check import (
    BENCHMARKS,
    CPU_VOCABULARY,
    GPU_TWIN,
    PRESET,
    PROBLEMS,
    SAMPLES,
    STEPS,
    TIED,
    preset_values,
    with_few_tokens,
)
from tests.gpu.evidence import (
    COLUMNS,
    FILE,
    GRADIENT,
    SECONDS,
    Machine,
    conclusion,
    find_machine,
    first_step,
    judge,
    write_summary,
)
from tests.gpu.steps import Record, Step, run_steps

H200 = Gpu("NVIDIA H200", 140 << 30, 139 << 30, "580.1")


def metrics(**changed: Any) -> pl.DataFrame:
    """Of every step; `changed` replaces a value of the third."""
    values = {"critic/score/mean": 0.5, GRADIENT: 0.1, SECONDS: 30.0, AGREEMENT: 0.999}
    rows = [
        {"step": step, "name": name, "value": changed.get(name, value) if step == 3 else value}
        for step in range(1, STEPS + 1)
        for name, value in values.items()
    ]
    return pl.DataFrame([{"step": 0, "name": "val-core/acc", "value": 0.1}, *rows])


def resolved(values: dict[str, Any], directory: Path) -> Settings:
    file = directory / "gpu-twin.toml"
    file.write_text(toml(values))
    return presets.resolve(str(file))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("twin", [False, True])
def test_the_preset_is_the_papers_in_short(ranks: int, twin: bool, tmp_path: Path) -> None:
    stand_in = (tmp_path / "twin", Inputs(None, None)) if twin else None
    settings = resolved(preset_values(ranks, "gpu", stand_in), tmp_path)
    whole = presets.resolve(TIED if twin else PRESET)
    assert settings.base == (str(tmp_path / "twin") if twin else whole.base)
    assert settings.training.steps == STEPS and settings.training.gpus_per_node == ranks
    for name in ("budget", "group_size", "learning_rate", "device", "attention", "reuse_rollout_logprobs"):
        assert getattr(settings.training, name) == getattr(whole.training, name)
    assert settings.engine == whole.engine.model_copy(update={"data_parallel_size": ranks})
    assert settings.sweep.problems is not None
    assert settings.sweep.problems * len(BENCHMARKS) == PROBLEMS and settings.sweep.samples == SAMPLES


def test_on_a_cpu_it_is_a_rehearsal_with_as_many_steps(tmp_path: Path) -> None:
    settings = resolved(preset_values(1, "cpu", (tmp_path, Inputs(None, None))), tmp_path)
    assert (settings.training.device, settings.engine.device) == ("cpu", "cpu")
    assert settings.training.steps == STEPS
    assert not settings.training.reuse_rollout_logprobs  # Sampler and trainer are compared.


def test_the_twin_of_a_cpu_has_few_tokens_and_the_special_ones_after_them(tmp_path: Path) -> None:
    base = presets.resolve(TIED).base
    make_twin(base, with_few_tokens(family_of(base)), tmp_path / "twin")
    config = json.loads((tmp_path / "twin" / "config.json").read_text())
    generation = json.loads((tmp_path / "twin" / "generation_config.json").read_text())
    tokenizer, markers = load_markers(tmp_path / "twin")
    assert config["tie_word_embeddings"] and CPU_VOCABULARY < len(tokenizer) <= config["vocab_size"] < 9000
    assert tokenizer.convert_ids_to_tokens(generation["eos_token_id"]) == ["<|im_end|>", "<|endoftext|>"]
    assert [tokenizer.decode(each) for each in (markers.think_start, markers.close)] == ["<think>", "</think>"]


def test_the_twin_of_a_gpu_has_heads_like_the_models() -> None:
    config = {"model_type": "qwen2", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2}
    twin = shrunk(config, "model", GPU_TWIN)
    assert (twin["hidden_size"], twin["num_attention_heads"], twin["num_key_value_heads"]) == (512, 4, 2)
    assert twin["hidden_size"] // twin["num_attention_heads"] == 1536 // 12


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 1), (1, 1), (2, 2), (3, 2), (7, 4), (8, 8), (16, 8)])
def test_a_power_of_two_of_the_gpus_is_used(gpus: int, ranks: int) -> None:
    assert Machine([H200] * gpus, "abc").ranks == ranks


def test_the_cuda_build_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "installed_build", lambda: "gpu")
    monkeypatch.setattr(evidence, "installed_gpus", list)
    with pytest.raises(UserError, match=r"nvidia-smi.*make gpu ENGINE=cpu"):
        find_machine()


def test_a_sound_training_tells_the_lowest_correlation_and_the_seconds() -> None:
    told, rows = judge(metrics(**{AGREEMENT: 0.97}), STEPS)
    assert "0.9700" in told and told.endswith("30, 30, 30")
    assert list(rows[2].values()) == ["3", "0.5", "0.1", "30", "0.97"] and rows[0].keys() == {"step", *COLUMNS.values()}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({AGREEMENT: 0.42}, "step 3 .* 0.420, .* 0.9"),
        ({AGREEMENT: nan}, "step 3 .* nan"),
        ({GRADIENT: nan}, "gradient .*step 3 .* nan"),
    ],
)
def test_other_weights_in_the_sampler_and_a_broken_gradient_fail(changed: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        judge(metrics(**changed), STEPS)


def test_a_step_that_was_not_recorded_fails() -> None:
    with pytest.raises(UserError, match=r"\[1, 2\].* 1 to 3"):
        judge(metrics().filter(pl.col("step") != 3), STEPS)
    with pytest.raises(UserError, match=f"{AGREEMENT} .*step 3"):
        judge(metrics().filter((pl.col("step") != 3) | (pl.col("name") != AGREEMENT)), STEPS)


def test_the_first_step_of_a_job_is_read_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("(actor) step:0 - val:0.1\nnoise\n(actor) step:3 - a:1\n(actor) step:4 - a:1\n")
    assert first_step(log) == 3
    resumed = "(pid=7) step:2 - training/global_step:2.0\n(pid=7) step:3 - actor/loss:0.1 - training/global_step:3\n"
    log.write_text(resumed)
    assert first_step(log) == 3, "the step that was resumed from is not the job's"
    log.write_text("step:0 - val:0.1\n")
    with pytest.raises(UserError):
        first_step(log)


def record(name: str, verdict: Any = "passed", where: str = "1 × NVIDIA H200", told: str = "all") -> Record:
    return Record(name, f"what {name} shows", verdict, 12.3, told, where, "abc")


def test_the_conclusion_says_that_everything_passed_or_what_did_not() -> None:
    assert conclusion([record("one"), record("two")], 2).startswith("Every step passed on 1 × NVIDIA H200")
    assert conclusion([record("one")], 2).startswith("1 of 2 steps passed on 1 × NVIDIA H200")
    others = [record("one"), record("two", "skipped"), record("three", "failed")]
    assert conclusion(others, 3).endswith("; skipped: two; failed: three.")
    told = conclusion([record("one", where="a CPU"), record("two", "skipped", where="a CPU")], 2)
    assert told.startswith("No GPU was used: of 2 steps 1 passed "), "what ran on a CPU shows nothing about a GPU"
    assert "0 failed, 1 skipped" in told


def test_the_summary_holds_the_machine_the_verdicts_and_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text('{"plain, 256 sequences, tokens_per_second": 12345.6, "executor": null}')
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "steps.json").write_text('[{"step": "1", "mean reward": "0.5"}]')
    records = [record("one", told="a | b\nc"), record("two", "skipped", told="no hub")]
    write_summary(tmp_path, evidence.facts(Machine([H200], "abc")), records, 2)
    text = (tmp_path / FILE).read_text()
    for line in (
        "| one | what one shows | 12 | passed | a \\| b c | 1 × NVIDIA H200 |",
        "| two | what two shows | 12 | skipped | no hub | 1 × NVIDIA H200 |",
        "| plain, 256 sequences, tokens per second | 12346 |",
        "| 1 | 0.5 |",
    ):
        assert line in text.splitlines()
    assert "commit abc: NVIDIA H200 (140.0 GiB), driver 580.1" in text


def test_what_other_code_made_is_dropped(tmp_path: Path) -> None:
    made = tmp_path / "work" / "checkpoint"
    begin(tmp_path / "work", "abc")
    made.touch()
    begin(tmp_path / "work", "abc")
    assert made.exists()
    begin(tmp_path / "work", "def")
    assert not made.exists()


def commands(directory: Path) -> Commands:
    return Commands(directory, directory / "logs", directory / "preset.toml")


def test_a_command_is_killed_with_what_it_started_as_soon_as_it_may_be(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    assert commands(tmp_path).start("log", "-c", code, until=begun.exists) is None
    assert begun.exists()


def test_a_commands_status_and_last_line_are_kept(tmp_path: Path) -> None:
    run, code = commands(tmp_path), "import sys; print('last'); sys.exit(3)"
    assert run.start("log", "-c", code) == 3
    assert last_lines(run.log("log")) == ["last"]
    assert run.log("log").read_text().startswith(f"$ {sys.executable}")
    with pytest.raises(UserError, match=r"3 \(last\).*log\.log"):
        run.finish("log", "-c", code)


def test_of_a_failed_command_the_line_with_the_error_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("$ elastic earlier\nerror: of an earlier attempt\n$ elastic train\nall is well\n")
    assert failure(log) == "all is well"
    with log.open("a") as file:
        file.write("Traceback\n  File x\nRuntimeError: ray start exited with 1:\n12:40 | INFO | Stopping server\n")
    assert failure(log) == "RuntimeError: ray start exited with 1:"
    with log.open("a") as file:
        file.write("12:41 | ERROR | error: no room for the checkpoint\n12:42 | INFO | Stopping server\n")
    assert failure(log).endswith("error: no room for the checkpoint")


# Steps go on where they stopped, and say what they did.


class Steps:
    """Two steps and one that needs the first; each counts its runs, and does what `outcome` says."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.outcome: dict[str, Exception | str] = {"one": "saw one", "two": "saw two", "after-one": "saw more"}
        self.model = "a twin"
        self.skip = ""

    def __call__(self) -> list[Step]:
        return [
            Step("one", "the first", self._run("one"), model=self.model),
            Step("two", "the second", self._run("two"), skip=self.skip),
            Step("after-one", "needs the first", self._run("after-one"), ("one",), self.model),
        ]

    def _run(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.ran.append(name)
            outcome = self.outcome[name]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return run


@pytest.fixture
def steps() -> Steps:
    return Steps()


def verdicts(steps: Steps, directory: Path, where: str = "1 × GPU", commit: str = "abc") -> dict[str, str]:
    records = run_steps(steps(), directory, where=where, commit=commit, say=lambda line: None)
    return {record.name: record.verdict for record in records}


def test_every_step_is_run_in_order_and_keeps_what_it_saw(steps: Steps, tmp_path: Path) -> None:
    records = list(run_steps(steps(), tmp_path, where="1 × GPU", commit="abc", say=lambda line: None))
    assert steps.ran == ["one", "two", "after-one"]
    assert [record.told for record in records] == ["saw one", "saw two", "saw more"]
    assert [record.where for record in records] == ["1 × GPU, a twin", "1 × GPU", "1 × GPU, a twin"]
    assert all(record.verdict == "passed" and record.commit == "abc" for record in records)


def test_a_crash_loses_the_step_that_it_happened_in(steps: Steps, tmp_path: Path) -> None:
    steps.outcome["two"] = KeyError("a mistake of ours")
    with pytest.raises(KeyError):
        verdicts(steps, tmp_path)
    steps.outcome["two"] = "saw two"
    assert set(verdicts(steps, tmp_path).values()) == {"passed"}
    assert steps.ran == ["one", "two", "two", "after-one"]


def test_a_step_that_fails_stops_only_those_that_need_it_and_is_tried_again(steps: Steps, tmp_path: Path) -> None:
    steps.outcome["one"] = UserError("it broke")
    assert verdicts(steps, tmp_path) == {"one": "failed", "two": "passed", "after-one": "skipped"}
    steps.outcome["one"] = "saw one"
    assert set(verdicts(steps, tmp_path).values()) == {"passed"}
    assert steps.ran == ["one", "two", "one", "after-one"]


def test_a_step_that_cannot_be_run_here_says_why(steps: Steps, tmp_path: Path) -> None:
    steps.skip = "no GPU here"
    records = list(run_steps(steps(), tmp_path, where="a CPU", commit="abc", say=lambda line: None))
    assert (records[1].verdict, records[1].told) == ("skipped", "no GPU here") and "two" not in steps.ran


def test_what_would_not_end_in_time_is_left_out_and_what_is_shorter_goes_on(steps: Steps, tmp_path: Path) -> None:
    one, two, after = steps()
    long = [replace(one, seconds=500), replace(two, seconds=30), after]
    records = list(run_steps(long, tmp_path, where="1 × GPU", commit="abc", say=lambda line: None, minutes=1))
    assert steps.ran == ["two"]
    assert records[0].told.startswith("left out: it takes about 500 s, and ")


@pytest.mark.parametrize(
    ("first", "then", "again"),
    [
        ({}, {}, []),
        ({"where": "a CPU"}, {}, ["one", "two", "after-one"]),
        ({}, {"commit": "def"}, ["one", "two", "after-one"]),
        ({}, {"model": "the model"}, ["one", "after-one"]),  # What loads it.
    ],
    ids=["nothing changed", "another machine", "other code", "another model"],
)
def test_what_passed_is_run_again_only_elsewhere_with_other_code_or_with_another_model(
    first: dict[str, str], then: dict[str, str], again: list[str], steps: Steps, tmp_path: Path
) -> None:
    verdicts(steps, tmp_path, **first)
    steps.model = then.pop("model", steps.model)
    assert set(verdicts(steps, tmp_path, **then).values()) == {"passed"}
    assert steps.ran == ["one", "two", "after-one", *again]
