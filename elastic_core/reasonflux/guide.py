"""The text side of ReasonFlux-Zero: writes requests, searches the library, reads replies.

Navigator and solver share one conversation. A request is a user turn through the model's chat template, with its
thought closed, so that the reply is the answer alone. Replies are never encoded again, except for a navigator with
another tokenizer than the solver's (`Interpreter`). They are read leniently, as JSON or "name: value" lines, and
nothing raises.
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

from elastic_core.models.special_tokens import Markers, chat_prompt, chat_text, encode, render
from elastic_core.reasonflux.library import Template

if TYPE_CHECKING:
    from elastic_core.reasonflux.retrieval import Retriever

SCRIPTS = Path(__file__).with_name("scripts")

Ids = tuple[int, ...]
Script = dict[str, str]  # the wording of every request, as jinja2 templates by name

# Stand for texts in a rendered conversation.
_QUESTION, _REPLY, _REQUEST = "ELASTIC-QUESTION", "ELASTIC-REPLY", "ELASTIC-REQUEST"

FIELDS = ("category", "direction", "method", "knowledge", "flow")

MAX_CHARACTERS = 50_000
"""Of a reply that are read: a model may repeat text to its limit, and patterns and parsers must stay fast."""
MAX_STEPS = 16  # most steps that a problem is solved in; a longer list is cut off

_FIELD = re.compile(rf"^[\s*_#>\"'`-]*({'|'.join(FIELDS)})s?[*_\"'`]*\s*[:=]\s*(.*)$", re.IGNORECASE)
_LISTED = re.compile(r"^\s*(?:[-*•]\s+|\(?(?:step\s*)?\d{1,3}\s*[.):]\s*)(.*\S)", re.IGNORECASE)
_COMMA_BEFORE_END = re.compile(r",\s*([}\]])")


def load_script(name: str) -> Script:
    """The script "reasonflux", "published" or "miniature"."""
    return tomllib.loads((SCRIPTS / f"{name}.toml").read_text(encoding="utf-8"))


class Guide:
    """Writes the requests of a conversation and reads its replies. The tokenizer is the solver's, and most often the
    navigator's too; `library` has the templates that `retriever` searches, with a plan's fields apart or `joined`."""

    def __init__(
        self,
        tokenizer: Any,
        markers: Markers,
        library: Mapping[str, Template],
        retriever: Retriever,
        script: Script,
        joined: bool = False,
    ) -> None:
        # A copy: one tokenizer must not encode here while another thread decodes with it.
        self.tokenizer = copy.deepcopy(tokenizer)
        self.markers = markers
        self._library, self._script, self._joined = library, script, joined
        self._retrieved = lru_cache(maxsize=65_536)(lambda query: retriever.retrieve(query)[0].template)
        self._turn = lru_cache(maxsize=None)(self._encoded_turn)

    @cached_property
    def opening(self) -> Ids:
        """After the first turn: it closes the thought that the generation prompt opens. Empty without think markers."""
        if not self.markers.thinks:
            return ()
        start = () if self.markers.template_opens_thinking else self.markers.think_start
        return (*start, *self.markers.close)

    def has_plan(self, reply: Ids) -> bool:
        return parse_plan(self.text(reply)) is not None

    def num_steps(self, reply: Ids) -> int:
        return len(parse_steps(self.text(reply)))

    def template(self, prompt: Ids, reply: Ids) -> Template:
        """The template for the reply's plan; for the reply itself, or the prompt, where it holds no plan."""
        text = self.text(reply)
        if plan := parse_plan(text):
            return self._retrieved(plan.query if self._joined else plan.queries)
        return self._retrieved(text.strip() or self.text(prompt))

    def request(self, name: str, **values: Any) -> str:
        """One of the script's requests, by its name: "plan" is added to the question, "adjust" names a `template`, and
        "instruct" and "solve" the `step` of `num_steps`."""
        return str(_compiled(self._script[name]).render(values, max_steps=MAX_STEPS)).strip()

    def turn(self, request: str, ended: bool = False) -> Ids:
        """A request up to where the next reply begins; `ended` says that the reply before it has its end-of-text."""
        ids = self._turn(request)
        return ids[1:] if ended and ids[0] in self.markers.end_of_text else ids

    def encoded(self, text: str) -> Ids:
        """The tokens of a text, such as a request of a user's library, without control tokens that it spells out."""
        return tuple(i for i in encode(self.tokenizer, text) if i not in self.control)

    def text(self, ids: Ids) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @cached_property
    def control(self) -> frozenset[int]:
        """Tokens that control and say nothing."""
        markers = self.markers
        # The tokens of a longer mark may stand in a text.
        marks = {mark[0] for mark in (markers.think_start, *markers.think_ends) if len(mark) == 1}
        return frozenset((*self.tokenizer.all_special_ids, *marks, *markers.end_of_text))

    @cached_property
    def max_forced_tokens(self) -> int:
        """Most tokens of all requests of one conversation together."""

        def length(name: str, **values: Any) -> int:
            return len(self.turn(self.request(name, **values)))

        steps = sum(length(name, step=MAX_STEPS, num_steps=MAX_STEPS) for name in ("instruct", "solve"))
        others = sum(map(length, ("plan_again", "extract", "extract_again", "final")))
        longest = max(length("adjust", template=template) for template in self._library.values())
        return len(self.opening) + others + longest + MAX_STEPS * steps

    def _encoded_turn(self, text: str) -> Ids:
        """End of the reply, a user turn, and the beginning of the next reply with its thought closed."""
        before, after = self._glue
        return (*before, *self.encoded(text), *after, *self.opening)

    @cached_property
    def _glue(self) -> tuple[Ids, Ids]:
        """The chat template's tokens between a reply and the next user message, and between that and its reply."""
        turns = (("user", "?"), ("assistant", _REPLY), ("user", _REQUEST))
        messages = [{"role": role, "content": content} for role, content in turns]
        rendered = render(self.tokenizer, messages, add_generation_prompt=True, tokenize=False)
        before, _, after = rendered.partition(_REPLY)[2].partition(_REQUEST)
        return encode(self.tokenizer, before), encode(self.tokenizer, after)


class Interpreter:
    """Interprets between a solver and a navigator of different tokenizers: text passes from one to the other, as in the
    published program. Control tokens do not pass: a navigator's thought becomes plain words.

    The conversation's tokens, budgets and counts are the solver's. The navigator reads their text, and its replies,
    through its chat template and tokenizer. `prompt` is the solver's. ValueError as `question_of`.
    """

    def __init__(self, navigator: Guide, solver: Guide, prompt: Ids) -> None:
        self.end_of_text = navigator.markers.end_of_text
        # The conversation so far in the navigator's tokens.
        self.prefix: Ids = (*chat_prompt(navigator.tokenizer, question_of(solver, prompt)), *navigator.opening)
        self._navigator, self._solver = navigator, solver

    def ask(self, request: str) -> None:
        """Pass a request of the conversation on to the navigator."""
        self.prefix += self._navigator.turn(request)

    def hear(self, reply: Ids) -> None:
        """Pass a reply of the conversation on to the navigator."""
        self.prefix += self._navigator.encoded(_words(self._solver, reply))

    def say(self, reply: Ids) -> Ids:
        """A navigator's reply in the solver's tokens, with end-of-text where it wrote one."""
        end = self._solver.markers.end_of_text[:1] if reply[-1:] and reply[-1] in self.end_of_text else ()
        return self._solver.encoded(_words(self._navigator, reply)) + end


def question_of(guide: Guide, prompt: Ids) -> str:
    """The user's message in a prompt of the guide's chat template. ValueError when the tokenizer does not give back
    the template's text around it."""
    before, _, after = chat_text(guide.tokenizer, _QUESTION).partition(_QUESTION)
    text: str = guide.tokenizer.decode(prompt, clean_up_tokenization_spaces=False)
    if not text.startswith(before) or not text.endswith(after):
        raise ValueError(
            f"{guide.tokenizer.name_or_path}: a prompt is {text!r} when it is decoded; expected {before!r} before the "
            f"question and {after!r} after it, or a navigator with another tokenizer cannot read it"
        )
    return text[len(before) : len(text) - len(after)]


def _words(guide: Guide, ids: Ids) -> str:
    return guide.text(tuple(i for i in ids if i not in guide.control))


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
        """The fields that the library is searched by, joined."""
        return ", ".join(part for part in (self.category, self.direction, self.method) if part)

    @property
    def queries(self) -> tuple[str, str, str]:
        """A field for each level: chapter, section and template; for a missing one all that are there."""
        return self.category or self.query, self.direction or self.query, self.method or self.query


def parse_plan(reply: str) -> Plan | None:
    """The plan, or None where no field that the library could be searched by is found."""
    reply = reply[-MAX_CHARACTERS:].replace("\0", "")
    document = _value(reply, "{", "}")
    fields = dict(_named(document)) if isinstance(document, dict) else {}
    plan = Plan(**{name: fields.get(name) or _line(reply, name) for name in FIELDS})
    return plan if plan.query else None


def parse_steps(reply: str) -> list[str]:
    """Numbered or bulleted lines, or the texts of a JSON list; at most `MAX_STEPS`, none where nothing is listed."""
    reply = reply[-MAX_CHARACTERS:].replace("\0", "")
    listed = [match[1].strip() for line in reply.splitlines() if (match := _LISTED.match(line))]
    if not listed:
        document = _value(reply, "[", "]")
        listed = [_text(item) for item in document] if isinstance(document, list) else []
    return [step for step in listed if step][:MAX_STEPS]


@lru_cache
def _compiled(source: str) -> Any:
    from jinja2 import Environment, StrictUndefined

    return Environment(undefined=StrictUndefined, autoescape=False).from_string(source)


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
