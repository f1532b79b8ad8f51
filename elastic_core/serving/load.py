"""Less thought instead of a queue: under load, new requests get budgets that keep the server's goal.

The state is one number, the tokens that a response may take on average; its price is the slope of the measured frontier
there. docs/load.md has the steps by which it follows from the load, with the names g, v and trim. A budget counts as
waiting from the moment it is given, so the budgets that follow do not swing. Pace and trim are slow, and v is left only
for one that is clearly better.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as validated

from elastic_core.engines.latency import Steps
from elastic_core.statistics.frontier import Allocation, Point, allocate, frontier

FEWEST = 3  # Budgets that a server needs to choose from.
LATE = 0.05  # Share of responses that may take longer than the goal.
_AIM = 0.02  # Share that the trim aims at: more right answers come in time than with `LATE`.
_TRIM = 0.005  # Relative change of the trim by a late response.
_BOUNDS = 0.25, 4.0  # Of the trim.
_PACE = 0.02  # How far a response of the longest length moves the pace of the engine.
_BETTER = 0.01  # In accuracy; for less v stays.
_WINDOW = 1.0  # Over which arrivals are counted, in goals of latency.
_WINDOW_WITHOUT = 5.0  # In seconds, without a goal of latency.
_QUICK = 0.1  # Of the window, over which a rise is seen soon:
_CHANCE = 3.0  # where it is by more standard deviations than chance makes,
_BUSY = 0.75  # and this share of the responses that are in time at the largest budget runs.
_SEEN = 0.2  # Of the window, at least, so that two requests that come first and together are not many a second.


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Goal:
    """The goal of a server under load: `latency`, the 95th percentile of a response's seconds, or `tokens_per_second`
    that all responses together may draw, or both. `points` are the budgets that it may give, the first is the floor."""

    points: Annotated[tuple[Point, ...], Field(min_length=1)]
    latency: Annotated[float, Field(gt=0)] | None = None
    tokens_per_second: Annotated[float, Field(gt=0)] | None = None


@dataclass
class _Rate:
    """Events a second, over a window that forgets exponentially."""

    window: float
    began: float | None = None
    at: float = 0.0
    count: float = 0.0

    def add(self, now: float, amount: float = 1.0) -> None:
        self.began = now if self.began is None else self.began
        self.count = self.count * math.exp((self.at - now) / self.window) + amount
        self.at = now

    def take_back(self, at: float) -> None:
        """Undo an `add` of one event at that time."""
        self.count -= math.exp((at - self.at) / self.window)
        if self.count < 1e-6:  # It was the only one.
            self.began, self.count = None, 0.0

    def value(self, now: float) -> float:
        """0 before the second event."""
        if self.began is None or (now <= self.began and self.count <= 1):
            return 0.0
        seen = -math.expm1((self.began - now) / self.window)
        return self.count * math.exp((self.at - now) / self.window) / (self.window * max(seen, _SEEN))


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
    """The queue of a server that runs `most_running` responses in parallel, by turn and then by arrival.

    By arrival alone, a backlog longer than the goal makes every request late until it is worked off, which at the
    engine's limit is never. A request that would be late opens a new turn instead and goes before all that wait; they
    are late in any case, and begin when there is room.

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


class Controller:
    """The budgets of one server's requests.

    Args:
        steps: of its engine.
        most_running: responses that the engine runs in parallel.
    """

    def __init__(self, goal: Goal, steps: Steps, most_running: int) -> None:
        self.goal = goal
        self.points = points = sorted(goal.points, key=lambda each: each.think)
        self._frontiers = [
            (top.tokens_p95, frontier([each for each in points if each.think <= top.think])) for top in points
        ]
        self.frontier = self._frontiers[-1][1]
        self._steps, self._most_running = steps, most_running
        window = _WINDOW * goal.latency if goal.latency else _WINDOW_WITHOUT
        self._arrivals, self._given, self._drawn = _Rate(window), _Rate(window), _Rate(window)
        self._lately = _Rate(_QUICK * window)
        self._top = len(points) - 1
        self._owed = 0.0
        self._at = self._clock = 0.0
        self.turns = Turns(most_running)
        self._left = -math.inf
        self.trim = self.pace = 1.0
        self.allocation = Allocation(self.frontier[-1], self.frontier[-1], 1.0, 0.0)

    def arrive(self, now: float, choices: int = 1) -> Ticket:
        """Enter a request for `choices` responses, at `now` seconds of a clock that does not go back."""
        latency, turns = self.goal.latency, self.turns
        if not turns.running and latency and now - self._left > latency:
            self.trim = 1.0  # It was learnt from an earlier load.
        self._go_on(now)
        self._arrivals.add(now, choices)
        self._lately.add(now, choices)
        rate = self._arrivals.value(now)
        if latency is not None:
            # No more than arrive within the goal may run, or they are late: an engine may draw fewer than it says.
            rate = max(self._soon(rate, now, latency), turns.running / latency)
            step = self.pace * self._steps.at(self._most_running) / self._free(rate)
            if turns.waiting and step * (turns.waiting / self._most_running + self.points[0].tokens_p95) > latency:
                turns.next()
        found = [self._under(place, rate) for place in range(len(self._frontiers))]
        best = max(range(len(found)), key=lambda place: found[place].accuracy)
        if found[best].accuracy > found[self._top].accuracy + _BETTER:
            self._top = best
        chosen = found[self._top]
        self.allocation = chosen._replace(price=allocate(self.frontier, chosen.tokens).price)
        return turns.enter(self._clock, chosen.tokens * choices, choices)

    def _soon(self, rate: float, now: float, latency: float) -> float:
        """Expected rate of arrivals: the recent one where too many run to all have the largest budget, and more arrived
        recently than chance explains."""
        lately = self._lately.value(now)
        span = 2 * self._lately.window  # A window that forgets exponentially varies like one of twice its length.
        if (lately - rate) * span <= _CHANCE * math.sqrt(rate * span + 1):
            return rate
        fitting = self._steps.running_at(latency / self.points[-1].tokens_p95 / self.pace)
        return lately if self.turns.running >= _BUSY * min(self._most_running, fitting) else rate

    def most(self) -> int | None:
        """Tokens of the next request's thought; None where there is enough for all."""
        if not self.allocation.price:
            return None
        self._owed += self.allocation.share
        if self._owed >= 1:
            self._owed -= 1
            return self.allocation.upper.think
        return self.allocation.lower.think

    def leave(self, ticket: Ticket, now: float, seconds: float | None, tokens: Sequence[float] = ()) -> None:
        """Take out a finished request. `seconds` is its duration, None where that says nothing: its client left, or its
        budget was fixed. `tokens` are those of each of its responses."""
        self._go_on(now)
        self._left = now
        self.turns.leave(self._clock, ticket)
        self._given.add(now, ticket.tokens)
        self._drawn.add(now, sum(tokens))
        if seconds is None or self.goal.latency is None or ticket.began is None:
            return
        self._learn_pace(self._clock - ticket.began, max(tokens, default=0.0))
        if ticket.turn != self.turns.turn:
            return  # Others went before it.
        late = seconds > self.goal.latency
        # Where the trim changes nothing, nothing is learnt of it.
        if self.allocation.price if not late else self.allocation.tokens > self.frontier[0].tokens:
            low, high = _BOUNDS
            change = -_TRIM if late else _TRIM * _AIM / (1 - _AIM)
            self.trim = min(high, max(low, self.trim * math.exp(change)))

    def retract(self, ticket: Ticket, now: float, came: float) -> None:
        """Forget a request for one response that came at a time, and was refused."""
        self._go_on(now)
        self.turns.leave(self._clock, ticket)
        self._arrivals.take_back(came)
        self._lately.take_back(came)

    def _free(self, rate: float, least: float = 0.2) -> float:
        """Share of the engine's time; the rest takes what requests begin with."""
        return max(least, 1 - rate * self._steps.request)

    def _go_on(self, now: float) -> None:
        """Advance the clock of the timing: tokens that a response which runs all the time has by now."""
        step = self._steps.at(min(max(1, self.turns.running), self._most_running))
        self._clock += self._free(self._arrivals.value(now)) * (now - self._at) / step
        self._at = now

    def _learn_pace(self, timed: float, tokens: float) -> None:
        """Update the pace from a finished response of `tokens`, during which the timing's clock went on by `timed`."""
        if tokens > 0 and timed > 0:
            weight = _PACE * min(1.0, tokens / self.points[-1].tokens_p95)
            self.pace *= (timed / tokens / self.pace) ** weight

    def most_arrivals(self, point: Point) -> float:
        """Requests a second that the engine answers within the goal, if all get this budget; by its timing alone."""
        low, high = 0.0, 1e6
        for _ in range(60):
            rate = (low + high) / 2
            low, high = (rate, high) if self.tokens(point.tokens_p95, rate) >= point.tokens else (low, rate)
        return low

    def tokens(self, longest: float, rate: float, trim: float = 1.0, waiting: float = 0.0) -> float:
        """Mean tokens per response that keep the goal, for a response of `longest` tokens, `rate` requests a second and
        `waiting` tokens of queued requests."""
        most = math.inf if self.goal.tokens_per_second is None else self.goal.tokens_per_second / max(rate, 1e-9)
        if self.goal.latency is None:
            return most
        speed = self._free(rate, 0.0) / self.pace  # Of the engine, in that at which it was timed.
        running = min(self._most_running, self._steps.running_at(speed * trim * self.goal.latency / longest))
        drawn = 0.0 if running < 1 else speed * running / self._steps.at(running)
        return min(most, max(0.0, drawn - waiting / self.goal.latency) / max(rate, 1e-9))

    @property
    def in_reach(self) -> bool:
        """Whether the goal is kept with more than the floor to give."""
        return self.allocation.tokens > self.frontier[0].tokens or len(self.frontier) == 1

    def _under(self, place: int, rate: float) -> Allocation:
        """Allocation with the budgets up to that of `place`."""
        longest, vertices = self._frontiers[place]
        if self.goal.tokens_per_second is not None:
            # Tokens of responses over those of their budgets as measured.
            drawn, given = self._drawn.value(self._drawn.at), self._given.value(self._given.at)
            rate *= drawn / given if drawn and given else 1.0
        return allocate(vertices, self.tokens(longest, rate, self.trim, self.turns.waiting))
