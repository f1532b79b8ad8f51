"""A seed is a function of the draw, never of its time: a resumed run draws as an uninterrupted one would have."""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic_core.strategies import Generate


def problem_digest(benchmark: str, problem: str) -> str:
    """What problems are put in order by: it knows nothing of them but their names, nor of a sweep's seed."""
    return hashlib.blake2b(f"{benchmark}\0{problem}".encode(), digest_size=8).hexdigest()


def sample_seed(seed: int, benchmark: str, problem: str, number: int) -> int:
    """The seed of a sample from the sweep's. It is the same in every cell, so cells of one sample draw the same thought
    and their differences are paired. Non-negative, below 2**63."""
    digest = hashlib.blake2b(f"{seed}\0{benchmark}\0{problem}\0{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def cell_seed(seed: int, strategy: str, budget: str) -> int:
    """The seed of one cell of a sample, from the sample's, where cells share nothing. Non-negative, below 2**31."""
    return _hashed(f"{seed}/{strategy}/{budget}")


def request_seed(seed: int, request: Generate) -> int:
    """The seed of one request from the sample's seed, the prefix and the draw's number. Non-negative, below 2**31."""
    digest = hashlib.blake2b(digest_size=8, person=request.draw.to_bytes(8, "little"))
    digest.update(seed.to_bytes(8, "little", signed=True))
    digest.update(array("I", request.prefix).tobytes())
    return int.from_bytes(digest.digest(), "little") & 0x7FFFFFFF


def rollout_seed(run_seed: int, *, step: int, source: str, index: int, session: int) -> int:
    """The seed of one rollout from its place in the run. A resumed run repeats the draws where sampler and updates are
    deterministic, on a CPU. On a GPU near ties depend on the batch, and atomic additions differ in the last bits."""
    return _hashed(f"{run_seed}/{step}/{source}/{index}/{session}")


def group_seed(run_seed: int, *, step: int, source: str, index: int) -> int:
    """The seed of the budget and of L1's length, which all rollouts of a problem in one step share."""
    return _hashed(f"{run_seed}/{step}/{source}/{index}")


def _hashed(place: str) -> int:
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "little") & 0x7FFFFFFF
