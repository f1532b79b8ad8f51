"""Begin and end of a thought, in token ids. A mark is a sequence of tokens, often of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Soft(NamedTuple):
    """A soft closing: in the last `window` tokens of a thought (None: a quarter of its budget) think-end is written at
    the first place where it is among the `most` most probable tokens."""

    window: int | None
    most: int

    def begin(self, think: int) -> int:
        """The first place of the window, under a budget of so many tokens."""
        return think - min(think, think // 4 if self.window is None else self.window)


@dataclass(frozen=True)
class Marks:
    """Marks of one model.

    Attributes:
        think_start: opens a thought; () where the model has no marks.
        think_ends: each of them ends a thought; the first to be complete does. () where the model has no marks.
        close: what we write to end a thought that was cut; it holds an end.
        answer: what we write where no thought was begun, so that the solution follows.
        end_of_text: every id that ends a response.
        words: what we write before `close`, if anything; a closing that is worded otherwise (strategies.variants).
        soft: where think-end is written before t, if it may be.
        calls: marks that begin a tool call, where the family's parser takes a call inside a thought for its end. The
            solution begins with the last token of such a mark, which is most often its only one.
    """

    think_start: tuple[int, ...]
    think_ends: tuple[tuple[int, ...], ...]
    close: tuple[int, ...]
    answer: tuple[int, ...]
    end_of_text: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)
    words: tuple[int, ...] = field(default=(), kw_only=True)
    soft: Soft | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, other: Marks) -> Marks:
        """These alone, of what may know more."""
        marks = other.think_start, other.think_ends, other.close, other.answer, other.end_of_text
        return cls(*marks, calls=other.calls, words=other.words, soft=other.soft)

    @property
    def cut(self) -> int:
        """Written after s tokens of solution. The model's end-of-text cannot come there: it is one of the s."""
        return self.end_of_text[0]

    @property
    def thinks(self) -> bool:
        """Whether a thought has a beginning and an end."""
        return bool(self.think_ends)

    @cached_property
    def stop(self) -> tuple[int, ...]:
        """Ids at which a thought may have ended, the last one of each mark that ends it; `end` decides."""
        return tuple(dict.fromkeys(mark[-1] for mark in (*self.think_ends, *self.calls)))

    @cached_property
    def max_forced(self) -> int:
        """Most tokens that `closing` writes."""
        opening = max(0, len(self.think_start) - 1) + len(self.words) + len(self.close)
        return max(opening, len(self.answer), *(len(end) - 1 for end in self.think_ends))

    def end(self, tokens: Sequence[int], read: int = 0, stop: int | None = None) -> int | None:
        """How many of the `tokens` precede the solution, by the first mark that ends a thought, is complete after the
        first `read` of them, and within the first `stop`; None where there is none."""
        found, new = [], tokens[read:stop]
        for last in self.stop:
            at = 0
            while last in new[at:]:
                at = new.index(last, at) + 1
                if self._completes(self._by_last[last], tokens, read + at):
                    found.append(read + at)
                    break
        return min(found) - self.call_before(tokens, min(found)) if found else None

    def call_before(self, tokens: Sequence[int], at: int) -> int:
        """1 where the first `at` of the `tokens` end with the beginning of a tool call that ends the thought, else
        0."""
        return int(self._completes(self.calls, tokens, at) and not self._completes(self.think_ends, tokens, at))

    def mark_before(self, tokens: Sequence[int], at: int) -> int:
        """How many tokens the mark has that ends the first `at` of the `tokens`; 0 where there is none."""
        marks = (self.close, self.answer, *self.think_ends, *self.calls)
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
        """How many of a thought's last tokens begin an end, and that end, the one furthest along; 0 and () for none."""
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
        """What we write after a thought that has no end: the rest of a mark that was begun, or all of it."""
        if rest := self.rest_of_end(thought):
            return rest
        if not thought:
            return self.answer
        opened = len(thought)
        if opened < len(self.think_start) and tuple(thought) == self.think_start[:opened]:
            return (*self.think_start[opened:], *self.words, *self.close)
        return (*self.words, *self.close)

    def soft_begin(self, thought: Sequence[int], think: int) -> int:
        """The first place in the window of a soft closing, at which a thought of so many tokens may be closed: not in
        its opening."""
        begin = self.soft.begin(think) if self.soft else think
        while begin < think and begin <= len(thought) and self.closing(thought[:begin])[:1] != self.close[:1]:
            begin += 1
        return begin

    def soft_end(self, output: Sequence[int], think: int | None) -> int | None:
        """The tokens of a thought before the think-end that stands in the window, which was written there; else the
        budget of the thought."""
        if self.soft is None or think is None:
            return think
        begin = self.soft_begin(output, think)
        window = list(output[begin:think])
        return begin + window.index(self.close[0]) if self.close[0] in window else think

    def is_closed(self, prompt: Sequence[int], continues: bool = False) -> bool:
        """Whether a response to the prompt begins with its solution: the last turn has an end without a beginning after
        it, as where a template closes an empty thought. Earlier turns end in end-of-text. Where the response
        `continues` an answer, a last turn without marks is solution too.

        Where an answer begins with marks, an end may end other messages too, as that of gpt-oss does: then the
        answer must have been opened, or the thought. So it must before a call, which a system prompt may show."""
        last_of_marks = {*self.stop, *self.think_start[-1:], *self.answer[-1:], *self.end_of_text}
        ended = False
        for at in range(len(prompt), 0, -1):
            if (last := prompt[at - 1]) not in last_of_marks:  # A prompt may be long.
                continue
            if not ended and _stands(self.answer, prompt, at):
                return True
            if self._completes(self._by_last.get(last, ()), prompt, at):
                if not self.answer_opening and not self.call_before(prompt, at):
                    return True
                ended = True
            elif last in self.end_of_text:
                return continues
            elif _stands(self.think_start, prompt, at):
                return ended
        return continues

    @cached_property
    def _by_last(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """Marks that end a thought, by their last token."""
        marks = (*self.think_ends, *self.calls)
        return {last: tuple(mark for mark in marks if mark[-1] == last) for last in self.stop}

    @staticmethod
    def _completes(marks: Sequence[tuple[int, ...]], tokens: Sequence[int], at: int) -> bool:
        """Whether one of the marks is complete with the last of the first `at` of the `tokens`."""
        return any(_stands(mark, tokens, at) for mark in marks)


def _stands(mark: tuple[int, ...], tokens: Sequence[int], at: int) -> bool:
    """Whether the first `at` of the `tokens` end in a mark, which has tokens at all."""
    return bool(mark) and tuple(tokens[max(0, at - len(mark)) : at]) == mark
