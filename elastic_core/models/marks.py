"""Where a thought begins and ends, in token ids. A mark is a sequence of tokens, often of one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Marks:
    """Marks of one model.

    Attributes:
        think_start: opens a thought; () where the model has no marks.
        think_ends: each of them ends a thought; the first to be complete does. () where the model has no marks.
        close: what we write to end a thought that was cut; it holds an end.
        answer: what we write where no thought was begun, so that the solution comes at once.
        end_of_text: every id that ends a response.
    """

    think_start: tuple[int, ...]
    think_ends: tuple[tuple[int, ...], ...]
    close: tuple[int, ...]
    answer: tuple[int, ...]
    end_of_text: tuple[int, ...]

    @classmethod
    def of(cls, other: Marks) -> Marks:
        """These alone, of what may know more."""
        return cls(other.think_start, other.think_ends, other.close, other.answer, other.end_of_text)

    @property
    def cut(self) -> int:
        """Written after s tokens of solution. The model's own end-of-text cannot come there: it is one of the s."""
        return self.end_of_text[0]

    @property
    def thinks(self) -> bool:
        """Whether a thought has a beginning and an end."""
        return bool(self.think_ends)

    @cached_property
    def stop(self) -> tuple[int, ...]:
        """Ids at which a thought may have ended: the last one of each end. Whether it has is for `end` to say."""
        return tuple(dict.fromkeys(end[-1] for end in self.think_ends))

    @cached_property
    def max_forced(self) -> int:
        """Most tokens that `closing` writes."""
        opening = max(0, len(self.think_start) - 1) + len(self.close)
        return max(opening, len(self.answer), *(len(end) - 1 for end in self.think_ends))

    def end(self, tokens: Sequence[int], read: int = 0, stop: int | None = None) -> int | None:
        """How many of the `tokens` there are up to the first end that is complete after the first `read` of them, and
        within the first `stop`; None where there is none."""
        found, stop = [], len(tokens) if stop is None else stop
        for last in self.stop:
            at = read
            with suppress(ValueError):
                while not self._ends(tokens, at := tokens.index(last, at, stop) + 1, last):
                    pass
                found.append(at)
        return min(found, default=None)

    def mark_before(self, tokens: Sequence[int], at: int) -> int:
        """How many tokens the mark has that ends the first `at` of the `tokens`; 0 where there is none."""
        marks = (self.close, self.answer, *self.think_ends)
        return max((len(mark) for mark in marks if _stands(mark, tokens, at)), default=0)

    @cached_property
    def answer_opening(self) -> tuple[int, ...]:
        """What opens an answer after the end of a thought, where a model writes that: a channel, say."""
        return self.close[self.end(self.close) or 0 :]

    def before_answer(self, response: Sequence[int], start: int) -> int:
        """How many tokens open the answer at the start of a solution: they are of its budget, and no text of it."""
        opening = self.answer_opening
        return len(opening) if tuple(response[start : start + len(opening)]) == opening else 0

    def opening(self, response: Sequence[int]) -> int:
        """How many tokens the opening mark has that a response begins with, so far."""
        length = min(len(self.think_start), len(response))
        return length if tuple(response[:length]) == self.think_start[:length] else 0

    def begun_end(self, thought: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """How many of a thought's last tokens begin an end, and that end; 0 and () where they begin none. Of several it
        is the one that is furthest along."""
        for length in range(max(map(len, self.think_ends), default=0) - 1, 0, -1):
            begun = tuple(thought[-length:]) if length <= len(thought) else None
            for end in self.think_ends:
                if end[:length] == begun and length < len(end):
                    return length, end
        return 0, ()

    def rest_of_end(self, thought: Sequence[int]) -> tuple[int, ...]:
        """What completes the end that the last tokens of a thought begin; () where they begin none."""
        length, end = self.begun_end(thought)
        return end[length:]

    def closing(self, thought: Sequence[int]) -> tuple[int, ...]:
        """What we write after a thought that has no end: the rest of a mark that was begun, and what is missing."""
        if rest := self.rest_of_end(thought):
            return rest
        if not thought:
            return self.answer
        opened = len(thought)
        if opened < len(self.think_start) and tuple(thought) == self.think_start[:opened]:
            return (*self.think_start[opened:], *self.close)
        return self.close

    def is_closed(self, prompt: Sequence[int], continues: bool = False) -> bool:
        """Whether a response to the prompt begins with its solution: the last turn has an end without a beginning after
        it, as where a template closes an empty thought. Earlier turns end in end-of-text. Where the response
        `continues` an answer, a last turn without marks is solution too.

        Where an answer has an opening of its own, an end may end other messages too, as that of gpt-oss does: then the
        answer must have been opened, or the thought."""
        last_of_marks = {*self.stop, *self.think_start[-1:], *self.answer[-1:], *self.end_of_text}
        ended = False
        for at in range(len(prompt), 0, -1):
            if (last := prompt[at - 1]) not in last_of_marks:  # A prompt may be long.
                continue
            if not ended and _stands(self.answer, prompt, at):
                return True
            if self._ends(prompt, at, last):
                if not self.answer_opening:
                    return True
                ended = True
            elif last in self.end_of_text:
                return continues
            elif _stands(self.think_start, prompt, at):
                return ended
        return continues

    def _ends(self, tokens: Sequence[int], at: int, last: int) -> bool:
        """Whether an end with this last token is complete in the first `at` of the `tokens`."""
        ends = (end for end in self.think_ends if end[-1] == last)
        return any(len(end) == 1 or _stands(end, tokens, at) for end in ends)


def _stands(mark: tuple[int, ...], tokens: Sequence[int], at: int) -> bool:
    """Whether the first `at` of the `tokens` end in a mark, which has tokens at all."""
    return bool(mark) and tuple(tokens[max(0, at - len(mark)) : at]) == mark
