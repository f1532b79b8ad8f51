r"""Mathematical answers: the last box of a solution, compared as mathematics with the accepted answers.

Numbers and equal spellings are compared here; expressions by math-verify, in a worker process with a deadline
in processor time. docs/grading.md has the rules, tests/integration/test_answer_rules.py examples. Not covered: answers
without a box, and expressions that sympy's `simplify` cannot bring together, which are wrong.

A worker is a fresh interpreter, without the parent's imports, that forks the process that compares.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from elastic_core.rewards.math.compare import MAX_LENGTH, accepts, undecided
from elastic_core.rewards.response import last_boxed
from elastic_core.rewards.truth import NO_ANSWER, Grade, GradeStatus, GradingFailed, MathTruth, graded, grader

CACHE_SIZE = 1 << 14  # verdicts that are remembered: answers repeat over samples and budgets
DEADLINE = 3.0
"""Seconds of processor time for one answer; nearly all need less than 0.1."""
STALLED = 600.0
"""Seconds on the wall clock after which a worker that does not answer, or does not start, is given up: it sleeps."""
MAX_WORKERS = 8
OURS, AS_PUBLISHED = "ours", "as published"  # rules by which a worker compares
READY, DIED = "ready", "died"  # messages of a worker that has started, and that a comparison ended
_ROOT = Path(__file__).resolve().parents[3]


@grader("math")
def grade_math(solution: str, truth: str) -> Grade:
    """Grade a solution by its last boxed answer. Safe to call from any thread.

    TIMEOUT, without credit, when the comparison took more time or memory than it may. ValueError when the truth is not
    an encoded `MathTruth`; GradingFailed when a worker process ended twice for another reason.
    """
    answer = last_boxed(solution)
    if not answer:  # An empty box holds none.
        return NO_ANSWER
    try:
        # A long answer is compared as spelled, and not remembered.
        verdict = (_verdict if len(answer) <= MAX_LENGTH else _verdict.__wrapped__)(answer, truth)
    except Exhausted:
        return Grade(0.0, GradeStatus.TIMEOUT, answer)
    return graded(answer, verdict)


@lru_cache(maxsize=CACHE_SIZE)
def _verdict(answer: str, truth: str) -> bool:
    # The pool's errors are not remembered: another time there may be a verdict.
    known = accepts(answer, MathTruth.decode(truth), undecided)
    return shared_pool().accepts(answer, truth) if known is None else known


class Exhausted(Exception):
    """A comparison took more time or memory than it may."""


class WorkerDied(GradingFailed):
    """A worker ended for a reason that is probably not the answer."""


class Pool:
    """At most `num_workers` workers, started when they are needed. Safe to use from any thread. `deadline` is in
    seconds of processor time for one answer."""

    def __init__(self, num_workers: int | None = None, deadline: float = DEADLINE) -> None:
        num_workers = num_workers or min(os.cpu_count() or 1, MAX_WORKERS)
        self.deadline = deadline
        self._slots = threading.Semaphore(num_workers)
        self._idle: list[Worker] = []
        self._closed = False
        self._lock = threading.Lock()
        # Linux ends a worker together with the *thread* that started it, so threads do that which live as long as this.
        self._starters = ThreadPoolExecutor(num_workers, thread_name_prefix="math-pool")

    def accepts(self, answer: str, truth: str, rules: str = OURS) -> bool:
        """Whether a truth accepts an answer: an encoded one, or as published one of its texts. A worker is tried
        twice."""
        with self._slots:
            try:
                verdict = self._ask(answer, truth, rules)
            except WorkerDied:
                verdict = self._ask(answer, truth, rules)
        if verdict is None:
            raise Exhausted
        return verdict

    def _ask(self, answer: str, truth: str, rules: str) -> bool | None:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or self._starters.submit(Worker).result()
        try:
            verdict = worker.ask(answer, truth, self.deadline, rules)
        except BaseException:
            worker.end()
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return verdict
        worker.end()
        return verdict

    def close(self) -> None:
        """End the idle workers, and each other one when it has answered."""
        with self._lock:
            workers, self._idle, self._closed = self._idle, [], True
        for worker in workers:
            worker.end()
        self._starters.shutdown(wait=False)


class Worker:
    """A process, ready when constructed, and the one that it forked to compare. For one thread at a time."""

    def __init__(self) -> None:
        if find_spec("math_verify") is None:  # The worker would only die.
            raise ModuleNotFoundError("No module named 'math_verify'", name="math_verify")
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        # The order of sympy's sets follows hashes: with these fixed, equal answers get equal grades.
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        # On a CPU vLLM leaves torch's OpenMP and an allocator in it, which have no place in so little memory.
        environment.pop("LD_PRELOAD", None)
        command = [sys.executable, "-P", "-m", "elastic_core.rewards.math.worker", str(os.getpid())]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        try:
            self._read_line()
        except BaseException:
            self.end()
            raise

    def ask(self, answer: str, truth: str, deadline: float, rules: str = OURS) -> bool | None:
        """Whether the truth accepts the answer; None when that took more memory than it may, or `deadline` seconds of
        processor time. WorkerDied when a process ends by itself, or sleeps."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([answer, truth, deadline, rules]).encode() + b"\n")
        except OSError:
            raise WorkerDied from None
        line = self._read_line()
        if line == DIED:
            raise WorkerDied
        verdict: bool | None = json.loads(line)
        return verdict

    def end(self) -> None:
        """End it, and by that the process that it forked, without waiting for their memory to be taken back."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        threading.Thread(target=self.process.wait, daemon=True).start()

    def _read_line(self) -> str:
        """The next line, which is short and arrives in one piece. WorkerDied when there is none within `STALLED`."""
        assert self.process.stdout is not None
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        line = self.process.stdout.readline() if poll.poll(STALLED * 1000) else b""
        if not line.endswith(b"\n"):
            raise WorkerDied
        return line.decode().strip()


_pool = Pool()


def shared_pool() -> Pool:
    return _pool


def _renew() -> None:
    """After a fork the workers are the parent's, and threads that start them or hold a lock are gone."""
    global _pool
    _pool = Pool()


atexit.register(lambda: _pool.close())
os.register_at_fork(after_in_child=_renew)
