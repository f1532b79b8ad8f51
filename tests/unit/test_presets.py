import pytest

from elastic_core.errors import UserError
from flows import presets


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_complete_and_valid(name: str) -> None:
    assert presets.resolve(name).preset == name


def test_one_key_is_replaced_and_nothing_else() -> None:
    plain, changed = presets.resolve("embedded"), presets.resolve("embedded", {"sweep.samples": 3})
    assert changed.sweep.samples == 3
    assert changed.model_copy(update={"sweep": plain.sweep}) == plain


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


def test_what_is_no_assignment_is_refused() -> None:
    with pytest.raises(UserError, match="KEY=VALUE"):
        presets.parse_override("sweep.samples")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sweep.sampels": 3}, r'--set sweep\.sampels: unknown key, did you mean "samples"\?; valid here:'),
        ({"swep.samples": 3}, r'--set swep: unknown key, did you mean "sweep"\?'),
        ({"sweep.samples": 0}, r"--set sweep\.samples: input should be greater than 0, found 0"),
        ({"sweep.samples": "many"}, r"--set sweep\.samples: .*integer.*found 'many'"),
        ({"sweep.budgets": ["1x+3"]}, r'--set sweep\.budgets: "1x\+3" is not a budget; expected'),
        ({"sweep.strategies": ["seperate"]}, r'--set sweep\.strategies: .*seperate.*"?separate'),
        ({"train.budget": "unlimited"}, r'--set train\.budget: "unlimited" is no training budget'),
        ({"train.stpes": 3}, r'--set train\.stpes: unknown key, did you mean "steps"'),
        ({"train.batch_size": 33}, r"--set train: batch_size = 33 is not a multiple of mini_batch_size = 32$"),
        ({"train.l1.form": "exat"}, r"--set train\.l1\.form: .*found 'exat'"),
        ({"sweep.models": ["base", "other"]}, r'--set sweep: no model "other"'),
        ({"data.train": []}, r"embedded\.toml: training needs data\.train"),
        ({"ablation.a.train.stpes": 3}, r"embedded\.toml: ablation\.a\.train\.stpes: unknown key"),
        ({"ablation.a.train.budget": "3"}, r'ablation\.a\.train\.budget: "3" is not a budget'),
        ({"ablation.a": {"after": "b", "train": {}}}, r'ablation\.a: after = "b", expected an earlier variant'),
        ({"ablation.base.train.steps": 3}, r'ablation\.base: "base" is another model'),
        ({"preset.x": 1}, r"--set preset\.x: preset is a value, not a section"),
    ],
)
def test_a_wrong_setting_is_one_sentence(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        presets.resolve("embedded", overrides)
    assert "\n" not in str(caught.value)


def test_a_preset_that_extends_another_is_that_one_but_for_what_it_says() -> None:
    first, second = presets.resolve("e1-math-1.5b"), presets.resolve("e1-math-7b")
    assert second.preset == "e1-math-7b" and second.base == "Skywork/Skywork-OR1-Math-7B"
    assert second.sweep == first.sweep and second.data == first.data
    changed = second.training.model_dump().items() - first.training.model_dump().items()
    assert changed == {("tokens_per_device", 16384)}


def test_a_preset_without_training_can_measure_no_trained_model() -> None:
    with pytest.raises(UserError, match="trains nothing"):
        _ = presets.resolve("evaluate-e1-math-7b").training
    for override in (
        {"sweep.models": ["trained"]},
        {"sweep.models": ["base", "best>base"]},
        {"data.train": ["deepscaler"]},
        {"train.steps": 3},
    ):
        with pytest.raises(UserError, match=r"evaluate-e1-math-7b\.toml: .*train"):
            presets.resolve("evaluate-e1-math-7b", override)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match='unknown preset "embeded", did you mean "embedded"'):
        presets.resolve("embeded")
