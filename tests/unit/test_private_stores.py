"""torch's stores listen on the address they are called by. In processes of their own, as a patch stays."""

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
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


def answer(*parts: str, variables: dict[str, str] | None = None) -> list[str]:
    """What a Python program prints at its end, as JSON."""
    program = "\n".join(textwrap.dedent(part) for part in parts)
    command = [sys.executable, "-c", program]
    environment = {**dict(psutil.Process().environ()), "PYTHONPATH": str(REPOSITORY), **(variables or {})}
    output = subprocess.check_output(command, env=environment, text=True, timeout=100)
    return list(json.loads(output.splitlines()[-1]))


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


MEMBER = """
    import psutil
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    found = [each for process in (psutil.Process(), psutil.Process().parent())
             for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    if dist.get_rank() == 0:
        print("found", len(found), {each.laddr.ip for each in found})
    dist.barrier()
"""


@pytest.mark.parametrize("several", [2])
def test_processes_of_torchrun_and_torchrun_itself_listen_on_loopback_only(several: int, tmp_path: Path) -> None:
    from tasks.warm_start import Launch

    launch = Launch(cpu=True, num_processes=several, threads=1)
    (tmp_path / "member.py").write_text(textwrap.dedent(MEMBER))
    command = launch.command(tmp_path / "unused")
    command[command.index("-m", 3) :] = [str(tmp_path / "member.py")]
    environment = {**dict(psutil.Process().environ()), "PYTHONPATH": str(REPOSITORY), **launch.environment()}
    output = subprocess.check_output(command, env=environment, text=True, timeout=200)
    (line,) = [line for line in output.splitlines() if line.startswith("found")]
    assert line.endswith("{'127.0.0.1'}") and int(line.split()[1]) >= 1


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
    program = (
        "from torch import distributed; store = distributed.TCPStore;"
        "from elastic_core.system.private_stores import install_in_vllm as install;"
        "install(); print(distributed.TCPStore is not store)"
    )
    variables = EngineParameters(device="cuda").environment if ours else {}
    environment = {name: value for name, value in os.environ.items() if name != private_stores.VARIABLE} | variables
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [str(ours)]
