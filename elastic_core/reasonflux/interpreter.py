"""Between a solver and a navigator whose tokenizers differ: text passes from one to the other, as in the published
program.

The conversation's tokens are the solver's, and with them the row, its budgets and its counts. The navigator reads what
they say, its own replies too, through its own chat template and tokenizer: both know exactly what the row holds.
"""

from __future__ import annotations

from elastic_core.models.special_tokens import chat_prompt, chat_text
from elastic_core.reasonflux.guide import Guide, Ids

_QUESTION = "ELASTIC-QUESTION"


class Interpreter:
    """Of one conversation. Control tokens do not pass: a thought that a navigator writes all the same is words.

    Args:
        navigator, solver: guides of their tokenizers.
        prompt: of the solver.

    Attributes:
        prefix: the conversation so far in the navigator's tokens.

    Raises:
        ValueError: as `question_of`.
    """

    def __init__(self, navigator: Guide, solver: Guide, prompt: Ids) -> None:
        self.end_of_text = navigator.markers.end_of_text
        self.prefix: Ids = (*chat_prompt(navigator.tokenizer, question_of(solver, prompt)), *navigator.opening)
        self._navigator = navigator
        self._solver = solver

    def ask(self, request: str) -> None:
        """To the navigator, a request that the conversation holds."""
        self.prefix += self._navigator.turn(request)

    def hear(self, reply: Ids) -> None:
        """To the navigator, anybody's reply that the conversation holds."""
        self.prefix += self._navigator.encoded(_words(self._solver, reply))

    def say(self, reply: Ids) -> Ids:
        """A navigator's reply in the solver's tokens, with end-of-text where it wrote its own."""
        end = self._solver.markers.end_of_text[:1] if reply[-1:] and reply[-1] in self.end_of_text else ()
        return self._solver.encoded(_words(self._navigator, reply)) + end


def question_of(guide: Guide, prompt: Ids) -> str:
    """The user's message in a prompt of the guide's chat template.

    Raises:
        ValueError: when the tokenizer does not give back what the template writes around it.
    """
    before, _, after = chat_text(guide.tokenizer, _QUESTION).partition(_QUESTION)
    text: str = guide.tokenizer.decode(prompt, clean_up_tokenization_spaces=False)
    if not text.startswith(before) or not text.endswith(after):
        raise ValueError(
            f"{guide.tokenizer.name_or_path}: a prompt is {text!r} when it is decoded; expected {before!r} before the "
            f"question and {after!r} after it, or a navigator with another tokenizer cannot be told it"
        )
    return text[len(before) : len(text) - len(after)]


def _words(guide: Guide, ids: Ids) -> str:
    return guide.text(tuple(i for i in ids if i not in guide.control))
