"""The text side of ReasonFlux-Zero: what the strategy asks in token ids is written, searched for and read here.

Navigator and solver share one conversation. A request is a user turn through the model's own chat template, whose
thought is closed at once, so that the reply says what was asked. Nothing that a model wrote is ever encoded again: its
tokens stay in the conversation as they are. Only a navigator with other tokens than the solver's has text in between
(`elastic_core.reasonflux.interpreter`).

Replies are read as leniently as their meaning allows. Models are asked for JSON or for "name: value" lines, and write
either with fences, comments, single quotes, trailing commas, other capitals, missing ends or prose around it. Whatever
names a field of a plan is taken; nothing here raises.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_core.models.special_tokens import Markers
from elastic_core.reasonflux.library import Template

if TYPE_CHECKING:
    from elastic_core.reasonflux.retrieval import Retriever

SCRIPTS = Path(__file__).with_name("scripts")

Ids = tuple[int, ...]

# Stand for the texts of two turns in a rendered conversation.
_REPLY, _REQUEST = "ELASTIC-REPLY", "ELASTIC-REQUEST"

FIELDS = ("category", "direction", "method", "knowledge", "flow")

MAX_CHARACTERS = 50_000
"""Of a reply that are read: patterns and parsers must not be slow on whatever a model repeats to its limit."""
MAX_STEPS = 16
"""Most steps that a problem is solved in; a longer list is cut off."""

_FIELD = re.compile(rf"^[\s*_#>\"'`-]*({'|'.join(FIELDS)})s?[*_\"'`]*\s*[:=]\s*(.*)$", re.IGNORECASE)
_LISTED = re.compile(r"^\s*(?:[-*•]\s+|\(?(?:step\s*)?\d{1,3}\s*[.):]\s*)(.*\S)", re.IGNORECASE)
_COMMA_BEFORE_END = re.compile(r",\s*([}\]])")


@dataclass(frozen=True)
class Script:
    """The wording of every request, as jinja2 templates. See scripts/reasonflux.toml."""

    plan: str
    plan_again: str
    adjust: str
    extract: str
    extract_again: str
    instruct: str
    solve: str
    final: str


def load_script(name: str) -> Script:
    """A script by name: "reasonflux", "published" or "miniature"."""
    return Script(**tomllib.loads((SCRIPTS / f"{name}.toml").read_text(encoding="utf-8")))


class Guide:
    """Answers what the strategy asks between two replies.

    Args:
        tokenizer: of the conversation: the solver's, and most often the navigator's too.
        library: the templates that `retriever` searches.
    """

    def __init__(
        self,
        tokenizer: Any,
        markers: Markers,
        library: Mapping[str, Template],
        retriever: Retriever,
        script: Script,
    ) -> None:
        # A copy: one tokenizer must not encode here while another thread decodes with it.
        self.tokenizer = copy.deepcopy(tokenizer)
        self.markers = markers
        self._library = library
        self._retriever = retriever
        self._script = script
        self._retrieved = lru_cache(maxsize=65_536)(self._retrieve)
        self._turn = lru_cache(maxsize=None)(self._encoded_turn)

    @property
    def plan_request(self) -> str:
        """What is added to the question in the first turn."""
        return self._script.plan.strip()

    @cached_property
    def opening(self) -> Ids:
        """After the first turn: the thought that its generation prompt opens is closed; nothing of a model that has
        no think markers."""
        if not self.markers.thinks:
            return ()
        start = () if self.markers.template_opens_thinking else (self.markers.think_start,)
        return (*start, self.markers.think_end)

    def has_plan(self, reply: Ids) -> bool:
        """Whether a plan can be read from the reply."""
        return parse_plan(self.text(reply)) is not None

    def num_steps(self, reply: Ids) -> int:
        """Steps that can be read from the reply."""
        return len(parse_steps(self.text(reply)))

    def template(self, prompt: Ids, reply: Ids) -> Template:
        """The template for the reply's plan; for the reply itself, or the prompt, where there is no plan in it."""
        text = self.text(reply)
        plan = parse_plan(text)
        return self._retrieved(plan.query if plan else text.strip() or self.text(prompt))

    def adjust(self, template: Template) -> str:
        """The request to adjust the plan's flow to a template."""
        return _rendered(self._script.adjust, template=template)

    def request(self, name: str, step: int = 0, num_steps: int = 0) -> str:
        """One of the script's other requests, by its name."""
        return _rendered(getattr(self._script, name), step=step, num_steps=num_steps, max_steps=MAX_STEPS)

    def turn(self, request: str, ended: bool = False) -> Ids:
        """A request as it follows the conversation so far, up to where the next reply begins.

        Args:
            ended: whether the reply before it has its end-of-text.
        """
        ids = self._turn(request)
        return ids[1:] if ended and ids[0] in self.markers.end_of_text else ids

    def encoded(self, text: str) -> Ids:
        """A text that no model wrote in these tokens, such as a request, which may come from somebody's library: a
        control token spelled out in it is left out."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return tuple(i for i in ids if i not in self.control)

    def text(self, ids: Ids) -> str:
        """What tokens say."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @cached_property
    def control(self) -> frozenset[int]:
        """Tokens that are no text."""
        markers = self.markers
        return frozenset(
            (*self.tokenizer.all_special_ids, markers.think_start, markers.think_end, *markers.end_of_text)
        )

    @cached_property
    def max_forced_tokens(self) -> int:
        """Most tokens that all requests of one conversation together can have."""
        steps = sum(len(self.turn(self.request(name, MAX_STEPS, MAX_STEPS))) for name in ("instruct", "solve"))
        others = sum(len(self.turn(self.request(name))) for name in ("plan_again", "extract", "extract_again", "final"))
        longest = max(len(self.turn(self.adjust(template))) for template in self._library.values())
        return len(self.opening) + others + longest + MAX_STEPS * steps

    def _retrieve(self, query: str) -> Template:
        return self._retriever.retrieve([query])[0][0].template

    def _encoded_turn(self, text: str) -> Ids:
        """End of the reply, a user turn, and the beginning of the next reply with its thought closed."""
        before, after = self._glue
        return (*before, *self.encoded(text.strip()), *after, *self.opening)

    @cached_property
    def _glue(self) -> tuple[Ids, Ids]:
        """What the chat template puts between a reply and the next user message, and between that and its reply."""
        rendered = self.tokenizer.apply_chat_template(
            [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": _REPLY},
                {"role": "user", "content": _REQUEST},
            ],
            add_generation_prompt=True,
            tokenize=False,
        )
        before, _, after = rendered.partition(_REPLY)[2].partition(_REQUEST)
        encode = self.tokenizer.encode
        return tuple(encode(before, add_special_tokens=False)), tuple(encode(after, add_special_tokens=False))


@dataclass(frozen=True)
class Plan:
    """Fields as one text each, "" where the navigator left one out."""

    category: str
    direction: str
    method: str
    knowledge: str
    flow: str

    @property
    def query(self) -> str:
        """What the library is searched by."""
        return ", ".join(part for part in (self.category, self.direction, self.method) if part)


def parse_plan(reply: str) -> Plan | None:
    """The plan, or None where no field that the library could be searched by is found."""
    reply = _shortened(reply)
    document = _value(reply, "{", "}")
    fields = dict(_named(document)) if isinstance(document, dict) else {}
    plan = Plan(**{name: fields.get(name) or _line(reply, name) for name in FIELDS})
    return plan if plan.query else None


def parse_steps(reply: str) -> list[str]:
    """Numbered or bulleted lines, or the texts of a JSON list; at most `MAX_STEPS`, none where nothing is listed."""
    reply = _shortened(reply)
    listed = [match[1].strip() for line in reply.splitlines() if (match := _LISTED.match(line))]
    if not listed:
        document = _value(reply, "[", "]")
        listed = [_text(item) for item in document] if isinstance(document, list) else []
    return [step for step in listed if step][:MAX_STEPS]


def _rendered(source: str, **values: Any) -> str:
    return _compiled(source).render(**values)


@lru_cache
def _compiled(source: str) -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(undefined=StrictUndefined, autoescape=False).from_string(source)


def _shortened(reply: str) -> str:
    return reply[-MAX_CHARACTERS:].replace("\0", "")


def _value(reply: str, begin: str, end: str) -> Any:
    """The widest stretch between two brackets, as JSON or, with single quotes, as a Python literal; else None."""
    text = _COMMA_BEFORE_END.sub(r"\1", reply[reply.find(begin) : reply.rfind(end) + 1]) if begin in reply else ""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None


def _named(document: dict[Any, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Fields of an object, or of the objects in it, such as {"plan": {…}}."""
    for key, value in document.items():
        name = str(key).strip().lower()
        field = next((field for field in FIELDS if field in name), None)
        if field:
            yield field, _text(value)
        elif isinstance(value, dict) and depth < 3:
            yield from _named(value, depth + 1)


def _line(reply: str, field: str) -> str:
    """The text behind a field's name, and where nothing is behind it the lines below up to a blank one."""
    lines = reply.splitlines()
    for number, line in enumerate(lines):
        match = _FIELD.match(line)
        if match and match[1].lower() == field:
            below = []
            for following in lines[number + 1 :]:
                if match[2].strip() or not following.strip() or _FIELD.match(following):
                    break
                below.append(following.strip())
            return " ".join([match[2].strip(" \t\"',*`"), *below]).strip()
    return ""


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(_text(part) for part in value.values())
    if isinstance(value, list | tuple | set):
        return "; ".join(map(_text, value))
    return "" if value is None else " ".join(str(value).split())
