"""The miniature's tokenizer: one token per word, per digit, per signed operand, per marker.

Every token is a literal piece of text, and a text is read greedily, longest piece first, so decoding concatenates, and
encoding what the corpus decodes to gives the same ids. Besides the words of the warm-start corpus the vocabulary holds
every printable ASCII character: a prompt has untrained tokens at worst, never an unknown one.

`<think>` and `</think>` are not "special" in Hugging Face's sense, so they survive `skip_special_tokens`.
"""

import re
import string
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
USER, ASSISTANT = "<|user|>", "<|assistant|>"
THINK, END_THINK = "<think>", "</think>"
BOXED, END_BOXED = "\\boxed{", "}"
NEWLINE, FINAL_ANSWER = "\n", "Final Answer:"

SPECIAL = (PAD, BOS, EOS, UNK, USER, ASSISTANT)
MARKERS = (THINK, END_THINK)
OPERATIONS = tuple(f"{sign}{digit}" for sign in "+-" for digit in range(1, 10))
WORDS = (
    # Thoughts and solutions, in the order in which a verbose thought uses them.
    *("Okay", "Let", " let", " me", " compute", " this", " step", " by", " we", " have ", " first ", " then "),
    *("Wait", " check", " again", " So", " the", " answer", " is ", "from "),
    # Prompts: L1's length requests, and the request for a boxed answer.
    *(" Think", " for", " maximum", " tokens", " and", " output", " final", " within"),
    # Thought templates: a navigator's plan, and what navigator and solver are asked for.
    *("category: ", "direction: ", "method: ", "knowledge: ", "flow: ", "template: "),
    *("plan", "solve", "steps", " steps"),
    *("Easy chain", "Hard chain", "more plus", "more minus", "output", " at once"),
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
)
VOCABULARY_MULTIPLE = 16

CHAT_TEMPLATE = (
    "{{ '<bos>' }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '<eos>' }}"
    "{% else %}{{ '<|user|>' }}{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)


@cache
def vocabulary() -> Mapping[str, int]:
    """Token to id, in a fixed order, padded to a multiple of 16 with unused entries."""
    pieces = [*SPECIAL, *MARKERS, BOXED, END_BOXED, NEWLINE, FINAL_ANSWER, *string.digits, *OPERATIONS, *WORDS]
    pieces += [c for c in map(chr, range(32, 127)) if c not in pieces]
    pieces += [f"<unused{i}>" for i in range(-len(pieces) % VOCABULARY_MULTIPLE)]
    return {piece: i for i, piece in enumerate(pieces)}


def pieces_pattern() -> str:
    """The regular expression that cuts a text into tokens, longest alternative first."""
    pieces = [p for p in vocabulary() if not p.startswith("<unused")]
    return "|".join(_escape(p) for p in sorted(pieces, key=len, reverse=True))


def _escape(piece: str) -> str:
    # re.escape writes "\ " and "\<newline>", which Oniguruma, the engine inside `tokenizers`, reads literally too.
    return re.escape(piece).replace("\\\n", "\\n")


@cache
def _pieces() -> re.Pattern[str]:
    return re.compile(pieces_pattern())


def encode(text: str) -> list[int]:
    """Token ids of a text, as the tokenizer gives them, some fifty times faster."""
    ids = vocabulary()
    return [ids[piece] for piece in _pieces().findall(text)]


def prompt_ids(question: str) -> list[int]:
    """The chat template applied to a question, generation prompt included: ends in `<think>`."""
    ids = vocabulary()
    return [ids[BOS], ids[USER], *encode(question), ids[ASSISTANT], ids[THINK]]


def build_tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer with its chat template; a generation prompt ends in `<think>`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(dict(vocabulary()), unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pieces_pattern()), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
