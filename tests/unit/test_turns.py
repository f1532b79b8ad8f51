"""Who waits for whom: requests in turns, as an engine takes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic_core.serving.turns import Ticket, Turns


def begun(tickets: list[Ticket]) -> list[bool]:
    return [each.began is not None for each in tickets]


def test_who_came_first_begins_first() -> None:
    turns = Turns(2)
    tickets = [turns.enter(float(now), 10.0, 1) for now in range(4)]
    assert begun(tickets) == [True, True, False, False] and (turns.running, turns.waiting) == (2, 20.0)
    turns.leave(5.0, tickets[1])
    assert tickets[2].began == 5.0 and turns.waiting == 10.0


def test_the_next_turn_goes_before_those_that_wait_and_not_before_those_that_run() -> None:
    turns = Turns(1)
    runs, waits = turns.enter(0.0, 10.0, 1), turns.enter(0.0, 10.0, 1)
    turns.next()
    new = turns.enter(1.0, 5.0, 1)
    assert turns.waiting == 5.0, "what it goes before is nothing that it waits for"
    turns.leave(2.0, runs)
    assert (new.began, waits.began) == (2.0, None)
    turns.leave(3.0, new)
    assert waits.began == 3.0


def test_who_leaves_while_it_waits_is_not_begun() -> None:
    turns = Turns(1)
    tickets = [turns.enter(0.0, 10.0, 1) for _ in range(3)]
    turns.leave(1.0, tickets[1])
    assert turns.waiting == 10.0
    turns.leave(2.0, tickets[0])
    assert (tickets[1].began, tickets[2].began) == (None, 2.0)


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "next"]), st.integers(0, 30), st.integers(1, 3))))
def test_nobody_is_lost_and_no_place_stays_empty_while_somebody_waits(events: list[tuple[str, int, int]]) -> None:
    turns, here, most = Turns(3), list[Ticket](), 3
    for now, (event, which, choices) in enumerate(events):
        if event == "enter":
            here.append(turns.enter(float(now), 10.0, choices))
        elif event == "leave" and here:
            turns.leave(float(now), here.pop(which % len(here)))
        elif event == "next":
            turns.next()
        running = [each for each in here if each.began is not None]
        waiting = [each for each in here if each.began is None]
        assert turns.running == sum(each.choices for each in running)
        assert not waiting or turns.running >= most
        assert turns.waiting == sum(each.tokens for each in waiting if each.turn == turns.turn)
