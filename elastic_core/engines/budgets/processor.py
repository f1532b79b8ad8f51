"""When a served response gets a token that the model did not choose: the law of strategy `separate`, in one pass.

Think-end after t sampled tokens without one, and end-of-text after s tokens of solution. A token is due at a length of
the output that is known beforehand, up to one thing: where the model ends its thought itself. So a response is looked
at when something may be due at the earliest, and nobody reads it in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from elastic_core.budget import UNLIMITED, Budget
from elastic_core.models.special_tokens import Markers

THINK, SOLUTION, ROOM = "think_budget", "solution_budget", "elastic_room"
"""Names in a request's `vllm_xargs`. The third is the middleware's: tokens that the engine must have room for."""
DROP_ONE = f'drop it, or lift the budget with "vllm_xargs": {{"{THINK}": "{UNLIMITED}", "{SOLUTION}": "{UNLIMITED}"}}'
"""What to do about a field that goes with no budget, the server's default included."""
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Stops:
    """Token ids that the law knows.

    Attributes:
        think_start, think_end: as of `Markers`.
        end_of_text: every id that ends a response; the first is what a solution is cut with.
    """

    think_start: int
    think_end: int
    end_of_text: tuple[int, ...]

    @classmethod
    def of(cls, markers: Markers) -> Stops:
        return cls(markers.think_start, markers.think_end, markers.end_of_text)

    @property
    def cut(self) -> int:
        """What is forced after s tokens of solution. No response has an end-of-text of the model's own there, as the
        token before it would have been one of s."""
        return self.end_of_text[0]


class Look(NamedTuple):
    """What is to be done now, and when to look again.

    Attributes:
        token: to be forced now, None when the model may choose.
        wait: further tokens until something may be due again, at least 1; None when nothing will be.
    """

    token: int | None
    wait: int | None


@dataclass
class Progress:
    """One response under a budget.

    Attributes:
        solution_start: tokens of output before the solution; None while the thought is open.
        read: tokens of output that are known to hold no think-end.
    """

    budget: Budget
    stops: Stops
    solution_start: int | None = None
    read: int = 0

    def look(self, output: Sequence[int]) -> Look:
        """Decide on the next token.

        Args:
            output: all tokens of the response so far, forced ones included; none was ever taken back.
        """
        length, think, solution = len(output), self.budget.think, self.budget.solution
        if self.solution_start is None:
            with suppress(ValueError):
                self.solution_start = output.index(self.stops.think_end, self.read, length) + 1
            self.read = length
        if self.solution_start is not None:
            if solution is None:
                return Look(None, None)
            left = self.solution_start + solution - length
            return Look(None, left) if left > 0 else Look(self.stops.cut, 1)
        if think is not None and length >= think:
            return Look(self.stops.think_end, 1)
        # Were the next token think-end, the solution would be over s tokens after it.
        waits = [w for w in (None if think is None else think - length, solution and solution + 1) if w is not None]
        return Look(None, min(waits, default=None))


def thought_is_closed(prompt: Sequence[int], stops: Stops) -> bool:
    """Whether a response to the prompt begins with its solution: the last turn has a think-end and no think-start after
    it, as where a template closes an empty thought. Turns before it, whose thoughts are closed, end in end-of-text."""
    ends = {stops.think_start, *stops.end_of_text}
    for token in reversed(prompt):
        if token == stops.think_end:
            return True
        if token in ends:
            return False
    return False


def read_budget(arguments: Mapping[str, Any], default: Budget | None = None) -> Budget | None:
    """The budget of a request; what it leaves open, or null, is the default's. None when neither says anything.

    Raises:
        ValueError: on what is no number of tokens; a sentence with key, value and what was expected.
    """
    think, solution = arguments.get(THINK), arguments.get(SOLUTION)
    if think is None and solution is None:
        return default
    default = default or Budget(None, None)
    return Budget(
        default.think if think is None else _tokens(THINK, think, least=0),
        default.solution if solution is None else _tokens(SOLUTION, solution, least=1),
    )


def _tokens(key: str, value: Any, least: int) -> int | None:
    if value == UNLIMITED:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(
            f'{key} is {value!r:.40}; expected a whole number of tokens from {least} to {_MOST}, or "{UNLIMITED}"'
        )
    return value
