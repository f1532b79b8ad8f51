"""What tasks of lm-evaluation-harness call; `elastic export --lm-eval` puts a copy beside them.

Problems come from the .jsonl files in the same directory, with the prompts of the sweep; grades come from the sweep's
own grader, which must be importable: `pip install` this project where lm_eval is.
"""

import json
from pathlib import Path
from typing import Any

from elastic_core.rewards import Answer, grade_many


def problems(benchmark: str, **metadata: Any) -> dict[str, Any]:
    """The one split of a task."""
    from datasets import Dataset

    with (Path(__file__).parent / f"{benchmark}.jsonl").open() as lines:
        return {"test": Dataset.from_list([json.loads(line) for line in lines])}


def process_results(doc: dict[str, Any], results: list[list[str]]) -> dict[str, float]:
    """The mean score of a problem's responses."""
    [responses] = results
    grades = grade_many([Answer(doc["grader"], response, doc["truth"]) for response in responses])
    return {"avg_at_k": sum(graded.score for graded in grades) / len(grades)}
