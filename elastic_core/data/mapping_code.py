"""Code data sets: a mapping function for each, and the raw columns that it needs.

A row is handled alone and its intermediate values dropped, because the tests of one may be 189 MB of text. Nothing that
upstream wrote is evaluated, unpickled or run.
"""

from __future__ import annotations

import ast
import json
import re
from datetime import date
from functools import partial
from itertools import product
from reprlib import repr as short
from typing import Any

import polars as pl

from elastic_core.data.dataset import JSON, ROW, Row, bad_rows, each_row, reads
from elastic_core.data.pickled import decode_hidden_tests
from elastic_core.rewards.truth import CodeTest, CodeTruth

LIVECODEBENCH_WINDOW = (date(2024, 8, 1), date(2025, 2, 1))
"""First contest date, and the first one after the last, as DeepCoder has it (preprocess/code/livecodebench.ipynb)."""

_CHECK_CALL = re.compile(r"^check\((.*)\)\s*$", re.MULTILINE)


@reads("problem", tests=pl.List(pl.Struct({"input": pl.String(), "output": pl.String()})))
@each_row("question", "truth")
def codeforces(row: Row) -> Row:
    """Codeforces problems of rllm; the limits are those at the end of the problem's text."""
    question = _text(row, "problem")
    milliseconds = _limit(question, "Time Limit", "ms")
    truth = CodeTruth(
        "stdin",
        _pairs(_tests(row["tests"], "tests")),
        time_limit=None if milliseconds is None else milliseconds / 1000,
        memory_limit=_limit(question, "Memory Limit", "MB"),  # Codeforces counts 2**20 bytes to an MB
    )
    return {"question": question, "truth": truth.encode()}


@reads("problem", tests=pl.Struct({"functional": pl.String()}))
@each_row("question", "truth")
def leetcode(row: Row) -> Row:
    """LeetCode problems of rllm: the test programs end by calling `check(Solution().method)`."""
    code = _text(row["tests"] or {}, "functional")
    if len(_check_calls(code)) != 1:
        raise ValueError(f"the test program calls check {len(_check_calls(code))} times; expected once")
    return {"question": _text(row, "problem"), "truth": CodeTruth("check", code=code).encode()}


_LIVECODEBENCH = "question_id question_content contest_date starter_code public_test_cases private_test_cases metadata"


@reads("contest_id", *_LIVECODEBENCH.split())
def livecodebench(raw: pl.DataFrame) -> pl.DataFrame:
    """LiveCodeBench (code_generation_lite) within `LIVECODEBENCH_WINDOW`; other rows are left out undecoded."""
    contest_date = pl.col("contest_date").str.head(10).str.to_date("%Y-%m-%d", strict=False)
    dates = raw.select(ROW, "contest_date")
    bad_rows(dates, contest_date.is_null(), "contest_date is {contest_date}; expected such as 2024-08-03T00:00:00")
    return _livecodebench_row(raw.filter(contest_date.is_between(*LIVECODEBENCH_WINDOW, closed="left")))


@each_row("id", "question", "starter_code", "cluster", "truth")
def _livecodebench_row(row: Row) -> Row:
    tests = _tests(_json(row, "public_test_cases"), "public_test_cases")
    row["private_test_cases"] = decode_hidden_tests(_taken(row, "private_test_cases"))
    tests += _tests(_json(row, "private_test_cases"), "private_test_cases")
    return {
        "id": _text(row, "question_id"),
        "question": _text(row, "question_content"),
        "starter_code": row["starter_code"] or None,
        "cluster": row["contest_id"] or None,
        "truth": _livecodebench_truth(tests, row).encode(),
    }


@reads("problem", "starter_code", "tests", metadata=JSON)
@each_row("question", "starter_code", "truth")
def livecodebench_train(row: Row) -> Row:
    """DeepCoder's part of LiveCodeBench (lcbv5), with tests in plain JSON."""
    return {
        "question": _text(row, "problem"),
        "starter_code": row["starter_code"] or None,
        "truth": _livecodebench_truth(_tests(_json(row, "tests"), "tests"), row).encode(),
    }


@reads("problem", "tests")
@each_row("question", "truth")
def primeintellect(row: Row) -> Row:
    """DeepCoder's part of PrimeIntellect's SYNTHETIC-1.

    The outputs of function calls are unwrapped when all of a problem's are lists of one element: the source wraps the
    expected value so. A function that returns a list of one element in every test looks the same.
    """
    tests = _tests(_json(row, "tests"), "tests")
    match _only(tests, "type"):
        case "stdin_stdout":
            truth = CodeTruth("stdin", _pairs(tests))
        case "function_call":
            for test, name in product(tests, CodeTest._fields):
                if name not in test:  # an expected null is another matter
                    raise ValueError(f"a test without {name}: {short(test)}")
            inputs, outputs = ([test[name] for test in tests] for name in CodeTest._fields)
            truth = _call_truth(_only(tests, "fn_name"), inputs, outputs)
        case other:
            raise ValueError(f"tests of type {short(other)}; expected stdin_stdout or function_call")
    return {"question": _text(row, "problem"), "truth": truth.encode()}


@reads("problem", "tests")
@each_row("question", "truth")
def taco(row: Row) -> Row:
    """DeepCoder's part of TACO: function calls where tests name a function, else programs that read and print.

    The outputs of function calls are unwrapped as in `primeintellect`; TACO's harness takes both forms for right.
    """
    tests = _json(row, "tests")
    if not isinstance(tests, dict):
        raise ValueError(f"tests are a {type(tests).__name__}; expected an object of inputs and outputs")
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise ValueError(f"inputs are {short(inputs)} and outputs {short(outputs)}; expected two lists")
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs; expected as many of both")
    if tests.get("fn_name"):
        truth = _call_truth(tests["fn_name"], inputs, outputs)
    else:
        truth = CodeTruth("stdin", tuple(map(CodeTest, map(_lines, inputs), map(_lines, outputs))))
    return {"question": _text(row, "problem"), "truth": truth.encode()}


_HUMANEVAL = ("task_id", "prompt", "entry_point", "test")


@reads(*_HUMANEVAL)
@each_row("id", "question", "truth")
def humaneval_plus(row: Row) -> Row:
    """HumanEval+, with one call of `check` at the end of the test program."""
    code, entry_point = _text(row, "test"), _text(row, "entry_point")
    calls = _check_calls(code)
    if calls not in ([], [entry_point]):
        raise ValueError(f"the test program calls check with {short(calls)}; expected once with {entry_point}")
    if not calls:
        code = f"{code}\ncheck({entry_point})\n"
    question = _text(row, "prompt")
    truth = CodeTruth("check", code=_helpers(question, entry_point) + code, entry_point=entry_point)
    return {"id": _text(row, "task_id"), "question": question, "truth": truth.encode()}


@reads(*_HUMANEVAL)
def humaneval_plus_bare(raw: pl.DataFrame) -> pl.DataFrame:
    """HumanEval+ without the problem with tests that call `_poly`, which DeepCoder left out
    (preprocess/code/humanevalplus.ipynb): its harness knows no helper of a prompt."""
    return humaneval_plus(raw.filter(~pl.col("test").str.contains("_poly", literal=True).fill_null(False)))


def _helpers(prompt: str, entry_point: str) -> str:
    """Functions that a prompt defines, except the one to complete, and its imports.

    Tests may use them, as those of a polynomial's root do, and a solution must not be what defines them.
    """
    try:
        statements = ast.parse(f"{prompt}\n    pass\n").body  # the function to complete may have no body
    except SyntaxError:
        return ""
    functions = [node for node in statements if isinstance(node, ast.FunctionDef) and node.name != entry_point]
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    return "".join(f"{ast.unparse(node)}\n" for node in [*imports, *functions]) if functions else ""


def _livecodebench_truth(tests: list[Row], row: Row) -> CodeTruth:
    kind = _only(tests, "testtype")
    return CodeTruth(kind, _pairs(tests), method=_func_name(tests, row) if kind == "functional" else None)


def _pairs(tests: list[Row]) -> tuple[CodeTest, ...]:
    """Tests as they are; a truth checks that they are text."""
    return tuple(CodeTest._make(test.get(name) for name in CodeTest._fields) for test in tests)


def _func_name(tests: list[Row], row: Row) -> str:
    """Name of the function to call, which the row's metadata or that of its tests give."""
    of_row = _json(row, "metadata") if row["metadata"] else None
    parts = (of_row, *(test.get("metadata") for test in tests))
    named = [part["func_name"] for part in parts if isinstance(part, dict) and part.get("func_name")]
    if not named or any(name != named[0] for name in named):
        raise ValueError(f"functional tests whose metadata has func_name {short(named)}; expected one name")
    return named[0]


def _call_truth(method: str, inputs: list[Any], outputs: list[Any]) -> CodeTruth:
    """Function calls, re-encoded as LiveCodeBench has them."""
    for number, arguments in enumerate(inputs, 1):
        if not isinstance(arguments, list):
            raise ValueError(f"input of test {number} is {short(arguments)}; expected a list of arguments")
    if all(isinstance(output, list) and len(output) == 1 for output in outputs):
        outputs = [output[0] for output in outputs]
    dump = partial(json.dumps, ensure_ascii=False)
    pairs = zip(inputs, outputs, strict=True)
    tests = (CodeTest("\n".join(map(dump, arguments)), dump(output)) for arguments, output in pairs)
    return CodeTruth("functional", tuple(tests), method=method)


def _lines(value: Any) -> str:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ValueError(f"a test has {short(value)}; expected text or a list of lines")
    return "\n".join(lines)


def _limit(problem: str, name: str, unit: str) -> int | None:
    """The limit on the last line of this name, None without one."""
    found = re.findall(rf"^{name}:(.*)$", problem, re.MULTILINE)
    if not found:
        return None
    number = re.fullmatch(rf"\s*([0-9]+) {unit}\s*", found[-1])
    if number is None:
        raise ValueError(f"{name} is {short(found[-1])}; expected a number of {unit}")
    return int(number[1])


def _check_calls(code: str) -> list[str]:
    """Arguments of the calls of `check` that are statements of the program; `check` must be defined by it."""
    if not re.search(r"^def check\(", code, re.MULTILINE):
        raise ValueError(f"a test program without a function check: {short(code)}")
    return _CHECK_CALL.findall(code)


def _tests(value: Any, name: str) -> list[Row]:
    if not isinstance(value, list) or not all(isinstance(test, dict) for test in value):
        raise ValueError(f"{name} has {short(value)}; expected a list of objects")
    return value


def _only(tests: list[Row], name: str) -> Any:
    """The value that all tests have in common."""
    if not tests:
        raise ValueError("no tests; expected at least one")
    first = tests[0].get(name)
    for test in tests:
        if test.get(name) != first:
            raise ValueError(f"tests with {name} {short(first)} and {short(test.get(name))}; expected one for all")
    return first


def _json(row: Row, name: str) -> Any:
    """Value of a column of JSON text, which leaves the row.

    Not by orjson, which rounds large integers, and needs twice the memory for large texts.
    """
    try:
        return json.loads(_taken(row, name))
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None


def _taken(row: Row, name: str) -> str:
    """Text that leaves the row, so that it is freed when its user is done with it."""
    text = _text(row, name)
    del row[name]
    return text


def _text(values: Row, name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {short(value)}; expected text")
    return value
