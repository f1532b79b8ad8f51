"""A model's native effort, told by a level or by a server's client, reaches the chat template, and a budget caps it.
Twins of the five families that know efforts, each on a real server, asked by the openai client."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from transformers import AutoTokenizer

from elastic_core.models.special_tokens import load_markers
from elastic_core.models.twins import make_twin
from elastic_core.serving.levels import LEVELS, Effort, read_levels
from tests.harmony import VARIABLE, vocabulary
from tests.integration.test_families import origin
from tests.served import elastic_serve, write_levels

pytestmark = pytest.mark.slow

QUESTION: Any = [{"role": "user", "content": "36+6-4+8=?"}]
DEFAULT = "20+8"
GLM = """{%- if reasoning_effort is defined and reasoning_effort == 'high' -%}<|im_start|>system
Reasoning Effort: High<|im_end|>
{%- endif -%}
{%- for message in messages -%}<|im_start|>{{ message['role'] }}
{{ message['content'].split('</think>')[-1] }}<|im_end|>
{%- endfor -%}{#- <tool_call> <arg_key> -#}
{%- if add_generation_prompt -%}<|im_start|>assistant
{%- endif -%}"""
"""As GLM 5.2's reads an effort, with the special tokens of the twin's vocabulary, which is another."""


class Case(NamedTuple):
    """What the level "low" tells the template by the family's name, and what a client tells it: both in the template's
    words; the budget that caps the client's, which for Seed-OSS is its own number of tokens."""

    model: str
    effort: str
    told: dict[str, Any]
    own: dict[str, Any]
    cap: str
    template: str | None = None


CASES = [
    Case("openai/gpt-oss-20b", "low", {"reasoning_effort": "low"}, {"reasoning_effort": "medium"}, DEFAULT),
    Case("moonshotai/Kimi-K3", "low", {"thinking_effort": "low"}, {"thinking_effort": "max"}, DEFAULT),
    Case("Qwen/Qwen3.8-27B", "low", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}, "16+8"),
    Case("Qwen/Qwen3-4B", "high", {"reasoning_effort": "high"}, {"reasoning_effort": "max"}, DEFAULT, GLM),
    Case("ByteDance-Seed/Seed-OSS-36B", "1024", {"thinking_budget": 1024}, {"thinking_budget": 512}, "512+8"),
]


@pytest.mark.parametrize("case", CASES, ids=["gpt-oss", "kimi-k3", "qwen3.8", "glm", "seed-oss"])
def test_an_effort_reaches_the_template_and_a_budget_caps_it(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    twin, is_harmony = tmp_path / "model", "gpt-oss" in case.model
    if is_harmony:
        monkeypatch.setenv(VARIABLE, str(vocabulary(tmp_path)))
    make_twin(case.model, origin(case.model), twin)
    if case.template:
        tokenizer = AutoTokenizer.from_pretrained(twin)
        tokenizer.chat_template = case.template
        tokenizer.save_pretrained(twin)
    assert case.effort in dict(load_markers(twin)[1].efforts)
    write_levels(twin)
    levels = read_levels(twin / LEVELS)
    low = levels.levels["low"].model_copy(update={"effort": case.effort})
    kept: dict[Effort, Any] = {"minimal": levels.levels["minimal"], "low": low}
    levels.model_copy(update={"levels": kept}).write(twin / LEVELS)

    arguments = ("--budget", DEFAULT, "--set", "engine.max_model_len=1024", "--set", "engine.max_num_seqs=16")
    with elastic_serve(twin, tmp_path / "log", *arguments) as (address, _):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)

        def ask(own: dict[str, Any], **arguments: Any) -> tuple[list[int], dict[str, Any]]:
            extra: dict[str, Any] = {"return_token_ids": True}
            extra |= {"chat_template_kwargs": own} if own else {}
            # vLLM reads names of channels in harmony's vocabulary, and the twin has another.
            arguments |= {"max_tokens": 1} if is_harmony else {}
            found = client.chat.completions.create(
                model=twin.name, messages=QUESTION, extra_body=extra, **arguments
            ).model_dump()
            return found["prompt_token_ids"], found["choices"][0]["elastic"]

        of_level, of_client = ask({}, reasoning_effort="low"), ask(case.own)
    tokenizer = load_markers(twin)[0]
    for (prompt, told), words, cap in ((of_level, case.told, "16+8"), (of_client, case.own, case.cap)):
        if is_harmony:
            from openai_harmony import HarmonyEncodingName, load_harmony_encoding

            text = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS).decode(prompt)
            assert f"Reasoning: {words['reasoning_effort']}\n" in text
            continue
        assert told["budget"] == cap
        assert told["thinking_tokens"] <= int(cap.partition("+")[0])
        expected = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False, **words)
        assert tokenizer.decode(prompt).startswith(expected)
