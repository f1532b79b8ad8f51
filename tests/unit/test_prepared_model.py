"""`elastic model prepare`: any instruction-tuned checkpoint gets markers, an end-of-text and an open thought."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elastic_core.errors import UserError
from elastic_core.models.prepare import prepare
from elastic_core.models.special_tokens import load_markers
from flows.commands.cli import cli

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPARE = ("<gh_stars>", "<issue_start>", "<issue_comment>")
QUESTION = [{"role": "user", "content": "1+1=?"}]


def checkpoint(
    directory: Path,
    *,
    tied: bool = True,
    spare: tuple[str, ...] = SPARE,
    template: str | None = CHATML,
    eos: str | None = "<|endoftext|>",
    room: int = 0,
) -> Path:
    """A tiny Llama, with heads that vLLM takes on a CPU, and a byte-level BPE tokenizer.

    Args:
        room: rows of the embeddings beyond the vocabulary.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    pieces = [*SPECIAL, *spare, *sorted(pre_tokenizers.ByteLevel.alphabet()), "in", "th", "<plain>"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("i", "n"), ("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in (*SPECIAL, *spare)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos,
        bos_token="<|im_start|>",
        chat_template=template,
        extra_special_tokens=list(spare),
        clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)
    config = LlamaConfig(
        vocab_size=len(vocabulary) + room, tie_word_embeddings=tied, eos_token_id=0, bos_token_id=1,
        hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def load(directory: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)


def rows(network: Any) -> list[Any]:
    return [layer.weight.detach() for layer in (network.get_input_embeddings(), network.get_output_embeddings())]


@pytest.mark.parametrize("tied", [True, False])
def test_spare_tokens_become_the_markers_and_no_weight_changes(tied: bool, tmp_path: Path) -> None:
    made = prepare(str(checkpoint(tmp_path / "m", tied=tied)), tmp_path / "out")
    assert made.markers == {"<think>": (3, "<gh_stars>"), "</think>": (4, "<issue_start>")}
    (before, old), (after, tokenizer) = load(tmp_path / "m"), load(tmp_path / "out")
    assert all((x == y).all() for x, y in zip(rows(before), rows(after), strict=True))
    text = "<think>\nthin\n</think>\n\n<think"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert (ids.count(3), ids.count(4)) == (1, 1) and tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(tokenizer.encode("<gh_stars>", add_special_tokens=False)) > 1
    assert tokenizer.encode("in 12 things", add_special_tokens=False) == old.encode("in 12 things")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("room", [0, 1, 8])
def test_without_spare_tokens_new_ones_are_embedded_near_the_mean(tied: bool, room: int, tmp_path: Path) -> None:
    made = prepare(str(checkpoint(tmp_path / "m", tied=tied, spare=(), room=room)), tmp_path / "out")
    before, after = load(tmp_path / "m")[0], load(tmp_path / "out")[0]
    start, end = (token for token, _ in made.markers.values())
    assert {former for _, former in made.markers.values()} == {""} and end == start + 1
    assert after.config.vocab_size == rows(after)[0].shape[0] == max(rows(before)[0].shape[0], end + 1)
    assert after.config.tie_word_embeddings == tied
    for old, new in zip(rows(before), rows(after), strict=True):
        assert (old[:start] == new[:start]).all(), "what was there stays"
        if room == 0:
            mean, deviation = old.mean(dim=0), old.std(dim=0)
            assert all((new[token] - mean).norm() < deviation.norm() for token in (start, end))
        assert (new[start] - new[end]).norm() > 0.3 * old.std(dim=0).norm(), "fine-tuning must tell them apart"
    again = prepare(str(tmp_path / "m"), tmp_path / "again")
    assert (rows(load(again.directory)[0])[0] == rows(after)[0]).all(), "the noise is seeded"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("spare", [SPARE, ()])
def test_markers_that_training_never_told_apart_start_apart(spare: tuple[str, ...], tied: bool, tmp_path: Path) -> None:
    """As SmolLM2's spare tokens are, and the padding of an embedding."""
    source = checkpoint(tmp_path / "m", tied=tied, spare=spare, room=0 if spare else 4)
    network = load(source)[0]
    first, second = (3, 4) if spare else (network.config.vocab_size - 4, network.config.vocab_size - 3)
    for weight in rows(network):
        weight[first] = weight[second] = weight[0] * 0.5
    network.save_pretrained(source)
    made = prepare(str(source), tmp_path / "out")
    assert [token for token, _ in made.markers.values()] == [first, second]
    for old, new in zip(rows(network), rows(load(tmp_path / "out")[0]), strict=True):
        assert (new[first] - new[second]).norm() > 0.3 * old.std(dim=0).norm()
        others = [i for i in range(len(old)) if i not in (first, second)]
        assert (old[others] == new[others]).all()


def test_tokens_that_were_added_and_never_embedded_are(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "m")
    tokenizer = load(source)[1]
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save_pretrained(source)
    made = prepare(str(source), tmp_path / "out")
    assert {former for _, former in made.markers.values()} == {None}
    embedded = rows(load(tmp_path / "out")[0])[0]
    assert embedded.shape[0] == len(tokenizer) and embedded[-1].abs().sum() > 0


def test_named_tokens_become_the_markers_also_those_that_were_no_added_ones(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "m")
    made = prepare(str(source), tmp_path / "out", "<plain>", "<issue_comment>")
    tokenizer = load(tmp_path / "out")[1]
    assert {name: former for name, (_, former) in made.markers.items()} == {
        "<think>": "<plain>",
        "</think>": "<issue_comment>",
    }
    assert tokenizer.encode("<think></think>", add_special_tokens=False) == [i for i, _ in made.markers.values()]
    for think, think_end, message in (
        ("<no>", "<gh_stars>", "--think <no>"),
        ("<gh_stars>", None, "both"),
        ("<gh_stars>", "<gh_stars>", "two tokens"),
        ("in", "<gh_stars>", "token in: "),
    ):
        with pytest.raises(UserError, match=message):
            prepare(str(source), tmp_path / "other", think, think_end)


def test_a_response_ends_with_what_the_chat_template_writes_and_generation_opens_the_thought(tmp_path: Path) -> None:
    source, target = checkpoint(tmp_path / "m"), tmp_path / "out"
    result = CliRunner().invoke(cli, ["model", "prepare", str(source), "--to", str(target)], catch_exceptions=False)
    assert "token 3 (was <gh_stars>)" in result.output and f"elastic doctor --set base={target}" in result.output
    tokenizer, markers = load_markers(tmp_path / "out")
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert markers.end_of_text == (2, 0), "what ended a text before still does"
    for name in ("config.json", "generation_config.json"):
        ends = json.loads((tmp_path / "out" / name).read_text())["eos_token_id"]
        assert ends == 2 or ends[0] == 2
    assert markers.template_opens_thinking
    asked = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    assert asked.endswith("1+1=?<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert "<think>" not in tokenizer.apply_chat_template(QUESTION, tokenize=False)


def test_what_is_prepared_already_stays_as_it_is(tmp_path: Path) -> None:
    prepare(str(checkpoint(tmp_path / "m")), tmp_path / "once")
    twice = prepare(str(tmp_path / "once"), tmp_path / "twice")
    assert {former for _, former in twice.markers.values()} == {None} and "as before" in str(twice)
    for name in ("chat_template.jinja", "tokenizer.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "m", template=CHATML + "x{{ raise_exception('late') if messages[1:] }}")
    with pytest.raises(Exception, match="late"):
        prepare(str(source), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]
    prepare(str(checkpoint(tmp_path / "n")), tmp_path / "out")
    with pytest.raises(UserError, match=r"--to .*out: is there already"):
        prepare(str(tmp_path / "n"), tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"template": None}, "no chat template"),
        ({"room": -1}, r"\d+ tokens .* \d+"),
        ({"template": CHATML.replace("<|im_end|>", "\\n"), "eos": None}, "ends a response"),
    ],
)
def test_a_model_that_cannot_be_made_ready_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        prepare(str(checkpoint(tmp_path / "m", **changes)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "m")
    setting = json.loads((source / "config.json").read_text()) | {"model_type": "unheard-of"}
    (source / "config.json").write_text(json.dumps(setting))
    (tmp_path / "empty").mkdir()
    for model in (tmp_path / "empty", tmp_path / "m.gguf", source):
        with pytest.raises(UserError, match=str(model)):
            prepare(str(model), tmp_path / "out")


def test_weights_in_gguf_take_a_package_that_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    (tmp_path / "m.gguf").touch()
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "gguf" else found(name, *rest))
    with pytest.raises(UserError, match=r"gguf.*make install"):
        prepare(str(tmp_path / "m.gguf"), tmp_path / "out")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.safetensors", LFS, r"model\.safetensors: a pointer of Git LFS"),
        ("model.safetensors", bytes(100), r"model\.safetensors: 100 bytes that are not complete"),
        ("pytorch_model.bin", LFS, "cannot read it as a language model"),
        ("pytorch_model.bin", bytes(100), "cannot read it as a language model"),
        ("config.json", b"[" * 20_000, "cannot read it as a language model"),
        ("tokenizer.json", LFS, "cannot read it as a language model"),
        ("model.gguf", LFS, "cannot read it as a language model"),
    ],
)
def test_a_model_whose_files_are_damaged_is_refused_in_a_sentence(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    model = checkpoint(tmp_path / "model")
    if name.endswith(".bin"):
        (model / "model.safetensors").unlink()
    (model / name).write_bytes(content)
    with pytest.raises(UserError, match=reason) as refused:
        prepare(str(model / name if name.endswith(".gguf") else model), tmp_path / "to")
    assert "\n" not in str(refused.value) and not (tmp_path / "to").exists()
