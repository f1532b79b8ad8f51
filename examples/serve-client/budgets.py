"""Ask a served model the same question at several thinking budgets, with OpenAI's client.

python budgets.py http://127.0.0.1:8000/v1 MODEL "36+6-4+8=?"
"""

import sys
from typing import Any

import openai


def main(address: str, model: str, question: str) -> None:
    client = openai.OpenAI(base_url=address, api_key="none")
    ways: dict[str, dict[str, Any]] = {
        "no thinking": {"reasoning_effort": "none"},
        "the level low": {"reasoning_effort": "low"},
        "12 tokens for the thought, 24 for the solution": {
            "extra_body": {"vllm_xargs": {"think_budget": 12, "solution_budget": 24}}
        },
        "the server's default": {},
    }
    for way, fields in ways.items():
        response: Any = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], temperature=0, **fields
        )
        choice = response.choices[0]
        spent = choice.model_extra["elastic"]  # What the server kept: budget, level, tokens of both phases.
        thought = "cut" if spent["forced_tokens"] else "ended by the model"
        print(f"{way}: budget {spent['budget']}")
        print(f"  thought: {spent['thinking_tokens']} tokens, {thought}; solution: {spent['solution_tokens']} tokens")
        print(f"  {choice.message.content!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
