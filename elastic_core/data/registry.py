"""Every data set we know, one entry each. To add one: an entry here, and a function in `mapping` unless one fits.

GitHub files are pinned by commit and sha256. Hub files are held to what the first fetch recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from elastic_core.data import miniature, user_dataset
from elastic_core.data.dataset import Dataset, Form, GitHub, Hub, Local, SourceFile
from elastic_core.data.mapping import answers, code, reference
from elastic_core.errors import UserError, nearest

RLLM = GitHub("agentica-project/rllm", "874daa4acb7f451dc2a4b2b6e8ce28f5aa88d1f5")
REASONFLUX = GitHub("Gen-Verse/ReasonFlux", "8980b8b9298e6a02f730a14579106bd5ba34fcb3")
ELASTIC_REASONING = GitHub("SalesforceAIResearch/Elastic-Reasoning", "8871a3c72bfd7409fd947f1116bb72c956c859aa")

_STATED = "as its repository states"
_math_train = partial(Dataset, split="train", domain="math", grader="math", prompt="boxed-v1")
_math = partial(_math_train, split="evaluation")
_code = partial(Dataset, split="evaluation", domain="code", grader="code", prompt="plain-v1")
_deepcoder = partial(_code, source=Hub("agentica-org/DeepCoder-Preview-Dataset"), licence="MIT", split="train")
_reference = partial(Dataset, split="reference", licence=_STATED, form=Form.RECORDS)
_conversations = partial(
    Dataset,
    files=(SourceFile("*.json"),),
    licence=_STATED,
    split="train",
    domain="templates",
    map=reference.alpaca,
    form=Form.CONVERSATIONS,
)


def _file(path: str, sha256: str | None = None, size: int | None = None) -> tuple[SourceFile, ...]:
    return (SourceFile(path, sha256, size),)


def _rllm(path: str, sha256: str, size: int) -> dict[str, Any]:
    """A file below rllm/data."""
    return {"source": RLLM, "files": _file(f"rllm/data/{path}", sha256, size), "licence": "MIT"}


_ENTRIES = (
    _math_train(
        name="deepscaler",
        description="DeepScaleR-Preview, which E1-Math is trained on",
        source=Hub("agentica-org/DeepScaleR-Preview-Dataset"),
        files=_file("deepscaler.json"),
        licence="MIT",
        rows=40315,
        map=answers.plain,
    ),
    _math_train(
        name="aime-1983-2023",
        description="AIME problems from 1983 to 2023",
        **_rllm("train/math/aime.json", "78f1b9bae6d00794b43e79a5842917f7ef4e355d9b705743c61f255f3c7c5d49", 1289048),
        rows=975,
        map=answers.aime,
    ),
    _math_train(
        name="math-train",
        description="MATH, the training problems",
        **_rllm("train/math/math.json", "569230b362fd501e1a33d8f29aae3b4b989d32e2b91b07c3f48493528c3bf6d2", 2385902),
        rows=7474,
        map=answers.plain,
    ),
    _deepcoder(
        name="deepcoder-primeintellect",
        description="DeepCoder-Preview: verified problems of SYNTHETIC-1",
        files=_file("primeintellect/train-*.parquet"),
        map=code.primeintellect,
        cuts_tests=True,
    ),
    _deepcoder(
        name="deepcoder-taco",
        description="DeepCoder-Preview: verified problems of TACO",
        files=_file("taco/train-*.parquet"),
        map=code.taco,
        cuts_tests=True,
    ),
    _deepcoder(
        name="deepcoder-lcbv5",
        description="DeepCoder-Preview: LiveCodeBench before August 2024",
        files=_file("lcbv5/train-*.parquet"),
        map=code.livecodebench_train,
        prompt="livecodebench-v1",
    ),
    _math(
        name="aime-2024",
        description="AIME 2024, both contests",
        **_rllm("test/math/aime.json", "03fd341fee10fb71cf906be4eb3042081f314c4d16077489e41f9375085d20d2", 38011),
        rows=30,
        map=answers.aime,
    ),
    _math(
        name="aime-2025",
        description="AIME 2025, both contests, without figures",
        source=REASONFLUX,
        files=_file(
            "ReasonFlux_v2/eval/dataset/AIME25/aime25_nofigures.jsonl",
            "d8538a5a10c511a03558a2d6cef8d5a0e3012d0505a45c06f9caab715c966ca3",
            12091,
        ),
        licence=_STATED,
        rows=30,
        map=answers.aime25,
    ),
    _math(
        name="amc",
        description="AMC 12 of 2022 and 2023",
        **_rllm("test/math/amc.json", "2666a217cb566efb77ebfce61841d5d8855d4b4be89633b29df3a43dcfd942dd", 38170),
        rows=83,
        map=answers.number,
    ),
    _math(
        name="math500",
        description="MATH500",
        **_rllm("test/math/math.json", "02e232722dd1f9ab307124bfff40621d32193632b6b84aa9a246e701f0478141", 172073),
        rows=500,
        map=answers.math500,
    ),
    _math(
        name="minerva",
        description="Minerva's undergraduate problems, with accepted variants of answers",
        **_rllm("test/math/minerva.json", "ba6147602d8b2f9071ecf578e29aa1100c634bdfa982d4c6745c2bd3077554ba", 269352),
        rows=272,
        map=answers.minerva,
    ),
    _math(
        name="olympiadbench",
        description="OlympiadBench in English, with several answers, tolerances and units",
        **_rllm(
            "test/math/olympiad_bench.json", "c1e099f7b5830fb843fa52d48d0af8a296a94745cb5981b4ce539dd18af6f8ee", 1582347
        ),
        rows=675,
        map=answers.olympiad,
    ),
    Dataset(
        name="gpqa-diamond",
        description="GPQA-Diamond, gated on the hub",
        source=Hub("Idavidrein/gpqa", gated=True),
        files=_file("gpqa_diamond.csv"),
        licence="CC-BY-4.0",
        split="evaluation",
        domain="science",
        rows=198,
        map=answers.gpqa,
        grader="choice",
        prompt="choice-v1",
    ),
    _code(
        name="livecodebench",
        description="LiveCodeBench v5, contests from 2024-08-01 to 2025-01-31",
        source=Hub("livecodebench/code_generation_lite"),
        files=tuple(SourceFile(f"test{part}.jsonl") for part in ("", 2, 3, 4, 5)),
        licence="CC",
        rows=279,
        map=code.livecodebench,
        prompt="livecodebench-v1",
    ),
    _code(
        name="codeforces",
        description="Codeforces contests, most problems with their sample test only",
        **_rllm(
            "test/code/codeforces.json", "8e9eab7fce7e432abe4437dd997c16f1514be51d224f2d72a7bd07d58cce476a", 851284
        ),
        rows=408,
        map=code.codeforces,
        ids="codeforces-ids",
        needs=("codeforces-ratings",),
    ),
    _code(
        name="humaneval-plus",
        description="HumanEval+",
        source=Hub("evalplus/humanevalplus"),
        files=_file("data/test-*.parquet"),
        licence="Apache-2.0",
        rows=164,
        map=code.humaneval_plus,
        prompt="evalplus-v1",
    ),
    _code(
        name="humaneval-plus-bare",
        description="HumanEval+ as DeepCoder and E1 have it: bare prompts, without problem 32",
        source=Hub("evalplus/humanevalplus"),
        files=_file("data/test-*.parquet"),
        licence="Apache-2.0",
        map=code.humaneval_plus_bare,
    ),
    _code(
        name="leetcode",
        description="LeetCode, a class with a method each",
        **_rllm("test/code/leetcode.json", "a0664eee5e7356af13a01932bbe625bb8a0c15f067f5a964bc96f45ba439e66c", 319787),
        rows=200,
        map=code.leetcode,
    ),
    _reference(
        name="codeforces-ids",
        description="contest and letter of each problem of `codeforces`",
        source=ELASTIC_REASONING,
        files=_file(
            "scripts/deepcoder/benchmark/codeforces/metadata_cf.json",
            "db36f9362f305a1bffc5d4a0554207d6bf2f07f9c6f865fca44c7d69045968b2",
            5370,
        ),
        domain="code",
        rows=408,
        map=reference.ids,
    ),
    _reference(
        name="codeforces-ratings",
        description="users at each Codeforces rating in 2024, for percentiles",
        source=ELASTIC_REASONING,
        files=_file(
            "scripts/deepcoder/benchmark/codeforces/ratings_2024.json",
            "ed2a232032db90e3be586163aa14fa9be820aae4e9bcad41a03d6a21b45de814",
            28548,
        ),
        domain="code",
        rows=2502,
        map=reference.ratings,
    ),
    _reference(
        name="reasonflux-templates",
        description="ReasonFlux's library of thought templates",
        source=REASONFLUX,
        files=_file(
            "ReasonFlux_v1/data/template_library.json",
            "db7875e36973b068e3056521f5a62a987a951f42bff29edced88f8e3b0993247",
            1183153,
        ),
        domain="templates",
        rows=420,
        map=reference.template_library,
    ),
    _conversations(
        name="reasonflux-f1-sft",
        description="trajectories that ReasonFlux-F1 is fine-tuned on",
        source=Hub("Gen-Verse/ReasonFlux-F1-SFT"),
    ),
    _conversations(
        name="reasonflux-sft-15k",
        description="conversations that ReasonFlux-Zero is fine-tuned on",
        source=Hub("Gen-Verse/ReasonFlux_SFT_15k"),
    ),
)

REGISTRY: dict[str, Dataset] = {entry.name: entry for entry in (*_ENTRIES, *miniature.ENTRIES)}
"""Data sets by name."""

STAND_INS = "stand-ins"
"""Below the directory of the user's data sets, in the runs directory of a rehearsal: files that are read in place
of those of the registry's data sets."""


def all_datasets(user_directory: Path) -> dict[str, Dataset]:
    """The registry, and what `elastic data add` recorded below `user_directory`.

    Raises:
        UserError: when a user's data set has the name of one of the registry.
    """
    users = user_dataset.load(user_directory)
    for name in users.keys() & REGISTRY.keys():
        raise UserError(f'{user_directory / name}.json: "{name}" is a data set of the registry; choose another name')
    return {name: _or_stand_in(entry, user_directory / STAND_INS) for name, entry in REGISTRY.items()} | users


def _or_stand_in(entry: Dataset, directory: Path) -> Dataset:
    """The data set with its stand-in rows, if they were written below `directory`; else itself."""
    file = stand_in_file(entry, directory) if entry.files else None
    if file is None or not file.exists():
        return entry
    return replace(entry, source=Local(directory), files=_file(file.name), rows=None)


def stand_in_file(entry: Dataset, directory: Path) -> Path:
    """Where the rows lie that stand in for those of a data set that has files."""
    return directory / f"{entry.name}{Path(entry.files[0].path).suffix}"


def select(names: Iterable[str], known: dict[str, Dataset]) -> list[Dataset]:
    """Data sets by name, once each, with those they refer to, in the order asked for.

    Raises:
        UserError: an unknown name, with the nearest known one.
    """
    chosen: dict[str, Dataset] = {}
    for name in names:
        if name not in known:
            raise UserError(f'unknown data set "{name}"{nearest(name, known)}; `elastic data list` shows them all')
        entry = known[name]
        for needed in (*entry.needs, *([entry.ids] if entry.ids else [])):
            chosen[needed] = known[needed]
        chosen[name] = entry
    return list(chosen.values())
