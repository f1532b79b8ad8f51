"""Upstream's code problems become a question and an encoded truth; a row that cannot be used says why."""

import base64
import json
import os
import pickle
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.data import mapping_code as code
from elastic_core.data.dataset import BadRow, Mapper
from elastic_core.data.problems import TEMPLATES
from elastic_core.data.registry import REGISTRY
from elastic_core.rewards.truth import CodeTest, CodeTruth
from tests.upstream import UPSTREAM


def raw(mapper: Mapper, *rows: dict[str, Any]) -> pl.DataFrame:
    """As a reader gives it: the fields alone, absent ones null, rows numbered from 1."""
    fields = mapper.fields
    assert fields is not None
    numbered = [{"row": number} | {name: row.get(name) for name in fields} for number, row in enumerate(rows, 1)]
    return pl.DataFrame(numbered, schema={"row": pl.UInt32(), **fields})


def truth(mapper: Mapper, row: dict[str, Any]) -> CodeTruth:
    return CodeTruth.decode(mapper(raw(mapper, row))["truth"].item())


def upstream(name: str) -> list[dict[str, Any]]:
    file = UPSTREAM / "agentica-project/rllm/rllm/data/test/code" / name
    if not file.exists():
        pytest.skip(f"{file} is not on this machine")
    return json.loads(file.read_bytes())


# The truth itself

WORDS = st.text()
PAIRS = st.lists(st.builds(CodeTest, WORDS, WORDS), min_size=1).map(tuple)
LIMITS = {
    "time_limit": st.none() | st.floats(0, 1e9, exclude_min=True),
    "memory_limit": st.none() | st.integers(1, 1 << 40),
}
TRUTHS = st.one_of(
    st.builds(CodeTruth, st.just("stdin"), PAIRS, **LIMITS),
    st.builds(CodeTruth, st.just("functional"), PAIRS, method=st.just("minOperations"), **LIMITS),
    st.builds(
        CodeTruth, st.just("check"), code=WORDS.filter(str.strip), entry_point=st.none() | st.just("truncate"), **LIMITS
    ),
)


@given(TRUTHS)
def test_a_truth_round_trips_as_compact_json_with_fixed_keys(truth: CodeTruth) -> None:
    assert CodeTruth.decode(truth.encode()) == truth
    assert CodeTruth("stdin", (CodeTest("1\n", "é"),), time_limit=1.5).encode() == (
        '{"kind":"stdin","tests":[["1\\n","é"]],"method":null,"code":null,"entry_point":null,'
        '"time_limit":1.5,"memory_limit":null}'
    )


PAIR = (CodeTest("1", "2"),)


@pytest.mark.parametrize(
    "values, reason",
    [
        ({"kind": "stdin"}, "tests"),
        ({"kind": "check", "code": " \n"}, "code"),
        ({"kind": "exec", "tests": PAIR}, "'exec'"),
        ({"kind": "functional", "tests": PAIR}, "method"),
        ({"kind": "functional", "tests": PAIR, "method": "f();g"}, "method"),
        ({"kind": "check", "code": "check(f)", "entry_point": "f)"}, "entry_point"),
        ({"kind": "stdin", "tests": PAIR, "method": "f"}, "method"),
        ({"kind": "check", "code": "check(f)", "tests": PAIR}, "tests"),
        ({"kind": "stdin", "tests": (*PAIR, CodeTest("1", None))}, "test 2"),  # type: ignore[arg-type]
        ({"kind": "stdin", "tests": PAIR, "time_limit": 0}, "time_limit"),
        ({"kind": "stdin", "tests": PAIR, "time_limit": float("nan")}, "time_limit"),
        ({"kind": "stdin", "tests": PAIR, "time_limit": float("inf")}, "time_limit"),
        ({"kind": "stdin", "tests": PAIR, "memory_limit": 0.5}, "memory_limit"),
        ({"kind": "stdin", "tests": PAIR, "memory_limit": True}, "memory_limit"),
    ],
)
def test_an_impossible_truth_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CodeTruth(**values)


ENCODED = json.loads(CodeTruth("stdin", PAIR).encode())


@pytest.mark.parametrize(
    "text, reason",
    [
        *((text, "encoded code truth") for text in ("", "{")),
        ("46", "keys"),
        ("[" * 100_000, "recursion"),
        (json.dumps(ENCODED | {"extra": 1}), "keys"),
        (json.dumps({"kind": "stdin", "tests": [["1", "2"]]}), "keys"),
        *((json.dumps(ENCODED | {"tests": tests}), "tests") for tests in (None, [])),
        (json.dumps(ENCODED | {"tests": [["1", "2"], ["1"]]}), "test 2"),
        (json.dumps(ENCODED | {"tests": ["12"]}), "test 1"),
        (json.dumps(ENCODED | {"tests": [["1", 2]]}), "test 1"),
        (json.dumps(ENCODED | {"kind": ["stdin"]}), "kind"),
    ],
)
def test_a_damaged_truth_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CodeTruth.decode(text)
    with pytest.raises(ValueError):
        CodeTruth("stdin", (CodeTest("\ud800", ""),)).encode()


# Codeforces and LeetCode, as rllm keeps them


def test_codeforces_of_upstream() -> None:
    rows = upstream("codeforces.json")
    clean = code.codeforces(raw(code.codeforces, *rows))
    assert clean["question"].to_list() == [row["problem"] for row in rows]
    truths = [CodeTruth.decode(text) for text in clean["truth"]]
    assert [[test._asdict() for test in truth.tests] for truth in truths] == [row["tests"] for row in rows]
    assert sum(len(truth.tests) for truth in truths) == 468
    for row, truth in zip(rows, truths, strict=True):
        assert truth.time_limit is not None
        footer = f"Time Limit: {truth.time_limit * 1000:.0f} ms\nMemory Limit: {truth.memory_limit} MB\n"
        assert row["problem"].endswith(footer)


def test_leetcode_of_upstream() -> None:
    rows = upstream("leetcode.json")
    clean = code.leetcode(raw(code.leetcode, *rows))
    assert clean["question"].to_list() == [row["problem"] for row in rows]
    expected = [CodeTruth("check", code=row["tests"]["functional"]) for row in rows]
    assert [CodeTruth.decode(text) for text in clean["truth"]] == expected
    assert len(expected) == 200


CODEFORCES = {"problem": "Add.\n\nTags:\n[]\n", "tests": [{"input": "1 2", "output": "3"}]}


@pytest.mark.parametrize(
    "footer, time_limit, memory_limit",
    [
        ("", None, None),
        ("\nTime Limit: 1500 ms\nMemory Limit: 32 MB\n", 1.5, 32),
        ("\nMemory Limit: 32 MB", None, 32),
        ("\nTime Limit: 1 ms per test is not the limit\nTime Limit: 2000 ms\n", 2.0, None),
        ("The Time Limit: 5 ms is unusual.", None, None),
    ],
)
def test_limits_are_those_of_the_last_lines(footer: str, time_limit: float | None, memory_limit: int | None) -> None:
    found = truth(code.codeforces, CODEFORCES | {"problem": "Add." + footer})
    assert (found.time_limit, found.memory_limit) == (time_limit, memory_limit)


LEETCODE = {
    "problem": "Add.",
    "tests": {"functional": "def check(candidate):\n    assert candidate(1) == 2\n\n\ncheck(Solution().add)"},
}


# LiveCodeBench


def hidden(tests: list[dict[str, Any]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def case(input: str, output: str, testtype: str = "stdin") -> dict[str, str]:
    return {"input": input, "output": output, "testtype": testtype}


LIVECODEBENCH = {
    "question_title": "Add",
    "question_content": "  Add two numbers.\n",
    "platform": "atcoder",
    "question_id": "abc365_a",
    "contest_id": "abc365",
    "contest_date": "2024-08-03T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([case("1 2\n", "3\n")]),
    "private_test_cases": hidden([case("3 4\n", "7\n"), case("", "é")]),
    "metadata": "{}",
}
FUNCTIONAL = LIVECODEBENCH | {
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
    "public_test_cases": json.dumps([case("1\n2", "3", "functional")]),
    "private_test_cases": json.dumps([case("3\n4", "7", "functional")]),
    "metadata": '{"func_name": "add"}',
}


def test_livecodebench_reads_programs_and_functions() -> None:
    rows = code.livecodebench(raw(code.livecodebench, LIVECODEBENCH, FUNCTIONAL))
    program, function = rows.to_dicts()
    assert CodeTruth.decode(program.pop("truth")) == CodeTruth(
        "stdin", (CodeTest("1 2\n", "3\n"), CodeTest("3 4\n", "7\n"), CodeTest("", "é"))
    )
    expected = {"row": 1, "id": "abc365_a", "question": "  Add two numbers.\n", "starter_code": None}
    assert program == expected | {"cluster": "abc365"}
    expected = CodeTruth("functional", (CodeTest("1\n2", "3"), CodeTest("3\n4", "7")), method="add")
    assert CodeTruth.decode(function["truth"]) == expected
    assert function["starter_code"] == FUNCTIONAL["starter_code"]


@pytest.mark.parametrize(
    "date, kept",
    [
        ("2024-07-31T23:59:59", False),
        ("2024-08-01T00:00:00", True),
        ("2025-01-31T23:59:59", True),
        ("2025-02-01T00:00:00", False),
    ],
)
def test_only_contests_of_the_window_are_kept_and_decoded(date: str, kept: bool) -> None:
    row = LIVECODEBENCH | {"contest_date": date}
    assert code.livecodebench(raw(code.livecodebench, row)).height == kept
    broken = raw(code.livecodebench, row | {"private_test_cases": "broken"})
    if kept:
        with pytest.raises(BadRow, match="base64"):
            code.livecodebench(broken)
    else:
        assert code.livecodebench(broken).height == 0


TRAIN = {"problem": "Add.", "starter_code": None, "tests": json.dumps([case("1", "2")]), "metadata": None}
CALLS = json.dumps([case("1", "2", "functional") | {"metadata": {"func_name": "add"}}])
PLAIN_CALLS = json.dumps([case("1", "2", "functional") | {"metadata": None}])


@pytest.mark.parametrize(
    "tests, metadata",
    [
        (CALLS, None),
        (CALLS, '{"func_name":null}'),
        (CALLS, '{"func_name":"add"}'),
        (PLAIN_CALLS, '{"func_name":"add"}'),
    ],
)
def test_lcbv5_names_its_function_by_row_or_by_test(tests: str, metadata: str | None) -> None:
    expected = CodeTruth("functional", (CodeTest("1", "2"),), method="add")
    assert truth(code.livecodebench_train, TRAIN | {"tests": tests, "metadata": metadata}) == expected


def test_lcbv5_reads_programs() -> None:
    clean = code.livecodebench_train(raw(code.livecodebench_train, TRAIN, TRAIN | {"starter_code": "x = 1"}))
    assert CodeTruth.decode(clean["truth"][0]) == CodeTruth("stdin", (CodeTest("1", "2"),))
    assert clean["question"].to_list() == ["Add.", "Add."]
    assert clean["starter_code"].to_list() == [None, "x = 1"]


# PrimeIntellect and TACO


def problem(tests: object) -> dict[str, Any]:
    return {"problem": "Add.", "tests": json.dumps(tests)}


def call(input: object, output: object, **change: object) -> dict[str, object]:
    return {"type": "function_call", "fn_name": "add", "input": input, "output": output} | change


BIG = 10**30 + 1

# (arguments, outputs as upstream has them, encoded)
CALLED: list[tuple[list[Any], list[Any], list[tuple[str, str]]]] = [
    ([[1, "a\nb"], [[2], "ü"]], [[3], [4]], [('1\n"a\\nb"', "3"), ('[2]\n"ü"', "4")]),
    ([[1], [2]], [[3], 4], [("1", "[3]"), ("2", "4")]),
    ([[1], [2]], [[3], [4, 5]], [("1", "[3]"), ("2", "[4, 5]")]),
    ([[1], [2]], [[[3]], [None]], [("1", "[3]"), ("2", "null")]),
    ([[]], [True], [("", "true")]),
    ([[BIG, {"a": 0.1}]], [float("inf")], [(f'{BIG}\n{{"a": 0.1}}', "Infinity")]),
]


@pytest.mark.parametrize("inputs, outputs, expected", CALLED)
def test_calls_are_reencoded_and_outputs_unwrapped_when_all_are(
    inputs: list[Any], outputs: list[Any], expected: list[tuple[str, str]]
) -> None:
    reencoded = CodeTruth("functional", tuple(CodeTest(*pair) for pair in expected), method="add")
    assert truth(code.primeintellect, problem(list(map(call, inputs, outputs)))) == reencoded
    assert truth(code.taco, problem({"fn_name": "add", "inputs": inputs, "outputs": outputs})) == reencoded


def test_primeintellect_and_taco_read_programs() -> None:
    tests = [{"type": "stdin_stdout", "fn_name": None, "input": "1\n", "output": "[2]"}]
    assert truth(code.primeintellect, problem(tests)) == CodeTruth("stdin", (CodeTest("1\n", "[2]"),))
    both = {"inputs": ["1\n2\n", ["3", "4"]], "outputs": [["3"], "7\n"], "fn_name": None}
    expected = CodeTruth("stdin", (CodeTest("1\n2\n", "3"), CodeTest("3\n4", "7\n")))
    assert truth(code.taco, problem(both)) == expected


STDIN = {"type": "stdin_stdout", "input": "1", "output": "2"}


# HumanEval+

CHECK = (
    "\n\nimport numpy as np\n\ndef check(candidate):\n    for i in inputs:\n        assertion(candidate(*i), 1, 0)\n"
)
HUMANEVAL = {
    "task_id": "HumanEval/2",
    "prompt": "\n\ndef truncate(number: float) -> float:\n",
    "canonical_solution": "    return number % 1.0\n",
    "entry_point": "truncate",
    "test": CHECK,
}


@pytest.mark.parametrize("end", ["", "\ncheck(truncate)", "\ncheck(truncate)\n\n"])
def test_humaneval_plus_calls_check_exactly_once_at_the_end(end: str) -> None:
    clean = code.humaneval_plus(raw(code.humaneval_plus, HUMANEVAL | {"test": CHECK + end})).row(0, named=True)
    found = CodeTruth.decode(clean["truth"])
    assert (found.kind, found.entry_point) == ("check", "truncate")
    assert found.code is not None
    assert found.code.count("check(truncate)") == 1
    assert found.code.startswith(CHECK)
    assert found.code.rstrip().endswith("\ncheck(truncate)")
    assert (clean["id"], clean["question"]) == ("HumanEval/2", HUMANEVAL["prompt"])


def test_what_a_humaneval_prompt_defines_beside_its_function_is_the_tests_own() -> None:
    prompt = "import math\n\ndef poly(xs, x):\n    return math.fsum(xs) * x\n\ndef truncate(number):\n    return 1\n"
    clean = code.humaneval_plus(raw(code.humaneval_plus, HUMANEVAL | {"prompt": prompt})).row(0, named=True)
    found = CodeTruth.decode(clean["truth"]).code
    assert found is not None
    assert found.startswith("import math\ndef poly(xs, x):\n    return math.fsum(xs) * x\n" + CHECK)
    assert "def truncate" not in found


def test_the_bare_humaneval_plus_is_the_same_without_the_problem_that_its_harness_cannot_run() -> None:
    rows = raw(code.humaneval_plus_bare, HUMANEVAL, HUMANEVAL | {"task_id": "HumanEval/32", "test": f"_poly(){CHECK}"})
    assert code.humaneval_plus_bare(rows).rows() == code.humaneval_plus(rows).head(1).rows()
    assert TEMPLATES[REGISTRY["humaneval-plus-bare"].prompt or ""].text == "{question}"


GOOD: dict[Callable[[pl.DataFrame], pl.DataFrame], dict[str, Any]] = {
    code.codeforces: CODEFORCES,
    code.leetcode: LEETCODE,
    code.livecodebench: LIVECODEBENCH,
    code.livecodebench_train: TRAIN,
    code.primeintellect: problem([STDIN]),
    code.taco: problem({"inputs": ["1"], "outputs": ["2"]}),
    code.humaneval_plus: HUMANEVAL,
    code.humaneval_plus_bare: HUMANEVAL,
}

UNUSABLE: dict[Mapper, list[tuple[dict[str, Any], str]]] = {
    code.codeforces: [
        ({"problem": "Time Limit: 2 hours"}, "Time Limit .* 2 hours"),
        ({"problem": "Memory Limit: 256 GB"}, "Memory Limit .* 256 GB"),
        ({"problem": "Time Limit: 0 ms"}, "time_limit"),
        ({"problem": " \n"}, "problem"),
        ({"tests": []}, "tests"),
        ({"tests": [None]}, "objects"),
        ({"tests": [{"input": "1", "output": None}]}, "output"),
    ],
    code.leetcode: [
        ({"tests": {"functional": "def check(candidate):\n    pass\n"}}, "0 times"),
        ({"tests": {"functional": "check(Solution().add)"}}, "check"),
        ({"tests": {"functional": "def check(candidate):\n    check(Solution().add)"}}, "0 times"),
        ({"tests": {"functional": "def check(c):\n    pass\ncheck(a)\ncheck(b)"}}, "2 times"),
    ],
    code.livecodebench: [
        ({"contest_date": "soon"}, "contest_date"),
        ({"question_content": ""}, "question_content"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "tests"),
        ({"public_test_cases": "{"}, "public_test_cases"),
        ({"public_test_cases": '{"a": 1}'}, "public_test_cases"),
        ({"private_test_cases": json.dumps([case("1", "2", "functional")])}, "'stdin' and 'functional'"),
        ({"private_test_cases": hidden([{"input": "1", "testtype": "stdin"}])}, "output"),
        ({"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(["a"]))).decode()}, "opcodes .*EMPTY_LIST"),
        ({"private_test_cases": "[" * 100_000}, "recursion"),
        ({"public_test_cases": json.dumps([case("1", "2", "manual")]), "private_test_cases": "[]"}, "'manual'"),
        (FUNCTIONAL | {"metadata": "{}"}, "func_name"),
        (FUNCTIONAL | {"metadata": None}, "func_name"),
        (FUNCTIONAL | {"metadata": '{"func_name": "a.b"}'}, "'a.b'"),
    ],
    code.livecodebench_train: [
        ({"tests": "[]"}, "tests"),
        ({"tests": PLAIN_CALLS}, "name"),
        ({"tests": CALLS, "metadata": '{"func_name":"sub"}'}, r"\['sub', 'add'\]"),
        ({"tests": CALLS, "metadata": "{"}, "metadata"),
    ],
    code.primeintellect: [
        (problem([]), "tests"),
        (problem({}), "objects"),
        (problem([STDIN, call([1], 2)]), "'stdin_stdout' and 'function_call'"),
        (problem([STDIN | {"type": "other"}]), "'other'"),
        (problem([STDIN | {"output": ["2"]}]), "output of test 1"),
        (problem([call("1", 2)]), "test 1 is '1'"),
        (problem([call([1], 2, fn_name=None)]), "method"),
        (problem([call([1], 2), call([1], 2, fn_name="sub")]), "'add' and 'sub'"),
        (problem([{"type": "function_call", "fn_name": "add", "input": [1]}]), "output"),
        (problem([STDIN | {"input": "\ud800"}]), "cannot be written"),
        ({"tests": "[" * 100_000}, "recursion"),
    ],
    code.taco: [
        (problem([]), "list"),
        (problem({"inputs": [], "outputs": []}), "tests"),
        (problem({"inputs": ["1"]}), "outputs"),
        (problem({"inputs": "1", "outputs": ["1"]}), "inputs"),
        (problem({"inputs": ["1", "2"], "outputs": ["1"]}), "2 inputs and 1 outputs"),
        (problem({"inputs": [["1", 2]], "outputs": ["1"]}), r"\['1', 2\]"),
        (problem({"inputs": ["1"], "outputs": ["1"], "fn_name": "f"}), "arguments"),
    ],
    code.humaneval_plus: [
        ({"test": CHECK + "\ncheck(other)"}, "other.*truncate"),
        ({"test": CHECK + "\ncheck(truncate)\ncheck(truncate)"}, "once"),
        ({"test": "assert truncate(1) == 0"}, "check"),
        ({"entry_point": "a;b"}, "'a;b'"),
    ],
}


@pytest.mark.parametrize(
    "mapper, change, reason", [(mapper, *case) for mapper, cases in UNUSABLE.items() for case in cases]
)
def test_an_unusable_row_is_refused_with_its_number(mapper: Mapper, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason) as info:
        mapper(raw(mapper, GOOD[mapper], GOOD[mapper] | change))
    assert info.value.row == 2


def test_a_row_of_large_tests_is_held_few_times_over() -> None:
    tests = [case(os.urandom(1 << 15).hex() + "\n", "1") for _ in range(96)]
    rows = raw(code.livecodebench, LIVECODEBENCH | {"private_test_cases": hidden(tests)})
    tracemalloc.start()
    try:
        clean = code.livecodebench(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = len(clean["truth"].item())
    assert size > 6 << 20
    assert peak < 4 * size


# What every mapping does


@pytest.mark.parametrize("mapper", GOOD, ids=lambda mapper: mapper.clean.__name__)
def test_every_mapping_keeps_rows_numbers_and_columns_and_refuses_a_row_that_lacks_a_needed_field(
    mapper: Mapper,
) -> None:
    good = GOOD[mapper]
    rows = raw(mapper, good, good).with_columns(row=pl.Series([7, 9], dtype=pl.UInt32))
    assert mapper(rows)["row"].to_list() == [7, 9]
    assert mapper(raw(mapper)).is_empty() and mapper(raw(mapper)).schema == mapper(rows).schema
    for field in set(mapper.fields or ()) - {"starter_code", "metadata", "contest_id"}:
        with pytest.raises(BadRow, match=f"{field}|no tests|functional is None") as info:
            mapper(raw(mapper, good, good | {field: None}))
        assert info.value.row == 2
