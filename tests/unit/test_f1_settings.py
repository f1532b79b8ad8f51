"""ReasonFlux's presets: complete, as published, and refused with a sentence where a setting is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.training.sft import compose_config
from elastic_core.training.sft_parameters import SftParameters
from flows import presets
from flows.commands.doctor import models_in_use
from flows.runtime.run import FlowRun
from tasks.records.stage_directory import Stage
from tasks.warm_start import Launch

NAMES = ("reasonflux-f1-7b", "reasonflux-f1-14b", "reasonflux-f1-32b")


def sft(**changes: Any) -> SftParameters:
    return SftParameters(**{"data": "reasonflux-f1-sft", "chat_template": "deepseekr1"} | changes)


@pytest.mark.parametrize("name", NAMES)
def test_fine_tuning_is_as_published(name: str) -> None:
    settings = presets.resolve(name)
    parameters = settings.warm_start.sft
    assert parameters is not None and parameters.chat_template == "deepseekr1"
    size = name.rpartition("-")[2].upper()
    assert settings.warm_start.initial == f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{size}"
    assert settings.sweep.checkpoints["R1-Distill-Qwen"] == settings.warm_start.initial
    assert settings.data.benchmarks == ["aime-2024", "aime-2025", "math500", "gpqa-diamond"]
    config = compose_config(parameters.warm_start(Path("model"), Path("rows"), 1000, Path("work"), Path("out")))
    assert config.trainer.total_training_steps == 5 * (1000 // 16)
    assert (config.data.train_batch_size, config.data.max_length, config.optim.lr) == (16, 16384, 1e-5)
    optimiser = config.optim
    assert (optimiser.lr_scheduler_type, optimiser.lr_warmup_steps, optimiser.min_lr_ratio) == ("cosine", 0, 0)
    assert (list(optimiser.betas), optimiser.weight_decay, optimiser.clip_grad) == ([0.9, 0.999], 0, 1)
    assert (config.engine.mixed_precision.param_dtype, config.engine.model_dtype) == ("bf16", "fp32")
    assert config.model.enable_gradient_checkpointing and config.model.use_fused_kernels
    assert config.engine.offload_policy == (size == "32B")
    assert parameters.tokens_per_device >= parameters.cutoff, "a row of the cutoff fits a device"
    assert settings.engine.tensor_parallel_size * settings.engine.data_parallel_size == parameters.gpus == 8


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"warm_start.sft.chat_template": "r1"}, "chat_template: .*deepseekr1.*'r1'"),
        ({"warm_start.sft.epochs": 0}, r"--set warm_start\.sft\.epochs: .* 1"),
        ({"warm_start.sft.epoch": 3}, r'--set warm_start\.sft\.epoch: .*"epochs"'),
        ({"warm_start.sft.batch_size": 12}, "batch_size = 12 .* gpus = 8"),
        ({"warm_start.sft.cutoff": 32768}, "tokens_per_device = 16384 .* cutoff = 32768"),
        ({"warm_start.sft.precision": "fp16"}, r"--set warm_start\.sft\.precision: .*'fp16'"),
        ({"warm_start.initial": "random"}, "sft"),
        ({"warm_start.steps": 3}, "steps .*sft"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        presets.resolve("reasonflux-f1-7b", overrides)
    with pytest.raises(UserError, match=r"initial.*me/model"):
        presets.resolve("smoke", {"warm_start.initial": "me/model"})
    with pytest.raises(ValidationError, match=r"chat_template\n  Field required"):
        SftParameters(data="reasonflux-f1-sft")


def test_what_is_imitated_is_built_with_the_benchmarks_and_what_cannot_be_is_refused(tmp_path: Path) -> None:
    built = FlowRun(presets.resolve("reasonflux-f1-7b"), tmp_path).datasets
    assert [entry.name for entry in built] == [
        "aime-2024", "aime-2025", "math500", "gpqa-diamond", "reasonflux-f1-sft",
    ]  # fmt: skip
    (tmp_path / "mine.jsonl").touch()
    own = presets.resolve("reasonflux-f1-7b", {"warm_start.sft.data": str(tmp_path / "mine.jsonl")})
    assert FlowRun(own, tmp_path).datasets[-1].files[0].path == "mine.jsonl"
    for data, message in (
        ("math500", r"warm_start\.sft\.data: math500 .*reasonflux-f1-sft"),
        ("reasonflux-f1-stf",) * 2,
    ):
        settings = presets.resolve("reasonflux-f1-7b", {"warm_start.sft.data": data})
        with pytest.raises(UserError, match=message):
            FlowRun(settings, tmp_path).datasets  # noqa: B018


def test_generated_conversations_have_no_source_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "is_done", True)
    words = {"seed": 1, "num_train": 2, "num_sft": 2, "evaluation_seed": 2, "problems_per_benchmark": 2}
    settings = presets.resolve(
        "reasonflux-f1-7b", {"warm_start.sft.data": "words-sft", "warm_start.initial": str(BASE), "data.words": words}
    )
    file, sources = FlowRun(settings, tmp_path).conversations
    assert (file.name, sources) == ("words-sft.parquet", ())


def test_rows_that_fill_no_batch_are_refused() -> None:
    assert sft(epochs=3, batch_size=16).total_steps(47) == 6
    with pytest.raises(UserError, match=r"15 .*batch_size, 16"):
        sft().total_steps(15)


def test_several_gpus_are_a_process_each_and_a_cpu_is_one() -> None:
    assert "--nproc-per-node 8 -m elastic_core.training.sft c.json" in " ".join(
        Launch(cpu=False, num_processes=8).command(Path("c.json"))
    )
    assert "VERL_PLATFORM" not in Launch(cpu=False, num_processes=8).environment()
    assert Launch().command(Path("c.json"))[-3:] == ["-m", "elastic_core.training.sft", "c.json"]
    assert Launch().environment()["VERL_PLATFORM"] == "cpu"
    assert Launch(num_processes=8).environment()["PYTHONSAFEPATH"], (
        "torchrun starts its processes by a command of its own"
    )


def test_a_dry_run_shows_the_fine_tuning() -> None:
    from flows.train import composed

    shown = yaml.safe_load(composed(presets.resolve("reasonflux-f1-7b"), fine_tuning=True))
    assert shown["trainer"]["total_training_steps"] == "5 * (rows // 16)"
    assert (shown["trainer"]["device"], shown["trainer"]["n_gpus_per_node"]) == ("cuda", 8)
    assert shown["model"]["path"] == "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"


def test_the_preset_is_as_published_and_needs_no_think_markers(tmp_path: Path) -> None:
    settings = presets.resolve("reasonflux-zero-32b")
    sft = settings.warm_start.sft
    assert sft is not None and settings.warm_start.initial == "Qwen/Qwen2.5-32B-Instruct"
    assert (sft.data, sft.chat_template) == ("reasonflux-sft-15k", "qwen")
    assert (sft.epochs, sft.learning_rate, sft.cutoff, sft.batch_size) == (3, 2e-5, 2048, 4 * 8 * 8)
    assert settings.sweep.templates.wording == "published" and not settings.thinks
    assert [use.thinks for use in models_in_use(settings)] == [False]
    assert all(use.thinks for use in models_in_use(presets.resolve("reasonflux-f1-7b")))
    built = [entry.name for entry in FlowRun(settings, tmp_path).datasets]
    assert built == ["math500", "aime-2024", "amc", "olympiadbench", "reasonflux-sft-15k"]


def test_f1_is_measured_as_its_harness_measures_it() -> None:
    settings = presets.resolve("evaluate-reasonflux-f1-32b-greedy")
    sweep, engine = settings.sweep, settings.engine
    assert (sweep.strategies, sweep.samples, sweep.max_response_tokens) == (["unconstrained"], 1, 32768)
    assert (sweep.temperature, engine.dtype, engine.tensor_parallel_size) == (0.0, "float32", 8)
    assert engine.max_model_len is not None and engine.max_model_len > 32768
    assert sweep.models == presets.resolve("evaluate-reasonflux-f1-32b").sweep.models
