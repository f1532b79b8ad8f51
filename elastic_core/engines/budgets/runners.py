"""Which of vLLM's two model runners decodes, and the logits processor that it takes."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from elastic_core.engines.parameters import vllm_version
from elastic_core.errors import UserError

OLDEST, V2_FROM, UNKNOWN_FROM = (0, 24), (0, 31), (0, 34)
"""Versions of vLLM whose interfaces were read; from the second on a GPU's runner is V2."""


class Runner(NamedTuple):
    """A runner of vLLM's.

    Attributes:
        processor: `--logits-processors`, as module:class.
        environment: what makes vLLM take this runner, whatever else it would.
    """

    processor: str
    environment: dict[str, str]


V1 = Runner("elastic_core.engines.budgets.v1:SeparateBudgets", {"VLLM_USE_V2_MODEL_RUNNER": "0"})
V2 = Runner("elastic_core.engines.budgets.v2:SeparateBudgets", {"VLLM_USE_V2_MODEL_RUNNER": "1"})


def installed_runner(device: Literal["cpu", "cuda"]) -> Runner:
    """That of the installed vLLM.

    Raises:
        UserError: as `runner`.
    """
    return runner(vllm_version().rpartition(" ")[2], device)


def runner(version: str, device: Literal["cpu", "cuda"]) -> Runner:
    """The runner that serves budgets.

    Args:
        version: of vLLM, like "0.29.0".

    Raises:
        UserError: when that version's interface is not known.
    """
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= number < UNKNOWN_FROM:
        first, end = (".".join(map(str, bound)) for bound in (OLDEST, UNKNOWN_FROM))
        raise UserError(f"vLLM {version} is installed; budgets are served with {first} up to, not including, {end}")
    return V2 if device == "cuda" and number >= V2_FROM else V1
