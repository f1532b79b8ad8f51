"""Text of a response: a trajectory's text, and the answer in a solution (its last box, the letter that it chooses, or
its last block of code), in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from elastic_core.models.special_tokens import Markers
from elastic_core.rewards.truth import LETTERS, NO_ANSWER, THINK_END, Grade, graded, grader

if TYPE_CHECKING:
    # It imports polars; after a fork a worker of the grader lacks its threads.
    from elastic_core.trajectory import Trajectory

# An escaped brace is not a brace, and a doubled backslash is a line break and escapes nothing.
_TOKEN = re.compile(
    r"\\(?:boxed|fbox)(?![a-zA-Z])\s*+(?:(?P<open>\{)|(?P<bare>[^\s{}$\\]+))?|\\[^a-zA-Z]|[{}]", re.DOTALL
)
_ORPHAN = re.compile(r"(?<!\\)\\\Z")

# Every repetition is possessive: none backtracks, so that time is linear in the text.
_OPEN = r"(?:\\boxed\{|\\(?:text|textbf|mathrm|mathbf)\{|\\\(|[\s$*_({\[\"'`])*+"
_CLOSE = r"(?:\\\)|[\s$*_)}\]\"'`])*+"
# Not the beginning of a word, of a formula, or of several letters.
_ALONE = rf"(?![A-Za-z0-9'’^_]|\s*+[=+/<>*-]\s*+[A-Za-z0-9]|{_CLOSE}[(\[]?+(?:,|and\b|or\b|&)\s*+{_OPEN}[A-Z]\b)"
_LETTER = rf"{_OPEN}(?<![A-Za-z\\])([A-Z]){_ALONE}"
_NO_ARTICLE = r"(?<!A(?= )(?! (?:because|since)\b)(?= [a-z]))"
# In the text of a choice another one: `A. x (or B)`, `A. x, B. y`, and not `B. vitamins A and D`.
_ANOTHER = rf"(?:\bor\b{_OPEN}[A-HJ-Z](?![A-Za-z0-9])|(?:[,;&/]|\band\b){_OPEN}[A-Z][).:}}])"
_BOX = re.compile(rf"{_LETTER}(?:{_CLOSE}|[\s}}$*]*+[).:](?!.*{_ANOTHER}).*)", re.DOTALL)
_NOUN = r"\b(?:answer|choice|option)"
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?i:{_NOUN})[*_ ]*+[:=]{_LETTER}{_NO_ARTICLE}",
        rf"(?i:{_NOUN}\s++(?:is|would\s++be|must\s++be)\s*+:?){_LETTER}{_NO_ARTICLE}"
        rf"|(?i:{_NOUN}){_LETTER}(?={_CLOSE}(?i:is\s++(?:the\s++)?correct))",
    )
)

Ids = tuple[int, ...]
_OPENING = re.compile(r"([ \t]*)(`{3,}|~{3,4}(?!.*~))([^`]*)")  # indentation, fence, language; other tildes underline
_PYTHON = re.compile(r"(?:[\s{[.]*(?:python|pypy|py)|\S+\.py)[0-9.]*(?![^\W_]|[+-])", re.IGNORECASE)
_SESSION = re.compile(r"\s*(?:>>>|\$) ")
_STATEMENT = re.compile(
    r"\b(?:print|lambda)\b|\.write(?:lines)?\b"
    r"|^[ \t]*(?:import |from .* import |(?:async +)?(?:def|class) +\w+ *[\[(:])",
    re.MULTILINE,
)
"""A program without any of these prints nothing and defines nothing."""


class ResponseText(NamedTuple):
    """Text before and after think-end; solution is None when none was begun."""

    thinking: str
    solution: str | None

    def graded(self, think_finish: str) -> str:
        """What `grade` takes: think-end and what follows, so that equal solutions are equal answers. A model that
        stopped inside its thought (`think_finish`, a `ThinkFinish`) was not cut: its solution is empty."""
        from elastic_core.trajectory import ThinkFinish

        if self.solution is None and think_finish == ThinkFinish.END_OF_TEXT:
            return THINK_END
        return self.thinking if self.solution is None else f"{THINK_END}{self.solution}"


def response_text(tokenizer: Any, markers: Markers, trajectory: Trajectory) -> ResponseText:
    """`response_texts` of one trajectory."""
    return response_texts(tokenizer, markers, [trajectory])[0]


def response_texts(tokenizer: Any, markers: Markers, trajectories: Iterable[Trajectory]) -> list[ResponseText]:
    """Thinking and solution, special tokens included, without the thought's marks and a last end-of-text.

    Trajectories of one sample under several budgets have much in common: equal parts are decoded once.
    """
    responses: dict[tuple[Ids, int | None], int] = {}
    places = [responses.setdefault((t.response_ids, t.solution_start), len(responses)) for t in trajectories]
    parts = [_parts(markers, *response) for response in responses]
    distinct = list(dict.fromkeys(ids for each in parts for ids in each if ids is not None))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # In Rust and without the lock of the interpreter; transformers' batch is a loop in Python.
        decoded_texts = backend.decode_batch(distinct, skip_special_tokens=False)
    else:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        decoded_texts = [tokenizer.decode(ids, **options) for ids in distinct]
    decoded = dict(zip(distinct, decoded_texts, strict=True))
    texts = [
        ResponseText(decoded[thinking], None if solution is None else decoded[solution].removeprefix(decoded[mark]))
        for thinking, mark, solution in parts
    ]
    return [texts[place] for place in places]


def _parts(markers: Markers, ids: Ids, solution_start: int | None) -> tuple[Ids, Ids, Ids | None]:
    """Tokens of the thought, the mark that ends it, and from that mark on when a solution was begun: some tokenizers
    drop the space before the first token, so that the mark's text is removed after decoding."""
    end = len(ids) - bool(ids and ids[-1] in markers.end_of_text)
    if solution_start is None:
        return ids[markers.opening(ids) : end], (), None
    before = solution_start - markers.mark_before(ids, solution_start)
    after = solution_start + markers.before_answer(ids, solution_start)
    return ids[min(before, markers.opening(ids)) : before], ids[before:after], ids[before:end]


def last_boxed(text: str) -> str | None:
    r"""Content of the last box that is closed, without surrounding whitespace; None when there is none.

    A box is `\boxed` or `\fbox` with braces, which may be nested, or without them as in `\boxed 5`, where the content
    ends at whitespace. Of nested boxes the inner one counts. One pass, whatever the text holds.
    """
    braces: list[tuple[int, bool]] = []  # where the content of each open brace begins, and whether it is a box's
    found, content = -1, None
    for token in _TOKEN.finditer(text):
        if token["bare"]:
            found, content = token.start("bare"), token["bare"]
        elif token["open"] or token[0] == "{":
            braces.append((token.end(), bool(token["open"])))
        elif token[0] == "}" and braces:
            start, is_box = braces.pop()
            if is_box and start > found:
                found, content = start, text[start : token.start()]
    if content is None:
        return None
    stripped = content.strip()
    # `5\ ` ends in an escaped space; without it the backslash would escape nothing.
    return stripped[:-1].rstrip() if _ORPHAN.search(stripped) and content[-1:].isspace() else stripped


def chosen_letter(solution: str) -> str | None:
    r"""The capital letter that a solution chooses, in range or not; None when it chooses none.

    It is read in one of these ways. The first that occurs at all decides, and of its occurrences the last:

    1. a box that holds a letter and nothing else but its dress or its text: `\boxed{C}`, `\boxed{\text{(C)}}`,
       `\boxed{C) 5 \text{ m}}`;
    2. "Answer: C" and its like: `**Answer:** C`, `Answer: $C$`, `ANSWER = (C)`, "Final answer: \text{C}";
    3. a sentence: "the answer is (C)", "the correct option is **C**", "option C is correct".

    Letters are capital and stand alone: in "the answer is a number" there is none. Letters beyond the four are wrong.
    """
    box = last_boxed(solution)
    if box is not None and (match := _BOX.fullmatch(box)):
        return match[1]
    for pattern in _PATTERNS:
        letters = [next(filter(None, match.groups())) for match in pattern.finditer(solution)]
        if letters:
            return letters[-1]
    return None


@grader("choice")
def grade_choice(solution: str, truth: str) -> Grade:
    """Grade a solution by the letter that it chooses. ValueError when the truth is none of the letters."""
    if len(truth) != 1 or truth not in LETTERS:
        raise ValueError(f"truth is {truth!r}; expected one of {', '.join(LETTERS)}")
    letter = chosen_letter(solution)
    return NO_ANSWER if letter is None else graded(letter, letter == truth)


def extract_code(solution: str) -> str | None:
    """Content of the last complete fenced block of Python: one that says so, or that names no language and could be a
    program (output and sessions of a shell could not). Where there is none, of the last that names no language and is
    no session, else of the last block; None without a block.

    A fence is three or more backticks, or three or four tildes: more underline a heading. One that names
    a language opens a block even within one, which then does not count; but tildes do not within backticks. The closing
    fence may follow code on its line. A block's indentation is removed.
    """
    fence: re.Match[str] | None = None
    block: list[str] = []
    program, best = None, 0
    for line in solution.split("\n"):
        text = line.rstrip()
        opening, before = _OPENING.fullmatch(text), text.rstrip(fence[2][0]) if fence else text
        if opening and (fence is None or (opening[3] and opening[2][0] in ("`", fence[2][0]))):
            fence, block = opening, []
        elif fence and len(text) - len(before) >= len(fence[2]):
            block += [before] if before.strip() else []
            code = "\n".join(each[min(len(fence[1]), len(each) - len(each.lstrip(" \t"))) :] for each in block)
            rank = _rank(fence[3].strip(), code)
            program, best = (code, rank) if rank >= best else (program, best)
            fence = None
        elif fence:
            block.append(line)
    return program


def _rank(language: str, code: str) -> int:
    """2 for a block of Python, 1 for one that could be, as `f = sorted`, and 0 for another."""
    if language:
        return 2 if _PYTHON.match(language) else 0
    return 0 if _SESSION.match(code) else 2 if _STATEMENT.search(code) else 1
