"""The grid as inspect_ai measures it: a task as its users write one, evaluated for each budget through the chat API. It
runs in an environment that has inspect_ai, and not this project:

    python tests/bench/harness_task.py ADDRESS MODEL PROBLEMS.jsonl LOGS SAMPLES SOLUTION BUDGET...

prints a line of JSON for each budget: its accuracy and standard error, tokens, and seconds.
"""

from __future__ import annotations

import json
import sys
import time

import inspect_ai
from inspect_ai.dataset import json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import pattern


def main(address: str, model: str, problems: str, logs: str, samples: str, solution: str, *budgets: str) -> None:
    task = inspect_ai.Task(json_dataset(problems), scorer=pattern(r"\\boxed\{(-?\d+)\}"), name="grid")
    for think in map(int, budgets):
        config = GenerateConfig(
            temperature=0.8,
            top_p=1.0,
            # All that a request can say: the solution has what the thought leaves of it.
            max_tokens=think + int(solution),
            extra_body={"thinking_token_budget": think},
            max_connections=128,
        )
        began = time.monotonic()
        (log,) = inspect_ai.eval(
            task, model=f"openai-api/here/{model}", model_base_url=f"{address}/v1", epochs=int(samples), log_dir=logs,
            display="none", **config.model_dump(exclude_none=True),
        )  # fmt: skip
        seconds = time.monotonic() - began
        if log.status != "success":
            sys.exit(str(log.error))
        score = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
        tokens = sum(usage.output_tokens for usage in log.stats.model_usage.values())
        print(json.dumps({"think": think, **score, "tokens": tokens, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
