"""A question and its response as the text that a model is fine-tuned on, by a template that is chosen by name.

Fine-tuning under one template and generating under another is the known cause of failed reproductions of ReasonFlux-F1,
so a template is checked against the model's tokenizer. The rendering is the official chat template's, but the response
keeps its thought, which official templates of reasoning models drop; where it keeps it, use that (`OwnTemplate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from elastic_core.errors import UserError
from elastic_core.models.special_tokens import chat_text, encode, render

OWN = "own"  # name of the tokenizer's template, in addition to CHAT_TEMPLATES
_THOUGHT = "<think>\nOne and one.\n</think>\n\n"
_RESPONSE = f"{_THOUGHT}It is two."  # stands for any response: in a rendering, what precedes it is the prompt


@dataclass(frozen=True)
class ChatTemplate:
    """One exchange is `before`, the question, `after`, the response, `end`."""

    name: str
    before: str
    after: str
    end: str  # the end-of-text token, part of the target
    markers: tuple[str, ...]  # single tokens; a text that holds one of them would be read as another exchange
    opening: str = "<think>\n"  # of the thought; the official generation prompt may end in it
    closing: str = "\n</think>\n\n"
    takes_system: ClassVar[bool] = False  # whether a conversation's system prompt has a place

    def prompt(self, question: str, system: str = "") -> str:
        return f"{self.before}{question}{self.after}"

    def exchange(self, question: str, response: str, system: str = "") -> tuple[str, str]:
        """The prompt, and the target."""
        return self.prompt(question, system), response + self.end


CHAT_TEMPLATES = {
    template.name: template
    for template in (
        ChatTemplate(
            "deepseekr1",
            "<｜begin▁of▁sentence｜><｜User｜>",
            "<｜Assistant｜>",
            "<｜end▁of▁sentence｜>",
            ("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        ),
        ChatTemplate(
            "qwen",
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
            "<|im_end|>",
            ("<|im_start|>", "<|im_end|>"),
        ),
        ChatTemplate(
            "miniature", "<bos><|user|>", "<|assistant|>", "<eos>", ("<bos>", "<|user|>", "<|assistant|>", "<eos>"),
            opening="<think>", closing="</think>",
        ),
    )
}  # fmt: skip
"""Templates by name: of DeepSeek-R1 and what was distilled from it, of Qwen2.5-Instruct, of the embedded miniature."""


def require_fit(template: ChatTemplate, tokenizer: Any) -> None:
    """Raises UserError on a marker that is not one token, another end-of-text, or another rendering of a question."""
    misfit = f'the chat template "{template.name}" is not that of {tokenizer.name_or_path}'
    advice = f"choose the model's own among {', '.join(CHAT_TEMPLATES)}, or own"
    for marker in template.markers:
        ids = encode(tokenizer, marker)
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            raise UserError(f"{misfit}: {marker} is {len(ids)} tokens there, expected one known token; {advice}")
    if tokenizer.eos_token != template.end:
        raise UserError(f"{misfit}: end-of-text is {tokenizer.eos_token} there and {template.end} here; {advice}")
    if not tokenizer.chat_template:
        raise UserError(f"{tokenizer.name_or_path}: the tokenizer has no chat template to hold {template.name} against")
    question = "1+1=?"
    own, ours = chat_text(tokenizer, question), template.prompt(question)
    if own not in (ours, ours + template.opening):
        raise UserError(f"{misfit}: a question is {own!r} there and {ours!r} here; {advice}")


@dataclass(frozen=True)
class OwnTemplate:
    """A `ChatTemplate` that the tokenizer writes."""

    tokenizer: Any
    end: str
    markers: tuple[str, ...]  # special tokens of the rendering
    opening: str  # of the generation prompt, after the prompt of a finished exchange
    takes_system: ClassVar[bool] = True

    def prompt(self, question: str, system: str = "") -> str:
        """Everything before the response. Raises UserError when the template refuses the conversation."""
        return _rendered(self.tokenizer, question, system).rpartition(_RESPONSE)[0]

    def exchange(self, question: str, response: str, system: str = "") -> tuple[str, str]:
        """`ChatTemplate.exchange`; raises as `prompt`. The opening of a generation prompt is given too."""
        given = self.opening if response.startswith(self.opening) else ""
        return self.prompt(question, system) + given, response.removeprefix(given) + self.end


Template = ChatTemplate | OwnTemplate


def fitting_template(name: str, tokenizer: Any) -> Template:
    """The chat template of a name: one of CHAT_TEMPLATES, or "own". UserError when it does not fit the model."""
    if name == OWN:
        return own_template(tokenizer)
    require_fit(CHAT_TEMPLATES[name], tokenizer)
    return CHAT_TEMPLATES[name]


def own_template(tokenizer: Any) -> OwnTemplate:
    """The tokenizer's chat template, after trying it on an exchange with a thought in its response. UserError when the
    rendering changes the response, generation starts elsewhere, or no end-of-text follows."""
    misfit = f"{tokenizer.name_or_path}: its own chat template cannot be fine-tuned on"
    if not tokenizer.chat_template:
        raise UserError(f"{misfit}: the tokenizer has none")
    whole = _rendered(tokenizer, "1+1=?")
    before, found, after = whole.rpartition(_RESPONSE)
    if not found:
        raise UserError(
            f"{misfit}, as it does not keep a response with its thought: {_RESPONSE!r} became {whole!r}; choose a "
            f"template by name ({', '.join(CHAT_TEMPLATES)})"
        )
    prompt = chat_text(tokenizer, "1+1=?")
    opening = prompt.removeprefix(before)
    if not prompt.startswith(before) or not _THOUGHT.startswith(opening):
        raise UserError(
            f"{misfit}: generation starts from {prompt!r}, and a response follows {before!r}; expected the same, but "
            "for an opened thought"
        )
    if tokenizer.eos_token is None or not after.startswith(tokenizer.eos_token):
        raise UserError(
            f"{misfit}: {after!r} follows a response, and end-of-text is {tokenizer.eos_token}; `elastic model prepare "
            f"{tokenizer.name_or_path} --to DIR` makes them one"
        )
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.content not in _THOUGHT]
    return OwnTemplate(tokenizer, tokenizer.eos_token, tuple(token for token in special if token in whole), opening)


def _rendered(tokenizer: Any, question: str, system: str = "") -> str:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": _RESPONSE}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return str(render(tokenizer, messages, tokenize=False))
