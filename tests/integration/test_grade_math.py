"""Mathematics graded with computer algebra: real answers, wrong ones, hostile ones, and workers that are killed."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastic_core import rewards
from elastic_core.rewards import Answer, Grade, GradeStatus, GradingFailed, grade, grade_many
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.math import OURS, Exhausted, Pool, Worker
from elastic_core.rewards.truth import MathTruth
from tests.hostile_answers import hostile_answers
from tests.real_answers import accepted_answers, boxed, other_notation, real_truths, wrong_answers
from tests.upstream import needs_upstream

HANGS = 60.0
"""Seconds beyond a deadline that no busy machine explains. How late answers really are is measured by `make bench`."""
ENDLESS = "9^{9^{9^9}}"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A pool of two workers with a short deadline in place of the process's own."""
    pool = Pool(num_workers=2, deadline=0.8)
    monkeypatch.setattr(rewards_math, "shared_pool", lambda: pool)
    rewards_math._verdict.cache_clear()
    yield pool
    pool.close()
    rewards_math._verdict.cache_clear()


def warm_up(pool: Pool) -> None:
    """Start a worker, whose first answer may take longer than the pool's deadline on a busy machine."""
    worker = pool._starters.submit(Worker).result()
    assert worker.ask("f(x)", "x", HANGS) is False
    pool._idle.append(worker)


def child_of(worker: Worker) -> psutil.Process:
    """The process that compares, which another one has forked or is about to."""
    while not (children := psutil.Process(worker.process.pid).children()):
        time.sleep(0.01)
    return children[0]


def graded(answers: list[tuple[str, str]]) -> list[Grade]:
    return grade_many([Answer("math", boxed(answer), truth) for answer, truth in answers])


@needs_upstream
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("notation", ["its own", "another"])
def test_every_real_answer_is_right(notation: str) -> None:
    draw, answers = random.Random(0), accepted_answers()
    assert len(answers) > 1900
    if notation == "another":
        answers = [(other_notation(answer, draw), truth) for answer, truth in answers]
    assert [answer for answer, one in zip(answers, graded(answers), strict=True) if one.score != 1] == []


@needs_upstream
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_answers_that_are_nearly_right_are_wrong(count: int) -> None:
    truths = {truth: MathTruth.decode(truth).answers for truth in real_truths()}
    # What is wrong beside one of several accepted answers may be another of them.
    cases = {
        (wrong, truth) for truth, golds in truths.items() if len(golds) == 1 for _, wrong in wrong_answers(golds[0])
    }
    chosen = random.Random(0).sample(sorted(cases), count)
    credited = [case for case, one in zip(chosen, graded(chosen), strict=True) if one.status is not GradeStatus.WRONG]
    assert credited == []


EQUAL_BUT_FOR_LOOKS = {"$46", "$$46$", "46.0", " 46 "}
"""Of the hostile answers, those that are 46: a dollar sign that is not closed does not make them another number."""


@pytest.mark.parametrize("third", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_no_hostile_answer_is_right_hangs_or_does_anything(pool: Pool, tmp_path: Path, third: int) -> None:
    canary = tmp_path / "canary"
    hostile = list(hostile_answers(str(canary)))
    pool.deadline = 0.3
    assert len(hostile) >= 200
    warm_up(pool)
    late, credited = {}, set()
    for item in hostile[third::3]:
        started = time.monotonic()
        if grade("math", item.response, item.truth).score:
            credited.add(item.answer)
        seconds = time.monotonic() - started
        if seconds > pool.deadline + HANGS:
            late[item.answer[:80]] = seconds
    assert credited <= EQUAL_BUT_FOR_LOOKS
    assert late == {}
    assert not canary.exists()


@pytest.mark.usefixtures("patient")
def test_a_tolerance_holds_for_closed_forms() -> None:
    truth = MathTruth((r"\sqrt{2}",), tolerance=0.01).encode()
    assert [grade("math", boxed(answer), truth).score for answer in ("1.41", "1.40")] == [1, 0]


def test_what_takes_too_long_is_a_timeout_and_the_process_is_replaced(pool: Pool) -> None:
    warm_up(pool)
    started = time.monotonic()
    assert grade("math", boxed(ENDLESS), "46") == (0.0, GradeStatus.TIMEOUT, ENDLESS)
    assert pool.deadline <= time.monotonic() - started < pool.deadline + HANGS
    pool.deadline = HANGS
    assert grade("math", boxed(r"\sin^2 x+\cos^2 x"), "1").score == 1


def test_time_in_which_the_processor_does_something_else_is_not_an_answers(pool: Pool) -> None:
    """A right answer scored 0 on a busy machine."""
    pool.deadline = 2.0
    warm_up(pool)
    child = child_of(pool._idle[0])
    child.suspend()
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(grade, "math", boxed("6-5x+x^2"), "x^2-5x+6")
        time.sleep(pool.deadline + 1)
        child.resume()
        assert late.result().status is GradeStatus.CORRECT


def test_a_process_that_sleeps_fails_the_grader_and_not_the_response(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(pool)
    warm_up(pool)
    for worker in pool._idle:
        child_of(worker).suspend()
    monkeypatch.setattr(rewards_math, "STALLED", 0.2)
    with pytest.raises(GradingFailed):
        rewards_math.grade_math(boxed("6-5x+x^2"), "x^2-5x+6")


def test_a_process_that_has_answered_much_is_replaced_and_no_request_is_lost() -> None:
    program = (
        "import os\n"
        "from elastic_core.rewards.math import worker\n"
        "worker.MAX_REQUESTS, worker._TYPICAL = 2, ()\n"
        "worker.main(os.getppid())\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        children = []
        for number in range(5):
            process.stdin.write(json.dumps([f"x+{number}", f"{number}+x", HANGS, OURS]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "true\n"
            children += [child.pid for child in psutil.Process(process.pid).children() if child.pid not in children]
        process.stdin.close()
    assert process.returncode == 0
    assert len(children) > 1


def test_no_answer_waits_longer_than_its_deadline_when_all_workers_are_busy(pool: Pool) -> None:
    """Each of two threads grades one endless answer after the other."""
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: warm_up(pool), range(2)))

        def seconds(number: int) -> float:
            started = time.monotonic()
            assert grade("math", boxed(f"{ENDLESS}+{number}"), "46").status is GradeStatus.TIMEOUT
            return time.monotonic() - started

        assert max(threads.map(seconds, range(4))) < pool.deadline + HANGS


def test_a_worker_that_was_killed_is_replaced_and_the_answer_tried_again(pool: Pool) -> None:
    warm_up(pool)
    child_of(pool._idle[0]).kill()
    pool._idle[0].process.kill()
    short, pool.deadline = pool.deadline, HANGS
    assert pool.accepts(r"\sin^2 x+\cos^2 x", "1") is True

    (worker,) = pool._idle
    first, killed = child_of(worker), []

    def kill() -> None:
        pool.deadline = short
        killed.append(time.monotonic())
        first.kill()

    threading.Timer(0.3, kill).start()
    with pytest.raises(Exhausted):
        pool.accepts(ENDLESS, "46")
    assert time.monotonic() - killed[0] >= short, "the second attempt has all of the time"


def test_workers_that_keep_dying_fail_the_grader_and_not_the_response(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = Worker.ask, []
    pool.deadline = HANGS

    def dying(self: Worker, *question: Any) -> bool | None:
        asked.append(self.process.pid)
        child_of(self).kill()
        return ask(self, *question)

    monkeypatch.setattr(Worker, "ask", dying)
    monkeypatch.setattr(rewards, "FIRST_WAIT", 0)
    monkeypatch.setattr(rewards, "ATTEMPTS", 2)
    with pytest.raises(GradingFailed):
        grade("math", boxed("f(x)"), "x")
    assert len(set(asked)) == 4, "two workers in each attempt"


def test_memory_is_limited(pool: Pool) -> None:
    warm_up(pool)
    soft, hard = child_of(pool._idle[0]).rlimit(psutil.RLIMIT_AS)
    assert soft == hard == 2 << 30


def test_workers_import_nothing_heavy_and_are_started_only_when_needed() -> None:
    """Also where vLLM has run on a CPU, which leaves a library of torch in LD_PRELOAD for what is started later."""
    program = (
        "import psutil, sys\n"
        "from elastic_core.rewards import grade\n"
        "from elastic_core.rewards.math import shared_pool\n"
        f"shared_pool().deadline = {HANGS}\n"
        "me = psutil.Process()\n"
        "assert grade('math', '</think>\\\\boxed{1/2}', '0.5').score == 1 and not me.children()\n"
        "assert 'sympy' not in sys.modules and 'math_verify' not in sys.modules\n"
        "assert grade('math', '</think>\\\\boxed{f(x)}', 'x').score == 0\n"
        "worker, child = me.children(recursive=True)\n"
        "maps = {entry.path for entry in worker.memory_maps()}\n"
        "assert not [path for path in maps if any(name in path for name in ('torch', 'vllm', '/ray/', 'polars'))]\n"
        # A lock that a thread of a library holds during the fork would never be free in the child.
        "assert worker.num_threads() == 1\n"
        "assert 'sympy' not in sys.modules\n"
    )
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    preloaded = Path(torch.origin).with_name("lib") / "libc10.so"
    assert preloaded.exists()
    environment = {**os.environ, "LD_PRELOAD": str(preloaded)}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env=environment)


def test_a_forked_child_grades_with_workers_of_its_own() -> None:
    program = (
        "import os, psutil\n"
        "from elastic_core.rewards import grade\n"
        "from elastic_core.rewards.math import shared_pool\n"
        "def one(x):\n"
        f"    shared_pool().deadline = {HANGS}\n"
        "    return grade('math', '</think>\\\\boxed{\\\\sin^2 %s+\\\\cos^2 %s}' % (x, x), '1').score\n"
        "assert one('x') == 1\n"
        "(worker,) = psutil.Process().children()\n"
        "if not (child := os.fork()):\n"
        "    assert one('y') == 1\n"
        "    assert len(psutil.Process().children()) == 1\n"
        "    raise SystemExit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert worker.is_running() and one('z') == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize("answer", ["f(x)", "9^{99999999}f(x)"])
def test_workers_end_with_a_parent_that_is_killed(answer: str) -> None:
    """Idle or in the middle of a computation."""
    program = (
        "import sys, threading, time, psutil\n"
        "from elastic_core.rewards.math import Pool\n"
        "pool = Pool(1, deadline=100)\n"
        "thread = threading.Thread(target=pool.accepts, args=(sys.argv[1], '46'), daemon=True)\n"
        "thread.start()\n"
        "while len(psutil.Process().children(recursive=True)) < 2: time.sleep(0.1)\n"
        "time.sleep(1)\n"
        "print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, answer], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
        gone, alive = psutil.wait_procs(workers, timeout=HANGS)
        assert len(gone) == 2 and not alive


def test_a_worker_outlives_the_thread_that_asked_first(pool: Pool) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(warm_up, pool).result()
    time.sleep(0.2)
    (worker,) = pool._idle
    pool.deadline = HANGS
    assert pool.accepts("g(x)", "x") is False
    assert pool._idle == [worker]
