"""Settings that a logits processor reads from vLLM and from a request, and which of vLLM's two runners it serves."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elastic_core.budget import UNLIMITED, Budget
from elastic_core.engines.parameters import vllm_version
from elastic_core.errors import UserError
from elastic_core.models.marks import Marks, Soft
from elastic_core.models.special_tokens import load_markers

THINK, SOLUTION = "think_budget", "solution_budget"  # Names in a request's `vllm_xargs`.
ROOM, CLOSED = "elastic_room", "elastic_closed"
"""Names of ours beside them: how many tokens the engine must have room for, and whether the prompt has closed its
thought, by one who has the prompt on the host."""
WORDS, SOFT = "elastic_words", "elastic_soft"
"""Names of what closes a thought otherwise than by think-end at t: ids before it, or window (0: a quarter) and rank."""
DROP_ONE = f'drop it, or lift the budget with "vllm_xargs": {{"{THINK}": "{UNLIMITED}", "{SOLUTION}": "{UNLIMITED}"}}'
"""What to do about a field that goes with no budget, the server's default included."""
_MOST = 2**31 - 1
_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # Of float32, without what some processors take for 0.
FIXED = "elastic-fixed"  # Header: true keeps a server under load from lowering the request's budget.
KEY = "elastic"  # In vLLM's `additional_config`, which every process of an engine gets.
OLDEST, V2_FROM, UNKNOWN_FROM = (0, 24), (0, 31), (0, 34)
"""Versions of vLLM whose interfaces were read; from the second on a GPU's runner is V2."""


def additional_config(marks: Marks) -> dict[str, Any]:
    return {KEY: dataclasses.asdict(marks)}


def marks_of(vllm_config: Any) -> Marks:
    """Reads `additional_config` back; without it marks are those that the model's tokenizer and chat template show.
    A ValueError when they show none."""
    found = (vllm_config.additional_config or {}).get(KEY)
    if found is None:
        return Marks.of(load_markers(vllm_config.model_config.tokenizer)[1])
    start, close, answer, end = (tuple(found[name]) for name in ("think_start", "close", "answer", "end_of_text"))
    ends, calls = (tuple(map(tuple, found[name])) for name in ("think_ends", "calls"))
    return Marks(start, ends, close, answer, end, calls=calls)


def closing_arguments(marks: Marks) -> dict[str, list[int]]:
    """The arguments of a request whose thought is closed by these marks; none where they are the model's."""
    soft = marks.soft and [marks.soft.window or 0, marks.soft.most]
    return {name: list(value) for name, value in ((WORDS, marks.words), (SOFT, soft)) if value}


def worded(marks: Marks, arguments: Mapping[str, Any]) -> Marks:
    """Marks of a request with `closing_arguments`. A ValueError names one that is not a list of numbers of tokens."""
    for name in (WORDS, SOFT):
        given = arguments.get(name, [])
        if not isinstance(given, list) or not all(type(each) is int and 0 <= each <= _MOST for each in given):
            raise ValueError(f"{name} is {given!r:.40}; expected whole numbers, or nothing")
        if name == SOFT and len(given) not in (0, 2):
            raise ValueError(f"{name} is {given!r:.40}; expected two whole numbers, window and rank, or nothing")
    if words := arguments.get(WORDS):
        marks = dataclasses.replace(marks, words=tuple(words))
    if soft := arguments.get(SOFT):
        window, most = soft
        marks = dataclasses.replace(marks, soft=Soft(window or None, most))
    return marks


def budget_of(sampling: Any) -> Budget | None:
    """The budget in vLLM's sampling parameters; raises as `read_budget`."""
    return read_budget(sampling.extra_args or {})


def read_budget(arguments: Mapping[str, Any], default: Budget | None = None) -> Budget | None:
    """The budget of a request, completed by the default; None when neither names a limit. A ValueError names a limit
    that is not a number of tokens, and the expected form."""
    think, solution = arguments.get(THINK), arguments.get(SOLUTION)
    if think is None and solution is None:
        return default
    default = default or Budget(None, None)
    return Budget(
        default.think if think is None else _tokens(THINK, think, least=0),
        default.solution if solution is None else _tokens(SOLUTION, solution, least=1),
    )


def _tokens(key: str, value: Any, least: int) -> int | None:
    if value == UNLIMITED:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(
            f'{key} is {value!r:.40}; expected a whole number of tokens from {least} to {_MOST}, or "{UNLIMITED}"'
        )
    return value


def _require_float32(sampling: Any) -> None:
    """Refuse numbers outside the range of float32, in which vLLM computes: there a penalty is 0 or infinite, and makes
    NaN of every logit, also in a row with a forced token."""
    fields = {name: getattr(sampling, name) for name in sampling.__struct_fields__}
    fields |= {f"logit_bias of {token}": value for token, value in (sampling.logit_bias or {}).items()}
    for name, value in fields.items():
        if isinstance(value, float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
            raise ValueError(f"{name} is {value!r}; expected 0, or a size from {_SMALLEST:g} to {_LARGEST:g} (float32)")


def validate(sampling: Any) -> None:
    """Check a request before it enters the engine. A ValueError refuses it, with a sentence for the client."""
    _require_float32(sampling)
    budget = budget_of(sampling)
    if budget is None:
        return
    worded(Marks((), (), (), (), ()), sampling.extra_args)
    if sampling.structured_outputs is not None and budget.solution is not None:
        raise ValueError(
            f"structured output together with {SOLUTION}: the grammar would reject a forced end-of-text, so the "
            f"server's middleware has to end the response; {DROP_ONE}"
        )
    if sampling.thinking_token_budget is not None:
        raise ValueError(f"thinking_token_budget together with a budget; {DROP_ONE}")
    if sampling.min_tokens:
        raise ValueError(f"min_tokens is {sampling.min_tokens} together with a budget; {DROP_ONE}")
    if sampling.ignore_eos:
        raise ValueError(f"ignore_eos together with a budget, whose solution ends at end-of-text; {DROP_ONE}")
    room = sampling.extra_args.get(ROOM, 0)
    if sampling.max_tokens is not None and sampling.max_tokens < room:
        raise ValueError(
            f"the budget {budget} does not fit the context: it takes {room} tokens after the prompt, which leaves "
            f"{sampling.max_tokens}; ask for a smaller one"
        )


class Runner(NamedTuple):
    """One of vLLM's model runners: its `--logits-processors`, as module:class, and the environment that selects it."""

    processor: str
    environment: dict[str, str]


V1 = Runner("elastic_core.engines.budgets.v1:SeparateBudgets", {"VLLM_USE_V2_MODEL_RUNNER": "0"})
V2 = Runner("elastic_core.engines.budgets.v2:SeparateBudgets", {"VLLM_USE_V2_MODEL_RUNNER": "1"})


DRAFTS_READ = "da260d7cdb2bdab87c78a3eed868ad31a2a1f2bf0607f5fbc90b42b4ba4e8f4e"
"""SHA-256 of vLLM's files that budgets under speculative decoding rest on, as they were read: those of 0.31."""
_READ_FILES = (
    "sample/logits_processor/interface.py",
    "sample/sampler.py",
    "spec_decode/rejection_sampler.py",
    "spec_decode/rejection_sampler_utils.py",
)


def refused_drafts(processor: str) -> str | None:
    """Why an engine with this processor keeps no budgets under speculative decoding, None where it does."""
    alone = "leave speculative decoding out"
    if processor != V2.processor:
        return f"budgets are served with speculative decoding on vLLM's V2 runner alone, on a GPU; {alone}"
    version, found = vllm_version(), find_spec("vllm")
    assert found is not None and found.origin is not None  # As there is a version.
    directory = Path(found.origin).parent / "v1" / "worker" / "gpu"
    files = [directory / name for name in _READ_FILES]
    read = hashlib.sha256(b"".join(file.read_bytes() for file in files if file.exists())).hexdigest()
    if read == DRAFTS_READ:
        return None
    return f"{version} verifies draft tokens in another way than the one that budgets were written for; {alone}"


def installed_runner(device: Literal["cpu", "cuda"]) -> Runner:
    return runner(vllm_version().rpartition(" ")[2], device)


def runner(version: str, device: Literal["cpu", "cuda"]) -> Runner:
    """The runner that keeps budgets in this version of vLLM, like "0.29.0". UserError when its interface is unknown."""
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= number < UNKNOWN_FROM:
        first, end = (".".join(map(str, bound)) for bound in (OLDEST, UNKNOWN_FROM))
        raise UserError(f"vLLM {version} is installed; budgets are served with {first} up to, not including, {end}")
    return V2 if device == "cuda" and number >= V2_FROM else V1
