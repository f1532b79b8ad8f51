"""Programs that are right pass and their wrong variants do not, on real problems and on made ones."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import pytest

from elastic_core.data import mapping_code as mapping
from elastic_core.rewards import code as runners
from elastic_core.rewards.code import grade_code
from elastic_core.rewards.truth import CodeTest, CodeTruth, Grade, GradeStatus
from tests.upstream import UPSTREAM, needs_upstream

CORRECT, WRONG, RUNTIME_ERROR = GradeStatus.CORRECT, GradeStatus.WRONG, GradeStatus.RUNTIME_ERROR
FOLDER = UPSTREAM / "agentica-project/rllm/rllm/data/test/code"


def grade(program: str, truth: CodeTruth) -> GradeStatus:
    return graded(program, truth).status


def graded(program: str, truth: CodeTruth) -> Grade:
    return grade_code(f"Let me think.</think>Here it is:\n```python\n{dedent(program)}\n```\nDone.", truth.encode())


def stdin(*tests: tuple[str, str]) -> CodeTruth:
    return CodeTruth("stdin", tuple(CodeTest(*test) for test in tests))


def functional(method: str, *tests: tuple[str, str]) -> CodeTruth:
    return CodeTruth("functional", tuple(CodeTest(*test) for test in tests), method=method)


# Index in codeforces.json, a right program, and what of it makes it wrong when replaced.
CODEFORCES = {
    0: ("for _ in range(int(input())):\n    print(*sorted(input().split()))", "sorted", "reversed"),
    2: (
        """
        for _ in range(int(input())):
            a, b, c, d = map(int, input().split())
            a, b = sorted((a, b))
            print("YES" if (a < c < b) != (a < d < b) else "NO")
        """,
        "!=",
        "==",
    ),
    327: (
        """
        n = int(input())
        games = [tuple(map(int, input().split())) for _ in range(n)]
        best = 0
        for size in range(n + 1):
            for chosen in combinations(games, size):
                best = max(best, prod(p / 100 for p, _ in chosen) * sum(w for _, w in chosen))
        print(best)
        """,
        "p / 100",
        "p / 100.001",
    ),
}


@needs_upstream
@pytest.mark.parametrize("index", CODEFORCES)
def test_codeforces(index: int) -> None:
    problem = json.loads((FOLDER / "codeforces.json").read_text())[index]
    tests = tuple(CodeTest(test["input"], test["output"]) for test in problem["tests"])
    program, right, wrong = CODEFORCES[index]
    assert right in program
    truth = CodeTruth("stdin", tests)
    assert grade(program, truth) is CORRECT
    assert grade(program.replace(right, wrong), truth) is WRONG


LEETCODE_NEEDS = {126: "sortedcontainers"}
"""References that need a package which the sandbox does not have, by index."""


@needs_upstream
@pytest.mark.parametrize("fourth", [pytest.param(i, marks=pytest.mark.slow if i else ()) for i in range(4)])
def test_the_references_of_leetcode_pass_and_fail_each_others_tests(fourth: int) -> None:
    raw = json.loads((FOLDER / "leetcode.json").read_text())
    assert len(raw) == 200
    chosen = range(fourth, len(raw), 4)
    truths = [CodeTruth("check", code=raw[i]["tests"]["functional"]) for i in chosen]
    # Not calling its own method, a reference answers nothing; every test program must notice.
    useless = "class Solution:\n    def __getattr__(self, name):\n        return lambda *_, **__: 'useless'\n"
    with ThreadPoolExecutor(2) as pool:
        right = dict(zip(chosen, pool.map(grade, (raw[i]["solutions"] for i in chosen), truths), strict=True))
        wrong = list(pool.map(grade, [useless] * 10, truths))
    failed = {index: status for index, status in right.items() if status is not CORRECT}
    assert failed == dict.fromkeys(set(LEETCODE_NEEDS) & set(chosen), RUNTIME_ERROR)
    assert set(wrong) <= {WRONG, RUNTIME_ERROR}
    assert wrong.count(WRONG) >= 8


LONG = "1" + "0" * 5000
ADD = functional("add", ("1\n2", "3"), ("[1, 2]\n[3]", "[1, 2, 3]"))


@pytest.mark.parametrize(
    "program, truth, status",
    [
        ("class Solution:\n    def add(self, a: List[int], b): return a + b", ADD, CORRECT),
        ("def add(a, b): return a + b", ADD, CORRECT),
        ("add = lambda a, b: a + b", ADD, CORRECT),
        ("from operator import add", ADD, CORRECT),
        ("class Solution:\n    def other(self): pass\ndef add(a, b): return a + b", ADD, CORRECT),
        ("def add(a, b): return a - b if a == 1 else a + b", ADD, WRONG),
        ("def add(a, b): return a + b if a == 1 else []", ADD, WRONG),
        ("def add(a): return a", ADD, RUNTIME_ERROR),
        ("x = 1", ADD, RUNTIME_ERROR),  # though the prelude has operator.add
        ("def add(a, b): return a +", ADD, RUNTIME_ERROR),
        ("def add(a, b): return {a}", ADD, RUNTIME_ERROR),
        ("def f(): return 7", functional("f", ("", "7")), CORRECT),
        ("def f(a): a.append(1); return a", functional("f", ("[]", "[1]"), ("[]", "[1]")), CORRECT),
        ("def f(a): return tuple(a)", functional("f", ("[1]", "[1]")), CORRECT),
        ("def f(a): return deque(a)", functional("f", ("[1]", "[1]")), CORRECT),
        ("def f(a): return Counter(a)", functional("f", ('"aab"', '{"a": 2, "b": 1}')), CORRECT),
        ("def f(a): return a == 1", functional("f", ("1", "1")), WRONG),
        ("def f(a): return a + 1e-9", functional("f", ("0.5", "0.5")), CORRECT),
        ("def f(a): return a + 1e-3", functional("f", ("0.5", "0.5")), WRONG),
        ("def f(a): return a + 1e-9", functional("f", ("1", "1")), WRONG),
        ("def f(a): return a / 2 + 1e-9", functional("f", ("6", "3"), ("5", "2.5")), CORRECT),
        ("def f(a): return a // 2 + 1", functional("f", ("6", "3"), ("5", "2.5")), WRONG),
        ("def f(a): return a", functional("f", ('"\\u2028x"', '"\\u2028x"')), CORRECT),
        ("def f(a): return a", functional("f", (LONG, LONG)), CORRECT),
        ("def f(a): return a + 1", functional("f", (LONG, LONG)), WRONG),
        ("import numpy as np\ndef f(a): return np.sum(a)", functional("f", ("[1, 2]", "3")), CORRECT),
        ("if __name__ == '__main__': print(input())\ndef f(a): return a", functional("f", ("1", "1")), CORRECT),
    ],
)
def test_functions(program: str, truth: CodeTruth, status: GradeStatus) -> None:
    assert grade(program, truth) is status


def test_a_test_that_is_not_json_is_an_error_not_a_grade() -> None:
    program = "def f(a): return a"
    with pytest.raises(ValueError, match="not JSON"):
        grade(program, functional("f", ("1", "one")))
    with pytest.raises(ValueError, match="not JSON"):
        grade(program, functional("f", ("one", "1")))


DOUBLE = stdin(("2\n", "4"), ("3\n", "6"))


@pytest.mark.parametrize(
    "program, truth, status",
    [
        ("print(2 * int(input()))", DOUBLE, CORRECT),
        ("def main():\n    print(2 * int(input()))\nif __name__ == '__main__':\n    main()", DOUBLE, CORRECT),
        ("import sys\nsys.stdout.write(str(2 * int(sys.stdin.readline())))", DOUBLE, CORRECT),
        ("import os\nprint(2 * int(os.read(0, os.fstat(0).st_size)))", DOUBLE, CORRECT),
        ("print(2 * int(open(0).read()))\nexit()", DOUBLE, CORRECT),
        ("print(2 * int(stdin.read()))", DOUBLE, CORRECT),
        ("import threading\nthreading.stack_size(1 << 27)\ndef main(): print(2 * int(input()))\n"
         "threading.Thread(target=main).start()", DOUBLE, CORRECT),
        ("import numpy as np\nprint(2 * np.fromstring(input(), int, sep=' ')[0])", DOUBLE, CORRECT),
        ("print(4)", DOUBLE, WRONG),
        ("print(2 * int(input()), 'x')", DOUBLE, WRONG),
        ("pass", DOUBLE, WRONG),
        ("print(2 * int(input()))\nraise ValueError", DOUBLE, RUNTIME_ERROR),
        ("print(2 * int(input()))\nexit(3)", DOUBLE, RUNTIME_ERROR),
        ("print(2 * int(input())) +", DOUBLE, RUNTIME_ERROR),
        ("def depth(n): return n and 1 + depth(n - 1)\nprint(depth(20000))", stdin(("", "20000")), CORRECT),
        ("print(input())", stdin(("naïve ✓", "naïve ✓")), CORRECT),
        ("print(len(input()))", stdin(("x" * 20_000_000, "20000000")), CORRECT),
        ("print(1 / 3)", stdin(("", "0.333333")), CORRECT),
        ("print(3.0)", stdin(("", "3")), WRONG),
        ("print(int(input()) / 2)", stdin(("6", "3"), ("5", "2.5")), CORRECT),  # floats are meant
        ("print(int(input()) / 2 + 1e-3)", stdin(("6", "3"), ("5", "2.5")), WRONG),
        ("print(int(input()) // 2 + 0.5)", stdin(("6", "3"), ("5", "2.5")), WRONG),
    ],
)  # fmt: skip
def test_programs(program: str, truth: CodeTruth, status: GradeStatus) -> None:
    assert grade(program, truth) is status


THREADS = """
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import ThreadPool
def square(x): return x * x
def work(number, queue, total, seen):
    with total.get_lock():
        total.value += number
    queue.put(number)
    seen[number] = True
def main():
    n = int(input())
    with mp.Pool(mp.cpu_count()) as pool, ProcessPoolExecutor(64) as executor, mp.Manager() as manager:
        assert pool.map(square, range(n)) == list(executor.map(square, range(n)))
        assert mp.get_context("spawn").Pool(64).starmap(pow, [(2, n)]) == ThreadPool().map(lambda x: 2**x, [n])
        queue, total, seen = mp.Queue(), mp.Value("i", 0), manager.dict()
        workers = [mp.Process(target=work, args=(i, queue, total, seen), daemon=True) for i in range(n)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(sorted(queue.get() for _ in workers), total.value, len(seen), [worker.exitcode for worker in workers])
if __name__ == "__main__":
    main()
"""


def test_processes_of_the_standard_library_are_threads() -> None:
    assert grade(THREADS, stdin(("3", "[0, 1, 2] 3 3 [0, 0, 0]"), ("1", "[0] 0 1 [0]"))) is CORRECT
    program = "from multiprocessing import Pool\ndef f(x):\n    with Pool() as pool: return pool.map(abs, x)"
    assert grade(program, functional("f", ("[-1, 2]", "[1, 2]"))) is CORRECT
    assert grade(program, check("assert f([-1, 2]) == [1, 2]", "f")) is CORRECT


@pytest.mark.parametrize(
    "read",
    [
        "open('/dev/stdin').read()",
        "io.open('/dev/fd/0', 'rb').read()",
        "open(b'/dev/stdin').read()",
        "os.read(os.open('/dev/stdin', os.O_RDONLY), 9)",
        "pathlib.Path('/proc/self/fd/0').read_text()",
        "next(fileinput.input('/dev/stdin'))",
        "np.loadtxt('/dev/stdin', int)",
        "np.fromfile('/dev/stdin', int, sep=' ')[0]",
    ],
)
def test_a_program_may_open_its_input_and_output_by_name(read: str) -> None:
    program = (
        "import fileinput, io, os, pathlib\nimport numpy as np\nopen('/dev/stdout', 'w').write(f'{2 * int(READ)}')"
    )
    assert grade(program.replace("READ", read.replace("'", '"')), DOUBLE) is CORRECT


HUMANEVAL = """
import numpy as np

def is_floats(x) -> bool:
    if isinstance(x, float):
        return True
    if isinstance(x, (list, tuple)):
        return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray):
        return x.dtype == np.float64 or x.dtype == np.float32
    return False

def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert exact_match

def check(candidate):
    inputs = [[[1.0, 2.0]], [[3.0]], [[-1.5, 0.25, 7]]]
    results = [1.5, 3.0, 5.75 / 3]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)

check(mean)
"""


def check(code: str, entry_point: str | None = None) -> CodeTruth:
    return CodeTruth("check", code=dedent(code), entry_point=entry_point)


VALUES = [None, True, 3, -(10**30), 2.5, 1j, "é\u2028\ud800", b"\0\xff", [1, [2]], (1, (2,)), {1, 2}, frozenset({3}),
          {"a": [1], 2: (3,)}, float("inf"), [(1, "x")], {(1, 2): {3}}]  # fmt: skip
CARRIED = f"inf = float('inf')\nfor value in {VALUES!r}:\n    got = f(value)\n    assert got == value\n" + (
    "    assert type(got) is type(value)\n    assert f(x=value) == value\n"
)
RAISES = """
def test():
    for error in (ValueError, KeyError, ZeroDivisionError):
        try:
            f(error.__name__)
        except error:
            continue
        assert False
test()
"""
STACK = "stack = Stack(2)\nstack.push(5)\nstack.push(6)\nassert stack.items == [5, 6]\nassert stack.pop() == 6\n"
STACK_CLASS = """
class Stack:
    def __init__(self, limit): self.items = []
    def push(self, item): self.items.append(item)
    def pop(self): return self.items.pop()
"""


@pytest.mark.parametrize(
    "program, truth, status",
    [
        ("def mean(x): return sum(x) / len(x)", check(HUMANEVAL, "mean"), CORRECT),
        ("def mean(x): return sum(x) / len(x) + 1e-8", check(HUMANEVAL, "mean"), CORRECT),
        ("import numpy as np\ndef mean(x): return np.mean(x)", check(HUMANEVAL, "mean"), CORRECT),
        ("def mean(x): return sum(x) / 2", check(HUMANEVAL, "mean"), WRONG),
        ("def average(x): return sum(x) / len(x)", check(HUMANEVAL, "mean"), RUNTIME_ERROR),  # nor statistics.mean
        ("def f(x): return x", check(CARRIED), CORRECT),
        ("def f(x): return list(x) if isinstance(x, tuple) else x", check(CARRIED), WRONG),
        ("def f(x): raise eval(x)(x)", check(RAISES), CORRECT),
        ("def f(x): return x", check(RAISES), WRONG),
        ("def f(x): raise TypeError", check(RAISES), RUNTIME_ERROR),
        (STACK_CLASS, check(STACK), CORRECT),
        (STACK_CLASS.replace("self.items.pop()", "self.items.pop(0)"), check(STACK), WRONG),
        ("def f(x): return object()", check("assert f(1) != 3"), RUNTIME_ERROR),
        ("def f(x): return lambda: 1", check("assert f(1)"), RUNTIME_ERROR),
        ("def f(x): return (i for i in x)", check("assert f([1]) is not None"), RUNTIME_ERROR),
        ("class f:\n    def __init__(self, x): pass", check("assert f(1)"), RUNTIME_ERROR),
        ("def f(x): return 3", check("import sys\nif f(1) == 3: sys.exit(0)"), RUNTIME_ERROR),
        ("def isinstance(*_): return True\ndef f(x): return x", check("assert isinstance(f(1), str)"), WRONG),
        ("def f(x): return x\ndef np(*_): return True", check("import numpy as np\nassert np.isclose(f(1), 2)"), WRONG),
    ],
)
def test_test_programs(program: str, truth: CodeTruth, status: GradeStatus) -> None:
    assert grade(program, truth) is status


SENDS = """
import os, struct
def f(x):
    for channel in range(3, 64):
        try:
            os.write(channel, struct.pack("!I", len(ANSWER)) + ANSWER)
        except OSError:
            pass
    os._exit(0)
"""


@pytest.mark.parametrize(
    "answer",
    ['{"value": {"complex": ["nan"]}}', '{"value": {"complex": "nan"}}', '{"value": {"complex": ["inf"]}}',
     '{"value": {"complex": [1e999, 0.0]}}', '{"value": {"complex": [NaN, 0.0]}}', '{"value": {"complex": [1, 1, 1]}}',
     '{"value": NaN}', '{"object": 0}', '{"object": "0"}', '{"none": ["ValueError", ""]}'],
)  # fmt: skip
def test_no_message_sent_in_place_of_an_answer_passes(answer: str) -> None:
    program = SENDS.replace("ANSWER", repr(answer.encode()))
    for test in (
        "assert abs(f(1) - 2) < 1e-6",
        "if abs(f(1) - 2) > 1e-6:\n    raise AssertionError",
        "assert not abs(f(1) - 2) > 1e-6",
        "assert not (f(1) < 2 or f(1) > 2)",
        "try:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    assert f(1) == 2",
    ):
        assert grade(program, check(test, "f")) in (WRONG, RUNTIME_ERROR)


STOPS = "def f(x): raise StopIteration"
NAN, INFINITE = "def f(x): return float('nan')", "def f(x): return float('inf')"
NINE = "def f(x): return 9\n"


@pytest.mark.parametrize(
    "program, truth, status",
    [
        # StopIteration would end a loop over calls before it has tested anything.
        (STOPS, check("assert all(map(lambda t: f(t[0]) == t[1], [(1, 2), (2, 3)]))"), RUNTIME_ERROR),
        (STOPS, check("for got, want in zip(map(f, [1, 2]), [2, 3]):\n    assert got == want"), RUNTIME_ERROR),
        (STOPS, check("assert sum(map(lambda t: f(t) != t + 1, [1, 2])) == 0"), RUNTIME_ERROR),
        (STOPS, check("try:\n    f(1)\nexcept RuntimeError:\n    pass\nelse:\n    assert False"), CORRECT),
        # No comparison of NaN holds, so that "not larger than the tolerance" does not say "close".
        (NAN, check("if abs(f(1) - 2) > 1e-6:\n    raise AssertionError"), WRONG),
        (NAN, check("assert not abs(f(1) - 2) > 1e-6"), WRONG),
        (NAN, check("try:\n    difference = abs(f(1) - 2)\nexcept BaseException:\n    difference = 0"), WRONG),
        ("def f(x): return [[1.5, {'a': float('nan')}]]", check("assert f(1)[0][0] == 1.5"), WRONG),
        (INFINITE, check("if abs(f(1) - 2) / max(abs(f(1)), 2) > 1e-6:\n    raise AssertionError"), WRONG),
        (NAN, check("import math\nassert math.isnan(f(1))"), CORRECT),
        (NAN, check("assert f(1) != f(1), 'NaN is expected'"), CORRECT),
        (INFINITE, check("assert f(1) == float('inf')"), CORRECT),
        (INFINITE, check("import math\nassert math.isnan(f(1))"), WRONG),
        # What the test program relies on is its own or the prelude's, never the solution's.
        (NINE + "def Counter(x): return 0", check("assert Counter([f(1)]) == Counter([2])", "f"), WRONG),
        (NINE + "def Counter(x): return 0", check("assert Counter([f(1)]) == Counter([2])"), WRONG),
        (NINE + "def deepcopy(x): return 0", check("assert deepcopy(f(1)) == 2", "f"), WRONG),
        (NINE + "def isclose(a, b): return True", check("from math import *\nassert isclose(f(1), 2)", "f"), WRONG),
        (NINE + "class math:\n    isclose = lambda *_: True", check("assert math.isclose(f(1), 2)", "f"), WRONG),
        ("def f(x): return [x]", check("assert Counter(f(1)) == Counter([1])", "f"), CORRECT),
        ("def median(x): return 7", check("assert median([1]) == 7"), CORRECT),
        # An error that ends the check does so even where the test program catches everything.
        ("def f(x): return object()", check("try:\n    f(1)\nexcept:\n    pass"), RUNTIME_ERROR),
        ("class f:\n    def __init__(self, x): pass", check("assert str(f(1)) and repr(f(1))"), RUNTIME_ERROR),
    ],
)
def test_no_solution_passes_by_what_the_test_program_did_not_foresee(
    program: str, truth: CodeTruth, status: GradeStatus
) -> None:
    assert grade(program, truth) is status


@pytest.mark.parametrize(
    "code, entry_point, names",
    [
        ("check(Solution().f)\nassert is_same_list(list_node([1]), 2)", None, "check, is_same_list, list_node"),
        ("assert is_close(f(1), 2)", "f", "is_close"),
        ("assert np.allclose(f(1), 2)", "f", "np"),
        ("check(f)", "f", "check"),
    ],
)
def test_helpers_that_nobody_defines_are_an_error_of_the_test_program(
    code: str, entry_point: str | None, names: str
) -> None:
    helpful = "def f(x): return 9\nclass Solution:\n    f = f\ndef is_close(*_): return True\nnp = check = is_close\n"
    for program in (helpful, helpful + "list_node = is_same_list = is_close"):
        with pytest.raises(ValueError, match=f"uses {names}, which it does not define"):
            grade(program, check(code, entry_point))


FUNCTION = "def test_f():\n    assert f(1) == 2\n\ndef test_g():\n    assert f(2) == 3\n"
CLASS = """
class TestF:
    ones = []
    def setup_method(self): self.ones = [*self.ones, 1]
    def test_one(self): assert f(sum(self.ones)) == 2
    def test_two(self): assert f(sum(self.ones) + 1) == 3
"""
UNITTEST = """
import unittest
class TestF(unittest.TestCase):
    def setUp(self): self.two = 2
    def test_f(self): self.assertEqual(f(1), self.two)
    def test_raises(self):
        with self.assertRaises(TypeError): f("1")
"""
SUCCESSOR = "def f(x): return x + 1"


@pytest.mark.parametrize(
    "program, truth, status",
    [
        (SUCCESSOR, check(FUNCTION), CORRECT),
        ("def f(x): return 2", check(FUNCTION), WRONG),
        ("def f(x): return 3 // (2 - x)", check(FUNCTION), WRONG),
        ("def f(x): return 2 // (2 - x)", check(FUNCTION), RUNTIME_ERROR),
        ("x = 0", check(FUNCTION), RUNTIME_ERROR),
        ("def f(x): return x + 1\ndef test_f(): pass", check(FUNCTION), CORRECT),
        ("def f(x): return x\ndef test_f(): pass\ndef test_g(): pass", check(FUNCTION), WRONG),
        (SUCCESSOR, check("assert f(0) == 1\n" + FUNCTION), CORRECT),
        ("def f(x): return not x", check("assert f(0) == 1\n" + FUNCTION), WRONG),
        (SUCCESSOR, check(CLASS), CORRECT),
        ("def f(x): return 2", check(CLASS), WRONG),
        ("def f(x): raise AssertionError", check(CLASS), RUNTIME_ERROR),
        ("class TestF: pass", check(CLASS), RUNTIME_ERROR),
        (SUCCESSOR, check(UNITTEST), CORRECT),
        ("def f(x): return 2", check(UNITTEST), WRONG),
        (SUCCESSOR, check("async def test_h(): assert f(1) == 3\n" + FUNCTION), RUNTIME_ERROR),
        (SUCCESSOR, check("def test_f(fixture): assert f(fixture) == 3"), RUNTIME_ERROR),
    ],
)
def test_tests_as_pytest_finds_them(program: str, truth: CodeTruth, status: GradeStatus) -> None:
    assert grade(program, truth) is status


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "assert 1 + 1 == 2",
        "def check(candidate): assert candidate(1) == 2",
        "def test_f(): assert True",
        "class TestF:\n    def test_f(self): assert True",
        "def f(x): return x + 1\nassert f(1) == 2",
        "def helper(f): return f(1)\nassert helper(lambda x: x)",
    ],
)
def test_a_test_program_that_tests_nothing_is_an_error_not_a_pass(code: str) -> None:
    for program in (SUCCESSOR, "x = 0"):
        with pytest.raises(ValueError, match="asks nothing of a solution"):
            grade(program, check(code))


@pytest.mark.parametrize(
    "code", ["try:\n    assert f(1) == 2\nexcept NameError: pass", "def test_f():\n    if False: f(1)", "f"]
)
def test_a_program_that_was_asked_nothing_has_not_passed(code: str) -> None:
    assert grade("x = 0", check(code)) is RUNTIME_ERROR


def test_the_entry_point_has_to_be_defined_and_may_be_named_as_a_builtin_is() -> None:
    tolerant = "try:\n    assert f(1) == 2\nexcept NameError: assert g(1) == 2"
    assert grade("def g(x): return 2", check(tolerant)) is CORRECT
    assert grade("def g(x): return 2", check(tolerant, "f")) is RUNTIME_ERROR
    for name in ("sum", "copy"):
        assert grade(f"def {name}(x): return 7", check(f"assert {name}([1]) == 7", name)) is CORRECT
        assert grade(f"def {name}(x): return 8", check(f"assert {name}([1]) == 7", name)) is WRONG


def test_the_answer_is_the_program() -> None:
    assert graded("print(4)", stdin(("", "4"))) == (1.0, CORRECT, "print(4)")
    assert graded("print(5)", stdin(("", "4"))) == (0.0, WRONG, "print(5)")


def test_tests_after_a_failure_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "TEST_SECONDS", 3.0)
    loops_at_second = "if input() == '2':\n    while True: pass\nprint(1)"
    assert grade(loops_at_second, stdin(("1", "other"), ("2", "1"))) is WRONG
    assert grade(loops_at_second, stdin(("1", "1"), ("2", "1"))) is GradeStatus.TIMEOUT


def test_a_problem_with_a_longer_limit_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "TEST_SECONDS", 0.5)
    program, tests = "import time; time.sleep(1.5); print(1)", (CodeTest("", "1"),)
    assert grade(program, CodeTruth("stdin", tests)) is GradeStatus.TIMEOUT
    assert grade(program, CodeTruth("stdin", tests, time_limit=5.0)) is CORRECT


def test_a_problem_with_a_larger_limit_gets_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "MEMORY", 256 << 20)
    program, tests = "print(len(bytearray(300 << 20)) > 0)", (CodeTest("", "True"),)
    assert grade(program, CodeTruth("stdin", tests)) is RUNTIME_ERROR
    assert grade(program, CodeTruth("stdin", tests, memory_limit=512)) is CORRECT


def test_all_tests_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "PROGRAM_SECONDS", 3.0)
    monkeypatch.setattr(runners, "TEST_SECONDS", 3.0)
    monkeypatch.setattr(runners, "SECONDS_PER_TEST", 0.1)
    slow = "import time; time.sleep(float(input())); print(1)"
    assert grade(slow, stdin(*[("0.1", "1")] * 2)) is CORRECT
    assert grade(slow, stdin(*[("1", "1")] * 5)) is GradeStatus.TIMEOUT


def test_humaneval_rows_as_they_are_mapped_can_be_graded() -> None:
    import polars as pl

    row = {"row": 0, "task_id": "HumanEval/0", "prompt": "def mean(x):", "entry_point": "mean", "test": HUMANEVAL}
    mapped = mapping.humaneval_plus(pl.DataFrame([row]))
    truth = CodeTruth.decode(mapped["truth"][0])
    assert grade("def mean(x): return sum(x) / len(x)", truth) is CORRECT


FLOOD = """
class Flood(set):
    def __iter__(self):
        return ((2**61 - 1) * number for number in range(300_000))
def f():
    return Flood()
"""


@pytest.mark.parametrize(
    "program, code",
    [
        (FLOOD, "f()"),
        ("def f(): return 'a' * 60 + 'b'", "import re\nassert not re.fullmatch('(a+)+', f())"),
    ],
    ids=["a set of numbers of one hash", "a regular expression"],
)
def test_what_a_test_program_makes_of_an_answer_has_the_time_of_a_test(
    monkeypatch: pytest.MonkeyPatch, program: str, code: str
) -> None:
    monkeypatch.setattr(runners, "TEST_SECONDS", 1.0)
    monkeypatch.setattr(runners, "PROGRAM_SECONDS", 10_000.0)
    assert grade(program, check(code)) is GradeStatus.TIMEOUT


def test_answers_to_a_test_program_are_bounded_together() -> None:
    program = "text = 'x' * (9 << 20)\ndef f(number): return text[number:]"
    assert grade(program, check("for i in range(3): assert f(i)")) is CORRECT
    assert grade(program, check("for i in range(200): assert f(i)")) is RUNTIME_ERROR


def test_a_test_program_has_the_memory_of_a_program() -> None:
    code = "assert len(bytes(f())) == f()"
    assert grade("def f(): return 512 << 20", check(code)) is CORRECT
    assert grade("def f(): return 2 << 30", check(code)) is RUNTIME_ERROR


def test_a_returned_value_far_longer_than_the_expected_one_is_not_read() -> None:
    truth = CodeTruth("functional", (CodeTest("", "[1]"),), method="f")
    assert grade("def f(): return [0] * 10_000", truth) is WRONG
    assert grade("def f(): return [0] * 100_000", truth) is RUNTIME_ERROR
    long = CodeTruth("functional", (CodeTest("", str(["é" * 10] * 100_000).replace("'", '"')),), method="f")
    assert grade("def f(): return ('é' * 10,) * 100_000", long) is CORRECT


COMPETITORS = 7
BURN = "import time\nwhile time.process_time() < 0.8: pass\nprint(1)"
"""Work that takes six seconds among seven others on one processor. Limits leave room for waits that are not
seen: those of the grader behind a program that has just ended."""


@pytest.mark.parametrize(
    "truth",
    [
        CodeTruth("stdin", (CodeTest("", "1"),)),
        CodeTruth("functional", (CodeTest("", "1"),), method="solve"),
        CodeTruth("check", code="assert solve() == 1"),
    ],
    ids=lambda truth: truth.kind,
)
def test_waiting_for_a_processor_is_not_the_program_s_time(truth: CodeTruth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "TEST_SECONDS", 3.5)
    monkeypatch.setattr(runners, "PROGRAM_SECONDS", 3.5)
    function = "import time\ndef solve():\n    began = time.process_time()\n"
    function += "    while time.process_time() - began < 0.8: pass\n    return 1\n"
    found: list[GradeStatus] = []
    processor = min(os.sched_getaffinity(0))
    command = ["taskset", "--cpu-list", str(processor), sys.executable, "-c", "while True: pass"]
    competitors = [subprocess.Popen(command) for _ in range(COMPETITORS)]

    def grade() -> None:
        os.sched_setaffinity(0, {processor})  # Of this thread, and so of the sandbox.
        found.append(runners.run(BURN if truth.kind == "stdin" else function, truth))

    thread = threading.Thread(target=grade)
    try:
        thread.start()
        thread.join()
    finally:
        for competitor in competitors:
            competitor.kill()
            competitor.wait()
    assert found == [CORRECT]
