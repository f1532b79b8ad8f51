"""Rows that stand in for those of a data set in a rehearsal: made up, in upstream's format, so that the mapping, the
prompt and the grader are those of the data set. Their truths are answers of a twin (`ANSWERS` of twins)."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.data import mapping, mapping_code
from elastic_core.data.dataset import Dataset
from elastic_core.data.registry import stand_in_file
from elastic_core.errors import UserError
from elastic_core.system.files import replacing

ROWS = 16  # Of every data set.
Row = dict[str, Any]


def write_stand_in(entry: Dataset, directory: Path) -> None:
    """Write stand-in rows of a data set below `directory`. Raises UserError when its rows' format is not known here."""
    if entry.map not in _ROWS:
        raise UserError(
            f"{entry.name}: its files are not here, and we have no rows that could stand in; run first: elastic run "
            "prepare-data, or give a mirror that holds them (data.mirror)"
        )
    file = stand_in_file(entry, directory)
    rows = [_ROWS[entry.map](entry.name, i) for i in range(ROWS)]
    with replacing(file) as temporary:
        if entry.map.fields is None:  # A document of another shape than a list of objects.
            temporary.write_text(json.dumps(_DOCUMENTS[entry.map](rows)))
        elif file.suffix == ".parquet":
            pl.DataFrame(rows).write_parquet(temporary)
        elif file.suffix == ".csv":
            pl.DataFrame(rows).write_csv(temporary)
        elif file.suffix == ".jsonl":
            temporary.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            temporary.write_text(json.dumps(rows))


def _question(name: str, i: int) -> str:
    # No two questions share a phrase, or a training row would be removed as overlap with an evaluation set.
    return f"{name} {i}: which digit?"


def _problem(name: str, i: int, **further: Any) -> Row:
    return {"problem": _question(name, i), **further}


def _number(i: int) -> int:
    return 1 + i % 2


def _printed(i: int) -> str:
    return str(3 + i % 2)


def _tests(i: int, **further: str) -> list[Row]:
    return [{"input": "", "output": f"{_printed(i)}\n", **further}]


def _plain(name: str, i: int) -> Row:
    return _problem(name, i, answer=str(_number(i)), unique_id=f"{name}/{i}")


def _livecodebench(name: str, i: int) -> Row:
    tests = json.dumps(_tests(i, testtype="stdin"))
    return {
        "question_id": f"{name}-{i}",
        "question_content": _question(name, i),
        "contest_date": "2024-08-03T00:00:00",
        "starter_code": "",
        "public_test_cases": tests,
        # Encoded as upstream does.
        "private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(tests))).decode(),
        "metadata": "{}",
    }


def _check(name: str, i: int) -> Row:
    test = f"def check(candidate):\n    assert candidate() == {_printed(i)}\n"
    prompt = f'def digit():\n    """{_question(name, i)}"""\n'
    return {"task_id": f"{name}/{i}", "prompt": prompt, "entry_point": "digit", "test": test}


def _choice(name: str, i: int) -> Row:
    wrong = {f"Incorrect Answer {n}": f"none of {n}" for n in (1, 2, 3)}
    return {"Record ID": f"{name}-{i}", "Question": _question(name, i), "Correct Answer": "the digit", **wrong}


def _conversation(name: str, i: int) -> Row:
    output = f"<think>\nthe digit is {_number(i)}\n</think>\n\\boxed{{{_number(i)}}}"
    return {"instruction": _question(name, i), "input": "", "output": output}


_TEMPLATE = {
    "template_type": "Digits",
    "knowledge_tag": ["digits"],
    "description": "Which digit is it?",
    "application_scenario": "Problems that ask for a digit.",
    "reason_flow": ["Read the problem.", "Name the digit."],
    "example_application": "The digit of one is 1.",
}
_UNITS = {"is_multiple_answer": False, "unit": None, "error": None}
_LIMITS = "\n\nTime Limit: 1000 ms\nMemory Limit: 256 MB"

_ROWS: dict[Any, Callable[[str, int], Row]] = {
    mapping.plain: _plain,
    mapping.math500: _plain,
    mapping.number: lambda name, i: _problem(name, i, answer=float(_number(i))),
    mapping.aime: lambda name, i: (
        _plain(name, i) | {"year": 1900 + i, "aime_number": 1 + i % 2, "problem_number": 1 + i % 15}
    ),
    mapping.aime25: lambda name, i: _problem(name, i, answer=_number(i), id=str(i)),
    mapping.minerva: lambda name, i: _problem(name, i, answer=[str(_number(i))], idx=i),
    mapping.olympiad: lambda name, i: _problem(name, i, answer=[f"${_number(i)}$"], id=str(i), **_UNITS),
    mapping.gpqa: _choice,
    mapping_code.primeintellect: lambda name, i: _problem(name, i, tests=json.dumps(_tests(i, type="stdin_stdout"))),
    mapping_code.taco: lambda name, i: _problem(name, i, tests=json.dumps({"inputs": [""], "outputs": [_printed(i)]})),
    mapping_code.livecodebench_train: lambda name, i: _problem(
        name, i, starter_code="", tests=json.dumps(_tests(i, testtype="stdin")), metadata="{}"
    ),
    mapping_code.livecodebench: _livecodebench,
    mapping_code.codeforces: lambda name, i: {"problem": _question(name, i) + _LIMITS, "tests": _tests(i)},
    mapping_code.humaneval_plus: _check,
    mapping_code.humaneval_plus_bare: _check,
    mapping.alpaca: _conversation,
    mapping.ids: lambda name, i: {"id": f"{1900 + i}A"},
    mapping.ratings: lambda name, i: {"rating": str(800 + 100 * i), "users": 10},
    mapping.template_library: lambda name, i: {"template_name": f"Digit {i}", **_TEMPLATE},
}
"""A row of a data set as upstream has it, by how its rows are read."""

_DOCUMENTS: dict[Any, Callable[[list[Row]], Any]] = {
    mapping.ids: lambda rows: [row["id"] for row in rows],
    mapping.ratings: lambda rows: {row["rating"]: row["users"] for row in rows},
    mapping.template_library: lambda rows: {"Digits": {"One digit": rows}},
}
