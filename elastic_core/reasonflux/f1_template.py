"""A question and its response as the text that a model is fine-tuned on, by a template that is chosen by name.

Fine-tuning under one template and asking under another is the known cause of failed reproductions of ReasonFlux-F1 (its
published command says `qwen` where the model's own form is `deepseekr1`), so a template is held against the model's
tokenizer before anything is trained.

The rendering is that of the model's official chat template with one difference: the response is kept whole. Official
templates of reasoning models drop the thought of a finished turn, as the next turn does without; here it is the target.
Where the official template keeps it, it can be taken as it is: see `elastic_core.reasonflux.own_template`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from elastic_core.errors import UserError


@dataclass(frozen=True)
class ChatTemplate:
    """One exchange is `before`, the question, `after`, the response, `end`.

    Attributes:
        end: the end-of-text token, part of the target.
        markers: pieces that must be single tokens; a text that holds one of them would be read as another exchange.
        opening, closing: around the thought, as the model writes them. The official generation prompt may hold the
            opening beyond ours; a response that has a thought begins with it.
    """

    name: str
    before: str
    after: str
    end: str
    markers: tuple[str, ...]
    opening: str = "<think>\n"
    closing: str = "\n</think>\n\n"
    takes_system: ClassVar[bool] = False
    """Whether a conversation's own system prompt has a place."""

    def prompt(self, question: str, system: str = "") -> str:
        return f"{self.before}{question}{self.after}"

    def exchange(self, question: str, response: str, system: str = "") -> tuple[str, str]:
        """What is given, and what is learnt."""
        return self.prompt(question, system), response + self.end

    def render(self, question: str, response: str) -> str:
        return f"{self.prompt(question)}{response}{self.end}"


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
            "miniature",
            "<bos><|user|>",
            "<|assistant|>",
            "<eos>",
            ("<bos>", "<|user|>", "<|assistant|>", "<eos>"),
            opening="<think>",
            closing="</think>",
        ),
    )
}
"""Templates by name: of DeepSeek-R1 and what was distilled from it, of Qwen2.5-Instruct, of the embedded miniature."""


def require_fit(template: ChatTemplate, tokenizer: Any) -> None:
    """Nothing, when the tokenizer's model reads the template as its own.

    Args:
        tokenizer: a transformers tokenizer with a chat template.

    Raises:
        UserError: a marker that is not one token, another end-of-text, or another rendering of a question.
    """
    misfit = f'the chat template "{template.name}" is not that of {tokenizer.name_or_path}'
    advice = f"choose the model's own among {', '.join(CHAT_TEMPLATES)}, or own"
    for marker in template.markers:
        ids = tokenizer.encode(marker, add_special_tokens=False)
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            raise UserError(f"{misfit}: {marker} is {len(ids)} tokens there, expected one known token; {advice}")
    if tokenizer.eos_token != template.end:
        raise UserError(f"{misfit}: end-of-text is {tokenizer.eos_token} there and {template.end} here; {advice}")
    if not tokenizer.chat_template:
        raise UserError(f"{tokenizer.name_or_path}: the tokenizer has no chat template to hold {template.name} against")
    question = "1+1=?"
    messages = [{"role": "user", "content": question}]
    own = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ours = template.prompt(question)
    if own not in (ours, ours + template.opening):
        raise UserError(f"{misfit}: a question is {own!r} there and {ours!r} here; {advice}")
