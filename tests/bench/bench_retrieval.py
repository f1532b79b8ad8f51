"""Templates: loading the published library and searching it by TF-IDF. Writes
runs/bench/retrieval.json.

The first query has scikit-learn to import and the names to weigh, so it is measured in processes of its own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tqdm import tqdm

from elastic_core.reasonflux.library import read_library
from elastic_core.reasonflux.retrieval import build_retriever
from tests.bench import results
from tests.bench.inputs import missing_upstream, upstream_files

(SOURCE,) = upstream_files("reasonflux-templates")
(QUESTIONS,) = upstream_files("math500")
NUM_QUERIES = 101
REPEATS = 5
UNIT_MS = {"load": "", "first_query": "", "next_query": ""}


def queries() -> list[str]:
    """Real problems, which are longer than what a navigator would search by."""
    problems = [row["problem"] for row in json.loads(QUESTIONS.read_text())]
    return (problems * (NUM_QUERIES // len(problems) + 1))[:NUM_QUERIES]


def measure() -> dict[str, float]:
    """Milliseconds of each, in this process."""
    asked = queries()
    loading = time.perf_counter()
    library = read_library(SOURCE)
    first = time.perf_counter()
    retriever = build_retriever(library, "tfidf", cache=Path("unused"))
    retriever.retrieve(asked[0])
    following = time.perf_counter()
    for query in asked[1:]:
        retriever.retrieve(query)
    end = time.perf_counter()
    seconds = {
        "load": first - loading,
        "first_query": following - first,
        "next_query": (end - following) / (NUM_QUERIES - 1),
    }
    return {name: 1000 * value for name, value in seconds.items()}


def main() -> None:
    if reason := missing_upstream("reasonflux-templates", "math500"):
        print(f"{results.SKIPPED}{reason}")
        return
    command = [sys.executable, "-m", "tests.bench.bench_retrieval", "measure"]
    runs: list[dict[str, float]] = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in tqdm(range(REPEATS))
    ]
    result: dict[str, object] = {"repeats": REPEATS, "queries": NUM_QUERIES}
    for name, note in UNIT_MS.items():
        found = [run[name] for run in runs]
        result[f"{name}_ms"] = {"median": statistics.median(found), "range": [min(found), max(found)]}
        print(
            f"{name:<12} {statistics.median(found):8.2f} ms  {min(found):8.2f} to {max(found):8.2f}  n={REPEATS}{note}"
        )
    results.write("retrieval", result)


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(measure()))
    else:
        main()
