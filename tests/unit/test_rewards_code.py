"""How outputs of programs are compared, and what values programs can exchange."""

import json
import math
import tracemalloc
from collections import Counter, deque, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.rewards import grade
from elastic_core.rewards.code import grade_code, has_floats, parse_int, same_output, same_value, seccomp
from elastic_core.rewards.code import harness as wire
from elastic_core.rewards.code.seccomp import MACHINES, program_filter, system_call_filter
from elastic_core.rewards.truth import CodeTest, CodeTruth, Grade, GradeStatus

TRUTH = CodeTruth("stdin", (CodeTest("", "1"),)).encode()


@pytest.mark.parametrize(
    "response, status",
    [
        ("```python\nprint(1)\n```", GradeStatus.TRUNCATED),
        ("</think>print(1)", GradeStatus.NO_ANSWER),
        ("```python\nprint(1)\n```</think>None", GradeStatus.NO_ANSWER),
        ("</think>```python\nprint(1)", GradeStatus.NO_ANSWER),
    ],
)
def test_a_response_without_a_program_and_a_truth_that_is_none(response: str, status: GradeStatus) -> None:
    assert grade("code", response, TRUTH) == Grade(0.0, status, None)
    with pytest.raises(ValueError, match="truth"):
        grade_code("```\nx\n```", "4")


@pytest.mark.parametrize(
    "given, expected, same",
    [
        (1, 1, True), (True, 1, False), (1, True, False), (True, True, True), (0, None, False), (None, None, True),
        (1.0, 1, True), (1.0000001, 1, False), (1.0000001, 1.0, True), (1.1, 1.0, False), (1, 1.0, True),
        (True, 1.0, False), ("1", 1, False), (1, "1", False), ([1, (2,)], [1, [2]], True), ([1], [1, 2], False),
        ("ab", ["a", "b"], False), ({"a": [1]}, {"a": [1]}, True), ({"a": True}, {"a": 1}, False),
        ({"a": 1}, {"b": 1}, False), ([], {}, False), ("", None, False), (math.nan, math.nan, True),
        (1.0, math.nan, False), (math.inf, math.inf, True), (-math.inf, math.inf, False), (10**400, 1.0, False),
        (1, 10**400, False),
    ],
)  # fmt: skip
def test_returned_values(given: Any, expected: Any, same: bool) -> None:
    assert same_value(given, expected) is same


def test_integers_of_any_length_are_read() -> None:
    long = "9" * 10_000
    assert json.loads(long, parse_int=parse_int) == json.loads(long, parse_int=parse_int)
    assert json.loads(long, parse_int=parse_int) != json.loads(long[:-1] + "8", parse_int=parse_int)


CARRIED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
) | st.sets(st.integers())


@given(CARRIED)
def test_values_arrive_as_they_were(value: Any) -> None:
    arrived = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert arrived == value
    assert repr(arrived) == repr(value) or isinstance(value, set)


@given(CARRIED)
def test_values_arrive_as_json_or_not_at_all(value: Any) -> None:
    try:
        arrived = wire.as_json(json.loads(json.dumps(wire.encode(value))))
    except wire.Untransportable:
        return
    assert set(map(type, _parts(arrived))) <= {type(None), bool, int, float, str, list, dict}


def _parts(value: Any) -> list[Any]:
    inside = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return [value, *(part for item in inside for part in _parts(item))]


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value, arrives",
    [(Point(1, 2), (1, 2)), (Counter("aa"), {"a": 2}), (deque([1]), deque([1])), (GradeStatus.WRONG, "wrong")],
)
def test_a_value_of_a_subclass_arrives_as_its_base(value: Any, arrives: Any) -> None:
    arrived = wire.decode(wire.encode(value))
    assert (type(arrived), arrived) == (type(arrives), arrives)


@pytest.mark.parametrize("value", [object(), iter([]), len, int, [object()], {"x": {object()}}, bytearray(b"x")])
def test_a_value_that_cannot_be_carried_is_refused(value: Any) -> None:
    with pytest.raises(wire.Untransportable, match="of type"):
        wire.encode(value)


@pytest.mark.parametrize("content", ["nan", 1, None, True, [], [1.0], [1.0, 1.0, 1.0], [1, 1], {"nan": 1, "inf": 1}] + [
    [part, 0.0] for part in ("nan", "1", math.nan, math.inf, 10**400, True, None, [])])  # fmt: skip
def test_a_complex_number_is_two_finite_floats_or_nothing(content: Any) -> None:
    """Text in it is read by no reader of numbers: "nan" would pass for an answer, as no comparison with it holds."""
    for parts in (content, content[::-1] if isinstance(content, list) else content):
        with pytest.raises(wire.Untransportable):
            wire.decode({"complex": parts})
    assert wire.decode({"complex": [0.5, -1.0]}) == 0.5 - 1j


@pytest.mark.parametrize("kind", ["tuple", "set", "frozenset", "deque", "dict", "complex", "bytes"])
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_whatever_is_sent_arrives_as_its_kind_or_not_at_all(kind: str, content: Any) -> None:
    try:
        arrived = wire.decode({kind: content})
    except (ValueError, TypeError):  # for those the checker refuses an answer
        return
    assert type(arrived).__name__ == kind
    assert isinstance(content, str if kind == "bytes" else list)


@pytest.mark.parametrize("message", [{}, {"a": 1, "b": 2}, {"code": "x"}, {"object": 1}, [{"module": "os"}]])
def test_a_message_that_is_no_value_is_refused(message: Any) -> None:
    for read in (wire.decode, wire.as_json):
        with pytest.raises(ValueError):
            read(message)


@pytest.mark.parametrize("make", [system_call_filter, program_filter])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_filter_is_an_array_of_instructions_that_jump_within_it(machine: str, make: Callable[[str], bytes]) -> None:
    program = make(machine)
    assert len(program) % 8 == 0
    count = len(program) // 8
    for number in range(count):
        code, if_true, if_false = program[8 * number], program[8 * number + 2], program[8 * number + 3]
        assert code & 7 != 5 or number + 1 + max(if_true, if_false) < count


def test_the_filters_deny_the_same_calls_on_every_machine_but_what_only_one_has() -> None:
    only_there = "chmod chown lchown utime utimes futimesat inotify_init modify_ldt"
    assert [row[0] for row in seccomp._TABLE if row[2] == "-"] == only_there.split()
    assert all(len(set(denied)) == len(denied) for denied in seccomp._DENIED)


@pytest.mark.parametrize(
    "given, expected, same",
    [
        ("1 2\n3", "1 2 3", True), ("  1\t\r\n2\n\n", "1\n2", True), ("", "", True), ("", "1", False), ("1", "", False),
        ("1", "1 1", False), ("YES", "yes", False), ("01", "1", False), ("1.0", "1", False), ("1", "1.0", True),
        ("0.3333333", "0.333333", True), ("0.33333", "0.333333", False), ("1000000.5", "1000000.0", True),
        ("1000002.0", "1000000.0", False), ("1e3", "1000.0", True), ("999.9999999", "1e3", True),
        ("1000000000000000001", "1000000000000000000", False), ("nan", "1.5", False), ("inf", "1.5", False),
        ("1_5.0", "15.0", False), ("１", "1", False), ("1.5.2", "1.5.2", True), ("1.5.2000000001", "1.5.2", False),
        ("nan", "nan", True), ("1\u00a02", "1 2", False), ("é", "é", True), ("-0.0000001", "0.0", True),
        ("1e400", "1e400", True), ("1e400", "1.5", False), ("\udcff\udcfe1", "1", False),
    ],
)  # fmt: skip
def test_printed_tokens(given: str, expected: str, same: bool) -> None:
    assert same_output(given.encode(errors="surrogateescape"), expected) is same


def test_a_flood_of_tokens_takes_no_memory() -> None:
    flood = b"1 " * 1_000_000
    tracemalloc.start()
    assert not same_output(flood, "1 1")
    assert tracemalloc.get_traced_memory()[1] < 2 * len(flood)
    tracemalloc.stop()


@pytest.mark.parametrize(
    "given, expected, same",
    [
        ("3.0", "3", True), ("2.9999999999", "3", True), ("3e0", "3", True), ("3.1", "3", False), ("3", "3", True),
        ("1000001", "1000000", False), ("x", "3", False),  # Integers stay exact.
    ],
)  # fmt: skip
def test_where_floats_are_meant_an_integer_may_be_printed_as_one(given: str, expected: str, same: bool) -> None:
    assert same_output(given.encode(), expected, floats=True) is same


def test_a_problem_means_floats_when_it_has_one() -> None:
    for expected in ("2.5", "3\n-0.5 1", "1e-9", "[1, 2.5]", '{"a": 2.0}'):
        assert has_floats(expected), expected
    for expected in ("3", "[1, 2]", '["2.5"]', "1.5.2", "v1.5", "127.0.0.1", "yes."):
        assert not has_floats(expected), expected
