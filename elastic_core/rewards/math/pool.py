"""Processes that compare answers, each with a hard deadline.

A thread that wants an answer compared takes a worker, waits for it, and has it killed when it takes too long. There is
no thread that supervises, so nothing polls. A worker is a fresh interpreter and neither a fork nor multiprocessing's
child, which would run the parent's main module again, and with it import what the parent imports. It forks the process
that does the work, when it has imported what that needs, so that one that takes too long is killed and replaced within
milliseconds.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elastic_core.rewards.grade import GradingFailed

DEADLINE = 3.0
START_DEADLINE = 120.0
"""Seconds in which a worker must have imported computer algebra: a busy machine with a slow file system."""
MAX_WORKERS = 8
MAX_REQUESTS = 5000
"""Answers after which the process is replaced: the parser remembers a little of every text."""
READY = b"ready "
REPLACE = signal.SIGUSR1
"""Asks a worker for another process; the one that works is killed."""
_ROOT = Path(__file__).resolve().parents[3]


class Exhausted(Exception):
    """A comparison took more time or memory than it may."""


class WorkerDied(GradingFailed):
    """A worker ended, which is not the answer's fault as far as one can tell."""


class Pool:
    """At most `num_workers` workers, started when they are needed. Safe to use from any thread.

    Args:
        deadline: seconds for one answer, from when a worker begins with it. Nearly all need less than 0.1.
    """

    def __init__(self, num_workers: int | None = None, deadline: float = DEADLINE) -> None:
        num_workers = num_workers or min(os.cpu_count() or 1, MAX_WORKERS)
        self.deadline = deadline
        self._slots = threading.Semaphore(num_workers)
        self._idle: list[Worker] = []
        self._closed = False
        self._lock = threading.Lock()
        # Linux ends a worker together with the *thread* that started it, so threads do that which live as long as this.
        self._starters = ThreadPoolExecutor(num_workers, thread_name_prefix="math-pool")

    def accepts(self, answer: str, truth: str) -> bool:
        """Whether an encoded truth accepts an answer.

        Raises:
            Exhausted, WorkerDied: when nobody knows, the second when a worker ended twice.
        """
        with self._slots:
            try:
                verdict = self._ask(answer, truth)
            except WorkerDied:
                verdict = self._ask(answer, truth)
        if verdict is None:
            raise Exhausted
        return verdict

    def _ask(self, answer: str, truth: str) -> bool | None:
        worker = self._take()
        try:
            verdict = worker.ask(answer, truth, self.deadline)
        except BaseException:
            worker.end()
            raise
        self._give_back(worker)
        return verdict

    def _take(self) -> Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._starters.submit(Worker).result()

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        worker.end()

    def close(self) -> None:
        """End the idle workers, and each other one when it has answered."""
        with self._lock:
            workers, self._idle, self._closed = self._idle, [], True
        for worker in workers:
            worker.end()
        self._starters.shutdown(wait=False)


class Worker:
    """A process that has forked another one, which does the work. Ready when constructed; for one thread at a time.

    Attributes:
        pid: of the process that works; None while another one is being forked.

    Raises:
        WorkerDied: at construction when it does not start.
    """

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        # The order of sympy's sets follows hashes: with these fixed, equal answers get equal grades.
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        # On a CPU vLLM leaves torch's OpenMP and an allocator in it, which have no place in so little memory.
        environment.pop("LD_PRELOAD", None)
        command = [sys.executable, "-P", "-m", "elastic_core.rewards.math.worker", str(os.getpid())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        self._num_requests = 0
        self.pid: int | None = None
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise

    def ask(self, answer: str, truth: str, deadline: float) -> bool | None:
        """Whether the truth accepts the answer; None when that took more memory than it may, or so many seconds.

        Raises:
            WorkerDied: when the process ends by itself.
        """
        if self.pid is None:
            self._wait_until_ready()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([answer, truth]).encode() + b"\n")
        except OSError:
            raise WorkerDied from None
        line = self._read_line(deadline)
        if line is not None and line.startswith(READY):
            raise WorkerDied
        verdict: bool | None = None if line is None else json.loads(line)
        self._num_requests += 1
        if verdict is None or self._num_requests % MAX_REQUESTS == 0:
            self._process.send_signal(REPLACE)
            self.pid = None
        return verdict

    def end(self) -> None:
        """End it, and by that the process that it forked, without waiting for their memory to be taken back."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        threading.Thread(target=self._process.wait, daemon=True).start()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_DEADLINE
        # A verdict that came too late may be before it.
        while (line := self._read_line(end - time.monotonic())) is not None:
            if line.startswith(READY):
                self.pid = int(line.removeprefix(READY))
                return
        raise WorkerDied

    def _read_line(self, seconds: float) -> bytes | None:
        """The next line, which is short and arrives as a whole; None when there is none within so many seconds."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerDied
        return line


_pool: Pool | None = None
_pool_lock = threading.Lock()


def shared_pool() -> Pool:
    """This process's pool; nothing is started until it is asked."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = Pool()
        return _pool


def _close() -> None:
    if _pool is not None:
        _pool.close()


def _forget() -> None:
    """After a fork the workers are the parent's, and the thread that starts them and whoever held a lock are gone."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)
