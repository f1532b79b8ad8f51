"""How clients ask for less thinking: the fields of a request that name a budget, in every API's words.

`DIALECTS` is the table. A field that looks like a budget and is not in it is refused (`unread_budget`): vLLM ignores
fields that it does not know, and the client would rely on a budget that is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from elastic_core.engines.budgets.parameters import SOLUTION, THINK
from elastic_core.errors import nearest
from elastic_core.serving.levels import EFFORTS, Effort

ARGUMENTS = "vllm_xargs"
EFFORT = "reasoning_effort"
OURS = f'"{THINK}" and "{SOLUTION}" in "{ARGUMENTS}"'  # What a client is told to give.
_NO_THOUGHT = "none"
_NO_LIMIT = ("xhigh", "max")  # Efforts above `high`, which is the dearest that is measured.


class Refused(ValueError):
    """The request is at fault; the message is one sentence for the client."""


class Wish(NamedTuple):
    """What one field asks for: where it `names_think` at most `think` tokens, None for no limit; or the level `effort`;
    or where `thinks`, a thought of any length. `hides` is whether the response is to be without the thought."""

    names_think: bool = False
    think: int | None = None
    effort: Effort | None = None
    thinks: bool = False
    hides: bool | None = None


def _tokens(value: Any) -> Wish:
    """-1 means unlimited in llama.cpp, and that the model decides in Gemini."""
    found = read_as(_TOKENS, value, "a whole number of tokens, or -1 for no limit")
    return Wish(True, None if found == -1 else found)


def _effort(value: Any) -> Wish:
    names = (_NO_THOUGHT, *EFFORTS, *_NO_LIMIT)
    if value == _NO_THOUGHT:
        return Wish(True, 0)
    if value in _NO_LIMIT:
        return Wish(True, None)
    if value not in EFFORTS:
        hint = nearest(str(value)[:40], names)
        raise ValueError(f"{value!r:.40}{hint or ';'} expected {', '.join(names)}")
    return Wish(effort=value)


def _switch(value: Any) -> Wish:
    return Wish(thinks=True) if read_as(FLAG, value, "true or false") else Wish(True, 0)


def _kind(value: Any) -> Wish:
    if not isinstance(value, str) or value not in _KINDS:
        raise ValueError(f"{value!r:.40}; expected {', '.join(_KINDS)}")
    return _switch(_KINDS[value])


def _hidden(value: Any) -> Wish:
    return Wish(hides=read_as(FLAG, value, "true or false"))


def _shown(value: Any) -> Wish:
    return Wish(hides=not read_as(FLAG, value, "true or false"))


_TOKENS = TypeAdapter(Annotated[int, Field(ge=-1, lt=2**31)])
FLAG = TypeAdapter(bool)
_KINDS = {"enabled": True, "adaptive": True, "disabled": False}


class Dialect(NamedTuple):
    """A field: its path in a request's body, what its value asks for, and whose clients send it."""

    path: tuple[str, ...]
    read: Callable[[Any], Wish]
    who: str


_TEMPLATE, _GEMINI = "chat_template_kwargs", ("google", "thinking_config")
DIALECTS = (
    Dialect(("thinking_token_budget",), _tokens, "vLLM, Dynamo"),
    Dialect((EFFORT,), _effort, "OpenAI (chat)"),
    Dialect(("reasoning", "effort"), _effort, "OpenAI (Responses), OpenRouter"),
    Dialect(("reasoning", "max_tokens"), _tokens, "OpenRouter"),
    Dialect(("reasoning", "enabled"), _switch, "OpenRouter"),
    Dialect(("reasoning", "exclude"), _hidden, "OpenRouter"),
    Dialect(("thinking", "type"), _kind, "Anthropic, LiteLLM"),
    Dialect(("thinking", "budget_tokens"), _tokens, "Anthropic, LiteLLM"),
    Dialect(("output_config", "effort"), _effort, "Anthropic"),
    Dialect(("enable_thinking",), _switch, "DashScope"),
    Dialect(("thinking_budget",), _tokens, "DashScope"),
    Dialect(("custom_params", "thinking_budget"), _tokens, "SGLang"),
    Dialect((_TEMPLATE, "enable_thinking"), _switch, "Qwen, vLLM, SGLang"),
    Dialect((_TEMPLATE, "thinking"), _switch, "DeepSeek"),
    Dialect((_TEMPLATE, "thinking_budget"), _tokens, "Seed-OSS"),
    Dialect((_TEMPLATE, EFFORT), _effort, "gpt-oss"),
    Dialect(("thinking_budget_tokens",), _tokens, "llama.cpp"),
    Dialect(("reasoning_budget",), _tokens, "llama.cpp, NIM"),
    Dialect(("nvext", "max_thinking_tokens"), _tokens, "NIM, Dynamo"),
    *(
        Dialect((*holder, *_GEMINI, name), read, "Gemini")
        for holder in ((), ("extra_body",))
        for name, read in (("thinking_budget", _tokens), ("thinking_level", _effort), ("include_thoughts", _shown))
    ),
)
"""Every field that names a budget beside our own. s comes from our own name, the level, or the default."""
_HARMLESS = ("summary", "generate_summary", "context")  # Fields of `reasoning` that limit nothing.


def take_wishes(body: dict[str, Any]) -> dict[str, Wish]:
    """What a request asks for, by the path of the field; the fields are taken out of `body`, and objects that held them
    replaced by copies. What a chat template needs in order to think stays. Raises Refused on a value that is none of
    its field's, and on a field that would not be read."""
    wishes = {}
    for path, read, _ in DIALECTS:
        holder = body
        for key in path[:-1]:
            if not isinstance(holder.get(key), dict):
                break
            holder[key] = holder = dict(holder[key])
        else:
            value, name = holder.pop(path[-1], None), ".".join(path)
            if value is None:
                continue
            try:
                wishes[name] = read(value)
            except ValueError as error:
                raise Refused(f"{name} is {error}") from None
            if wishes[name].thinks and path[0] == _TEMPLATE:
                holder[path[-1]] = value
    if isinstance(body.get("reasoning"), dict):
        for key in _HARMLESS:
            body["reasoning"].pop(key, None)
    _drop_empty(body)
    try:
        unread = unread_budget(body)
    except ValueError as error:
        raise Refused(str(error)) from None
    if unread is not None:
        raise Refused(f'{unread} sets no budget here; give {OURS}, or "{EFFORT}"')
    return wishes


def _drop_empty(body: dict[str, Any]) -> None:
    """Objects of the table that hold nothing any more."""
    holders = {dialect.path[:end] for dialect in DIALECTS for end in range(1, len(dialect.path))}
    for path in sorted(holders, key=len, reverse=True):
        holder = body
        for key in path[:-1]:
            found = holder.get(key)
            holder = found if isinstance(found, dict) else {}
        if holder.get(path[-1]) == {}:
            del holder[path[-1]]


def read_as(adapter: TypeAdapter[Any], value: Any, expected: str) -> Any:
    """A value as vLLM's own models read it: "no", "off" and 0 are false, and 20.0 is 20. A ValueError says what was
    found and expected."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        raise ValueError(f"{value!r:.40}; expected {expected}") from None


_NAMES = ("thinkbudget", "solutionbudget", "reasoningeffort")
_OTHERS = re.compile(
    "budget|effort|(think|thinking|reason|reasoning|thought|thoughts)(tokens?|limit|level|config|mode)"
    "|^(enable|disable|no)?(think|thinking|reasoning)$"
)
_CONTAINERS = (
    *("vllmxargs", "xargs", "extraargs", "extrabody", "chattemplatekwargs", "customparams", "nvext", "google"),
    *("outputconfig", "reasoning", "thinking"),
)
"""Objects of a request that may hold such names."""
_SIMILARITY = 0.88  # A letter wrong, missing or swapped; llama.cpp's reasoning_format is not reasoning_effort.
_MOST_KEYS, _LONGEST_KEY, _DEEPEST = 1000, 40, 3


def unread_budget(body: Mapping[str, Any]) -> str | None:
    """The first field that names a budget which is not read, as a path of keys: of a server that is not in the table,
    misspelt, or in another place. Null and true limit nothing. A ValueError on more than 1,000 keys."""
    for number, (path, value) in enumerate(_entries(body)):
        if number == _MOST_KEYS:
            raise ValueError(f"the request has more than {_MOST_KEYS} keys; expected fewer")
        if value is not None and value is not True and _names_budget(path[-1]):
            return ".".join(path)
    return None


def _entries(holder: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in holder.items():
        if len(key) > _LONGEST_KEY or (at == (ARGUMENTS,) and key in (THINK, SOLUTION)):
            continue
        yield (*at, key), value
        if isinstance(value, dict) and len(at) < _DEEPEST and _near(_letters(key), _CONTAINERS):
            yield from _entries(value, (*at, key))


@lru_cache(maxsize=1024)
def _names_budget(key: str) -> bool:
    letters = _letters(key)
    return bool(_OTHERS.search(letters)) or _near(letters, _NAMES)


def _letters(key: str) -> str:
    return re.sub("[^a-z]", "", key.lower())


@lru_cache(maxsize=1024)
def _near(letters: str, names: tuple[str, ...]) -> bool:
    return bool(get_close_matches(letters, names, n=1, cutoff=_SIMILARITY))
