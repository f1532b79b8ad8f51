"""Verdicts of the authors' program on the pairs in `tests/published`, made anew from a checkout of it.

    git clone https://github.com/SalesforceAIResearch/Elastic-Reasoning && git -C Elastic-Reasoning checkout 8871a3c
    python -m venv theirs && theirs/bin/pip install pylatexenc==2.10 sympy numpy pandas psutil
    PATH=$PWD/theirs/bin:$PATH python -m tests.published_pairs Elastic-Reasoning

It says which verdicts changed and, with --write, stores them. It runs the stored programs without a sandbox: they are
ours. Their program imports clients of other services, which it needs for no rule; an empty module stands in for them.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

FILES = sorted((Path(__file__).parent / "published").glob("*.json"))
_DATA_SOURCES = {"humaneval-plus-bare": "humanevalplus", "deepcoder-taco": "taco"}


def groups(path: Path) -> list[dict[str, Any]]:
    """Groups of pairs of one form: `form`, `benchmark`, and `pairs` of text, truth and verdict. Texts are answers,
    which belong in a box, or whole responses; truths are those of the benchmark's file. Programs have one truth for the
    group: the fields of a `CodeTruth` under `truth`, and pairs of text and verdict."""
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def response(group: dict[str, Any], text: str) -> str:
    """What is graded of a pair."""
    return f"</think>\\boxed{{{text}}}" if group.get("texts") == "answers" else text


def tests_of(truth: dict[str, Any], benchmark: str) -> Any:
    """Tests as their files have them."""
    if truth["kind"] == "check":
        return truth["code"]
    if benchmark == "deepcoder-taco":
        inputs, outputs = zip(*truth["tests"], strict=True)
        return {"inputs": inputs, "outputs": outputs}
    extra = {"testtype": truth["kind"], "metadata": {"func_name": truth.get("method")}}
    return [{"input": given, "output": wanted, **extra} for given, wanted in truth["tests"]]


def verdicts(checkout: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Each file, and its groups with the verdicts of the checkout."""
    sys.path.insert(0, str(checkout))
    sys.modules["rllm.utils"] = ModuleType("rllm.utils")
    vars(sys.modules["rllm.utils"]).update(call_gemini_llm=None, call_oai_rm_llm=None)
    inspect.getargspec = inspect.getfullargspec  # type: ignore[attr-defined]  # Python 3.10's, which they import
    import pandas  # noqa: F401  # every program imports it, within a time on the clock
    from rllm.rewards.rl_reward import rllm_reward_fn as grade

    for path in FILES:
        made = groups(path)
        for group in made:
            benchmark = group["benchmark"]
            for pair in group["pairs"]:
                text = response(group, pair[0])
                if "truth" in group:
                    tests = json.dumps(tests_of(group["truth"], benchmark))
                    pair[-1] = int(grade(_DATA_SOURCES.get(benchmark, benchmark), text, tests))
                else:
                    pair[-1] = int(grade("", text, pair[1]["answer"] if isinstance(pair[1], dict) else pair[1]))
        yield path, made


def stored(made: list[dict[str, Any]]) -> str:
    """A pair on each line."""
    text = []
    for group in made:
        head = json.dumps({**group, "pairs": []}, ensure_ascii=False).removesuffix("]}")
        text.append(head + "\n" + ",\n".join(json.dumps(pair, ensure_ascii=False) for pair in group["pairs"]) + "\n]}")
    return "[\n" + ",\n".join(text) + "\n]\n"


if __name__ == "__main__":
    os.environ["PYTHONHASHSEED"] = "0"
    for path, made in verdicts(Path(sys.argv[1]).resolve()):
        for before, after in zip(groups(path), made, strict=True):
            for old, new in zip(before["pairs"], after["pairs"], strict=True):
                if old != new:
                    print(f"{path.name}, {after['benchmark']}, {after['form']}: {new[0]!r} was {old[-1]}, is {new[-1]}")
        if "--write" in sys.argv:
            path.write_text(stored(made), encoding="utf-8")
