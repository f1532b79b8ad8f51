"""Benchmarks as tasks of lm-evaluation-harness: the same prompts, sampling and grades as the sweep's."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from elastic_core.data.problems import Problem
from elastic_core.errors import UserError
from elastic_core.miniature.grammar import build_tokenizer
from elastic_core.miniature.warm_start import BASE
from elastic_core.sweep import lm_eval
from flows import presets
from flows.commands.models import _export_lm_eval

SETTINGS = lm_eval.TaskSettings(context=32768, samples=16, temperature=0.6, top_p=0.95)
PROBLEMS = [Problem("aime-2024", "0", "What is 1+1? Put it in \\boxed{}.\u2028{{ x }}", "2", "math")]


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor("!function", lambda loader, node: f"function {node.value}")


def exported(directory: Path, settings: lm_eval.TaskSettings = SETTINGS) -> dict[str, Any]:
    lm_eval.write_tasks(directory, {"aime-2024": PROBLEMS}, {"aime-2024": 68}, settings)
    task: dict[str, Any] = yaml.load((directory / "elastic_aime_2024.yaml").read_text(), _Loader)
    return task


def test_a_task_generates_as_the_sweep_does(tmp_path: Path) -> None:
    task = exported(tmp_path)
    assert task["generation_kwargs"] == {
        "until": [], "do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 0, "max_gen_toks": 32700,
    }  # fmt: skip
    assert task["repeats"] == 16
    assert task["filter_list"][0]["filter"] == [{"function": "take_first_k", "k": 16}]
    assert (task["custom_dataset"], task["process_results"]) == (
        "function utils.problems", "function utils.process_results",
    )  # fmt: skip
    assert (task["doc_to_text"], task["num_fewshot"]) == ("question", 0)


def test_greedy_sampling_has_no_settings_of_sampling(tmp_path: Path) -> None:
    task = exported(tmp_path, lm_eval.TaskSettings(32768, 1, temperature=0.0, top_p=1.0))
    assert task["generation_kwargs"] == {"until": [], "do_sample": False, "max_gen_toks": 32700}


def test_problems_are_written_with_the_sweeps_own_prompts(tmp_path: Path) -> None:
    exported(tmp_path)
    [line] = (tmp_path / "aime-2024.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "id": "0", "question": PROBLEMS[0].question, "truth": "2", "grader": "math",
    }  # fmt: skip
    names = ["aime-2024.jsonl", "elastic_aime_2024.yaml", "utils.py"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names


def test_the_tasks_functions_are_importable_where_the_tasks_are(tmp_path: Path) -> None:
    exported(tmp_path)
    functions = runpy.run_path(str(tmp_path / "utils.py"))
    assert functions["problems"]("aime-2024", version=1)["test"][0]["question"] == PROBLEMS[0].question
    assert functions["process_results"] is lm_eval.process_results


def test_a_problems_score_is_the_mean_over_its_responses() -> None:
    doc = {"truth": "2", "grader": "math"}
    responses = ["1+1</think>\\boxed{2}", "</think>\\boxed{3}", "\\boxed{2}", "</think>so \\boxed{2}"]
    assert lm_eval.process_results(doc, [responses]) == {"avg_at_k": 0.5}


def test_a_think_end_that_the_harness_leaves_out_is_noticed() -> None:
    tokenizer = build_tokenizer()
    end = tokenizer.convert_tokens_to_ids("</think>")
    assert lm_eval.survives_decoding(tokenizer, [end])
    tokenizer.add_special_tokens({"additional_special_tokens": ["</think>"]})
    assert not lm_eval.survives_decoding(tokenizer, [end])


def test_the_command_says_how_to_run_the_tasks(tmp_path: Path) -> None:
    settings = presets.resolve("embedded", {"engine.max_model_len": 512})
    problems = {"aime-2024": PROBLEMS}
    run: Any = SimpleNamespace(require_data=lambda: None, tokenizer=BASE, settings=settings, problems=problems)
    told = _export_lm_eval(run, tmp_path)
    assert "elastic_aime_2024" in told and (tmp_path / "elastic_aime_2024.yaml").exists()
    for part in ("max_model_len=512,dtype=float32", f"--include_path {tmp_path}", f"--tasks {lm_eval.TAG}"):
        assert part in told


def test_tasks_are_not_mixed_with_exports_of_a_model(tmp_path: Path) -> None:
    from flows.commands.cli import cli

    with pytest.raises(UserError, match="--lm-eval writes tasks and no model"):
        cli.main(["model", "export", "--lm-eval", str(tmp_path), "--to", "model"], standalone_mode=False)
