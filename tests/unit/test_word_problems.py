"""Word problems: stories whose thoughts are right, at two levels, in splits that never overlap."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.data import word_problems
from elastic_core.data.build import DataBuild, raw_batches
from elastic_core.data.registry import REGISTRY
from elastic_core.data.word_problems import OPERATIONS, SFT, TRAIN, VALIDATION, WordParameters, generate, of_dataset
from elastic_core.errors import UserError
from elastic_core.miniature.problems import LEVELS, SPLITS, Level, split_of
from elastic_core.rewards import grade

SIZES = WordParameters(num_train=40, num_sft=20, hard_fraction=0.5, evaluation_seed=3, problems_per_benchmark=15)


@given(st.sampled_from(LEVELS), st.integers(0, 1000))
def test_every_step_of_a_thought_is_right_and_the_last_is_the_answer(level: Level, seed: int) -> None:
    (problem,) = generate(level, 1, seed)
    equations = re.findall(r"(\d+) ([*/+-]) (\d+) = (\d+)", problem.thought)
    if "Let me check" in problem.thought:
        assert equations.pop() == equations[-1]
    for left, sign, right, result in equations:
        a, b = int(left), int(right)
        assert {"*": a * b, "/": a / b, "+": a + b, "-": a - b}[sign] == int(result)
    fewest, most = OPERATIONS[level]
    assert fewest <= len(equations) <= most and int(equations[-1][3]) == problem.answer
    assert "{" not in problem.question + problem.thought
    row = problem.row()
    thought, solution = row["output"].removeprefix("<think>\n").split("\n</think>\n\n")
    assert row["instruction"] == row["question"] and thought == problem.thought and row["answer"] in solution
    assert grade("math", row["output"], str(problem.answer)).score == 1


@pytest.mark.parametrize("level", LEVELS)
def test_splits_are_disjoint_and_a_larger_number_extends_the_list(level: Level) -> None:
    found = {split: generate(level, 30, seed=1, split=split) for split in SPLITS}
    assert all(split_of(each.question) == split for split, problems in found.items() for each in problems)
    assert generate(level, 10, seed=1) == found["train"][:10] and len({p.question for p in found["train"]}) == 30
    assert generate(level, 10, seed=2) != found["train"][:10]


def test_data_sets_have_their_sizes_and_share_no_problem() -> None:
    names = [SFT, TRAIN, VALIDATION, *(f"{word_problems.DATA_SOURCE}-{level}" for level in LEVELS)]
    questions = {name: {each.question for each in of_dataset(name, SIZES)} for name in names}
    assert [len(questions[name]) for name in names] == [20, 40, 64, 15, 15]
    assert len(set.union(*questions.values())) == 20 + 40 + 64 + 30


def test_easy_problems_take_fewer_words_than_hard_ones() -> None:
    lengths = {level: [len(p.thought.split()) for p in generate(level, 100, seed=5)] for level in LEVELS}
    assert sum(lengths["hard"]) > 1.3 * sum(lengths["easy"])
    hard = [p.thought for p in generate("hard", 100, seed=5)]
    assert max(len(each.split()) for each in hard if not each.startswith("Okay")) < 100


def test_most_thoughts_read_the_problem_again_and_check_around_the_same_steps() -> None:
    problems = generate("easy", 400, seed=5)
    wordy = [each for each in problems if each.thought.startswith("Okay")]
    plain = [len(each.thought.split()) for each in problems if each not in wordy]
    assert 0.5 < len(wordy) / len(problems) < 0.7
    for each in wordy:
        around = r'Okay, [^"]+"(.+)" Let me go step by step\. (.+) Let me check: .+ is right\. So the answer is (\d+)\.'
        question, steps, answer = re.fullmatch(around, each.thought).groups()  # type: ignore[union-attr]
        assert (question, int(answer)) == (each.question, each.answer) and len(steps.split()) <= max(plain)


@pytest.mark.parametrize(("name", "more"), [("words-easy", ", num_sft"), ("miniature-easy", "")])
def test_a_generated_data_set_without_its_sizes_is_refused_with_the_settings_that_it_needs(
    name: str, more: str
) -> None:
    keys = f"num_train, evaluation_seed, problems_per_benchmark{more}$"
    with pytest.raises(UserError, match=rf"data\.\w+: missing; {name} is generated, and needs its settings {keys}"):
        raw_batches(REGISTRY[name], None, DataBuild([], {}, Path(), None))
