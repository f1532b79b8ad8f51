"""Following a training job without a cluster, and what it does at its beginning and its end without a training."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.system.retry import ProcessLost, is_transient
from elastic_core.training import launch
from elastic_core.training.grpo import main
from elastic_core.training.launch import KEPT_MEMORY, LOST, Deadlines, TrainingFailed, follow
from tasks.warm_start import Launch
from tests.unit.test_prepared_model import checkpoint

AWAY = "AWAY"


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.01)


class Client:
    """A job server whose job goes through `statuses`, one per look, and stays at the last; at AWAY it is down."""

    def __init__(
        self, *statuses: str, log: tuple[str, ...] = (), exit_code: int | None = 1, error_type: str | None = None
    ) -> None:
        self.statuses = list(statuses)
        self.log = log
        self.exit_code, self.error_type = exit_code, error_type
        self.stopped = False

    def get_job_status(self, job: str) -> SimpleNamespace:
        status = "STOPPED" if self.stopped else self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == AWAY:
            raise ConnectionError("connection refused")
        return SimpleNamespace(value=status)

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        for chunk in self.log:
            yield chunk

    def get_job_info(self, job: str) -> SimpleNamespace:
        return SimpleNamespace(message="exit code 1", driver_exit_code=self.exit_code, error_type=self.error_type)

    def stop_job(self, job: str) -> None:
        self.stopped = True


def cluster(client: Client, ended: bool = False) -> Any:
    return SimpleNamespace(client=lambda: client, dashboard="http://head:8265", head=None, has_ended=lambda: ended)


def test_a_job_s_id_is_found_by_its_configuration_and_guessed_by_nobody() -> None:
    config, other = OmegaConf.create({"a": 1}), OmegaConf.create({"a": 2})
    prefix = launch.job_prefix(config)
    first, second = launch.job_id(prefix, 1), launch.job_id(prefix, 1)
    assert first.startswith(prefix) and not first.startswith(launch.job_prefix(other))
    assert first != second and len(first.rpartition("-")[2]) == 32


LOG = ("starting\n(ElasticTaskRunner pid=7) step:1 - rollout/", "acc:0.5\nstep:2 - rollout/acc:0.75\nbye")


def test_steps_and_lines_are_passed_on_and_the_log_is_kept(tmp_path: Path) -> None:
    steps: list[int] = []
    lines: list[str] = []
    file = tmp_path / "logs" / "train.log"
    follow(
        cluster(Client("PENDING", "RUNNING", "SUCCEEDED", log=LOG)), "job", log_file=file,
        on_line=lines.append, on_step=steps.append,
    )  # fmt: skip
    assert steps == [1, 2]
    assert lines[1].endswith("step:1 - rollout/acc:0.5")
    assert file.read_text() == "".join(LOG)
    for words in ("second", "third"):  # Every attempt keeps its log.
        follow(cluster(Client("RUNNING", "SUCCEEDED", log=(words,))), "job", log_file=file)
    kept = {each.name: each.read_text() for each in file.parent.iterdir()}
    assert kept == {"train.log": "third", "train.2.log": "second", "train.1.log": "".join(LOG)}


def test_a_failed_job_raises_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"train-1 .*FAILED: exit code 1\n(.*\n)*bye"):
        follow(cluster(Client("RUNNING", "FAILED", log=LOG)), "train-1", log_file=tmp_path / "log")
    words = "Traceback\nerror: no room for the checkpoint of step 3\n"  # Its last ones, to the user, are the error.
    with pytest.raises(UserError, match=r"^no room for the checkpoint of step 3$"):
        follow(cluster(Client("RUNNING", "FAILED", log=(words,))), "job", log_file=tmp_path / "log")


ASSERTION = ("Traceback (most recent call last):\nAssertionError: an embedding does not fit\n",)


@pytest.mark.parametrize(
    ("client", "again"),
    [
        (Client("FAILED", log=ASSERTION), False),
        (Client("STOPPED", log=LOG, exit_code=None), False),
        (Client("FAILED", log=(*ASSERTION, f"{LOST}ActorDiedError, see above\n")), True),
        (Client("FAILED", log=LOG, exit_code=-9), True),
        (Client("FAILED", log=LOG, exit_code=137), True),
        (Client("FAILED", log=LOG, exit_code=None, error_type="JOB_SUPERVISOR_ACTOR_DIED"), True),
    ],
    ids=["assertion", "stopped", "an actor died", "driver killed", "driver killed in a shell", "node died"],
)
def test_a_job_is_worth_another_attempt_only_when_a_process_was_lost(
    tmp_path: Path, client: Client, again: bool
) -> None:
    with pytest.raises(TrainingFailed) as failed:
        follow(cluster(client), "job", log_file=tmp_path / "log")
    assert is_transient(failed.value) is again


def test_a_deadline_says_what_it_waited_for_and_stops_the_job(tmp_path: Path) -> None:
    client = Client("RUNNING", log=("loading\n",))
    with pytest.raises(TimeoutError, match=r" 0 s .*train\.start_timeout_seconds.*\n(.*\n)*loading"):
        follow(cluster(client), "job", log_file=tmp_path / "log", deadlines=Deadlines(start=0, step=0))
    assert client.stopped


def test_an_error_of_a_callback_is_raised_while_the_job_runs(tmp_path: Path) -> None:
    def refuse(step: int) -> None:
        raise KeyError(step)

    with pytest.raises(KeyError):
        follow(cluster(Client("RUNNING", log=LOG)), "job", log_file=tmp_path / "log", on_step=refuse)


def test_a_head_that_is_restarted_is_waited_for(tmp_path: Path) -> None:
    client = Client("RUNNING", AWAY, AWAY, "SUCCEEDED", log=LOG)
    follow(cluster(client), "job", log_file=tmp_path / "log")
    assert not client.stopped
    assert (tmp_path / "log").read_text()


def test_a_head_that_stays_away_is_named_and_the_job_is_left_to_itself(tmp_path: Path) -> None:
    client = Client("RUNNING", AWAY)
    with pytest.raises(ConnectionError, match=r"http://head:8265 .* \d s .*job"):
        follow(cluster(client), "job", log_file=tmp_path / "log", deadlines=Deadlines(contact=0))
    assert not client.stopped
    with pytest.raises(ConnectionError, match="connection refused"):  # A head of our own that died is not waited for.
        follow(cluster(Client("RUNNING", AWAY), ended=True), "job", log_file=tmp_path / "log")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_a_cancelled_flow_stops_its_job(tmp_path: Path, interruption: type[BaseException]) -> None:
    """Prefect's TerminationSignal is a BaseException like these."""

    def cancel(step: int) -> None:
        raise interruption

    client = Client("RUNNING", log=LOG)
    with pytest.raises(interruption):
        follow(cluster(client), "job", log_file=tmp_path / "log", on_step=cancel)
    assert client.stopped


def configuration(tmp_path: Path) -> str:
    file = tmp_path / "verl.yaml"
    out_dir = tmp_path / "checkpoints"
    trainer = {"default_local_dir": str(out_dir), "total_training_steps": 4, "logger": ["console"], "test_freq": 2}
    OmegaConf.save(OmegaConf.create({"trainer": trainer, "elastic": {"max_generated_tokens": None}}), file)
    return str(file)


@pytest.mark.parametrize(
    ("error", "raised", "last"),
    [
        (None, RuntimeError, "step 4"),  # verl's loop ends at once when it is resumed past its last epoch.
        (UserError("the disk is full"), SystemExit, "^error: the disk is full$"),
        (ProcessLost("an engine died"), SystemExit, f"^{LOST}ProcessLost"),
        (ConnectionError("MLflow is away"), SystemExit, f"^{LOST}ConnectionError"),
    ],
)
def test_what_ended_a_training_is_its_last_line(
    error: Exception | None,
    raised: type[BaseException],
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(config: Any) -> None:
        if error:
            raise error

    monkeypatch.setattr("elastic_core.training.requirements.require_plugin", lambda: None)
    monkeypatch.setattr(main, "run", run)
    with pytest.raises(raised, match=last):
        main.main(configuration(tmp_path))
    assert not last.startswith(f"^{LOST}") or str(error) in capsys.readouterr().err


# A model's size decides how many threads it is trained with.


def test_the_miniature_takes_one_thread_and_a_larger_model_every_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model_files.num_parameters(BASE) == 763_008 and model_files.num_threads(BASE) == 1
    small = checkpoint(tmp_path / "m")
    monkeypatch.setattr(model_files, "ONE_THREAD", model_files.num_parameters(small) - 1)
    assert model_files.num_threads(small) == len(os.sched_getaffinity(0))


def test_the_trainer_is_told_its_threads_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Launch(threads=2).environment()["OMP_NUM_THREADS"] == "2"
    assert KEPT_MEMORY.items() <= Launch(threads=2).environment().items()
    assert not KEPT_MEMORY.items() & Launch(threads=1).environment().items()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Launch(threads=2).environment()["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in Launch(cpu=False, num_processes=8).environment()
