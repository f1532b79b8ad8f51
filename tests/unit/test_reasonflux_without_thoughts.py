"""ReasonFlux-Zero with a model that has no think markers, such as the Qwen2.5-32B-Instruct that it was made from."""

import asyncio
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import drive
from elastic_core.models.special_tokens import Markers, chat_prompt, resolve_markers
from elastic_core.reasonflux.guide import FIELDS, load_script
from elastic_core.reasonflux.library import MINIATURE_FILE, read_library
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling
from elastic_core.strategies.chat import EFFORTS
from elastic_core.strategies.reasonflux_zero import TemplateParameters, Templates
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.rows import RowBuilder, Sample
from elastic_core.trajectory import ThinkFinish
from flows import presets
from flows.commands.doctor import models_in_use
from flows.runtime.run import FlowRun
from tests.guided import plain_tokenizer as tokenizer

PLAN = """{'General Knowledge Category': 'Easy chain', 'Specific Direction': 'more plus', 'Applied Method':
'five steps', 'Examined Knowledge': ['+'], 'reason_flow': ['add', 'check']}"""
SAID = (PLAN, "add, then check", "['add', 'check']", "Add them.", "1+1=2.", "Check it.", "It is 2.", "\\boxed{2}")
PROBLEM = Problem("amc", "0", "1+1=?", "2", "math")


@cache
def markers() -> Markers:
    return resolve_markers(tokenizer(), thinks=False)


class Speaker:
    def __init__(self) -> None:
        self.replies, self.prefixes = itertools.chain(SAID, itertools.repeat("")), list[tuple[int, ...]]()

    async def generate(self, request: Generate, seed: int) -> Completion:
        self.prefixes.append(request.prefix)
        ids = (*tokenizer().encode(next(self.replies), add_special_tokens=False), tokenizer().eos_token_id)
        tokens = ids[: request.max_tokens]
        return Completion(tokens, Finish.STOP if tokens == ids else Finish.LENGTH)


def test_only_where_it_is_allowed_has_a_tokenizer_no_think_markers() -> None:
    with pytest.raises(ValueError, match=r"<think> "):
        resolve_markers(tokenizer())
    assert not markers().thinks and not markers().template_opens_thinking
    in_text = set(EFFORTS)
    assert {name for name, strategy in STRATEGIES.items() if not strategy.thinks} == {"reasonflux_zero"} | in_text


@pytest.mark.parametrize("wording", ["reasonflux", "published"])
def test_navigator_and_solver_talk_without_a_thought_and_are_graded(wording: Any) -> None:
    parameters = TemplateParameters(library="miniature", query="joined", wording=wording)
    strategy = Templates(read_library(MINIATURE_FILE), parameters, Path("unused")).strategy(tokenizer(), markers())
    budget, speaker = Budget(None, None), Speaker()
    prompt = chat_prompt(tokenizer(), strategy.prompt(PROBLEM.question, budget))
    trajectory = asyncio.run(drive(strategy.decode(prompt, budget, markers(), Sampling()), {"policy": speaker}, seed=0))
    whole = tokenizer().decode([*trajectory.prompt_ids, *trajectory.response_ids])
    assert "<think>" not in whole and "</think>" not in whole
    assert whole.count("<|im_start|>user") == whole.count("<|im_start|>assistant\n") == len(SAID)
    assert whole.count("<|im_end|>") == 1 + 2 * len(SAID), "of the system's turn, of questions and of replies"
    row = RowBuilder(tokenizer(), markers(), "m", "e").frame(
        [(Sample(Cell("base", "amc", "reasonflux_zero", budget), PROBLEM, 0, 0), trajectory)]
    )
    assert row["solution"].item() == SAID[-1] and row["score"].item() == 1.0
    assert row["think_finish"].item() == ThinkFinish.CLOSED
    assert sum(trajectory.forced) <= strategy.max_forced_tokens(markers())


def test_the_published_words_are_asked_and_a_plan_has_the_fields_that_are_read() -> None:
    published = load_script("published")
    assert "You are a math tutor guiding a student to solve a math problem" in published["instruct"]
    assert "extract the reasoning flows from the following text and output in python list" in published["extract"]
    ours = load_script("reasonflux")
    assert all(field in ours["plan"] for field in FIELDS) and "\\boxed{}" in ours["final"]


def test_the_preset_is_as_published_and_needs_no_think_markers(tmp_path: Path) -> None:
    settings = presets.resolve("reasonflux-zero-32b")
    sft = settings.warm_start.sft
    assert sft is not None and settings.warm_start.initial == "Qwen/Qwen2.5-32B-Instruct"
    assert (sft.data, sft.chat_template) == ("reasonflux-sft-15k", "qwen")
    assert (sft.epochs, sft.learning_rate, sft.cutoff, sft.batch_size) == (3, 2e-5, 2048, 4 * 8 * 8)
    assert settings.sweep.templates.wording == "published" and not settings.thinks
    assert [use.thinks for use in models_in_use(settings)] == [False]
    assert all(use.thinks for use in models_in_use(presets.resolve("reasonflux-f1-7b")))
    built = [entry.name for entry in FlowRun(settings, tmp_path).datasets]
    assert built == ["math500", "aime-2024", "amc", "olympiadbench", "reasonflux-sft-15k"]


def test_f1_is_measured_as_its_harness_measures_it() -> None:
    settings = presets.resolve("evaluate-reasonflux-f1-32b-greedy")
    sweep, engine = settings.sweep, settings.engine
    assert (sweep.strategies, sweep.samples, sweep.max_response_tokens) == (["unconstrained"], 1, 32768)
    assert (sweep.temperature, engine.dtype, engine.tensor_parallel_size) == (0.0, "float32", 8)
    assert engine.max_model_len is not None and engine.max_model_len > 32768
    assert sweep.models == presets.resolve("evaluate-reasonflux-f1-32b").sweep.models
