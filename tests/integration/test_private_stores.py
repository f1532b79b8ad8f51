"""torch's stores listen on the address they are called by, in a training of several processes too."""

import subprocess
import textwrap
from pathlib import Path

import psutil

from tasks.warm_start import Launch
from tests.unit.test_private_stores import REPOSITORY

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


def test_processes_of_torchrun_and_torchrun_itself_listen_on_loopback_only(tmp_path: Path) -> None:
    launch = Launch(cpu=True, num_processes=2, threads=1)
    (tmp_path / "member.py").write_text(textwrap.dedent(MEMBER))
    command = launch.command(tmp_path / "unused")
    command[command.index("elastic_core.training.sft") - 1 :] = [str(tmp_path / "member.py")]
    environment = {**dict(psutil.Process().environ()), "PYTHONPATH": str(REPOSITORY), **launch.environment()}
    output = subprocess.check_output(command, env=environment, text=True)
    (line,) = [line for line in output.splitlines() if line.startswith("found")]
    assert line.endswith("{'127.0.0.1'}") and int(line.split()[1]) >= 1
