"""A sweep's benchmarks as tasks of lm-evaluation-harness (lm_eval 0.4.13), so that its numbers can be checked by a tool
that shares nothing with our engines and strategies: the same prompts, sampling settings and grader, another generation.

What can be checked is what one uninterrupted response gives: `unconstrained`, and `vanilla` by a lower max_gen_toks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elastic_core.data.problems import Problem
from elastic_core.rewards.grade import THINK_END
from elastic_core.sweep.grid import Samples, samples_of, samples_text
from elastic_core.system.files import write_text

VERSION = "0.4.13"
"""Of lm_eval, that the tasks were tried with."""
TAG = "elastic"
"""All tasks of a directory together."""


@dataclass(frozen=True)
class TaskSettings:
    """How every task generates.

    Attributes:
        context: prompt and response together, in tokens.
        max_response_tokens: of a response, where that is less than the context leaves.
        samples: responses per problem, the k of avg@k, by benchmark where they differ.
    """

    context: int
    samples: Samples
    temperature: float
    top_p: float
    max_response_tokens: int | None = None


class _Function(str):
    """A function of utils.py, as the harness' YAML names it."""


yaml.SafeDumper.add_representer(
    _Function, lambda dumper, name: dumper.represent_scalar("!function", f"utils.{name}", style="")
)


def task_name(benchmark: str) -> str:
    return f"{TAG}_{benchmark}".replace("-", "_")


def task(benchmark: str, longest_prompt: int, settings: TaskSettings) -> dict[str, Any]:
    """The task's YAML.

    Args:
        longest_prompt: of the benchmark, in tokens. The harness cuts a prompt that leaves less than max_gen_toks.
    """
    sampled, samples = settings.temperature > 0, samples_of(settings.samples, benchmark)
    sampling: dict[str, Any] = {"temperature": settings.temperature, "top_p": settings.top_p}
    return {
        "task": task_name(benchmark),
        "tag": TAG,
        "custom_dataset": _Function("problems"),
        "dataset_kwargs": {"benchmark": benchmark},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "question",
        "doc_to_target": "truth",
        "num_fewshot": 0,
        "generation_kwargs": {
            "until": [],  # Only end-of-text ends a response.
            "do_sample": sampled,
            # transformers would otherwise keep the 50 likeliest tokens, or what the checkpoint says.
            **(sampling | {"top_k": 0} if sampled else {}),
            "max_gen_toks": min(settings.max_response_tokens or settings.context, settings.context - longest_prompt),
        },
        "repeats": samples,
        "filter_list": [{"name": "all", "filter": [{"function": "take_first_k", "k": samples}]}],
        "process_results": _Function("process_results"),
        "metric_list": [{"metric": "avg_at_k", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1, "samples": samples},
    }


def write_tasks(
    directory: Path,
    problems: Mapping[str, Sequence[Problem]],
    longest_prompts: Mapping[str, int],
    settings: TaskSettings,
    readme: str,
) -> list[Path]:
    """Write a task per benchmark, what they call, and README.md; returns the tasks' files.

    Args:
        problems: of each benchmark.
        longest_prompts: of each benchmark, in tokens.
    """
    files = []
    for benchmark, asked in problems.items():
        write_text(directory / f"{benchmark}.jsonl", "".join(f"{json.dumps(_doc(problem))}\n" for problem in asked))
        file = directory / f"{task_name(benchmark)}.yaml"
        write_text(file, yaml.safe_dump(task(benchmark, longest_prompts[benchmark], settings), sort_keys=False))
        files.append(file)
    write_text(directory / "utils.py", Path(__file__).with_name("utils.py").read_text(encoding="utf-8"))
    write_text(directory / "README.md", readme)
    return files


def _doc(problem: Problem) -> dict[str, str]:
    return {"id": problem.id, "question": problem.question, "truth": problem.truth, "grader": problem.grader}


def survives_decoding(tokenizer: Any, think_end: int) -> bool:
    """Whether the harness leaves think-end in a response, without which the grader gives no credit: transformers leaves
    special tokens out."""
    return THINK_END in tokenizer.decode([think_end], skip_special_tokens=True)


def readme(
    preset: str, models: Mapping[str, str | None], benchmarks: Sequence[str], settings: TaskSettings, engine: str
) -> str:
    """README.md of a directory of tasks.

    Args:
        models: each checkpoint that the preset measures, as a directory or a name on the hub; None where it has not
            been made yet.
        engine: vLLM's part of --model_args.
    """
    places = "\n".join(f"- {name}: `{place or 'not there yet'}`" for name, place in models.items())
    names = ",".join(map(task_name, benchmarks))
    return f"""# The benchmarks of preset {preset} for lm-evaluation-harness

The prompts, sampling settings and grader of `elastic run sweep --preset {preset}`; generation is the harness' own.
Written by `elastic export --preset {preset} --lm-eval DIR`, tried with lm_eval {VERSION}.

Models:

{places}

## Run

In an environment of its own that has this project, for its grader and vLLM, and the harness (REPOSITORY is where the
project is checked out, DIR this directory):

    pip install "elastic-reasoning[gpu] @ file://REPOSITORY" lm_eval=={VERSION}
    lm_eval --model vllm --model_args pretrained=MODEL,max_model_len={settings.context}{engine} \\
        --include_path DIR --tasks {names} \\
        --apply_chat_template --batch_size auto --log_samples --output_path OUT

`--tasks {TAG}` is all of them; `--limit 10` takes the first ten problems. On a CPU, with transformers: `--model hf
--model_args pretrained=MODEL,dtype=float32 --device cpu --batch_size 16`. Give neither `--system_instruction` nor
`think_end_token`: the grader reads the thought's end itself. Another draw is `seed=N` in --model_args with vLLM,
`--seed N` with transformers.

## Compare

`avg_at_k` is the mean over problems of the mean score of {samples_text(settings.samples)}; its standard error is over
problems, so that ± 1.96 of it is comparable with our interval. Beside it belongs the row `unconstrained` of the same
benchmark and model in our report. Two draws agree when the difference is within 1.96 · √(SE₁² + SE₂²).

| strategy | can be checked here |
|---|---|
| `unconstrained` | yes |
| `vanilla` at t + s | yes, with `--gen_kwargs max_gen_toks=T` where T = t + s |
| `separate`, `budget_forcing` | no: they write tokens into the response |
| `l1_exact`, `l1_max`, `reasonflux_zero` | no: they ask otherwise, or more than once |

The harness reserves room for the longest prompt of a benchmark in every context, so that a response to a shorter prompt
may be shorter by the difference than in our sweep; it matters only where all {settings.context} tokens are spent.
"""
