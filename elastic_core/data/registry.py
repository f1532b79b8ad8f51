"""Every data set that we know, one entry each. To add one: an entry here, and a mapping function unless one fits.

GitHub files are pinned by commit and sha256. Hub files are held to what the first fetch recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from elastic_core.data import mapping, mapping_code, user_dataset, word_problems
from elastic_core.data.dataset import Dataset, Form, Generated, GitHub, Hub, Local, SourceFile
from elastic_core.errors import UserError, nearest
from elastic_core.miniature.problems import DATA_SOURCE, LEVELS, TRAIN, VALIDATION
from elastic_core.system.fingerprint import sha256_file

RLLM = GitHub("agentica-project/rllm", "874daa4acb7f451dc2a4b2b6e8ce28f5aa88d1f5")
REASONFLUX = GitHub("Gen-Verse/ReasonFlux", "8980b8b9298e6a02f730a14579106bd5ba34fcb3")
ELASTIC_REASONING = GitHub("SalesforceAIResearch/Elastic-Reasoning", "8871a3c72bfd7409fd947f1116bb72c956c859aa")

_STATED = "as its repository states"


def _github(
    source: GitHub, path: str, size: int, sha256: str, folder: str = "", licence: str = _STATED
) -> dict[str, Any]:
    """A file, held to its size in bytes and its sha256."""
    return {"source": source, "files": (SourceFile(folder + path, sha256, size),), "licence": licence}


def _hub(repository: str, *paths: str, licence: str) -> dict[str, Any]:
    return {"source": Hub(repository), "files": tuple(map(SourceFile, paths)), "licence": licence}


_rllm = partial(_github, RLLM, folder="rllm/data/", licence="MIT")
_deepcoder = partial(_hub, "agentica-org/DeepCoder-Preview-Dataset", licence="MIT")
_humaneval_plus = partial(_hub, "evalplus/humanevalplus", "data/test-*.parquet", licence="Apache-2.0")
_livecodebench = [f"test{part}.jsonl" for part in ("", 2, 3, 4, 5)]

_math_train = partial(Dataset, split="train", domain="math", grader="math", prompt="boxed-v1")
_math = partial(_math_train, split="evaluation")
_code = partial(Dataset, split="evaluation", domain="code", grader="code", prompt="plain-v1")
_code_train = partial(_code, split="train")
_reference = partial(Dataset, split="reference", form=Form.RECORDS)
_conversations = partial(Dataset, split="train", domain="templates", map=mapping.alpaca, form=Form.CONVERSATIONS)
# fmt: off
_generated = partial(Dataset, source=Generated(f"elastic_core.{DATA_SOURCE}"), files=(), licence="that of this project",
                     domain="arithmetic", map=mapping.arithmetic, grader="math", prompt="plain-v1")
_words = partial(_generated, source=Generated(word_problems.MODULE))

_ENTRIES = (
    _math_train("deepscaler", "DeepScaleR-Preview, which E1-Math is trained on", rows=40315, map=mapping.plain,
                **_hub("agentica-org/DeepScaleR-Preview-Dataset", "deepscaler.json", licence="MIT")),
    _math_train("aime-1983-2023", "AIME problems from 1983 to 2023", rows=975, map=mapping.aime,
                **_rllm("train/math/aime.json", 1289048,
                        "78f1b9bae6d00794b43e79a5842917f7ef4e355d9b705743c61f255f3c7c5d49")),
    _math_train("math-train", "MATH, the training problems", rows=7474, map=mapping.plain,
                **_rllm("train/math/math.json", 2385902,
                        "569230b362fd501e1a33d8f29aae3b4b989d32e2b91b07c3f48493528c3bf6d2")),
    _code_train("deepcoder-primeintellect", "DeepCoder-Preview: verified problems of SYNTHETIC-1",
                map=mapping_code.primeintellect, cuts_tests=True, **_deepcoder("primeintellect/train-*.parquet")),
    _code_train("deepcoder-taco", "DeepCoder-Preview: verified problems of TACO",
                map=mapping_code.taco, cuts_tests=True, **_deepcoder("taco/train-*.parquet")),
    _code_train("deepcoder-lcbv5", "DeepCoder-Preview: LiveCodeBench before August 2024",
                map=mapping_code.livecodebench_train, prompt="livecodebench-v1",
                **_deepcoder("lcbv5/train-*.parquet")),
    _math("aime-2024", "AIME 2024, both contests", rows=30, map=mapping.aime,
          **_rllm("test/math/aime.json", 38011,
                  "03fd341fee10fb71cf906be4eb3042081f314c4d16077489e41f9375085d20d2")),
    _math("aime-2022-2024", "AIME 2022 to 2024; those before 2024 are in DeepScaleR too", rows=90,
          map=mapping.aime_of_late, source=RLLM, licence="MIT", files=(
              SourceFile("rllm/data/train/math/aime.json",
                         "78f1b9bae6d00794b43e79a5842917f7ef4e355d9b705743c61f255f3c7c5d49", 1289048),
              SourceFile("rllm/data/test/math/aime.json",
                         "03fd341fee10fb71cf906be4eb3042081f314c4d16077489e41f9375085d20d2", 38011))),
    _math("aime-2025", "AIME 2025, both contests, without figures", rows=30, map=mapping.aime25,
          **_github(REASONFLUX, "ReasonFlux_v2/eval/dataset/AIME25/aime25_nofigures.jsonl", 12091,
                    "d8538a5a10c511a03558a2d6cef8d5a0e3012d0505a45c06f9caab715c966ca3")),
    _math("amc", "AMC 12 of 2022 and 2023", rows=83, map=mapping.number,
          **_rllm("test/math/amc.json", 38170,
                  "2666a217cb566efb77ebfce61841d5d8855d4b4be89633b29df3a43dcfd942dd")),
    _math("math500", "MATH500", rows=500, map=mapping.math500,
          **_rllm("test/math/math.json", 172073,
                  "02e232722dd1f9ab307124bfff40621d32193632b6b84aa9a246e701f0478141")),
    _math("minerva", "Minerva's undergraduate problems, with accepted variants of answers", rows=272,
          map=mapping.minerva,
          **_rllm("test/math/minerva.json", 269352,
                  "ba6147602d8b2f9071ecf578e29aa1100c634bdfa982d4c6745c2bd3077554ba")),
    _math("olympiadbench", "OlympiadBench in English, with several answers, tolerances and units", rows=675,
          map=mapping.olympiad,
          **_rllm("test/math/olympiad_bench.json", 1582347,
                  "c1e099f7b5830fb843fa52d48d0af8a296a94745cb5981b4ce539dd18af6f8ee")),
    Dataset("gpqa-diamond", "GPQA-Diamond, gated on the hub", split="evaluation", domain="science", rows=198,
            map=mapping.gpqa, grader="choice", prompt="choice-v1",
            **_hub("Idavidrein/gpqa", "gpqa_diamond.csv", licence="CC-BY-4.0")),
    _code("livecodebench", "LiveCodeBench v5, contests from 2024-08-01 to 2025-01-31", rows=279,
          map=mapping_code.livecodebench, prompt="livecodebench-v1",
          **_hub("livecodebench/code_generation_lite", *_livecodebench, licence="CC")),
    _code("codeforces", "Codeforces contests, most problems with their sample test only", rows=408,
          map=mapping_code.codeforces, clusters=r"^(\d+)", ids="codeforces-ids", needs=("codeforces-ratings",),
          **_rllm("test/code/codeforces.json", 851284,
                  "8e9eab7fce7e432abe4437dd997c16f1514be51d224f2d72a7bd07d58cce476a")),
    _code("humaneval-plus", "HumanEval+", rows=164, map=mapping_code.humaneval_plus, prompt="evalplus-v1",
          **_humaneval_plus()),
    _code("humaneval-plus-bare", "HumanEval+ as DeepCoder and E1 have it: bare prompts, without problem 32",
          map=mapping_code.humaneval_plus_bare, **_humaneval_plus()),
    _code("leetcode", "LeetCode, a class with a method each", rows=200, map=mapping_code.leetcode,
          **_rllm("test/code/leetcode.json", 319787,
                  "a0664eee5e7356af13a01932bbe625bb8a0c15f067f5a964bc96f45ba439e66c")),
    _reference("codeforces-ids", "contest and letter of each problem of `codeforces`", domain="code", rows=408,
               map=mapping.ids,
               **_github(ELASTIC_REASONING, "scripts/deepcoder/benchmark/codeforces/metadata_cf.json", 5370,
                         "db36f9362f305a1bffc5d4a0554207d6bf2f07f9c6f865fca44c7d69045968b2")),
    _reference("codeforces-ratings", "users at each Codeforces rating in 2024, for percentiles", domain="code",
               rows=2502, map=mapping.ratings,
               **_github(ELASTIC_REASONING, "scripts/deepcoder/benchmark/codeforces/ratings_2024.json", 28548,
                         "ed2a232032db90e3be586163aa14fa9be820aae4e9bcad41a03d6a21b45de814")),
    _reference("reasonflux-templates", "ReasonFlux's library of thought templates", domain="templates", rows=420,
               map=mapping.template_library,
               **_github(REASONFLUX, "ReasonFlux_v1/data/template_library.json", 1183153,
                         "db7875e36973b068e3056521f5a62a987a951f42bff29edced88f8e3b0993247")),
    _conversations("reasonflux-f1-sft", "trajectories that ReasonFlux-F1 is fine-tuned on",
                   **_hub("Gen-Verse/ReasonFlux-F1-SFT", "*.json", licence=_STATED)),
    _conversations("reasonflux-sft-15k", "conversations that ReasonFlux-Zero is fine-tuned on",
                   **_hub("Gen-Verse/ReasonFlux_SFT_15k", "*.json", licence=_STATED)),
    _generated(TRAIN, "chains of additions and subtractions, both levels", split="train"),
    _generated(VALIDATION, "what training is watched on, both levels", split="validation"),
    *(_generated(f"{DATA_SOURCE}-{level}", f"the {level} level", split="evaluation") for level in LEVELS),
    _words(word_problems.TRAIN, "word problems in plain English, both levels", split="train"),
    _words(word_problems.VALIDATION, "what training is watched on, both levels", split="validation"),
    *(_words(f"{word_problems.DATA_SOURCE}-{level}", f"the {level} level", split="evaluation") for level in LEVELS),
    _words(word_problems.SFT, "word problems with thoughts to imitate, both levels", split="train",
           domain="templates", map=mapping.alpaca, form=Form.CONVERSATIONS, grader=None, prompt=None),
)
# fmt: on

REGISTRY: dict[str, Dataset] = {entry.name: entry for entry in _ENTRIES}  # data sets by name

STAND_INS = "stand-ins"
"""Below the directory of the user's data sets, in the runs directory of a rehearsal: files that are read in place
of those of the registry's data sets."""


def all_datasets(user_directory: Path) -> dict[str, Dataset]:
    """The registry, and what `elastic data add` recorded below `user_directory`. UserError for a name that both
    have."""
    users = user_dataset.load(user_directory)
    for name in users.keys() & REGISTRY.keys():
        raise UserError(f'{user_directory / name}.json: "{name}" is a data set of the registry; choose another name')
    known, directory = dict(REGISTRY), user_directory / STAND_INS
    for name, entry in REGISTRY.items():
        if entry.files and (file := stand_in_file(entry, directory)).exists():
            files = (SourceFile(file.name, sha256_file(file)),)
            known[name] = replace(entry, source=Local(directory), files=files, rows=None)
    return known | users


def stand_in_file(entry: Dataset, directory: Path) -> Path:
    """File of the rows that stand in for those of a data set with files."""
    return directory / f"{entry.name}{Path(entry.files[0].path).suffix}"


def select(names: Iterable[str], known: dict[str, Dataset]) -> list[Dataset]:
    """Data sets by name, in this order, with those they refer to. UserError for an unknown name, with the nearest."""
    chosen: dict[str, Dataset] = {}
    for name in names:
        if name not in known:
            raise UserError(f'unknown data set "{name}"{nearest(name, known)}; `elastic data list` shows them all')
        entry = known[name]
        for needed in (*entry.needs, *([entry.ids] if entry.ids else [])):
            chosen[needed] = known[needed]
        chosen[name] = entry
    return list(chosen.values())
