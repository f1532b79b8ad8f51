"""What a right answer is, as the text that tables carry: `ground_truth` of verl's schema, `truth` of `grade`.

One plain mathematical answer is its own text, so that tables stay readable and other tools can use them. Everything
else is JSON with a fixed set of keys.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

_MARK = '{"answers":'


@dataclass(frozen=True)
class MathTruth:
    """A mathematical answer.

    Attributes:
        answers: in LaTeX or plain text, without a box.
        match: "any" accepts each of them (Minerva's variants), "all" wants every one (OlympiadBench).
        tolerance: largest absolute difference between numbers that still counts as equal; None asks for equality.
        unit: in which the answer is given; an answer may repeat it or leave it out.
    """

    answers: tuple[str, ...]
    match: Literal["any", "all"] = "any"
    tolerance: float | None = None
    unit: str | None = None

    def encode(self) -> str:
        """Text that `decode` reads."""
        plain = len(self.answers) == 1 and self.tolerance is None and self.unit is None
        if plain and not self.answers[0].startswith(_MARK):
            return self.answers[0]
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> MathTruth:
        """Raises:
        ValueError: when the text begins like an encoded truth and is none.
        """
        if not text.startswith(_MARK):
            return cls((text,))
        try:
            values = json.loads(text)
            return cls(**{**values, "answers": tuple(values["answers"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not an encoded mathematical truth ({error}): {text[:80]}") from None


def split_answers(text: str) -> list[str]:
    r"""Parts of an answer between commas at the top level: `(1,2), \frac{1}{2}` has two."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]
