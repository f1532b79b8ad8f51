"""The token ids a strategy needs, resolved from the model's tokenizer and chat template, never hard-coded."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError, first_line
from elastic_core.models.families import OWN_FILE, THINK, Thought, read_thought, thoughts
from elastic_core.models.marks import Marks

FINAL_ANSWER_BEFORE, FINAL_ANSWER_AFTER = "\n", "\nFinal Answer:"
"""What s1 writes before and after the think-end of an exhausted thought."""
WAIT = "Wait"
"""What s1 writes in place of a think-end to prolong the thought."""


@dataclass(frozen=True)
class Markers(Marks):
    """Token ids of one model: its marks, end-of-text, and the tokens that strategies write.

    Attributes:
        final_answer_before, final_answer_after, wait: of FINAL_ANSWER_BEFORE, FINAL_ANSWER_AFTER and WAIT.
        template_opens_thinking: whether the chat template's generation prompt already holds think-start.
        family: name of the family with these marks; "" of a model that has none.
        parser: vLLM's reasoning parser for them, if there is one.
        template: default settings of the chat template, by name.
        efforts: settings of the chat template for each effort that it knows (`template_settings`).
    """

    final_answer_before: tuple[int, ...]
    final_answer_after: tuple[int, ...]
    wait: tuple[int, ...]
    template_opens_thinking: bool
    family: str = THINK
    parser: str | None = None
    template: tuple[tuple[str, bool | int | str], ...] = ()
    efforts: tuple[tuple[str, tuple[tuple[str, bool | int | str], ...]], ...] = ()

    def template_settings(self, effort: str | None) -> dict[str, bool | int | str]:
        """Settings of the chat template for an effort. A ValueError on one that it does not know."""
        known = dict(self.efforts)
        if effort is not None and effort not in known:
            expected = f"expected one of {', '.join(known)}" if known else "its chat template reads none"
            raise ValueError(f'marks of {self.family or "no family"}: no effort "{effort}"; {expected}')
        return {} if effort is None else dict(known[effort])


def resolve_markers(
    tokenizer: Any, end_of_text: tuple[int, ...] = (), thinks: bool = True, own: tuple[str, Thought] | None = None
) -> Markers:
    """Markers of a transformers tokenizer, with further end-of-text ids, such as those of the generation configuration;
    `thinks` requires marks of a thought, which are those of `own`, a name with marks, or of the family that tokenizer
    and chat template show. The tokenizer's chat template gets the family's settings as defaults.

    Raises:
        ValueError: when no family's marks are found, or one is not in the vocabulary or begins end-of-text. When the
            chat template is missing or leaves no thought, end-of-text is missing, or the tokenizer does not give back
            the text it encoded.
    """
    # transformers 5.9 and 5.10 load a Llama's tokenizer.json as SentencePiece if tokenizer_class is LlamaTokenizerFast.
    # R1-Distill-Llama's is byte-level: spaces and newlines are gone before the model sees them.
    text = FINAL_ANSWER_AFTER
    decoded = tokenizer.decode(encode(tokenizer, text), clean_up_tokenization_spaces=False)
    if decoded != text:
        raise ValueError(
            f"{tokenizer.name_or_path}: the tokenizer, a {type(tokenizer).__name__}, makes {decoded!r} of {text!r}; "
            'expected the same text. Write "tokenizer_class": "PreTrainedTokenizerFast" into its tokenizer_config.json'
        )
    name, found = (own[0], own[1].of(tokenizer.get_added_vocab())) if own else _thought(tokenizer)
    if found is None and thinks:
        raise ValueError(_unknown(tokenizer))
    read = _template(tokenizer)
    efforts = {} if found is None else found.efforts
    efforts = {name: given for name, given in efforts.items() if all(key in read for key in given)}
    if found is not None and found.template:
        _set_template_defaults(tokenizer, found.template)
    ends = dict.fromkeys(i for i in (tokenizer.eos_token_id, *end_of_text) if i is not None)
    if not ends:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no end-of-text token")
    marks = _marks(tokenizer, found, tuple(ends))
    prompt = chat_prompt(tokenizer, "1+1=?")
    if thinks and marks.is_closed(prompt):
        raise ValueError(
            f"{tokenizer.name_or_path}: its chat template ends the thought in the prompt; a table [thought.template] "
            f"in {OWN_FILE} beside the model may tell it otherwise, as with enable_thinking = true"
        )
    return Markers(
        **asdict(marks),
        final_answer_before=encode(tokenizer, FINAL_ANSWER_BEFORE),
        final_answer_after=encode(tokenizer, FINAL_ANSWER_AFTER),
        wait=encode(tokenizer, WAIT),
        template_opens_thinking=found is not None and _is_opened(tokenizer, found, prompt),
        family=name,
        parser=None if found is None else found.parser,
        template=() if found is None else tuple(found.template.items()),
        efforts=tuple((name, tuple(given.items())) for name, given in efforts.items()),
    )


def load_markers(model: str | Path, thinks: bool = True) -> tuple[Any, Markers]:
    """Tokenizer and markers of a checkpoint directory or hub name; ValueError as `resolve_markers`, or OSError."""
    from transformers import GenerationConfig

    tokenizer = load_tokenizer(model)
    ends: Any = None
    with suppress(OSError):  # The file is optional in a checkpoint.
        ends = GenerationConfig.from_pretrained(str(model)).eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    own = Path(model) / OWN_FILE
    return tokenizer, resolve_markers(tokenizer, tuple(ends), thinks, read_thought(own) if own.is_file() else None)


def load_tokenizer(model: str | Path) -> Any:
    """The tokenizer of a checkpoint directory or hub name; OSError when there is none of that name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    # With a tekken.json it is mistral-common's, without a chat template; that of tokenizer.json has the same ids.
    return tokenizer if hasattr(tokenizer, "get_added_vocab") else PreTrainedTokenizerFast.from_pretrained(str(model))


class ChatTemplateFailed(UserError, ValueError):
    """A model's chat template cannot be read, or raises."""


def render(tokenizer: Any, messages: Sequence[Any], **options: Any) -> Any:
    """Apply the chat template to messages, with `options` of `apply_chat_template`. ChatTemplateFailed names the model
    and the template's error, such as one that refuses a system prompt."""
    if not tokenizer.chat_template:
        raise ChatTemplateFailed(f"{tokenizer.name_or_path}: the tokenizer has no chat template")
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except Exception as error:  # A template is a program of whoever made the model.
        line = getattr(error, "lineno", None)  # Of a syntax error.
        said = f"{type(error).__name__}: {first_line(error)}" + (f" (line {line})" if line else "")
        raise ChatTemplateFailed(f"{tokenizer.name_or_path}: its chat template cannot be used: {said}") from error


def chat_prompt(tokenizer: Any, question: str, **settings: Any) -> tuple[int, ...]:
    """Prompt token ids of one user message through the chat template, with its `settings`; raises as `render`."""
    messages = [{"role": "user", "content": question}]
    return tuple(render(tokenizer, messages, add_generation_prompt=True, tokenize=True, return_dict=False, **settings))


def chat_text(tokenizer: Any, question: str) -> str:
    """The text of `chat_prompt`; raises as `render`."""
    return str(render(tokenizer, [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False))


def _thought(tokenizer: Any) -> tuple[str, Thought | None]:
    """The family of a tokenizer and its marks: of those with marks that are its added tokens and stand in its chat
    template the longest match; without one the marks of its response template."""
    template, added, fitting = _template(tokenizer), tokenizer.get_added_vocab(), {}
    for name, thought in ((name, thought.of(added)) for name, thought in thoughts().items()):
        marks = [mark.strip() for mark in (thought.open, *thought.ends, thought.answer) if mark]
        shown = thought.shows or (() if name == THINK else marks if thought.text else marks[:1])
        is_token = _is_token if thought.open == thoughts()[THINK].open else _begins_with_a_token
        if all(text in template for text in shown) and (thought.text or all(is_token(tokenizer, m) for m in marks)):
            fitting[name] = (not thought.text, sum(map(len, {*marks, *thought.shows}))), thought
    if fitting:
        best = max(fitting, key=lambda name: fitting[name][0])
        return best, fitting[best][1]
    own = _of_response_template(tokenizer)
    return ("" if own is None else RESPONSE_TEMPLATE), own


RESPONSE_TEMPLATE = "response_template"


def _of_response_template(tokenizer: Any) -> Thought | None:
    """Marks that the tokenizer's response template names literally, in transformers from 5.13 on; None without."""
    template = getattr(tokenizer, RESPONSE_TEMPLATE, None) or tokenizer.init_kwargs.get(RESPONSE_TEMPLATE)
    fields = template.get("fields", {}) if isinstance(template, dict) else {}

    def literals(name: str, key: str) -> tuple[str, ...]:
        found = (fields.get(name) or {}).get(key) or ()
        return (found,) if isinstance(found, str) else tuple(found)

    opens, ends = literals("thinking", "open"), literals("thinking", "close")
    if not opens or not ends:
        return None
    answers = literals("content", "open")
    marks = {"open": opens[0], "ends": ends + answers, "answer": next(iter(answers), "")}
    is_text = not all(_begins_with_a_token(tokenizer, mark) for mark in (opens[0], *ends, *answers))
    return Thought(**marks, calls=literals("tool_calls", "open"), text=is_text, parser="hf")


def _set_template_defaults(tokenizer: Any, settings: Mapping[str, Any]) -> None:
    """Give settings of the chat template a default, so that every program renders the same prompt."""
    lines = (f"{{%- set {key} = {key} | default({json.dumps(value)}) -%}}" for key, value in settings.items())
    defaults, templates = "".join(lines), tokenizer.chat_template
    if isinstance(templates, dict):  # By name, such as that for tools.
        tokenizer.chat_template = {name: defaults + text.removeprefix(defaults) for name, text in templates.items()}
    elif templates:
        tokenizer.chat_template = defaults + templates.removeprefix(defaults)


def _template(tokenizer: Any) -> str:
    """The chat template for plain messages; "" where there is none."""
    return str(tokenizer.get_chat_template()) if tokenizer.chat_template else ""


def _unknown(tokenizer: Any) -> str:
    """Why no family was found."""
    think, template = thoughts()[THINK], _template(tokenizer)
    mark = next(mark for mark in (think.open, *think.ends) if not _is_token(tokenizer, mark))
    tags = dict.fromkeys(re.findall(r"</?[\w|:]*(?:think|reason|thought|analysis)[\w|:]*>", template, re.IGNORECASE))
    return (
        f"{tokenizer.name_or_path}: {mark} is {len(encode(tokenizer, mark))} tokens; expected one known token, or the "
        f"marks of {', '.join(name for name in thoughts() if name != THINK)}, and its chat template shows "
        f"{', '.join(tags) or 'none'}; a file {OWN_FILE} beside the model may say what they are"
    )


def _marks(tokenizer: Any, thought: Thought | None, end_of_text: tuple[int, ...]) -> Marks:
    if thought is None:
        return Marks((), (), (), (), end_of_text)
    for mark in (thought.open, *thought.ends):
        _require_tokens(tokenizer, mark)
        for token in end_of_text:
            if tokenizer.decode([token], skip_special_tokens=False).startswith(mark):
                raise ValueError(f"{tokenizer.name_or_path}: the mark {mark!r} begins end-of-text; expected another")
    close = encode(tokenizer, thought.close or thought.ends[0])
    ends = chain.from_iterable(_spellings(tokenizer, mark) for mark in thought.ends) if thought.text else ()
    marks = Marks(
        think_start=encode(tokenizer, thought.open),
        think_ends=tuple(dict.fromkeys((*(encode(tokenizer, mark) for mark in thought.ends), *ends))),
        close=close,
        answer=encode(tokenizer, thought.answer) or close,
        end_of_text=end_of_text,
        calls=tuple(encode(tokenizer, call) for call in thought.calls if _begins_with_a_token(tokenizer, call)),
    )
    if marks.end(close) is None:
        raise ValueError(f"{tokenizer.name_or_path}: close is {thought.close!r} and holds no end of a thought")
    return marks


_BEFORE = ("", " ", "\n", "\n\n", "a", "1", *string.punctuation)
_AFTER = ("", " ", "\n", "\n\n", "A", "1", "\\", "$", "*")
"""Between which plain text becomes other tokens."""


def _spellings(tokenizer: Any, mark: str) -> Iterator[tuple[int, ...]]:
    """The tokens that a mark of plain text is part of, between other texts."""
    for before, after in product(_BEFORE, _AFTER):
        found = tokenizer(f"{before}{mark}{after}", add_special_tokens=False, return_offsets_mapping=True)
        begin, end = len(before), len(before) + len(mark)
        pairs = zip(found["input_ids"], found["offset_mapping"], strict=True)
        yield tuple(token for token, (first, last) in pairs if first < end and last > begin)


def _is_opened(tokenizer: Any, thought: Thought, prompt: tuple[int, ...]) -> bool:
    """Whether a generation prompt opens a thought."""
    if thought.text:
        return chat_text(tokenizer, "1+1=?").rstrip().endswith(thought.open.strip())
    start = encode(tokenizer, thought.open)
    return any(prompt[at : at + len(start)] == start for at in range(len(prompt)))


def _is_token(tokenizer: Any, mark: str) -> bool:
    ids = encode(tokenizer, mark)
    return len(ids) == 1 and ids[0] != tokenizer.unk_token_id


def _begins_with_a_token(tokenizer: Any, mark: str) -> bool:
    """Whether a mark's first token is made for it, as a text of the same letters would not have it."""
    ids = encode(tokenizer, mark)
    return bool(ids) and ids[0] in tokenizer.get_added_vocab().values()


def _require_tokens(tokenizer: Any, mark: str) -> None:
    ids = encode(tokenizer, mark)
    if tokenizer.unk_token_id in ids or tokenizer.decode(list(ids), clean_up_tokenization_spaces=False) != mark:
        raise ValueError(f"{tokenizer.name_or_path}: the mark {mark!r} cannot be written in tokens of its vocabulary")


def encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a text alone."""
    return tuple(tokenizer.encode(text, add_special_tokens=False))
