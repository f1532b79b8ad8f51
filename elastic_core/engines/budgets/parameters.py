"""What a logits processor reads of vLLM's configuration, and refuses of a request, whichever runner it serves."""

from __future__ import annotations

import dataclasses
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import DROP_ONE, ROOM, Stops, read_budget

KEY = "elastic"
"""In vLLM's `additional_config`, which every process of an engine gets."""


def additional_config(stops: Stops) -> dict[str, Any]:
    """vLLM's `additional_config` of an engine that serves budgets."""
    return {KEY: dataclasses.asdict(stops)}


def stops_of(vllm_config: Any) -> Stops:
    """What `additional_config` put there.

    Raises:
        ValueError: when it is not there, or the engine decodes speculatively.
    """
    if vllm_config.speculative_config is not None:
        raise ValueError("budgets are not served with speculative decoding; start without it")
    found = (vllm_config.additional_config or {}).get(KEY)
    if found is None:
        raise ValueError('additional_config has no key "elastic"; start the server with `elastic serve`')
    return Stops(found["think_start"], found["think_end"], tuple(found["end_of_text"]))


def budget_of(sampling: Any) -> Budget | None:
    """The budget in vLLM's sampling parameters, None without one.

    Raises:
        ValueError: as `read_budget`.
    """
    return read_budget(sampling.extra_args or {})


def validate(sampling: Any) -> None:
    """Before a request enters the engine.

    Raises:
        ValueError: when it is refused; a sentence for the client.
    """
    budget = budget_of(sampling)
    if budget is None:
        return
    if sampling.structured_outputs is not None:
        raise ValueError(
            f"structured output together with a budget: the grammar would reject forced tokens; {DROP_ONE}"
        )
    if sampling.thinking_token_budget is not None:
        raise ValueError(f"thinking_token_budget together with a budget; {DROP_ONE}")
    if sampling.min_tokens:
        raise ValueError(f"min_tokens is {sampling.min_tokens} together with a budget; {DROP_ONE}")
    if sampling.ignore_eos:
        raise ValueError(f"ignore_eos together with a budget, whose solution ends at end-of-text; {DROP_ONE}")
    room = sampling.extra_args.get(ROOM, 0)
    if sampling.max_tokens is not None and sampling.max_tokens < room:
        raise ValueError(
            f"the budget {budget} does not fit the context: it takes {room} tokens after the prompt, which leaves "
            f"{sampling.max_tokens}; ask for a smaller one"
        )
