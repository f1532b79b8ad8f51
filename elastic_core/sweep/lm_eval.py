"""A sweep's benchmarks as tasks of lm-evaluation-harness: the same prompts, sampling settings and grader, another
generation. Checks what one uninterrupted response gives: `unconstrained`, and `vanilla` by a lower max_gen_toks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elastic_core.data.problems import Problem
from elastic_core.rewards import Answer, grade_many
from elastic_core.rewards.truth import THINK_END
from elastic_core.sweep.grid import Samples, samples_of
from elastic_core.system.files import write_text

TAG = "elastic"  # Names all tasks of a directory together.
_FUNCTIONS = "custom_dataset: !function utils.problems\nprocess_results: !function utils.process_results\n"
_UTILS = '''"""What the tasks in this directory call; needs this project beside lm_eval, for its grader."""

from pathlib import Path

from elastic_core.sweep.lm_eval import process_results, read_documents


def problems(benchmark, **metadata):
    return {"test": read_documents(Path(__file__).with_name(f"{benchmark}.jsonl"))}
'''


@dataclass(frozen=True)
class TaskSettings:
    """How every task generates; lengths in tokens. `context` holds prompt and response, `samples` is the k of avg@k."""

    context: int
    samples: Samples
    temperature: float
    top_p: float
    max_response_tokens: int | None = None


def task_name(benchmark: str) -> str:
    return f"{TAG}_{benchmark}".replace("-", "_")


def _task(benchmark: str, longest_prompt: int, settings: TaskSettings) -> str:
    """The task's YAML. The harness cuts prompts that leave less than max_gen_toks, hence `longest_prompt` in tokens."""
    sampled, samples = settings.temperature > 0, samples_of(settings.samples, benchmark)
    # Without top_k = 0 transformers keeps the 50 likeliest tokens, or as many as the checkpoint says.
    sampling = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": 0} if sampled else {}
    most = min(settings.max_response_tokens or settings.context, settings.context - longest_prompt)
    document = {
        "task": task_name(benchmark),
        "tag": TAG,
        "dataset_kwargs": {"benchmark": benchmark},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "question",
        "doc_to_target": "truth",
        "num_fewshot": 0,
        # Only end-of-text ends a response.
        "generation_kwargs": {"until": [], "do_sample": sampled, **sampling, "max_gen_toks": most},
        "repeats": samples,
        "filter_list": [{"name": "all", "filter": [{"function": "take_first_k", "k": samples}]}],
        "metric_list": [{"metric": "avg_at_k", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1, "samples": samples},
    }
    return yaml.safe_dump(document, sort_keys=False) + _FUNCTIONS


def write_tasks(
    directory: Path, problems: Mapping[str, Sequence[Problem]], longest: Mapping[str, int], settings: TaskSettings
) -> None:
    """Write a task per benchmark, its problems, and utils.py. `longest`: tokens of each benchmark's longest prompt."""
    for name, chosen in problems.items():
        documents = [{key: getattr(each, key) for key in ("id", "question", "truth", "grader")} for each in chosen]
        write_text(directory / f"{name}.jsonl", "".join(f"{json.dumps(each)}\n" for each in documents))
        write_text(directory / f"{task_name(name)}.yaml", _task(name, longest[name], settings))
    write_text(directory / "utils.py", _UTILS)


def survives_decoding(tokenizer: Any, think_end: Sequence[int]) -> bool:
    """Whether the harness keeps think-end, which the grader needs: transformers leaves special tokens out."""
    return THINK_END in tokenizer.decode(list(think_end), skip_special_tokens=True)


def read_documents(file: Path) -> Any:
    from datasets import Dataset

    return Dataset.from_list([json.loads(line) for line in file.read_text().splitlines()])


def process_results(doc: dict[str, Any], results: list[list[str]]) -> dict[str, float]:
    grades = grade_many([Answer(doc["grader"], response, doc["truth"]) for response in results[0]])
    return {"avg_at_k": sum(graded.score for graded in grades) / len(grades)}
