"""Building 40,000 mathematical rows, against the obvious conversion with pandas; what decontamination
costs; and the memory that programming problems with 100 MB of tests each take.

Each measurement is a process of its own, so that its peak memory is its own. A few rows go first, so that neither
imports nor the start of thread pools are timed.
"""

from __future__ import annotations

import base64
import json
import pickle
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from tqdm import tqdm

from elastic_core.data.build import DataBuild, Sets
from elastic_core.data.clean import write_final
from elastic_core.data.dataset import Dataset
from elastic_core.data.decontaminate import Ngrams, find_overlaps
from elastic_core.data.fetch import Fetched, FetchedDataset
from elastic_core.data.problems import prompt_lengths
from elastic_core.data.registry import REGISTRY
from elastic_core.miniature.warm_start import BASE
from tests.bench import results
from tests.bench.inputs import missing_upstream, upstream_files

NUM_ROWS = 40_000
REPEATS = 5
NUM_CODE_ROWS = 8
WARM_UP = "warm-up"
"""Directory of a few rows."""
(SOURCE,) = upstream_files("aime-1983-2023")
(EVALUATION,) = upstream_files("math500")
ENTRY: Dataset = replace(REGISTRY["deepscaler"], rows=None)


def build(directory: Path) -> None:
    """As `elastic_core.data.build` does it: the raw file, a clean table with every row checked, verl's parquet."""
    raw = directory / "rows.json"
    fetched = FetchedDataset((Fetched(raw, raw.name, "", raw.stat().st_size),), None)
    plan = DataBuild([ENTRY], {ENTRY.name: fetched}, BASE, max_prompt_tokens=1024)
    with tempfile.TemporaryDirectory(dir=directory) as target:
        clean = Sets(plan, Path(target)).clean(ENTRY)
        write_final(ENTRY, clean, Path(target) / "verl.parquet", pl.Series([], dtype=pl.String))


def pandas(directory: Path) -> None:
    """Row by row, as a first version would: nothing is checked and there is no clean table."""
    import pandas

    instruction = "Let's think step by step and output the final answer within \\boxed{}."
    rows = []
    for index, row in pandas.read_json(directory / "rows.json").iterrows():
        rows.append(
            {
                "data_source": "deepscaler",
                "prompt": [{"role": "user", "content": f"{row['problem']} {instruction}"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(row["answer"])},
                "extra_info": {"split": "train", "index": index},
            }
        )
    pandas.DataFrame(rows).to_parquet(directory / "pandas.parquet")


def code(directory: Path) -> None:
    """LiveCodeBench's format, from the raw file to verl's parquet, as `build` is timed."""
    entry = replace(REGISTRY["livecodebench"], rows=None)
    raw = directory / "code.jsonl"
    fetched = FetchedDataset((Fetched(raw, raw.name, "", raw.stat().st_size),), None)
    plan = DataBuild([entry], {entry.name: fetched}, BASE, max_prompt_tokens=1024)
    with tempfile.TemporaryDirectory(dir=directory) as target:
        clean = Sets(plan, Path(target)).clean(entry)
        write_final(entry, clean, Path(target) / "verl.parquet", pl.Series([], dtype=pl.String))


def write_code_rows(file: Path, num: int, test_bytes: int) -> None:
    """Rows whose hidden tests, decoded, have this size: ten inputs of random numbers each."""
    with file.open("w") as stream:
        for number in range(num):
            numbers = random.Random(number).choices(range(10**6), k=max(1, test_bytes // 80))
            test = {"input": " ".join(map(str, numbers)), "output": "1", "testtype": "stdin"}
            hidden = pickle.dumps(json.dumps([test] * 10))
            row = {
                "question_id": str(number),
                "question_content": "Sort.",
                "contest_date": "2024-09-01T00:00:00",
                "starter_code": "",
                "public_test_cases": json.dumps([{"input": "1", "output": "1", "testtype": "stdin"}]),
                "private_test_cases": base64.b64encode(zlib.compress(hidden, 1)).decode(),
                "metadata": "{}",
            }
            stream.write(json.dumps(row) + "\n")


def overlap(directory: Path) -> None:
    """Exact and 13-gram overlap with MATH500."""
    train = pl.read_json(directory / "rows.json", schema={"problem": pl.String})["problem"]
    evaluation = pl.read_json(EVALUATION)["problem"]
    find_overlaps(Ngrams.of(train), Ngrams.of(evaluation))


def lengths(directory: Path) -> None:
    """Prompt lengths with the miniature's tokenizer, which makes about a token of every character."""
    from transformers import AutoTokenizer

    train = pl.read_json(directory / "rows.json", schema={"problem": pl.String})["problem"].to_list()
    prompt_lengths(AutoTokenizer.from_pretrained(str(BASE)), train)


TASKS: dict[str, Callable[[Path], None]] = {task.__name__: task for task in (build, pandas, code, overlap, lengths)}


def measure(task: str, directory: Path) -> dict[str, float]:
    """Seconds and peak MiB of a task in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.bench_data", task, str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_task(task: str, directory: Path) -> None:
    TASKS[task](directory / WARM_UP)
    started = time.perf_counter()
    TASKS[task](directory)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main() -> None:
    if reason := missing_upstream("aime-1983-2023", "math500"):
        print(f"{results.SKIPPED}{reason}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        rows = json.loads(SOURCE.read_text())
        (directory / WARM_UP).mkdir()
        (directory / WARM_UP / "rows.json").write_text(json.dumps(rows[:10]))
        (directory / "rows.json").write_text(json.dumps((rows * (NUM_ROWS // len(rows) + 1))[:NUM_ROWS]))
        write_code_rows(directory / WARM_UP / "code.jsonl", 2, 1000)
        write_code_rows(directory / "code.jsonl", NUM_CODE_ROWS, 100_000_000)
        # Alternating, so that a busy moment of the machine meets both.
        found: dict[str, list[dict[str, float]]] = {task: [] for task in TASKS}
        for task in tqdm(
            [task for _ in range(REPEATS) for task in ("build", "pandas")] + ["code", "overlap", "lengths"]
        ):
            found[task].append(measure(task, directory))
    report(found)


def report(found: dict[str, list[dict[str, float]]]) -> None:
    seconds = {task: statistics.median(run["seconds"] for run in runs) for task, runs in found.items()}
    peaks = {task: max(run["peak_mib"] for run in runs) for task, runs in found.items()}
    ratios = [p["seconds"] / b["seconds"] for b, p in zip(found["build"], found["pandas"], strict=True)]
    result: dict[str, Any] = {
        "rows": NUM_ROWS,
        "repeats": REPEATS,
        "build_seconds": seconds["build"],
        "pandas_seconds": seconds["pandas"],
        "pandas_ratio": statistics.median(ratios),
        "pandas_ratio_range": [min(ratios), max(ratios)],
        "peak_mib": peaks["build"],
        "code_rows": NUM_CODE_ROWS,
        "code_seconds": seconds["code"],
        "code_peak_mib": peaks["code"],
        "overlap_seconds": seconds["overlap"],
        "lengths_seconds": seconds["lengths"],
    }
    for task in TASKS:
        print(f"{task:<8} {seconds[task]:6.2f} s  peak {peaks[task]:6.0f} MiB  n={len(found[task])}")
    print(f"pandas / build: {result['pandas_ratio']:.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
    results.write("data", result)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run_task(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
