"""Who waits for whom: requests before an engine's places, in turns, and within one in the order of arrival.

In that order alone, a backlog longer than the goal makes everybody late until it is worked off, which at the engine's
limit is never. A request that would be late opens a new turn instead, and goes before all that wait; they are late in
any case, and are drawn when there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class Ticket:
    """A request's place in the queue. A lower `turn` is first. `tokens` is the expected sum of its `choices` responses.
    It runs since `began`, by the caller's clock, None while it waits; `begin` is called then."""

    turn: int
    tokens: float
    choices: int = 1
    began: float | None = None
    begin: Callable[[], None] = lambda: None


class Turns:
    """The queue of a server that runs `most_running` responses in parallel.

    Attributes:
        turn: of what comes now.
        running: responses.
        waiting: tokens of the requests of this turn that have no place yet.
    """

    def __init__(self, most_running: int) -> None:
        self.turn = self.running = 0
        self.waiting = 0.0
        self._most_running = most_running
        self._queue = dict[int, OrderedDict[Ticket, None]]()  # By turn; the last one that is there is first.

    def enter(self, now: float, tokens: float, choices: int) -> Ticket:
        """Enter a request."""
        ticket = Ticket(self.turn, tokens, choices)
        self._queue.setdefault(ticket.turn, OrderedDict())[ticket] = None
        self.waiting += tokens
        self._begin(now)
        return ticket

    def leave(self, now: float, ticket: Ticket) -> None:
        """Take out a request, whether it had begun or not."""
        if ticket.began is None:
            self._take(ticket)
        else:
            self.running -= ticket.choices
        self._begin(now)

    def next(self) -> None:
        """Open a turn: later requests go before those that wait."""
        self.turn, self.waiting = self.turn - 1, 0.0

    def _begin(self, now: float) -> None:
        while self._queue and self.running < self._most_running:
            ticket = next(iter(self._queue[next(reversed(self._queue))]))
            self._take(ticket)
            ticket.began = now
            self.running += ticket.choices
            ticket.begin()

    def _take(self, ticket: Ticket) -> None:
        """Remove it from the queue."""
        turn = self._queue[ticket.turn]
        del turn[ticket]
        if not turn:
            del self._queue[ticket.turn]
        if ticket.turn == self.turn:
            self.waiting = max(0.0, self.waiting - ticket.tokens)
