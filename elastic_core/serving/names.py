"""Budgets under names that the server does not read: those of other servers, misspelt ones, and its own in another
place. vLLM ignores what it does not know, and the client would count on a budget that is not kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from elastic_core.engines.budgets.processor import SOLUTION, THINK

_OURS = ("thinkbudget", "solutionbudget", "reasoningeffort")
_OTHERS = re.compile(
    "budget|effort|(think|thinking|reason|reasoning|thought|thoughts)(tokens?|limit|level|config|mode)"
    "|^(enable|disable|no)?(think|thinking|reasoning)$"
)
"""vLLM's thinking_token_budget, SGLang's thinking_budget, Qwen's enable_thinking, Anthropic's thinking, OpenRouter's
reasoning, llama.cpp's reasoning_budget, Dynamo's max_thinking_tokens, Gemini's thinking_level and their like."""
_CONTAINERS = (
    *("vllmxargs", "xargs", "extraargs", "extrabody", "chattemplatekwargs", "customparams", "nvext", "google"),
    "outputconfig",
)
"""Objects in a request that such names are sent in."""
_SIMILARITY = 0.88  # A letter wrong, missing or swapped; llama.cpp's reasoning_format is no reasoning_effort.
_MOST_KEYS, _LONGEST_KEY, _DEEPEST = 1000, 40, 3


def unread_budget(body: Mapping[str, Any]) -> str | None:
    """The first budget by such a name, as a path of keys; None without one. What is null or true limits nothing.

    Raises:
        ValueError: on more keys than any request has.
    """
    for number, (path, value) in enumerate(_entries(body)):
        if number == _MOST_KEYS:
            raise ValueError(f"the request has more than {_MOST_KEYS} keys; expected fewer")
        if value is not None and value is not True and _names_budget(path[-1]):
            return ".".join(path)
    return None


def _entries(holder: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in holder.items():
        if len(key) > _LONGEST_KEY or (at == ("vllm_xargs",) and key in (THINK, SOLUTION)):
            continue
        yield (*at, key), value
        if isinstance(value, dict) and len(at) < _DEEPEST and _is_container(key):
            yield from _entries(value, (*at, key))


@lru_cache
def _is_container(key: str) -> bool:
    return _near(_letters(key), _CONTAINERS)


@lru_cache(maxsize=1024)
def _names_budget(key: str) -> bool:
    letters = _letters(key)
    return bool(_OTHERS.search(letters)) or _near(letters, _OURS)


def _letters(key: str) -> str:
    return re.sub("[^a-z]", "", key.lower())


def _near(letters: str, names: tuple[str, ...]) -> bool:
    return bool(get_close_matches(letters, names, n=1, cutoff=_SIMILARITY))
