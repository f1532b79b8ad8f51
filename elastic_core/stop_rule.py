"""A stop rule: at which tokens of a thought its answer is probed (the rungs), and which probes are enough.

A rule's text is also the name of its strategy: `adaptive_agree2_every16` probes every 16 tokens, and ends the thought
when two probes in a row have the same answer. Its parts come in this order, joined by "_"; tokens are plain numbers:

    agree2          2 probes in a row with the same answer end the thought
    sure90          so does a probe with a geometric mean probability of its tokens of 90 % or more
    giveup96        so does a probe at 96 tokens or later while no answer was given twice
    every16         probes at 16, 32, 48, ... tokens
    at16-32-64      probes at these
    from48          not before 48 tokens
    to192           not after 192 tokens: what thinks longer is not probed any more
    probe20         a probe asks "Final Answer:" and gets 20 tokens (s1); without, it is a solution of the strategy

A probe without an answer agrees with none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, takewhile

ADAPTIVE = "adaptive"  # The beginning of their strategies' names.

_FORM = re.compile(
    r"(?:_agree(?P<agree>\d+))?(?:_sure(?P<sure>\d+))?(?:_giveup(?P<give_up>\d+))?"
    r"_(?:every(?P<every>\d+)|at(?P<at>\d+(?:-\d+)*))(?:_from(?P<start>\d+))?(?:_to(?P<end>\d+))?"
    r"(?:_probe(?P<probe>\d+))?"
)


class Stop(StrEnum):
    """Why a rule ended a thought."""

    AGREED = "agreed"
    SURE = "sure"
    GAVE_UP = "gave up"


@dataclass(frozen=True)
class StopRule:
    """See the module's text for each part; None where a rule has none. Either `every` or `at` is given."""

    agree: int | None = None
    sure: int | None = None
    give_up: int | None = None
    every: int | None = None
    at: tuple[int, ...] = ()
    start: int = 0
    end: int | None = None
    probe: int | None = None

    def __post_init__(self) -> None:
        if (self.every is None) == (not self.at) or self.every == 0:
            raise ValueError(f"{self}: expected rungs like every16 or at16-32-64")
        if list(self.at) != sorted(set(self.at)):
            raise ValueError(f"{self}: its rungs do not rise; expected each above the one before")
        if self.agree is None and self.sure is None:
            raise ValueError(f"{self}: nothing ends a thought; expected agree2 or sure90")
        if self.agree is not None and self.agree < 2:
            raise ValueError(f"{self}: {self.agree} answers agree always; expected 2 or more")
        if self.sure is not None and not 1 <= self.sure <= 100:
            raise ValueError(f"{self}: sure is {self.sure}; expected 1 to 100 percent")
        if self.probe == 0:
            raise ValueError(f"{self}: a probe of no token has no answer; expected 1 or more")

    def __str__(self) -> str:
        parts: dict[str, int | str | None] = {"agree": self.agree, "sure": self.sure, "giveup": self.give_up}
        parts |= {"every": self.every}
        parts |= {"at": "-".join(map(str, self.at)) or None, "from": self.start or None, "to": self.end}
        parts["probe"] = self.probe
        return "_".join([ADAPTIVE, *(f"{name}{value}" for name, value in parts.items() if value is not None)])

    @classmethod
    def parse(cls, name: str) -> StopRule:
        """The rule of a strategy's name. ValueError names the text and the form."""
        match = _FORM.fullmatch(name.removeprefix(ADAPTIVE)) if name.startswith(ADAPTIVE) else None
        if match is None:
            raise ValueError(
                f'"{name}" is not a stop rule; expected one like "{ADAPTIVE}_agree2_every16" or '
                f'"{ADAPTIVE}_agree2_giveup96_at16-32-64"'
            )
        found = {part: int(text) for part, text in match.groupdict().items() if text is not None and part != "at"}
        return cls(**found, at=tuple(int(rung) for rung in match["at"].split("-")) if match["at"] else ())

    def rungs(self, limit: int | None) -> Iterator[int]:
        """Lengths at which a thought of at most `limit` tokens is probed, ascending; not at the limit itself."""
        rungs = count(self.every, self.every) if self.every else iter(self.at)
        most = min(
            (each for each in (limit, None if self.end is None else self.end + 1) if each is not None), default=None
        )
        below = rungs if most is None else takewhile(lambda rung: rung < most, rungs)
        return (rung for rung in below if rung >= self.start)

    def stops(self, rung: int, answers: Sequence[str | None], sure: float | None = None) -> Stop | None:
        """Why the thought ends at a rung, where it has been probed with these answers, the last of them there; None
        where it goes on. `sure` is the geometric mean probability of the last probe's tokens."""
        last = answers[-1]
        if self.agree and last is not None and list(answers[-self.agree :]) == [last] * self.agree:
            return Stop.AGREED
        if self.sure is not None and last is not None and sure is not None and sure >= self.sure / 100:
            return Stop.SURE
        given = [answer for answer in answers if answer is not None]
        if self.give_up is not None and rung >= self.give_up and len(set(given)) == len(given):
            return Stop.GAVE_UP
        return None
