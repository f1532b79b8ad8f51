"""`elastic serve` with the SDKs of OpenAI and Anthropic: what real clients send, and an answer that they continue."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.served import KEY, NAME, RULE_SOLUTION, Shared

QUESTION: Any = [{"role": "user", "content": "36+6-4+8=?"}]
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 3}},
    "required": ["title"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "schema": SCHEMA}


@pytest.fixture
def server(shared: Shared) -> str:
    return shared.address


@pytest.fixture
def messages(server: str) -> Any:
    """Anthropic's client, which gives its key as x-api-key."""
    return anthropic.Anthropic(base_url=server, api_key=KEY, max_retries=0).messages


def chat(server: str, **body: Any) -> Any:
    headers = {"api-key": KEY}
    body = {"model": NAME, "messages": QUESTION, "return_token_ids": True} | body
    answer = httpx.post(f"{server}/v1/chat/completions", json=body, headers=headers, timeout=600)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_claude_codes_request_for_a_title_is_answered_without_a_thought(messages: Any) -> None:
    found = messages.create(
        model=NAME,
        max_tokens=16000,  # More than the context.
        messages=QUESTION,
        thinking={"type": "disabled"},
        output_config={"effort": "high", "format": FORMAT},
    )
    elastic = found.model_extra["elastic"]
    assert (elastic["budget"], elastic["thinking_tokens"]) == (f"0+{RULE_SOLUTION}", 0)
    assert found.content[-1].text.lstrip().startswith("{")


@pytest.mark.parametrize("effort", ["low", "medium"])
def test_a_thought_that_is_summarized_has_its_effort(messages: Any, effort: str) -> None:
    thinking = {"type": "adaptive", "display": "summarized"}
    arguments = {"thinking": thinking, "output_config": {"effort": effort}}
    found = messages.create(model=NAME, max_tokens=400, messages=QUESTION, **arguments)
    assert found.model_extra["elastic"]["level"] == effort
    with messages.stream(model=NAME, max_tokens=400, messages=QUESTION, **arguments) as stream:
        assert stream.get_final_message().usage.output_tokens  # The SDK leaves out what it does not know.


def test_an_sdk_is_told_what_is_wrong(server: str, messages: Any) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"thinking.budget sets no budget here"):
        messages.create(model=NAME, max_tokens=9, messages=QUESTION, extra_body={"thinking": {"budget": 3}})
    with pytest.raises(anthropic.AuthenticationError, match="Unauthorized"):
        anthropic.Anthropic(base_url=server, api_key="wrong", max_retries=0).messages.create(
            model=NAME, max_tokens=9, messages=QUESTION
        )
    with pytest.raises(openai.AuthenticationError, match="Unauthorized"):
        openai.OpenAI(base_url=f"{server}/v1", api_key="wrong", max_retries=0).models.list()


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("solution", [24, "unlimited"])
def test_a_schema_holds_after_the_thought_also_where_that_is_hidden(server: str, hidden: bool, solution: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "title", "schema": SCHEMA}}
    limits = {"think_budget": 16, "solution_budget": solution}
    found = chat(server, response_format=form, reasoning={"exclude": hidden}, vllm_xargs=limits, max_tokens=200)
    assert 0 < found["elastic"]["thinking_tokens"] <= 16
    assert found["message"]["content"].lstrip().startswith("{")
    assert bool(found["message"].get("reasoning")) is not hidden


@pytest.mark.parametrize("flags", [{}, {"add_generation_prompt": False}, {"reasoning": {"exclude": True}}])
def test_an_answer_that_is_continued_is_solution(server: str, flags: dict[str, Any]) -> None:
    begun = [*QUESTION, {"role": "assistant", "content": "The answer is"}]
    found = chat(server, messages=begun, continue_final_message=True, **flags)
    assert found["elastic"]["thought"] == "not_applicable"
    assert found["elastic"]["forced_tokens"] == found["elastic"]["thinking_tokens"] == 0
    assert 0 < found["elastic"]["solution_tokens"] <= 8 and "excess_tokens" not in found["elastic"]
    assert found["message"]["content"] and not found["message"].get("reasoning")
