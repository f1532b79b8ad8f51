r"""Multiple choice with the letters A to D.

The letter is read from the solution in one of these ways. The first that occurs at all decides, and of its occurrences
the last:

1. a box that holds a letter and nothing else but its dress or its text: `\boxed{C}`, `\boxed{\text{(C)}}`,
   `\boxed{C) 5 \text{ m}}`;
2. "Answer: C" and its like: `**Answer:** C`, `Answer: $C$`, `ANSWER = (C)`, "Final answer: \text{C}";
3. a sentence: "the answer is (C)", "the correct option is **C**", "option C is correct".

Letters are capital and stand alone: in "the answer is a number" there is none. Another letter than the four is an
answer, a wrong one. A solution from which no letter can be read has no answer and never the first of them.
"""

from __future__ import annotations

import re

from elastic_core.rewards.grade import Grade, GradeStatus
from elastic_core.rewards.math.boxed import last_boxed

LETTERS = "ABCD"

# Every repetition is possessive: none gives back what it took, so that time is linear in the text.
_OPEN = r"(?:\\boxed\{|\\(?:text|textbf|mathrm|mathbf)\{|\\\(|[\s$*_({\[\"'`])*+"
_CLOSE = r"(?:\\\)|[\s$*_)}\]\"'`])*+"
# Not the beginning of a word, of a formula, or of several letters.
_ALONE = rf"(?![A-Za-z0-9'’^_]|\s*+[=+/<>*-]\s*+[A-Za-z0-9]|{_CLOSE}(?:,|and\b|or\b|&)\s*+{_OPEN}[A-Z]\b)"
_LETTER = rf"{_OPEN}(?<![A-Za-z\\])([A-Z]){_ALONE}"
_NO_ARTICLE = r"(?<!A(?= )(?! (?:because|since)\b)(?= [a-z]))"
_BOX = re.compile(rf"{_LETTER}(?:{_CLOSE}|[\s}}$*]*+[).:].*)", re.DOTALL)
_NOUN = r"\b(?:answer|choice|option)"
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?i:{_NOUN})[*_ ]*+[:=]{_LETTER}{_NO_ARTICLE}",
        rf"(?i:{_NOUN}\s++(?:is|would\s++be|must\s++be)\s*+:?){_LETTER}{_NO_ARTICLE}"
        rf"|(?i:{_NOUN}){_LETTER}(?={_CLOSE}(?i:is\s++(?:the\s++)?correct))",
    )
)


def grade_choice(solution: str, truth: str) -> Grade:
    """Grade a solution by the letter that it chooses.

    Raises:
        ValueError: when the truth is none of the letters.
    """
    if len(truth) != 1 or truth not in LETTERS:
        raise ValueError(f"truth is {truth!r}; expected one of {', '.join(LETTERS)}")
    letter = chosen_letter(solution)
    if letter is None:
        return Grade(0.0, GradeStatus.NO_ANSWER, None)
    return Grade(float(letter == truth), GradeStatus.CORRECT if letter == truth else GradeStatus.WRONG, letter)


def chosen_letter(solution: str) -> str | None:
    """The capital letter that a solution chooses, in range or not; None when it chooses none."""
    box = last_boxed(solution)
    if box is not None and (match := _BOX.fullmatch(box)):
        return match[1]
    for pattern in _PATTERNS:
        letters = [next(filter(None, match.groups())) for match in pattern.finditer(solution)]
        if letters:
            return letters[-1]
    return None
