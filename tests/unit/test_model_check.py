"""A model that cannot be used is refused in one sentence that names file and key, before anything is started."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoTokenizer

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.check import require_usable
from elastic_core.models.files import num_parameters

Break = Callable[[Path], None]


def setting(file: str, **values: Any) -> Break:
    """Replaces values of a JSON file; None removes one."""

    def replace(model: Path) -> None:
        content = json.loads((model / file).read_text()) if (model / file).exists() else {}
        content |= values
        (model / file).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return replace


def without(*patterns: str) -> Break:
    def remove(model: Path) -> None:
        for pattern in patterns:
            for file in model.glob(pattern):
                file.unlink()

    return remove


def as_gguf(model: Path) -> None:
    for file in model.iterdir():
        file.unlink()
    (model / "Q8_0.gguf").touch()


def with_gguf_weights(model: Path) -> None:
    without("*.safetensors")(model)
    (model / "Q8_0.gguf").touch()


def without_a_shard(model: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (model / "model.safetensors").rename(model / "model-1.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


def weights_as(change: Callable[[bytes], bytes]) -> Break:
    def replace(model: Path) -> None:
        file = model / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return replace


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3056056\n"


def with_a_further_token(model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([f"<further {i}>" for i in range(300)])
    tokenizer.save_pretrained(model)


def with_markers_of_several_tokens(model: Path) -> None:
    text = (model / "tokenizer.json").read_text()
    (model / "tokenizer.json").write_text(text.replace("</think>", "<|done|>"))


def of_another_kind(**values: Any) -> Break:
    """The configuration of another architecture, in the miniature's vocabulary."""

    def replace(model: Path) -> None:
        vocab_size = json.loads((model / "config.json").read_text())["vocab_size"]
        AutoConfig.for_model(**values, vocab_size=vocab_size).save_pretrained(model)

    return replace


GPT2 = of_another_kind(
    model_type="gpt2", n_embd=64, n_head=2, n_layer=1, bos_token_id=1, eos_token_id=1, architectures=["GPT2LMHeadModel"]
)
GEMMA2 = of_another_kind(
    model_type="gemma2", hidden_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
    intermediate_size=64, eos_token_id=1, architectures=["Gemma2ForCausalLM"],
)  # fmt: skip
BERT = of_another_kind(model_type="clip_text_model", architectures=["CLIPTextModel"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(BASE, tmp_path / "model")
    return tmp_path / "model"


def as_dangling_link(model: Path) -> None:
    """As a hub cache is whose blobs were not copied."""
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to(model / "blobs" / "no-such-file")


def test_the_miniature_is_usable_and_its_markers_are_told() -> None:
    assert "</think> is token " in require_usable(BASE, trained=True)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (shutil.rmtree, "no such directory"),
        (without("config.json"), "config.json"),
        (as_gguf, r"elastic model prepare \S+Q8_0\.gguf --to DIR"),
        (with_gguf_weights, r"elastic model prepare \S+Q8_0\.gguf"),
        (without("*.safetensors"), r"\*\.safetensors"),
        (weights_as(lambda whole: LFS), r"model\.safetensors: a pointer of Git LFS .*git lfs pull.*safetensors"),
        (weights_as(lambda whole: whole[:-4]), r"model\.safetensors: 3056052 bytes that are not complete.*safetensors"),
        (weights_as(lambda whole: whole[:100]), r"model\.safetensors: 100 bytes that are not complete"),
        (weights_as(lambda whole: b""), r"model\.safetensors: 0 bytes that are not complete"),
        (weights_as(lambda whole: bytes(len(whole))), r"model\.safetensors: .* not complete"),
        (weights_as(lambda whole: b"<html>404</html>"), r"model\.safetensors: an HTML page"),
        (as_dangling_link, r"model\.safetensors: No such file.*copy or download the file anew"),
        (setting("model.safetensors.index.json", weight_map=5), r"model\.safetensors\.index\.json: not an index"),
        (lambda model: (model / "config.json").write_text("[" * 20_000), r"config\.json is not JSON"),
        (without_a_shard, r"model-2\.safetensors: No such file.*copy or download the file anew"),
        (lambda model: (model / "config.json").write_text("{"), r"config\.json.*JSON"),
        (setting("config.json", model_type="brain"), "model_type.*brain"),
        (setting("config.json", architectures=["BrainForCausalLM"]), "vLLM .*BrainForCausalLM"),
        (setting("config.json", architectures=None), "architectures.*LlamaForCausalLM"),
        (BERT, "clip_text_model"),
        (without("tokenizer*", "chat_template*"), "tokenizer"),
        (lambda model: (model / "tokenizer.json").write_text("{}"), "tokenizer"),
        (with_a_further_token, r"'<further 299>'.* \d+ rows"),
        (setting("config.json", eos_token_id=70000), r"eos_token_id.*70000.* config\.json"),
        (setting("generation_config.json", eos_token_id=[1, 70000]), r"eos_token_id.*70000.*generation_config\.json"),
        (setting("generation_config.json", bos_token_id=-1), r"bos_token_id.*-1.*generation_config\.json"),
        (with_markers_of_several_tokens, r"</think>.*elastic model prepare \S+ --to DIR$"),
        (without("chat_template*"), "chat template"),
        (setting("config.json", head_dim=16), " 16 .*vLLM .* 32, 64, "),
        (GEMMA2, "final_logit_softcapping"),
        (GPT2, "verl.*GPT2LMHeadModel"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(model: Path, spoil: Break, sentence: str) -> None:
    spoil(model)
    with pytest.raises(UserError, match=sentence) as refused:
        require_usable(model, trained=True)
    assert str(refused.value).startswith(str(model)) and "\n" not in str(refused.value)


def test_what_only_one_use_needs_is_not_asked_of_others_and_a_model_is_called_by_its_name(model: Path) -> None:
    setting("config.json", head_dim=16)(model)
    require_usable(model, device="cuda")
    without("*.safetensors")(model)
    require_usable(model, device="cuda", weights=False)
    GEMMA2(model)
    require_usable(model, weights=False)
    with_markers_of_several_tokens(model)
    with pytest.raises(UserError, match=r"^owner/model: .*elastic model prepare owner/model --to DIR$"):
        require_usable(model, name="owner/model", weights=False)


def test_weights_that_cannot_be_read_are_not_counted(model: Path) -> None:
    for spoil, sentence in ((weights_as(lambda whole: whole[:-4]), "not complete"), (as_dangling_link, "No such file")):
        spoil(model)
        with pytest.raises(UserError, match=rf"model\.safetensors: .*{sentence}"):
            num_parameters(model)
