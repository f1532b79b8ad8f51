"""Read how much thinking a request asks for, in the words of any client; `dialects.toml` lists the fields. `elastic
audit` writes requests by the same table (`requesting`).

1. Off wins: the thought has no tokens, whatever else is given. Only a switch on together with a switch off is refused.
2. Else the smallest cap holds; -1 lifts the budget only where no other number is given.
3. Else the effort is a level. The last one in the conversation replaces those of the request, which must not differ.
4. Where nothing else limits the thought, an effort in the words of the chat template picks a level.
5. The template keeps its fields. All other ones are taken out: the server's budget stands for them.
6. A name that sounds like a budget and is not listed is refused, as vLLM would ignore it; every other one passes.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from elastic_core.budget import UNLIMITED
from elastic_core.engines.budgets.parameters import SOLUTION, THINK
from elastic_core.errors import nearest
from elastic_core.serving.levels import EFFORTS

ARGUMENTS, TEMPLATE = "vllm_xargs", "chat_template_kwargs"
EFFORT = "reasoning_effort"
OURS = f'"{THINK}" and "{SOLUTION}" in "{ARGUMENTS}"'  # The advice to a client.
_NO_LIMIT = -1  # As a cap: no limit in llama.cpp and vLLM; the model decides in Gemini.
_LIFTED = "max"  # The effort above `high`, which is the dearest level that is measured.


class Refused(ValueError):
    """The request is at fault; the message is one sentence for the client."""


class Wish(NamedTuple):
    """What one field asks for, each part None for nothing: a thought or none, at most `cap` tokens of it, an effort, an
    effort in the chat template's words, or a response without the thought."""

    switch: bool | None = None
    cap: int | None = None
    effort: str | None = None
    native: str | None = None
    hides: bool | None = None


class Requested(NamedTuple):
    """The request of all fields together, each part None for nothing. `cap` is the most tokens of a thought,
    or UNLIMITED; `effort` a level, of the `field`; `native` one that holds where nothing else limits the thought, or a
    word above all levels."""

    cap: int | str | None
    effort: str | None
    field: str
    native: str | None
    hides: bool | None


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
OPAQUE, _WORDS, _TOGETHER = frozenset(_TABLE.pop("opaque")), _TABLE.pop("words"), _TABLE.pop("together")
SENDERS = {name: who for fields in _TABLE.values() for name, who in fields.items()}
"""Who sends or documents a field, by its path with dots."""
_OWN = _TABLE.pop("own")
DIALECTS = {tuple(name.split(".")): kind for kind, fields in _TABLE.items() for name in fields}
"""Types of fields, by their paths in a request's body."""
_HOLDERS = {path[:end] for path in DIALECTS for end in range(1, len(path))}
_SWITCHES = {
    word: Wish(switch=switch)
    for name, switch in (("on", True), ("off", False), ("nothing", None))
    for word in _WORDS[name]
}
_EFFORTS = {
    word: Wish(effort=effort) for effort in (*EFFORTS, "none", _LIFTED) for word in _WORDS.get(effort, [effort])
}
_EFFORTS |= dict.fromkeys(_WORDS["nothing"], Wish())
_ASKING = {*_SWITCHES, *_EFFORTS}.difference(_WORDS["nothing"])
_UPDATES = ("output_config", "configuration_update")  # Objects of a message that change the effort from there on.
_NO_THOUGHT = {"effort": "none", "template_effort": "none", "switch": False, "off": True, "word": False}
_NO_THOUGHT |= dict.fromkeys(("mode", "template_mode"), "disabled")
FLAG = TypeAdapter(bool)
_TOKENS = TypeAdapter(Annotated[int, Field(ge=_NO_LIMIT)])
_MOST = 2**31 - 1  # No context has more tokens.


def take_fields(body: dict[str, Any]) -> Requested:
    """Read how much thinking a request wants. Its fields are taken out of `body`, and objects that held them
    replaced by copies. Raises Refused on a wrong type, an unknown word, two fields that contradict each other, or one
    that would not be read."""
    arguments, kept = body.pop("chat_template_args", None), body.get(TEMPLATE) or {}  # Baseten's name for the same.
    if arguments is not None:
        if not isinstance(arguments, dict) or not isinstance(kept, dict):
            raise Refused(f"chat_template_args is {arguments!r:.40}; expected an object, as {TEMPLATE}")
        body[TEMPLATE] = {**arguments, **kept}
    num_keys = itertools.count(1)
    wishes = _take(body, num_keys)
    updates = list(_updates(body))
    if len(updates) > _MOST_KEYS:
        raise Refused(f"the conversation changes the effort more than {_MOST_KEYS} times; expected fewer")
    for place, update in updates:
        changed = _take(update, num_keys, place)
        if any(name.endswith("effort") for name in changed):
            wishes = {name: wish for name, wish in wishes.items() if not wish.effort}
        wishes |= changed
    return _together(wishes)


def requesting(field: str, tokens: int) -> dict[str, Any]:
    """Write the fields of a request for at most so many tokens of thought, by a field of the table, its path with dots:
    what `take_fields` reads back. Empty where the field cannot say it: only caps name a number above 0, and some fields
    limit nothing."""
    kind = "cap" if field in _OWN else DIALECTS[tuple(field.split("."))]
    value = tokens if kind in ("cap", "template_cap") else None if tokens else _NO_THOUGHT.get(kind)
    body: dict[str, Any] = {}
    if value is None:
        return body
    for name, each in {field: value, **(_TOGETHER.get(field, {}) if tokens else {})}.items():
        *holders, last = name.split(".")
        holder = body
        for key in holders:
            holder = holder.setdefault(key, {})
        holder[last] = each
    return body


def _take(body: dict[str, Any], num_keys: Iterator[int], place: str = "") -> dict[str, Wish]:
    """Wishes of the fields of a body, or of a part of one at some `place`, by their names; `num_keys` as `_unread`."""
    wishes = {}
    for path, kind in DIALECTS.items():
        value, name = (holder := _holder(body, path)).get(path[-1]), place + ".".join(path)
        if isinstance(value, dict) and path in _HOLDERS:
            continue
        wish = None
        if value is not None:
            try:
                wishes[name] = wish = _READERS[kind](value)
            except ValueError as error:
                raise Refused(f"{name} is {error}") from None
        if path[0] != TEMPLATE or kind == "cap" or wish is None or (kind, wish.switch) == ("switch", False):
            holder.pop(path[-1], None)
    if unread := _unread(body, num_keys):
        raise Refused(f'{place}{unread:.200} sets no budget here; give {OURS}, or "{EFFORT}"')
    for path in sorted(_HOLDERS, key=len, reverse=True):
        found, is_thoughts = (holder := _holder(body, path)).get(path[-1]), _sounds_like_budget(path[-1])
        if isinstance(found, dict):
            if not found or is_thoughts:  # vLLM 0.33 refuses much in these.
                del holder[path[-1]]
        elif found is not None and (is_thoughts or path[-1] in _UPDATES):
            raise Refused(f"{place}{'.'.join(path)} is {found!r:.40}; expected an object")
    return wishes


def _holder(body: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The object that has the last key of a path; it and those around it are copied, so the client's stay. Empty where
    there is none."""
    for key in path[:-1]:
        if not isinstance(body.get(key), dict):
            return {}
        body[key] = body = dict(body[key])
    return body


def _updates(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The places and changes of the effort within the conversation. They are taken out, with messages that have nothing
    else."""
    for name in ("messages", "input"):
        items = body.get(name)
        if not isinstance(items, list) or not any(map(_has_update, items)):
            continue
        body[name] = kept = []
        for at, item in enumerate(items):
            if not _has_update(item):
                kept.append(item)
                continue
            rest = {key: value for key, value in item.items() if key not in _UPDATES}
            is_whole = item.get("type") in _UPDATES
            yield f"{name}[{at}].", rest if is_whole else {key: item.get(key) for key in _UPDATES}
            if not is_whole and any(value for key, value in rest.items() if key not in ("role", "type")):
                kept.append(rest)


def _has_update(item: Any) -> bool:
    return isinstance(item, dict) and (
        item.get("type") in _UPDATES or any(item.get(key) is not None for key in _UPDATES)
    )


def _together(wishes: Mapping[str, Wish]) -> Requested:
    """One request of all wishes, by the fields' names."""
    on, off = (next((name for name, wish in wishes.items() if wish.switch is switch), None) for switch in (True, False))
    if on and off:
        raise Refused(f"{on} asks for a thought, and {off} for none; give one of the two")
    efforts = {name: wish.effort for name, wish in wishes.items() if wish.effort}
    field, effort = next(iter(efforts.items()), ("", None))
    for other, another in efforts.items():
        if another != effort:
            raise Refused(f'{field} asks for the effort "{effort}", and {other} for "{another}"; give one of the two')
    caps = [wish.cap for wish in wishes.values() if wish.cap is not None]
    if off or effort == "none":
        caps = [0]
    elif effort == _LIFTED:
        caps.append(_NO_LIMIT)
    return Requested(
        min((cap for cap in caps if cap >= 0), default=UNLIMITED if caps else None),
        effort if effort in EFFORTS else None,
        field,
        next((wish.native for wish in wishes.values() if wish.native), None),
        max((wish.hides for wish in wishes.values() if wish.hides is not None), default=None),
    )


def _cap(value: Any, expected: str = "a whole number of tokens, or -1 for no limit") -> Wish:
    if isinstance(value, bool):
        raise _unexpected(value, expected)
    tokens = read_as(_TOKENS, value, expected)
    return Wish(cap=tokens if tokens <= _MOST else _NO_LIMIT)


def _effort(value: Any) -> Wish:
    if wish := _EFFORTS.get(_lower(value)):
        return wish
    expected = f"none, {', '.join(EFFORTS)}, xhigh, {_LIFTED}, or a number of tokens"
    if isinstance(value, float) or (isinstance(value, str) and not value.isdecimal()):  # Of a scale: no tokens.
        raise ValueError(f"{value!r:.40}{nearest(str(value)[:40], _EFFORTS) or ';'} expected {expected}")
    return Wish(cap=_cap(value, expected).cap, effort=str(value))


def _template_effort(value: Any) -> Wish:
    effort = _EFFORTS.get(_lower(value), Wish()).effort
    return Wish(cap=0) if effort == "none" else Wish(native=effort)


def _flag(value: Any) -> bool:
    flag: bool = read_as(FLAG, value, "true or false")
    return flag


def _mode(value: Any) -> Wish:
    if wish := _SWITCHES.get(_lower(value)):
        return wish
    raise _unexpected(value, ", ".join(filter(None, _SWITCHES)))


def _word(value: Any) -> Wish:
    if not isinstance(value, (bool, str)):
        raise _unexpected(value, "true, false, or an effort")
    return Wish(switch=value) if isinstance(value, bool) else _SWITCHES.get(_lower(value)) or _effort(value)


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else None


_READERS: dict[str, Callable[[Any], Wish]] = {
    "cap": _cap,
    "template_cap": _cap,
    "effort": _effort,
    "template_effort": _template_effort,
    "template_low": lambda value: Wish(native="low" if _flag(value) else None),
    "template_medium": lambda value: Wish(native="medium" if _flag(value) else None),
    "switch": lambda value: Wish(switch=_flag(value)),
    "off": lambda value: Wish(switch=False if _flag(value) else None),
    "mode": _mode,
    "template_mode": lambda value: _SWITCHES.get(_lower(value), Wish()),
    "word": _word,
    "hide": lambda value: Wish(hides=_flag(value)),
    "show": lambda value: Wish(hides=not _flag(value)),
    "form": lambda value: Wish(hides=True if _lower(value) == "hidden" else None),
    "harmless": lambda _: Wish(),
}
"""What a value of each type asks for; a ValueError says what was found and expected."""


def read_as(adapter: TypeAdapter[Any], value: Any, expected: str) -> Any:
    """A value as vLLM's models read it: "no", "off" and 0 are false, and 20.0 is 20. A ValueError names the value
    found and the one expected."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        raise _unexpected(value, expected) from None


def _unexpected(value: Any, expected: str) -> ValueError:
    return ValueError(f"{value!r:.40}; expected {expected}")


_OURS = (THINK, SOLUTION, EFFORT)
_STEMS = re.compile("think|thought|reason|effort|budget")
_SIMILARITY = 0.85  # A letter wrong, missing or swapped.
_MOST_KEYS, _LONGEST_KEY = 1000, 40
_LONGEST_READ = 200  # Characters of a key that are read.


def _unread(body: Mapping[str, Any], num_keys: Iterator[int]) -> str | None:
    """The first field that sounds like a budget and is not read, as a path of keys: of a server that is not in the
    table, misspelt, or in another place. `num_keys` counts the keys of the whole request, objects in lists included:
    more than 1,000 are refused, as nothing else is answered meanwhile."""
    held: list[tuple[tuple[str, ...], Any]] = [((), body)]
    for path, value in held:  # It grows.
        is_list = isinstance(value, list)
        for key, each in enumerate(value) if is_list else value.items():
            is_part = isinstance(each, (dict, list))
            if is_list and not is_part:
                continue
            if next(num_keys) > _MOST_KEYS:
                raise Refused(f"the request has more than {_MOST_KEYS} keys; expected fewer")
            if each is None or key in OPAQUE:
                continue
            at = (*path, str(key)[:_LONGEST_READ])
            if not is_list and at not in DIALECTS and at not in _HOLDERS and _may_limit(at, each):
                return ".".join(at)
            if is_part:
                held.append((at, each))
    return None


def _may_limit(path: tuple[str, ...], value: Any) -> bool:
    """Whether a field that is not in the table may limit a thought: by its name, or as a number, false, an effort or a
    misspelt name within the object of a thought."""
    *holders, key = path
    if _sounds_like_budget(key) or _is_near(key, _OURS):
        return True
    if not any(map(_sounds_like_budget, holders)):
        return False
    siblings = tuple(known[-1] for known in DIALECTS if known[:-1] == path[:-1])
    asks = value is not True and (isinstance(value, (int, float)) or _lower(value) in _ASKING)
    return asks or _is_near(key, siblings)


@lru_cache(maxsize=1024)
def _sounds_like_budget(key: str) -> bool:
    return bool(_STEMS.search(_letters(key)))


@lru_cache(maxsize=1024)
def _is_near(key: str, names: tuple[str, ...]) -> bool:
    known = [_letters(name) for name in names]
    return len(key) <= _LONGEST_KEY and bool(get_close_matches(_letters(key), known, n=1, cutoff=_SIMILARITY))


def _letters(key: str) -> str:
    return re.sub("[^a-z]", "", key.lower())
