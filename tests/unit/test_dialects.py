"""Every client's own way to ask for less thinking is read, or refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_core.budget import Budget
from elastic_core.serving.dialects import DIALECTS, Refused
from elastic_core.serving.requests import Plan, ServeConfiguration, plan
from tests.unit.test_serving_law import MARKS

LEVELS = {"low": Budget(8, 4), "high": Budget(64, 16)}
FREE = ServeConfiguration(None, LEVELS)
DEFAULT = ServeConfiguration(Budget(16, 5), {})
NO_LEVEL = ServeConfiguration(Budget(16, 5), LEVELS, "refuse")


def planned(body: dict[str, Any], config: ServeConfiguration = DEFAULT, kind: Any = "chat") -> Plan:
    return plan(kind, body, config, MARKS)


def nested(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


TOKENS = [dialect.path for dialect in DIALECTS if dialect.read.__name__ == "_tokens"]
EFFORTS = [dialect.path for dialect in DIALECTS if dialect.read.__name__ == "_effort"]
SWITCHES = [dialect.path for dialect in DIALECTS if dialect.read.__name__ == "_switch"]


def test_the_table_has_what_servers_and_clients_call_it() -> None:
    assert {".".join(path) for path in TOKENS} == {
        "thinking_token_budget",  # vLLM, Dynamo
        "reasoning.max_tokens",  # OpenRouter
        "thinking.budget_tokens",  # Anthropic, LiteLLM
        "thinking_budget",  # DashScope
        "custom_params.thinking_budget",  # SGLang
        "chat_template_kwargs.thinking_budget",  # Seed-OSS
        "thinking_budget_tokens",  # llama.cpp
        "reasoning_budget",
        "nvext.max_thinking_tokens",  # NIM
        "google.thinking_config.thinking_budget",  # Gemini
        "extra_body.google.thinking_config.thinking_budget",
    }
    assert {".".join(path) for path in EFFORTS} == {
        "reasoning_effort",
        "reasoning.effort",
        "output_config.effort",
        "chat_template_kwargs.reasoning_effort",
        "google.thinking_config.thinking_level",
        "extra_body.google.thinking_config.thinking_level",
    }


@pytest.mark.parametrize("path", TOKENS, ids=".".join)
def test_tokens_become_t_and_s_is_the_defaults(path: tuple[str, ...]) -> None:
    for value, think in ((7, 7), (0, 0), ("7", 7), (7.0, 7), (-1, None)):
        found = planned(nested(path, value))
        assert (found.budget, found.level, found.body) == (Budget(think, 5), "explicit", {})
    assert planned(nested(path, None)).level == "default"
    for value in (-2, 7.5, "many", [7], {"a": 7}):
        with pytest.raises(Refused, match=rf"^{'.'.join(path)} is .*expected a whole number"):
            planned(nested(path, value))


@pytest.mark.parametrize("path", EFFORTS, ids=".".join)
def test_an_effort_becomes_a_level(path: tuple[str, ...]) -> None:
    found = planned(nested(path, "low"), FREE)
    assert (found.budget, found.level, found.body) == (LEVELS["low"], "low", {})
    assert planned(nested(path, "none")).budget == Budget(0, 5)
    assert planned(nested(path, "xhigh")).budget == planned(nested(path, "max")).budget == Budget(None, 5)
    with pytest.raises(Refused, match=r"'hihg'.*high.*expected none, minimal"):
        planned(nested(path, "hihg"), FREE)
    with pytest.raises(Refused, match=r"'low', and no level .*think_budget"):
        planned(nested(path, "low"))


@pytest.mark.parametrize("path", [*SWITCHES, ("thinking", "type")], ids=".".join)
def test_no_thought_is_a_budget_of_none(path: tuple[str, ...]) -> None:
    no, yes = ("disabled", "enabled") if path == ("thinking", "type") else (False, True)
    found = planned(nested(path, no))
    assert (found.budget, found.level, found.body) == (Budget(0, 5), "explicit", {})
    kept = planned(nested(path, yes))
    assert (kept.budget, kept.level) == (Budget(16, 5), "default")
    # A chat template may need it in order to think.
    assert kept.body == (nested(path, yes) if path[0] == "chat_template_kwargs" else {})
    with pytest.raises(Refused, match="asks for a thought, and think_budget for none"):
        planned(nested(path, yes) | {"vllm_xargs": {"think_budget": 0}})


def test_a_thought_can_be_hidden() -> None:
    gemini = {"extra_body": {"google": {"thinking_config": {"include_thoughts": False}}}}
    for body in ({"reasoning": {"exclude": True}}, gemini):
        assert planned(body).body == {"include_reasoning": False}
        with pytest.raises(Refused, match=r"hides the thought.*/v1/chat/completions"):
            planned(body, kind="messages")


@pytest.mark.parametrize(
    "body",
    [
        {"reasoning_effort": "low", "reasoning": {"effort": "low"}},
        {"reasoning_effort": "low", "thinking": {"type": "enabled", "budget_tokens": 8}},
        {"thinking_budget": 8, "enable_thinking": True, "vllm_xargs": {"think_budget": 8}},
    ],
)
def test_fields_that_agree_are_one(body: dict[str, Any]) -> None:
    assert planned(body, FREE).budget.think == 8


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            {"reasoning_effort": "low", "reasoning": {"effort": "high"}},
            "reasoning_effort asks for 8 .*reasoning.effort",
        ),
        ({"reasoning_effort": "low", "vllm_xargs": {"think_budget": 1}}, "reasoning_effort .*and think_budget for 1 "),
        ({"thinking_budget": 4, "enable_thinking": False}, "enable_thinking asks for 0 .*thinking_budget for 4"),
        ({"thinking": {"type": "disabled", "budget_tokens": 9}}, "thinking.type asks for 0 .*budget_tokens for 9"),
        ({"reasoning_effort": "max", "thinking_budget": 9}, "asks for no limit, and thinking_budget for 9"),
    ],
)
def test_fields_that_disagree_are_refused(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        planned(body, FREE)


def test_the_solution_has_the_clients_limit_the_levels_or_the_defaults() -> None:
    own = {"vllm_xargs": {"solution_budget": 9}}
    assert planned({"reasoning_effort": "low"} | own, FREE).budget == Budget(8, 9)
    assert planned({"reasoning_effort": "low"}, FREE).budget == Budget(8, 4)
    assert planned({"thinking_budget": 3} | own).budget == Budget(3, 9)
    assert planned({"thinking_budget": 3}).budget == Budget(3, 5)
    assert planned({"thinking_budget": 3}, FREE).budget == Budget(3, None)


def test_a_level_that_was_not_measured_is_the_nearest_or_refused() -> None:
    """The next higher one, which has at least its accuracy, as levels are chosen."""
    assert [planned({"reasoning_effort": effort}, FREE).level for effort in ("minimal", "low", "medium", "high")] == [
        "low",
        "low",
        "high",
        "high",
    ]
    cheap = ServeConfiguration(None, {"minimal": Budget(1, 1)})
    assert planned({"reasoning_effort": "high"}, cheap).level == "minimal"
    with pytest.raises(Refused, match=r"'medium', which was not measured .*expected low, high"):
        planned({"reasoning_effort": "medium"}, NO_LEVEL)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"think_budget": 2}, "think_budget"),
        ({"solution_budget": 2}, "solution_budget"),
        ({"solutoin_budgt": 2}, "solutoin_budgt"),
        ({"vllm_xargs": {"think_bugdet": 2}}, "vllm_xargs.think_bugdet"),
        ({"vllm_xargs": {"thinking_budget": 2}}, "vllm_xargs.thinking_budget"),
        ({"vllm_xarg": {"think_budget": 2}}, "vllm_xarg.think_budget"),
        ({"extra_body": {"vllm_xargs": {"think_budget": 2}}}, "extra_body.vllm_xargs.think_budget"),
        ({"extra_body": {"thinking_budget": 2}}, "extra_body.thinking_budget"),
        ({"budget_tokens": 2}, "budget_tokens"),
        ({"max_thinking_tokens": 2}, "max_thinking_tokens"),
        ({"thinkingBudget": 2}, "thinkingBudget"),
        ({"thinking": "off"}, "thinking"),
        ({"thinking": {"budget": 2}}, "thinking"),
        ({"reasoning": "low"}, "reasoning"),
        ({"reasoning": {"efort": "low"}}, "reasoning"),
        ({"reasoning_efort": "low"}, "reasoning_efort"),
        ({"nvext": {"thinking_budget": 2}}, "nvext.thinking_budget"),
        ({"google": {"thinking_config": {"thinking_budgets": 2}}}, "google.thinking_config"),
    ],
)
@pytest.mark.parametrize("config", [FREE, DEFAULT], ids=["free", "default"])
def test_a_budget_under_another_name_is_refused(body: dict[str, Any], path: str, config: ServeConfiguration) -> None:
    with pytest.raises(Refused, match=f'^{path} .*"think_budget" and "solution_budget" in "vllm_xargs"'):
        planned(body, config)


def test_other_fields_pass() -> None:
    """Those of OpenAI, of other servers and of extensions, and what asks for no limit."""
    names = """messages model store metadata modalities prediction service_tier verbosity safety_identifier
        prompt_cache_key best_of suffix reasoning_format separate_reasoning stream_reasoning include_thoughts
        reasoning_history top_a transforms provider usage options keep_alive num_predict
        cache_prompt resolution solution"""
    body = {name: {"effort": 1} for name in names.split()} | {
        "reasoning": None,
        "chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": False},
        "x" * 3000: 1,
    }
    assert planned(body, FREE).body == body


def test_a_request_of_too_many_keys_is_refused() -> None:
    with pytest.raises(Refused, match="1000"):
        planned({str(i): i for i in range(1001)})
