import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastapi.encoders import jsonable_encoder

from elastic_core.errors import UserError
from elastic_core.rewards.codeforces import MAX_ATTEMPTS
from elastic_core.sweep.grid import build_cells
from elastic_core.training.grpo.parameters import RolloutCorrection
from flows import presets
from flows.commands import doctor
from flows.commands.cli import cli
from flows.runtime.run import FlowRun
from reports.content import Expectations
from tasks.records.stage_directory import RESOLVED


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_complete_and_valid(name: str) -> None:
    assert presets.resolve(name).preset == name
    purpose = presets.purpose(name)
    assert purpose[0].isupper() and purpose.endswith(".") and 20 < len(purpose) < 240, "it says what it is for"


def test_a_preset_of_elastic_reasoning_says_what_of_it_is_not_as_published() -> None:
    loss = ["train.as_published", "train.rollout_correction"]
    assert presets.unpublished(presets.resolve("e1-math-1.5b")) == [*loss, "data.decontaminate", "sweep.grading"]
    assert presets.unpublished(presets.resolve("evaluate-e1-math-1.5b")) == ["sweep.grading"]
    assert presets.unpublished(presets.resolve("evaluate-e1-code-14b")) == ["sweep.grading", "data.benchmarks"]
    assert presets.unpublished(presets.resolve("embedded")) is None
    listed = CliRunner().invoke(cli, ["presets"]).output
    assert "Not as published: sweep.grading." in listed and "docs/seeds.md" in listed


@pytest.mark.parametrize("name", [name for name in presets.names() if name.removeprefix("evaluate-").startswith("e1-")])
def test_settings_make_a_preset_as_published(name: str) -> None:
    """The correction of rollouts goes with the published loss."""
    preset = presets.resolve(name)
    benchmarks = [each.replace("humaneval-plus", "humaneval-plus-bare") for each in preset.data.benchmarks]
    published = presets.PUBLISHED | {"data.benchmarks": benchmarks}
    del published["train.rollout_correction"]
    if preset.train is None:
        published = {key: value for key, value in published.items() if not key.startswith("train.")}
    assert presets.unpublished(presets.changed(preset, published)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sweep.samples=16", ("sweep.samples", 16)),
        ("train.learning_rate = 1e-4", ("train.learning_rate", 1e-4)),
        ('sweep.budgets=["1k+1k"]', ("sweep.budgets", ["1k+1k"])),
        ("train.budget=48+32", ("train.budget", "48+32")),
        ("mlflow.tracking_uri=http://localhost:5000", ("mlflow.tracking_uri", "http://localhost:5000")),
        ("train.reuse_rollout_logprobs=false", ("train.reuse_rollout_logprobs", False)),
    ],
)
def test_values_are_read_as_toml_and_else_as_text(text: str, expected: tuple[str, object]) -> None:
    assert presets.parse_override(text) == expected
    for wrong in ("sweep.samples", "=16"):
        with pytest.raises(UserError, match=f"--set {wrong}: .*KEY=VALUE"):
            presets.parse_override(wrong)
    with pytest.raises(UserError, match=r"--set sweep\.samples: input should be an integer"):  # Nested too deeply.
        presets.resolve("smoke", dict([presets.parse_override("sweep.samples=" + "[" * 20_000)]))


@pytest.mark.parametrize("place", ["https://ann:hunter2@mlflow.example", "postgresql://ann:hunter2@host/db"])
def test_a_password_is_refused_where_settings_are_written_down(place: str) -> None:
    with pytest.raises(UserError, match=r"tracking_uri must hold no password.*MLFLOW_TRACKING_PASSWORD") as refused:
        presets.resolve("smoke", {"mlflow.tracking_uri": place})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"sweep.samples = " + b"[" * 20_000 + b"]" * 20_000, "recursion"),
        (b"a = " + b"{a = " * 20_000, "recursion"),
        (b"# \xe9", "0xe9"),
        ("extends = 'smoke'".encode("utf-16"), "0xff"),
        (b"sweep", "Expected"),
    ],
    ids=["lists", "tables", "Latin-1", "UTF-16", "no TOML"],
)
def test_a_file_that_is_no_preset_is_refused_in_a_sentence(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "own.toml").write_bytes(text)
    with pytest.raises(UserError, match=rf"own\.toml: .*{reason}.*; expected a preset in TOML$"):
        presets.resolve(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sweep.sampels": 3}, r'--set sweep\.sampels: .*"samples"'),
        ({"swep.samples": 3}, r'--set swep: .*"sweep"'),
        ({"sweep.samples": 0}, r"--set sweep\.samples: .* 0"),
        ({"sweep.samples": "many"}, r"--set sweep\.samples: .*'many'"),
        ({"sweep.samples": True}, r"--set sweep\.samples: .*True"),
        ({"sweep.budgets": ["1x+3"]}, r'--set sweep\.budgets: "1x\+3"'),
        ({"sweep.strategies": ["seperate"]}, r'--set sweep\.strategies: .*seperate.*"?separate'),
        ({"train.budget": "unlimited"}, r'--set train\.budget: "unlimited"'),
        ({"train.batch_size": 33}, r"--set train: batch_size = 33 .*mini_batch_size = 32$"),
        ({"train.l1.form": "exat"}, r"--set train\.l1\.form: .*'exat'"),
        ({"sweep.models": ["base", "other"]}, '--set sweep: .*"other"'),
        ({"data.train": []}, r"embedded\.toml: .*data\.train"),
        ({"ablation.a.train.stpes": 3}, r"embedded\.toml: ablation\.a\.train\.stpes: "),
        ({"ablation.a.train.budget": "3"}, r'ablation\.a\.train\.budget: "3"'),
        ({"ablation.a": {"after": "b", "train": {}}}, r'ablation\.a: after = "b"'),
        ({"ablation.base.train.steps": 3}, r'ablation\.base: "base"'),
        ({"train.seeds": [1, 2, 1]}, r"--set train\.seeds: \[1, 2, 1\]"),
        ({"warm_start.steps": 1}, r"--set warm_start: 1 steps .* 4 stages"),
        ({"train.seeds": [-1]}, r"--set train\.seeds: -1"),
        ({"train.seeds": [1, 2], "sweep.models": ["trained@3"]}, '--set sweep: .*"trained@3"'),
        ({"train.seeds": [1, 2], "ablation.a.train.seed": 3}, r"ablation\.a\.train\.seed "),
        ({"ablation.a.train.seeds": [1, 2]}, r"ablation\.a\.train\.seeds: "),
        ({"sweep.checkpoints": {"mine": "a/b", "mine@1": "a/c"}}, '"mine@1"'),
        ({"sweep.strategies_of": {"other": ["separate"]}}, 'strategies_of: .*"other".*base'),
        ({"sweep.strategies_of": {"base": ["separat"]}}, '"separat".*"separate"'),
        ({"sweep.samples": {"miniature-easy": 0, "default": 1}}, "samples: .* 0 for miniature-easy$"),
        ({"sweep.samples": {"miniature-easy": 2}}, "samples: .*miniature-hard"),
        ({"sweep.samples": {"miniature-esy": 2}}, '"miniature-esy" .*"miniature-easy"'),
        ({"sweep.samples": {"default": 9}, "sweep.until_ci": 9, "sweep.max_samples": 8}, " 9 samples"),
        ({"preset.x": 1}, r"--set preset\.x: "),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_its_key(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"^.*{message}"):
        presets.resolve("embedded", overrides)
    with pytest.raises(UserError, match=f"^.*{message}"):
        presets.changed(presets.resolve("embedded"), overrides)


def test_a_preset_that_extends_another_is_that_one_but_for_what_it_says() -> None:
    first, second = presets.resolve("e1-math-1.5b"), presets.resolve("e1-math-7b")
    assert second.preset == "e1-math-7b" and second.base == "Skywork/Skywork-OR1-Math-7B"
    assert second.sweep == first.sweep and second.data == first.data
    ours, theirs = second.training.model_dump(), first.training.model_dump()
    assert {key: value for key, value in ours.items() if value != theirs[key]} == {"tokens_per_device": 16384}


@pytest.mark.parametrize("name", [name for name in presets.names() if presets.resolve(name).train])
def test_every_training_on_gpus_corrects_for_its_sampler_and_none_on_a_cpu(name: str) -> None:
    training = presets.resolve(name).training
    if training.device == "gpu":
        assert training.rollout_correction == RolloutCorrection(rollout_is="token", rollout_is_threshold=2.0)
        assert training.rollout_seeds == "engine" and not training.reuse_rollout_logprobs
    else:
        assert training.rollout_correction is None


def test_ways_to_keep_to_a_length_are_compared_with_each_model_in_its_own() -> None:
    """Elastic Reasoning, Figure 4, with its points without a budget."""
    sweep = presets.resolve("evaluate-length-control-1.5b").sweep
    cells = build_cells(sweep.models, ["aime-2024"], sweep.strategies, sweep.grid, sweep.strategies_of)
    ways = {"base": "budget_forcing", "E1-Math-1.5B": "separate", "L1-Exact-1.5B": "l1_exact", "L1-Max-1.5B": "l1_max"}
    free = {(model, "unconstrained") for model in ways}
    assert {(cell.model, cell.strategy) for cell in cells} == ways.items() | free
    assert sweep.max_response_tokens == 24 * 1024


@pytest.mark.parametrize("preset", ["e1-code-14b", "evaluate-e1-code-14b"])
def test_a_codeforces_rating_is_of_8_attempts_a_problem(preset: str) -> None:
    samples = presets.resolve(preset).sweep.samples
    assert isinstance(samples, dict)
    assert (samples["codeforces"], samples["default"]) == (MAX_ATTEMPTS, 16)


def test_the_released_models_think_and_solve_for_each_other() -> None:
    """Elastic Reasoning, Table 2. Engines of both fit the 8 GPUs of a node."""
    settings = presets.resolve("evaluate-e1-math-1.5b")
    assert settings.sweep.models[2:] == ["E1-Math-1.5B>base", "base>E1-Math-1.5B"]
    assert [demand.total for demand in doctor.gpu_demands(settings)] == [8]
    wide = {"engine.tensor_parallel_size": 4, "engine.data_parallel_size": 1}
    assert [demand.total for demand in doctor.gpu_demands(presets.resolve(settings.preset, wide))] == [8]
    for extending in ("evaluate-e1-math-7b", "evaluate-e1-acereason-14b", "evaluate-l1-max-1.5b"):
        other = presets.resolve(extending)
        assert len(other.sweep.models) == 2 and [demand.total for demand in doctor.gpu_demands(other)] == [8]


def test_what_a_preset_does_not_say_leaves_no_trace_in_what_is_asked_for(tmp_path: Path) -> None:
    settings = presets.resolve("embedded")
    assert not settings.sweep.strategies_of and "strategies_of" not in settings.sweep.model_dump()
    assert settings.sweep.model_dump()["samples"] == 8
    own = presets.resolve("embedded", {"sweep.strategies_of": {"trained": ["separate"]}}).sweep
    assert own.model_dump()["strategies_of"] == {"trained": ["separate"]}
    assert own.every_strategy == settings.sweep.strategies


def test_a_model_of_several_seeds_is_measured_once_for_each() -> None:
    one = presets.resolve("embedded", {"train.seeds": [7]})
    assert one.measured == presets.resolve("embedded").measured == ["base", "trained"]
    models = ["base", "trained", "trained>base", "trained>best"]
    several = presets.resolve("embedded", {"train.seeds": [1, 2], "sweep.models": models})
    assert several.measured == [
        *("base", "trained@1", "trained@2", "trained@1>base", "trained@2>base"),
        *("trained@1>best@1", "trained@2>best@2"),
    ]
    assert [each.seed for each in several.training.by_seed.values()] == [1, 2]


def test_a_preset_without_training_can_measure_no_trained_model() -> None:
    with pytest.raises(UserError):
        _ = presets.resolve("evaluate-e1-math-7b").training
    for override in (
        {"sweep.models": ["trained"]},
        {"sweep.models": ["base", "best>base"]},
        {"data.train": ["deepscaler"]},
        {"train.steps": 3},
    ):
        with pytest.raises(UserError, match=r"evaluate-e1-math-7b\.toml: .*train"):
            presets.resolve("evaluate-e1-math-7b", override)


def written(directory: Path, name: str, text: str) -> str:
    (directory / name).write_bytes(text.encode(errors="surrogateescape"))
    return str(directory / name)


def test_a_file_is_a_preset_with_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "mine.toml", '\ufeffextends = "smoke"\n[sweep]\nsamples = 3\n')
    settings, smoke = presets.resolve(file), presets.resolve("smoke")
    assert settings.preset == "mine" and settings.sweep.samples == 3
    assert settings.model_copy(update={"preset": "smoke", "sweep": smoke.sweep}) == smoke
    monkeypatch.chdir(tmp_path)
    assert presets.resolve("mine.toml") == presets.resolve("./mine.toml") == settings
    assert presets.resolve("mine.toml", {"sweep.samples": 5}).sweep.samples == 5


@pytest.mark.parametrize("extended", ["base.toml", "./base.toml", "base", "../presets/base.toml"])
def test_a_file_extends_a_file_beside_it_wherever_the_command_runs(tmp_path: Path, extended: str) -> None:
    directory = tmp_path / "presets"
    directory.mkdir()
    written(directory, "base.toml", 'extends = "smoke"\n[sweep]\nsamples = 3\ntemperature = 0.5\n')
    file = written(directory, "mine.toml", f'extends = "{extended}"\n[sweep]\nsamples = 4\n')
    settings = presets.resolve(file)
    assert (settings.preset, settings.sweep.samples, settings.sweep.temperature) == ("mine", 4, 0.5)
    assert settings.training == presets.resolve("smoke").training


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.toml", "a = \nb = 1", r"/mine\.toml: .*line 1"),
        ("mine.toml", 'extends = "smok"', r'mine\.toml: extends: .*"smok".*"smoke"'),
        ("mine.toml", 'extends = "gone.toml"', r"mine\.toml: extends: .*gone\.toml: "),
        ("mine.toml", "extends = 3", r"mine\.toml: extends = 3"),
        ("mine.toml", 'extends = "mine.toml"', r"mine\.toml: extends = 'mine\.toml'"),
        ("mine.toml", 'extends = "smoke"\npreset = "x"', r"mine\.toml: preset: "),
        ("mine.toml", 'extends = "smoke"\n[sweep]\nsampels = 3', r"/mine\.toml: sweep\.sampels: "),
        ("mine.toml", 'extends = "bad.toml"', r"/bad\.toml: sweep\.samples: .* 0"),
        ("mine.toml", "[sweep]\nsamples = 3", r"/mine\.toml: "),
        ("mine.toml", "\udcff", r"/mine\.toml: "),
        ("smoke.toml", 'extends = "smoke"', r'smoke\.toml: "smoke"'),
        ("sources.toml", 'extends = "smoke"', r'sources\.toml: .*"sources"'),
        ("my own.toml", 'extends = "smoke"', r'my own\.toml: .*"my own"'),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence_that_names_it(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    written(tmp_path, "bad.toml", 'extends = "smoke"\n[sweep]\nsamples = 0\n')
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        presets.resolve(written(tmp_path, name, text))
    for path in ("mine.toml", "./mine", "presets/mine"):  # What looks like a path is one.
        with pytest.raises(UserError, match=r"/mine(\.toml)?: "):
            presets.resolve(path)


def test_what_a_message_suggests_to_run_names_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "mine.toml", 'extends = "smoke"')
    run = FlowRun(presets.resolve(file, {"base": "warm-start"}), tmp_path, given=file)
    with pytest.raises(UserError, match=f"run first: elastic run warm-start --preset {file}"):
        run.base  # noqa: B018
    assert run.stage("sweep", {"a": 1}).directory.parts[-3:-1] == ("mine", "sweep")
    shown = jsonable_encoder(FlowRun(presets.resolve("smoke"), tmp_path, overrides={"sweep.samples": 3}))
    assert shown == {"preset": "smoke", "overrides": {"sweep.samples": 3}}, "what Prefect shows of a run"


def test_the_miniature_expects_its_own_effects_and_other_presets_those_of_the_paper() -> None:
    assert presets.resolve("ablation-embedded").report.expectations == Expectations(
        gain=15, free_loss=5, tokens_saved=20
    )
    assert presets.resolve("anytime-math-1.5b").report.expectations == Expectations()
    assert presets.resolve("evaluate-e1-code-14b").report.expectations == Expectations(
        tokens_saved=37, most_when_scarce={"livecodebench": 10}, rating_gain=42
    )
    assert presets.resolve("ablation-e1-math-1.5b").report.expectations == Expectations(
        tokens_saved=32, best_fixed="t1k"
    )


def test_pairs_are_of_models_that_are_measured() -> None:
    pairs = [["base", "trained"], ["t1k", "drawn"]]
    with pytest.raises(UserError, match=r'report\.pairs: .*"t1k".* base, trained$'):
        presets.resolve("e1-math-1.5b", {"sweep.models": ["base", "trained"], "report.pairs": pairs})
    ablation = presets.resolve("ablation-e1-math-1.5b", {"report.pairs": pairs[1:]})
    assert ablation.report.pairs == [("t1k", "drawn")]
    seeds = {"sweep.models": ["base", "trained"], "train.seeds": [1, 2], "report.pairs": pairs[:1]}
    assert presets.resolve("e1-math-1.5b", seeds).report.pairs == [("base", "trained")], "of all seeds"


def test_a_list_may_be_given_as_one_text() -> None:
    sweep = presets.resolve("embedded", {"sweep.budgets": "48+32, 16+32", "sweep.strategies": "separate"}).sweep
    assert (sweep.budgets, sweep.strategies) == (["48+32", "16+32"], ["separate"])
    with pytest.raises(UserError, match='"48"'):
        presets.resolve("embedded", {"sweep.budgets": 48})


def test_a_command_that_is_advised_keeps_the_user_s_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    given = {"sweep.budgets": ["48+32"], "base": "a b/c", "sweep.checkpoints": {"mine": "x/y"}, "ablation": {}}
    command = FlowRun.begin("embedded", given).command("sweep")
    name, *words = shlex.split(command)
    changes = dict(presets.parse_override(text) for flag, text in pairwise(words) if flag == "--set")
    assert name == "elastic" and changes == {
        "sweep.budgets": ["48+32"],
        "base": "a b/c",
        "sweep.checkpoints.mine": "x/y",
        "ablation": {},
    }


@pytest.mark.parametrize("name", presets.names())
def test_resolved_settings_are_a_preset_of_the_same_name_again(name: str, tmp_path: Path) -> None:
    settings = presets.resolve(name, {"sweep.samples": 3})
    file = tmp_path / RESOLVED
    file.write_text(presets.as_toml(settings))
    assert presets.resolve(str(file)) == presets.changed(settings, {}) == settings
    assert (
        presets.resolve(str(file), {"sweep.samples": 4}) == presets.changed(settings, {"sweep.samples": 4}) != settings
    )


def test_a_dry_run_prints_settings_that_repeat_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    given = ["run", "sweep", "--preset", "smoke", "--set", "sweep.samples=3", "--dry-run"]
    result = CliRunner().invoke(cli, given, catch_exceptions=False)
    file = tmp_path / RESOLVED
    file.write_text(result.stdout)
    assert presets.resolve(str(file)) == presets.resolve("smoke", {"sweep.samples": 3})
    assert not list((tmp_path / "runs").glob("smoke/**/*")), "nothing was started"
