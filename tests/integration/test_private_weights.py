"""verl's transfer of weights, with its own sender and receiver, beside another user who has its socket's old place."""

import json
import multiprocessing
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import zmq

from tests.processes import python

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

STRANGER, TRAINER = 65534, 65533
TRANSFER = """
    import asyncio, json, os, stat, sys, threading
    from multiprocessing import resource_tracker
    from pathlib import Path

    import torch
    import verl.workers.rollout.utils
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer

    from elastic_core.system.private_stores import install_in_worker

    resource_tracker.ensure_running()
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))  # Root could take the other user's socket away.
    install_in_worker()  # As Ray calls it.
    handle, how = sys.argv[1:3]
    sides = transfer.BucketedWeightSender, transfer.BucketedWeightReceiver
    if how == "verl's":
        for side in sides:
            side.__init__ = side.__init__.__wrapped__
    weights = {"embedding": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2, dtype=torch.bfloat16)}
    arrived, errors, modes = {}, [], []

    def received(bucket, is_last):
        arrived.update((name, tensor.clone()) for name, tensor in bucket)
        address = Path(receiver.zmq_handle.removeprefix("ipc://"))
        modes.extend([address.stat().st_uid, stat.S_IMODE(address.parent.stat().st_mode), len(str(address))])

    def receive():
        try:
            receiver.receive_weights(received)
        except Exception as error:
            errors.append(repr(error))

    receiver = sides[1](handle, torch.device("cpu"), use_shm=True)
    other = threading.Thread(target=receive, daemon=True)
    other.start()
    try:
        sender = sides[0](handle, bucket_size_mb=1, use_shm=True)
        asyncio.run(sender.async_send_weights(iter(weights.items())))
    except Exception as error:
        errors.append(repr(error))
    other.join(10 if errors else 300)
    same = arrived.keys() == weights.keys() and all(torch.equal(arrived[name], weights[name]) for name in weights)
    print("found", json.dumps([same, errors, modes, receiver.zmq_handle]), flush=True)
    os._exit(0)  # A transfer that failed may wait for ever.
"""


class Attack:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return Path.touch, (self.proof,)


def attack(address: str, pickled: bytes, ready: Any) -> None:
    """As the stranger: have the address, and send a program to everybody who comes there."""
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    os.umask(0)
    socket = zmq.Context().socket(zmq.REQ)
    socket.bind(address)
    ready.set()
    socket.send(pickled)
    time.sleep(300)


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """As /tmp, and in it, so that other users get there."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o1777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def handle(everybodys: Path) -> Iterator[str]:
    """Where verl would bind and connect, and the stranger has bound. Reading what comes from there leaves `ran`."""
    address = f"ipc:///tmp/rl-colocate-zmq-{uuid4().hex}-replica-0-rank-0.sock"
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    attacker = fork.Process(target=attack, args=(address, pickle.dumps(Attack(everybodys / "ran")), ready))
    attacker.start()
    try:
        assert ready.wait(600)
        yield address
    finally:
        attacker.kill()
        attacker.join()
        Path(address.removeprefix("ipc://")).unlink()


def transferred(handle: str, how: str, everybodys: Path) -> Any:
    variables = {"VERL_PLATFORM": "cpu", "TMPDIR": str(everybodys), "ELASTIC_QUEUE_KEY": "00" * 32}
    run = python(TRANSFER, handle, how, TRAINER, environment=os.environ | variables)
    (found,) = [line for line in run.stdout.splitlines() if line.startswith("found ")]
    return json.loads(found.removeprefix("found "))


def test_verl_by_itself_fails_and_runs_what_the_other_user_sends(handle: str, everybodys: Path) -> None:
    """Why this is here: when it fails, `hide_weights` may go."""
    same, errors, *_ = transferred(handle, "verl's", everybodys)
    assert not same and any("Address already in use" in error for error in errors), errors
    assert (everybodys / "ran").exists()


def test_weights_arrive_and_nothing_is_read_from_the_other_user(handle: str, everybodys: Path) -> None:
    same, errors, (owner, mode, length), address = transferred(handle, "ours", everybodys)
    assert (same, errors) == (True, [])
    assert (owner, mode) == (TRAINER, 0o700) and length <= 107
    assert not (everybodys / "ran").exists()
    assert Path(address.removeprefix("ipc://")).parent.resolve() == everybodys / f"elastic-{TRAINER}"
