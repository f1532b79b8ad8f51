"""Memory that a training on a CPU no longer needs goes back to the machine."""

import os

from elastic_core.training.launch import KEPT_MEMORY
from tests.processes import python

PIECES = """
import os, torch
from elastic_core.training.cpu import CpuDevice
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
pieces = [torch.zeros(2**20) for _ in range(128)]
del pieces[1::2]
kept = resident()
CpuDevice.empty_cache()
print(kept - resident())
"""


def test_kept_memory_is_given_back_where_verl_empties_the_cache() -> None:
    """Here 256 MiB, in pieces of 4 MiB between others that are in use."""
    assert int(python(PIECES, environment=os.environ | KEPT_MEMORY).stdout) > 200 * 2**20
