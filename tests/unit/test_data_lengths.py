"""Lengths of prompts: those of `chat_prompt`, in bounded memory, and a summary to read."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elastic_core.miniature
from elastic_core.data.problems import prompt_lengths, summarize_lengths
from elastic_core.models.special_tokens import ChatTemplateFailed, chat_prompt

BASE = Path(elastic_core.miniature.__file__).parent / "base"
PARALLELISM = "TOKENIZERS_PARALLELISM"
PROMPTS = ["36+6=?", "", "  1+1=?\n", "Größe 數學 🙂", "a <eos> b", "<|user|>", "9" * 3000]
STRIPPING = "Solve: {{ messages[0]['content'] | trim }}{% if add_generation_prompt %}<|assistant|>{% endif %}"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BASE)


def with_template(tokenizer: Any, template: str | None) -> Any:
    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    return other


def spied(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str | None]]:
    """Conversations and parallelism of every call of the tokenizer, as they come."""
    calls: list[tuple[int, str | None]] = []
    encode = tokenizer.apply_chat_template

    def spy(conversations: list[Any], **arguments: Any) -> Any:
        calls.append((len(conversations), os.environ.get(PARALLELISM)))
        return encode(conversations, **arguments)

    monkeypatch.setattr(tokenizer, "apply_chat_template", spy)
    return calls


def test_lengths_are_those_of_chat_prompts_under_the_template_that_there_is(tokenizer: Any) -> None:
    for used in (tokenizer, stripping := with_template(tokenizer, STRIPPING)):
        found = prompt_lengths(used, PROMPTS)
        assert found.dtype == np.int64
        assert found.tolist() == [len(chat_prompt(used, prompt)) for prompt in PROMPTS]
        assert found.max() > used.model_max_length
    own, stripped = (prompt_lengths(used, ["1+1=?"])[0] for used in (tokenizer, stripping))
    assert prompt_lengths(stripping, PROMPTS)[2] == stripped != own
    with pytest.raises(ValueError, match="no chat template"):
        prompt_lengths(with_template(tokenizer, None), ["1+1=?"])


@settings(max_examples=25)
@given(st.lists(st.text(max_size=20), max_size=20))
def test_lengths_of_any_text(tokenizer: Any, prompts: list[str]) -> None:
    assert prompt_lengths(tokenizer, prompts).tolist() == [len(chat_prompt(tokenizer, prompt)) for prompt in prompts]


def test_prompts_are_encoded_in_chunks_and_stay_in_order(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["1" * size for size in (11, 1, 2, 3, 4, 12, 5, 5, 5)]
    whole = prompt_lengths(tokenizer, prompts).tolist()
    monkeypatch.setattr("elastic_core.data.problems.CHUNK_PROMPTS", 3)
    monkeypatch.setattr("elastic_core.data.problems.CHUNK_CHARACTERS", 10)
    calls = spied(tokenizer, monkeypatch)
    assert prompt_lengths(tokenizer, prompts).tolist() == whole
    assert [conversations for conversations, _ in calls] == [1, 3, 1, 1, 2, 1]


@pytest.mark.parametrize("before", [None, "false", "true"])
def test_all_cores_are_used_meanwhile_and_the_environment_is_restored(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(PARALLELISM, raising=False)
    if before is not None:
        monkeypatch.setenv(PARALLELISM, before)
    with pytest.raises(ChatTemplateFailed):
        prompt_lengths(with_template(tokenizer, "{{ raise_exception('no such role') }}"), ["1+1=?"])
    assert os.environ.get(PARALLELISM) == before, "after an error too"
    calls = spied(tokenizer, monkeypatch)
    prompt_lengths(tokenizer, ["1+1=?"])
    assert calls == [(1, "true")]
    assert os.environ.get(PARALLELISM) == before


@given(st.lists(st.integers(0, 300) | st.integers(0, 2**40), min_size=1, max_size=300))
def test_a_summary_says_what_it_means_and_survives_json(values: list[int]) -> None:
    assert summarize_lengths(np.array([], dtype=np.int64)) is None
    summary = json.loads(json.dumps(summarize_lengths(np.array(values))))
    assert summary["max"] == max(values)
    for name, percent in (("median", 50), ("p90", 90), ("p99", 99)):
        length = summary[name]
        assert length in values
        assert 100 * sum(value <= length for value in values) >= percent * len(values)
        assert 100 * sum(value < length for value in values) < percent * len(values)
