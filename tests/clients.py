"""How real client packages ask for a budget. It runs in an environment that has them, and not this project:

python tests/clients.py ADDRESS MODEL

prints a line of JSON for each way: its name, and what the server told of its budget.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

QUESTION = "36+6-4+8=?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]


def openai_chat(url: str, model: str, **arguments: Any) -> Any:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    found = client.chat.completions.create(model=model, messages=MESSAGES, **arguments)
    return found.choices[0].model_extra["elastic"]  # type: ignore[index]


def openai_responses(url: str, model: str, **arguments: Any) -> Any:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    with client.responses.stream(model=model, input=QUESTION, **arguments) as stream:
        for event in stream:
            if event.type in ("response.completed", "response.incomplete"):
                return event.response.model_extra["elastic"]  # type: ignore[index]
    return None


def anthropic_messages(url: str, model: str, **arguments: Any) -> Any:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none")
    found = client.messages.create(model=model, messages=MESSAGES, **arguments)
    return found.model_extra["elastic"]  # type: ignore[index]


def litellm_chat(url: str, model: str, **arguments: Any) -> Any:
    """Through the provider for vLLM servers. LiteLLM drops fields that it does not know: usage says what was kept."""
    import litellm

    found = litellm.completion(
        model=f"hosted_vllm/{model}", api_base=f"{url}/v1", api_key="none", messages=MESSAGES, **arguments
    )
    return {"thinking_tokens": found.usage.completion_tokens_details.reasoning_tokens}


def langchain_chat(url: str, model: str, **arguments: Any) -> Any:
    from langchain_openai import ChatOpenAI

    found = ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="none", **arguments).invoke(QUESTION)
    return {"thinking_tokens": found.usage_metadata["output_token_details"]["reasoning"]}


def inspect_generate(url: str, model: str, **arguments: Any) -> Any:
    from inspect_ai.model import GenerateConfig, get_model

    async def ask() -> Any:
        asked = get_model(f"openai-api/here/{model}", base_url=f"{url}/v1", api_key="none")
        return await asked.generate(QUESTION, config=GenerateConfig(**arguments))

    found = asyncio.run(ask())
    return {"thinking_tokens": found.usage.reasoning_tokens}


WAYS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "openai reasoning_effort": (openai_chat, {"reasoning_effort": "low"}),
    "openai reasoning_effort none": (openai_chat, {"reasoning_effort": "none"}),
    "openai responses reasoning.effort": (openai_responses, {"reasoning": {"effort": "low"}}),
    "vLLM thinking_token_budget": (openai_chat, {"extra_body": {"thinking_token_budget": 7}}),
    "OpenRouter reasoning.max_tokens": (openai_chat, {"extra_body": {"reasoning": {"max_tokens": 7}}}),
    "OpenRouter reasoning.enabled": (openai_chat, {"extra_body": {"reasoning": {"enabled": False}}}),
    "DashScope thinking_budget": (openai_chat, {"extra_body": {"enable_thinking": True, "thinking_budget": 7}}),
    "Qwen chat_template_kwargs": (
        openai_chat,
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    ),
    "SGLang custom_params": (openai_chat, {"extra_body": {"custom_params": {"thinking_budget": 7}}}),
    "llama.cpp thinking_budget_tokens": (openai_chat, {"extra_body": {"thinking_budget_tokens": 7}}),
    "llama.cpp reasoning_budget": (openai_chat, {"extra_body": {"reasoning_budget": 7}}),
    "NIM nvext": (openai_chat, {"extra_body": {"nvext": {"max_thinking_tokens": 7}}}),
    "Gemini thinking_config": (
        openai_chat,
        {"extra_body": {"extra_body": {"google": {"thinking_config": {"thinking_budget": 7}}}}},
    ),
    "anthropic thinking": (
        anthropic_messages,
        {"max_tokens": 400, "thinking": {"type": "enabled", "budget_tokens": 7}},
    ),
    "anthropic thinking disabled": (anthropic_messages, {"max_tokens": 400, "thinking": {"type": "disabled"}}),
    "litellm reasoning_effort": (litellm_chat, {"reasoning_effort": "low"}),
    "litellm thinking": (litellm_chat, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    "langchain-openai reasoning_effort": (langchain_chat, {"reasoning_effort": "low"}),
    "inspect_ai reasoning_effort": (inspect_generate, {"reasoning_effort": "low"}),
    "inspect_ai extra_body": (inspect_generate, {"extra_body": {"thinking_token_budget": 7}}),
}


def main(url: str, model: str) -> None:
    for name, (ask, arguments) in WAYS.items():
        try:
            told = ask(url, model, **arguments)
        except Exception as error:  # One client that fails is one line.
            told = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps([name, told]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
