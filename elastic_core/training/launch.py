"""Submits a training as a Ray job, follows it and stops it.

A job's id begins with a hash of its configuration: a flow that died and starts again finds the job that it submitted.
The id ends in random characters, because Ray names files by it in a directory where other users may write.
"""

import asyncio
import json
import os
import re
import secrets
import shlex
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from elastic_core.engines.budgets.parameters import installed_runner
from elastic_core.engines.parameters import SAMPLER_THREADS, engine_environment
from elastic_core.errors import UserError
from elastic_core.models.files import is_large
from elastic_core.system import imported
from elastic_core.system.fingerprint import hash_value
from elastic_core.system.ray_cluster import RayCluster
from elastic_core.system.retry import ProcessLost, wait_until
from elastic_core.training.requirements import check_nodes, required_resources

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from ray.job_submission import JobSubmissionClient

FINISHED_STEP = re.compile(r"\bstep:(\d+) - ")
"""How verl's console logger begins the line of a finished step, and of the validation before the first, as step 0."""
_UNFINISHED = ("PENDING", "RUNNING")
_SUPERVISOR_GONE = {f"JOB_SUPERVISOR_ACTOR_{end}" for end in ("DIED", "START_FAILURE", "UNKNOWN_FAILURE")}
PRIVATE = "elastic.variables"
"""Key of a job's metadata: variables, as JSON."""
POLL_SECONDS = 1.0
REFUSED, LOST = "error: ", "lost: "
"""How the log's last line begins when the user can mend the error, and when a process, node or connection of the
training went away: then the same job may succeed."""
KEPT_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
    "glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=268435456"
}
"""Environment of what trains a large model on a CPU: glibc keeps, in huge pages, the memory that every pass would
otherwise take from the system anew."""


class Deadlines(NamedTuple):
    """Seconds until the first step (or the validation before it) ends, between steps, and until the cluster answers."""

    start: float = 1800
    step: float = 3600
    contact: float = 180


class TrainingFailed(RuntimeError):
    """The job ended without success; the message ends with the end of its log."""


class TrainingLost(TrainingFailed, ProcessLost):
    """One of the job's processes, or the cluster's memory of it, is gone."""


def job_prefix(config: "DictConfig") -> str:
    """The beginning of the ids of all jobs that train this configuration."""
    from omegaconf import OmegaConf

    return f"train-{hash_value(OmegaConf.to_container(config, resolve=True))[:16]}-"


def job_id(prefix: str, attempt: int) -> str:
    """A new one every time."""
    return f"{prefix}{attempt}-{secrets.token_hex(16)}"


def job_environment(config: "DictConfig") -> dict[str, str]:
    """Environment variables the job needs in addition to MLflow's."""
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1"}
    environment |= imported.environment() | engine_environment(config.trainer.device)
    if config.elastic.strategy == "separate_native":
        environment |= installed_runner(config.trainer.device).environment
    if config.trainer.device == "cpu":
        processes = int(config.trainer.nnodes) * int(config.trainer.n_gpus_per_node)
        cores, large = len(os.sched_getaffinity(0)), is_large(Path(config.actor_rollout_ref.model.path))
        environment |= {
            "VERL_PLATFORM": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # Of a trainer's process; Ray's default is one.
            "OMP_NUM_THREADS": str(max(1, cores // processes)),
            # A small model's sampler waits for vLLM's scheduler, which one core is left to.
            SAMPLER_THREADS: str(cores if large else max(1, cores - 1)),
            # TransferQueue asks for eight, and warns several hundred times a step that there are fewer cores.
            "TQ_NUM_THREADS": "1",
            **(KEPT_MEMORY if large else {}),
        }
    return environment


def submit(
    cluster: RayCluster,
    config: "DictConfig",
    config_file: Path,
    environment: Mapping[str, str],
    private: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Submit the job, or find it running; the id to follow. It goes on from the checkpoints of earlier attempts.

    The configuration is written to `config_file`, which the cluster sees. Ray shows `environment` on command lines;
    `private` variables, among which there may be MLflow's password, reach the job by `private_variables`. Raises
    InsufficientResources when the cluster could never place the job.
    """
    from omegaconf import OmegaConf

    client = cluster.client()
    prefix = job_prefix(config)
    # Jobs that were not submitted, such as this process's driver, have no id.
    jobs = [job for job in client.list_jobs() if (job.submission_id or "").startswith(prefix)]
    for job in jobs:
        if job.status in _UNFINISHED:
            return str(job.submission_id)
    check_nodes(cluster.nodes(), required_resources(config))
    config_file.parent.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, config_file)
    return client.submit_job(
        entrypoint=f"python -P -u -m elastic_core.training.grpo.main {shlex.quote(str(config_file))}",
        submission_id=job_id(prefix, len(jobs) + 1),
        runtime_env={"env_vars": dict(environment)},
        metadata={PRIVATE: json.dumps(dict(private))},
    )


def private_variables() -> dict[str, str]:
    """The `private` of `submit`, read in a job's first process: Ray hands it over in that process's environment."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    return dict(json.loads(job.get("metadata", {}).get(PRIVATE, "{}")))


def follow(
    cluster: RayCluster,
    job: str,
    *,
    log_file: Path,
    on_line: Callable[[str], None] = lambda line: None,
    on_step: Callable[[int], None] = lambda step: None,
    deadlines: Deadlines = Deadlines(),  # noqa: B008
) -> None:
    """Return when the job has succeeded, after calling `on_line` with every line of its log and `on_step` with the
    number of every finished step. The log goes to `log_file`; earlier attempts' stay as train.1.log, ….

    Interrupted (Ctrl-C, or Prefect cancels the flow run), it stops the job. Killed, or after another error here, the
    job goes on, and `submit` finds it.

    Raises:
        UserError: when the job ended with one.
        TrainingLost: when a process of it is gone, or the cluster does not know it any more.
        TrainingFailed: when it failed otherwise, or was stopped.
        TimeoutError: when a deadline passed without a step; the job is stopped.
        ConnectionError: when the cluster did not answer for as long as the deadlines say.
    """
    client = cluster.client()
    log = _Log(log_file, on_line, on_step)
    try:
        asyncio.run(_follow(cluster, client, job, log, deadlines))
    except BaseException as reason:
        interrupted = not isinstance(reason, Exception)
        # A cluster that this process started ends with it.
        if cluster.head is None and (interrupted or isinstance(reason, TimeoutError)):
            stop(cluster, job)
        raise


def stop(cluster: RayCluster, job: str, *, deadline_seconds: float = 60) -> None:
    """Stop a job, unless it has ended, and wait until it has stopped; TimeoutError when it does not."""
    client = cluster.client()
    if _status(client, job) not in _UNFINISHED:
        return
    client.stop_job(job)
    if not wait_until(lambda: _status(client, job) not in _UNFINISHED, deadline_seconds):
        raise TimeoutError(f"job {job} did not stop within {deadline_seconds:g} s")


class _Log:
    def __init__(self, file: Path, on_line: Callable[[str], None], on_step: Callable[[int], None]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            earlier = len(list(file.parent.glob(f"{file.stem}.*{file.suffix}")))
            file.rename(file.with_stem(f"{file.stem}.{earlier + 1}"))
        self._file = file
        self._on_line, self._on_step = on_line, on_step
        self._rest = ""
        self.last: deque[str] = deque(maxlen=40)
        self.received = 0
        self.step: int | None = None
        file.write_text("")

    def add(self, chunk: str) -> None:
        self.received += len(chunk)
        with self._file.open("a") as stream:
            stream.write(chunk)
        *lines, self._rest = (self._rest + chunk).split("\n")
        for line in lines:
            self.last.append(line)
            self._on_line(line)
            if match := FINISHED_STEP.search(line):
                self.step = int(match[1])
                self._on_step(self.step)

    def tail(self) -> str:
        return "\n".join([*self.last, self._rest])


async def _follow(
    cluster: RayCluster, client: "JobSubmissionClient", job: str, log: _Log, deadlines: Deadlines
) -> None:
    reader = asyncio.create_task(_read(client, job, log))
    contact = time.monotonic()
    step, until = log.step, contact + deadlines.start
    waited, seconds, setting = "the first step", deadlines.start, "start_timeout_seconds"
    status: str | None = "PENDING"
    try:
        while status in _UNFINISHED:
            if reader.done():
                reader.result()  # A callback failed.
            try:
                status = await asyncio.to_thread(_status, client, job)
                contact = time.monotonic()
            except (OSError, RuntimeError) as error:
                # A head that is restarted is away for a minute.
                away = time.monotonic() - contact
                if away > deadlines.contact or cluster.has_ended():
                    message = f"Ray at {cluster.dashboard} has not answered for {away:.0f} s about job {job}: {error}"
                    raise ConnectionError(message) from error
            if log.step != step:
                step, until = log.step, time.monotonic() + deadlines.step
                waited, seconds, setting = f"step {(step or 0) + 1}", deadlines.step, "step_timeout_seconds"
            if time.monotonic() > until:
                raise TimeoutError(
                    f"job {job} ({status}) waited {seconds:g} s for {waited}; stopped (train.{setting} sets how long "
                    f"it may take). The end of its log:\n{log.tail()}"
                )
            await asyncio.sleep(POLL_SECONDS)
        # The rest of the log arrives after the end of the job.
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reader), 10)
    finally:
        reader.cancel()
    if status != "SUCCEEDED":
        raise _failure(client, job, status, log)


def _failure(client: "JobSubmissionClient", job: str, status: str | None, log: _Log) -> Exception:
    for line in reversed(log.last):
        if line.startswith(REFUSED):
            return UserError(line.removeprefix(REFUSED))
    if status is None:
        return TrainingLost(f"job {job} is unknown to the cluster: \n{log.tail()}")
    info = client.get_job_info(job)
    # A signal ended the job's driver, or Ray's actor that watches it is gone.
    code = info.driver_exit_code or 0
    lost = code < 0 or code > 128 or info.error_type in _SUPERVISOR_GONE
    kind = TrainingLost if lost or any(line.startswith(LOST) for line in log.last) else TrainingFailed
    return kind(f"job {job} is {status}: {info.message}\n{log.tail()}")


async def _read(client: "JobSubmissionClient", job: str, log: _Log) -> None:
    # The stream may break, and then starts from the beginning.
    while True:
        skip = log.received
        async for chunk in _chunks(client, job):
            fresh, skip = chunk[skip:], max(0, skip - len(chunk))
            if fresh:
                log.add(fresh)
        with suppress(OSError, RuntimeError):
            if await asyncio.to_thread(_status, client, job) not in _UNFINISHED:
                return
        await asyncio.sleep(POLL_SECONDS)


async def _chunks(client: "JobSubmissionClient", job: str) -> AsyncIterator[str]:
    import aiohttp

    with suppress(aiohttp.ClientError, OSError, RuntimeError):
        async for chunk in client.tail_job_logs(job):
            yield chunk


def _status(client: "JobSubmissionClient", job: str) -> str | None:
    """The job's status, None when the cluster does not know it."""
    try:
        return str(client.get_job_status(job).value)
    except RuntimeError as error:
        if "404" in str(error) or "does not exist" in str(error):
            return None
        raise
