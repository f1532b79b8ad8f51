"""torch's stores listen on the address they are called by. In processes of their own, as a patch stays."""

import io
import json
import multiprocessing
import os
import re
import textwrap
import tomllib
from contextlib import redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.engines.parameters import EngineParameters
from elastic_core.system import private_stores

REPOSITORY = Path(__file__).parents[2]
LISTENING = """
    import json

    import psutil
    import torch.distributed as dist

    def places():
        found = psutil.Process().net_connections("tcp")
        return [each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN]
"""
INSTALL = """
    from elastic_core.system import private_stores

    private_stores.install()
    private_stores.install()
"""


FORKS = multiprocessing.get_context("forkserver")
"""Processes in which torch is imported already."""
FORKS.set_forkserver_preload(["torch.distributed", "elastic_core.engines.parameters", "psutil", "pytest"])


def run(program: str, variables: dict[str, str], printed: Connection) -> None:
    os.environ.update(variables)
    with redirect_stdout(io.StringIO()) as output:
        exec(program, {})
    printed.send(output.getvalue())


def answer(*parts: str, variables: dict[str, str] | None = None) -> list[str]:
    """What a Python program prints at its end, as JSON."""
    program = "\n".join(textwrap.dedent(part) for part in parts)
    receiver, sender = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=run, args=(program, variables or {}, sender))
    process.start()
    sender.close()
    printed = receiver.recv()
    process.join()
    return list(json.loads(printed.splitlines()[-1]))


STORES = """
    own = dist.TCPStore("127.0.0.1", 0, 1, True)
    named = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    guest = dist.TCPStore("127.0.0.1", named.port, is_master=False, wait_for_workers=False)
    guest.set("key", "value")
    assert named.get("key") == b"value"
    print(json.dumps(places()))
"""
GROUP = """
    for _ in range(2):  # A second group of the process shares the port of the first.
        dist.init_process_group("gloo")
        dist.barrier()
        assert dist.get_world_size() == 1
        places_now = places()
        dist.destroy_process_group()
    print(json.dumps(places_now))
"""


def test_torch_by_itself_listens_everywhere() -> None:
    """Why this is here: when it fails, the patch may go."""
    assert set(answer(LISTENING, STORES)) - {"127.0.0.1"}


def test_a_store_listens_where_it_is_called_or_says_that_it_cannot() -> None:
    elsewhere = """
        found = places()
        try:
            dist.TCPStore("192.0.2.1", 29500, is_master=True)
        except OSError as error:
            print(json.dumps([str(error), *found]))
    """
    message, *places = answer(LISTENING, INSTALL, STORES, elsewhere)
    assert places == ["127.0.0.1", "127.0.0.1"]
    assert "192.0.2.1 port 29500" in message and "--node-ip-address" in message


def test_a_group_of_one_process_listens_on_loopback_only() -> None:
    environment = """
        import os

        from elastic_core.training import sft

        sft._single_process_environment()
    """
    assert set(answer(environment, LISTENING, INSTALL, GROUP)) == {"127.0.0.1"}


@pytest.mark.parametrize("chosen", [None, "lo0"])
def test_gloo_takes_the_network_that_leads_to_the_store_unless_told_otherwise(chosen: str | None) -> None:
    store = """
        import os

        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        print(json.dumps([os.environ["GLOO_SOCKET_IFNAME"]]))
    """
    forget = """
        import os

        os.environ.pop("GLOO_SOCKET_IFNAME", None)
    """
    program = [LISTENING, *([] if chosen else [forget]), INSTALL, store]
    assert answer(*program, variables={"GLOO_SOCKET_IFNAME": chosen} if chosen else None) == [chosen or "lo"]


class Side:
    """As verl's sender and receiver of weights take where they meet."""

    def __init__(self, zmq_handle: str, size: int = 1) -> None:
        self.address = zmq_handle


class Sender(Side): ...


class Receiver(Side): ...


def test_trainings_that_ray_numbers_alike_send_their_weights_by_sockets_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sides: Any = SimpleNamespace(BucketedWeightSender=Sender, BucketedWeightReceiver=Receiver)
    private_stores.hide_weights(sides)
    found = set()
    for key in ("00" * 32, "11" * 32):
        monkeypatch.setenv("ELASTIC_QUEUE_KEY", key)
        for rank in range(2):
            handle = f"ipc:///tmp/rl-colocate-zmq-02000000-replica-0-rank-{rank}.sock"
            address = sides.BucketedWeightSender(handle, size=2).address
            assert sides.BucketedWeightReceiver(zmq_handle=handle).address == address
            assert re.fullmatch(rf"ipc://{tmp_path}/[0-9a-f]{{32}}", address)
            found.add(address)
    assert len(found) == 4


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "of others"])
def test_vllm_s_processes_install_it_where_they_are_ours(ours: bool) -> None:
    """Whichever way vLLM starts them; an engine that shares a model between GPUs has a store."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["vllm.general_plugins"] == {
        "elastic": "elastic_core.system.private_stores:install_in_vllm",
        "elastic-noise": "elastic_core.engines.seeded_noise:install_in_vllm",
    }
    program = f"""
        import json, os
        from torch import distributed
        from elastic_core.system.private_stores import install_in_vllm
        store = distributed.TCPStore
        {"" if ours else f"os.environ.pop({private_stores.VARIABLE!r}, None)"}
        install_in_vllm()
        print(json.dumps([distributed.TCPStore is not store]))
    """
    assert answer(program, variables=EngineParameters(device="cuda").environment if ours else None) == [ours]
