"""How long the sandbox takes: to start, and to grade a right program for each of the Codeforces problems.

python -m tests.bench.grading_code
"""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from elastic_core.rewards.code import grade_code
from elastic_core.rewards.code.bubblewrap import Limits
from elastic_core.rewards.code.sandbox import Sandbox, require_sandbox
from elastic_core.rewards.truth import CodeTest, CodeTruth, GradeStatus
from tests.bench.inputs import upstream_files

STARTS = 50
THREADS = 2


def measure() -> dict[str, float]:
    """Seconds for all Codeforces problems, and the median time of a start in milliseconds."""
    require_sandbox()
    return {"codeforces_seconds": _codeforces(), "sandbox_start_ms": _start()}


def _start() -> float:
    times = []
    for _ in range(STARTS):
        began = time.perf_counter()
        with Sandbox("stdin", Limits(1 << 30, 10)) as sandbox:
            sandbox.ready()
            times.append(1000 * (time.perf_counter() - began))
    print(f"sandbox start: median {statistics.median(times):.1f} ms, maximum {max(times):.1f} ms, n = {STARTS}")
    return statistics.median(times)


def _codeforces() -> float:
    (path,) = upstream_files("codeforces")
    problems = [tuple(CodeTest(**test) for test in row["tests"]) for row in json.loads(path.read_text())]
    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        statuses = list(pool.map(_grade, problems))
    seconds = time.perf_counter() - began
    assert set(statuses) == {GradeStatus.CORRECT}
    print(f"codeforces: {len(problems)} problems, {sum(map(len, problems))} tests, {THREADS} threads: {seconds:.1f} s")
    return seconds


def _grade(tests: tuple[CodeTest, ...]) -> GradeStatus:
    program = f"import sys\nprint({dict(tests)!r}[sys.stdin.read()])"
    return grade_code(f"</think>\n```python\n{program}\n```", CodeTruth("stdin", tests).encode()).status


if __name__ == "__main__":
    measure()
