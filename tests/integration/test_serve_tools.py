"""Tool calls inside a thought, on a real `vllm serve` of a twin of Qwen3 whose tokens are given: the call ends the
thought, is read by vLLM's parsers, and no budget cuts into it but its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from elastic_core.models.special_tokens import load_markers
from tests.served import DEFAULT

pytestmark = pytest.mark.timeout(1200)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("script", "think", "solution", "thought", "reasoning", "called"),
    [
        ("<think>so" + CALL, 9, "unlimited", "closed", "so", True),
        ("<think>so" + CALL, 3, "unlimited", "closed", "so", True),  # The call is the third token.
        ("<think>so" + CALL, 2, "unlimited", "forced", "so", True),
        (CALL, 9, "unlimited", "closed", "", True),
        ("<think>so" + CALL, 9, 3, "closed", "so", False),
        ("<think>so</think>well<think>again" + CALL, 9, "unlimited", "closed", "so", True),
        (
            "<think>so</think>well<think>" + "again and " * 9,
            9,
            None,
            "closed",
            "so",
            False,
        ),  # The default's s bounds it.
    ],
)
def test_a_call_in_a_thought_is_a_call(
    plain: str,
    twin: Path,
    script: str,
    think: int,
    solution: int | str | None,
    thought: str,
    reasoning: str,
    called: bool,
    stream: bool,
) -> None:
    tokenizer, markers = load_markers(twin)
    ids = tokenizer.encode(f"{script}<|im_end|>", add_special_tokens=False)
    limits = {"think_budget": think, "solution_budget": solution, "script": json.dumps(ids)}
    body = {"model": "m", "messages": [{"role": "user", "content": "1+1=?"}], "tools": TOOLS, "vllm_xargs": limits}
    response = httpx.post(f"{plain}/v1/chat/completions", json={**body, "stream": stream}, timeout=120)
    assert response.status_code == 200, response.text
    parts = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.endswith("}")]
    choices = [choice for part in parts for choice in part["choices"]]
    messages: list[dict[str, Any]] = [choice.get("message") or choice["delta"] for choice in choices]
    told, finish = choices[-1]["elastic"], choices[-1]["finish_reason"]
    calls = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
    start = markers.end(ids[:think])
    begun = think if start is None else start
    left = len(ids) - begun
    assert (told["thought"], told["thinking_tokens"], told["forced_tokens"]) == (thought, begun, int(start is None))
    assert told["solution_tokens"] == (left if solution == "unlimited" else min(left, int(solution or DEFAULT)))
    assert "".join(message.get("reasoning") or "" for message in messages).strip() == reasoning
    if called:
        assert ("".join(call.get("name") or "" for call in calls), finish) == ("add", "tool_calls")
        assert json.loads("".join(call.get("arguments") or "" for call in calls)) == {"a": 1}
    else:
        assert finish == "length"


@pytest.mark.parametrize("think", [0, 4])
def test_a_schema_begins_after_the_thought(plain: str, think: int) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    named = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"model": "m", "messages": [{"role": "user", "content": "1+1=?"}], "response_format": named, "seed": 1}
    limits = {"think_budget": think, "solution_budget": 60}
    response = httpx.post(f"{plain}/v1/chat/completions", json={**body, "vllm_xargs": limits}, timeout=120)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    told = choice["elastic"]
    assert told["thinking_tokens"] <= think and told["forced_tokens"] == (told["thought"] == "forced")
    assert choice["message"]["content"].lstrip().startswith("{")
