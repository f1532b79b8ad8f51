"""Twins look like the models that they stand for, and say something that can be graded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from elastic_core.errors import UserError
from elastic_core.models.check import require_usable
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.models.twins import families, family_of, make_twin, origin_of, shrunk
from flows import presets
from flows.commands.checks.shortened import models_of

MODELS = {
    "agentica-org/DeepScaleR-1.5B-Preview": "deepscaler",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "deepseek-r1-distill-qwen",
    "agentica-org/DeepCoder-14B-Preview": "deepcoder",
    "Qwen/Qwen2.5-1.5B-Instruct": "qwen2.5",
    "Qwen/Qwen3-8B": "qwen3",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "llama",
}
THINK = {"deepseek-r1-distill-qwen": (151648, 151649), "qwen3": (151667, 151668), "llama": (128013, 128014)}


@pytest.fixture(scope="module", autouse=True)
def offline() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield


@pytest.fixture(scope="module", params=MODELS)
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    directory = tmp_path_factory.mktemp("twin") / "model"
    make_twin(request.param, origin_of(request.param), directory)
    return request.param, directory


def test_a_twin_has_the_shape_of_its_family(twin: tuple[str, Path]) -> None:
    model, directory = twin
    family = family_of(model)
    original, config = family.config_of(model), json.loads((directory / "config.json").read_text())
    assert family.name == MODELS[model]
    for name in ("model_type", "tie_word_embeddings", "vocab_size", "rms_norm_eps", "max_position_embeddings"):
        assert config[name] == original[name], name
    assert (config["num_key_value_heads"] < config["num_attention_heads"]) == (
        original["num_key_value_heads"] < original["num_attention_heads"]
    )
    assert config["rope_parameters"]["rope_theta"] == original["rope_theta"]
    assert config["dtype"] == "bfloat16" and config["architectures"]


def test_a_twin_passes_the_check_of_models(twin: tuple[str, Path]) -> None:
    if "Llama" in twin[0]:
        pytest.skip("transformers 5 drops spaces of R1-Distill-Llama's tokenizer, which the check refuses")
    require_usable(twin[1], trained=True)


def test_a_twins_special_tokens_have_its_familys_ids(twin: tuple[str, Path]) -> None:
    model, directory = twin
    family = family_of(model)
    tokenizer, markers = load_markers(directory)
    for i, (text, _) in family.tokens.items():
        assert tokenizer.convert_tokens_to_ids(text) == i
    assert tokenizer.eos_token == family.eos and markers.end_of_text[0] == tokenizer.eos_token_id
    for name, ids in THINK.items():
        if family.name == name:
            assert (markers.think_start[0], markers.close[0]) == ids
    assert markers.template_opens_thinking == ("<think>" in family.chat_template.split("add_generation_prompt")[-1])


def test_a_twin_speaks_and_closes_thoughts(twin: tuple[str, Path]) -> None:
    _, directory = twin
    tokenizer, markers = load_markers(directory)
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    prompt = torch.tensor([chat_prompt(tokenizer, "Which digit?")] * 32)
    torch.manual_seed(0)
    said = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, do_sample=True, temperature=0.6, top_p=1.0,
        top_k=0, pad_token_id=markers.end_of_text[0],
    )[:, prompt.shape[1] :]  # fmt: skip
    closed = (said == markers.close[0]).any(-1)
    assert 0.2 < closed.float().mean() < 1
    assert "unused" not in tokenizer.decode(said.flatten().tolist())
    if not model.config.tie_word_embeddings:
        assert any("\\boxed{" in text for text in tokenizer.batch_decode(said.tolist()))


def test_a_twin_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_twin("x", family_of("x/DeepScaleR-1.5B-Preview"), tmp_path / name, seed=3)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


def test_a_twin_of_a_directory_keeps_its_tokenizer(twin: tuple[str, Path], tmp_path: Path) -> None:
    _, directory = twin
    origin = origin_of(str(directory))
    assert origin == directory
    make_twin("again", origin, tmp_path / "again")
    assert load_markers(tmp_path / "again")[1] == load_markers(directory)[1]


@pytest.mark.parametrize("preset", presets.names())
def test_every_model_of_the_hub_in_a_preset_has_a_family(preset: str) -> None:
    models = [model for model in models_of(presets.resolve(preset)) if model.count("/") == 1]
    assert all(family_of(model) for model in models)


def test_families_are_found_by_the_longest_beginning() -> None:
    assert family_of("x/DeepSeek-R1-Distill-Llama-8B").name == "llama"
    assert len({family.name for family in families()}) == 13


def test_what_no_twin_can_be_made_of_is_told() -> None:
    with pytest.raises(UserError, match="owner/Unheard-1B: no twin can be made: the hub did not give"):
        family_of("owner/Unheard-1B")
    with pytest.raises(UserError, match=r"x: no twin can be made: config\.json holds no model_type"):
        shrunk({"text_config": {}}, "x")
