"""Markers are refused where the tokenizer would not give the model the text it was given."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaConfig, Qwen2Config

from elastic_core.models.special_tokens import resolve_markers
from tests.unit.test_families import tokenizer_of

TEXT = "How are you doing?\nFinal Answer: 2"


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    """As DeepSeek's distills have it, whatever their architecture."""
    return tokenizer_of("think").backend_tokenizer


def load(tokenizer: Tokenizer, config: Any, tokenizer_class: str, directory: Path) -> Any:
    tokenizer.save(str(directory / "tokenizer.json"))
    config.save_pretrained(directory)
    settings = {"tokenizer_class": tokenizer_class, "eos_token": "<eos>", "chat_template": "{{ messages[0].content }}"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize(
    ("config", "tokenizer_class"),
    [(Qwen2Config, "LlamaTokenizerFast"), (LlamaConfig, "PreTrainedTokenizerFast")],
    ids=["R1-Distill-Qwen", "the mended R1-Distill-Llama"],
)
def test_a_byte_level_tokenizer_keeps_spaces_and_newlines(
    config: Any, tokenizer_class: str, byte_level: Tokenizer, tmp_path: Path
) -> None:
    tokenizer = load(byte_level, config(), tokenizer_class, tmp_path)
    assert tokenizer.decode(tokenizer.encode(TEXT, add_special_tokens=False)) == TEXT
    markers = resolve_markers(tokenizer)
    assert tokenizer.decode([markers.think_start[0], *markers.final_answer_after]) == "<think>\nFinal Answer:"


def test_a_tokenizer_that_loses_them_is_refused(byte_level: Tokenizer, tmp_path: Path) -> None:
    tokenizer = load(byte_level, LlamaConfig(), "LlamaTokenizerFast", tmp_path)
    with pytest.raises(ValueError, match=r"a LlamaTokenizer, makes 'FinalAnswer:' of .*PreTrainedTokenizerFast"):
        resolve_markers(tokenizer)
