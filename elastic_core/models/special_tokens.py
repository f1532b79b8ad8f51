"""The token ids a strategy needs, resolved from the model's own tokenizer and chat template, never hard-coded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.models.marks import Marks

FINAL_ANSWER_BEFORE, FINAL_ANSWER_AFTER = "\n", "\nFinal Answer:"
"""What s1 writes before and after the think-end of an exhausted thought."""
WAIT = "Wait"
"""What s1 writes in place of a think-end to prolong the thought."""


@dataclass(frozen=True)
class Markers(Marks):
    """Token ids of one model: its marks, end-of-text by tokenizer and generation configuration, and what strategies
    write.

    Attributes:
        final_answer_before, final_answer_after, wait: of FINAL_ANSWER_BEFORE, FINAL_ANSWER_AFTER and WAIT.
        template_opens_thinking: whether the chat template's generation prompt already holds think-start.
    """

    final_answer_before: tuple[int, ...]
    final_answer_after: tuple[int, ...]
    wait: tuple[int, ...]
    template_opens_thinking: bool


def resolve_markers(tokenizer: Any, end_of_text: tuple[int, ...] = (), thinks: bool = True) -> Markers:
    """Markers of a transformers tokenizer, with further end-of-text ids, such as those of the generation configuration;
    `thinks` requires think markers.

    Raises:
        ValueError: when a marker is not a single known token, there is no end-of-text token or chat template, or the
            tokenizer does not give back the text it encoded.
    """
    # transformers 5.9 and 5.10 load a Llama's tokenizer.json as SentencePiece if tokenizer_class is LlamaTokenizerFast.
    # R1-Distill-Llama's is byte-level: spaces and newlines are gone before the model sees them.
    text = FINAL_ANSWER_AFTER
    decoded = tokenizer.decode(_encode(tokenizer, text), clean_up_tokenization_spaces=False)
    if decoded != text:
        raise ValueError(
            f"{tokenizer.name_or_path}: the tokenizer, a {type(tokenizer).__name__}, makes {decoded!r} of {text!r}; "
            'expected the same text. Write "tokenizer_class": "PreTrainedTokenizerFast" into its tokenizer_config.json'
        )
    start: tuple[int, ...]
    end: tuple[int, ...]
    try:
        start, end = ((_single_token(tokenizer, marker),) for marker in ("<think>", "</think>"))
    except ValueError:
        if thinks:
            raise
        start = end = ()
    ends = dict.fromkeys(i for i in (tokenizer.eos_token_id, *end_of_text) if i is not None)
    if not ends:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no end-of-text token")
    return Markers(
        think_start=start,
        think_ends=(end,) if end else (),
        close=end,
        answer=end,
        end_of_text=tuple(ends),
        final_answer_before=_encode(tokenizer, FINAL_ANSWER_BEFORE),
        final_answer_after=_encode(tokenizer, FINAL_ANSWER_AFTER),
        wait=_encode(tokenizer, WAIT),
        template_opens_thinking=_holds(chat_prompt(tokenizer, "1+1=?"), start),
    )


def load_markers(model: str | Path, thinks: bool = True) -> tuple[Any, Markers]:
    """Tokenizer and markers of a checkpoint directory or hub name; ValueError as `resolve_markers`, OSError when there
    is no such checkpoint."""
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    ends: Any = None
    with suppress(OSError):  # The file is optional in a checkpoint.
        ends = GenerationConfig.from_pretrained(str(model)).eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return tokenizer, resolve_markers(tokenizer, end_of_text=tuple(ends), thinks=thinks)


def chat_prompt(tokenizer: Any, question: str) -> tuple[int, ...]:
    """Prompt token ids of one user message through the chat template; ValueError when the tokenizer has none."""
    if not tokenizer.chat_template:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no chat template")
    messages = [{"role": "user", "content": question}]
    return tuple(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))


def chat_text(tokenizer: Any, question: str) -> str:
    """The text of `chat_prompt`, of a tokenizer that has a chat template."""
    messages = [{"role": "user", "content": question}]
    text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return text


def _holds(tokens: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return bool(part) and any(tokens[at : at + len(part)] == part for at in range(len(tokens)))


def _single_token(tokenizer: Any, marker: str) -> int:
    ids = _encode(tokenizer, marker)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise ValueError(f"{tokenizer.name_or_path}: {marker} is {len(ids)} tokens; expected one known token")
    return ids[0]


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))
