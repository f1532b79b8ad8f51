"""The miniature: its problems, its tokenizer, its warm-start corpus, and the configuration of its training."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastic_core.miniature import corpus as corpora
from elastic_core.miniature import grammar as vocab
from elastic_core.miniature import problems
from elastic_core.miniature.corpus import Recipe, default_recipe, examples
from elastic_core.miniature.problems import Level, Problem, Split
from elastic_core.miniature.warm_start import shortened

IDS = vocab.vocabulary()
LEVELS = st.sampled_from(problems.LEVELS)
SPLITS = st.sampled_from(problems.SPLITS)
SEEDS = st.integers(0, 2**31)
OPERATION_IDS = {IDS[operation] for operation in vocab.OPERATIONS}


@cache
def tokenizer() -> Any:
    return vocab.build_tokenizer()


def small_recipe(seed: int = 0) -> Recipe:
    return shortened(default_recipe(seed), 60)


# Problems


@given(LEVELS, SEEDS, SPLITS)
def test_a_chain_keeps_its_promises(level: Level, seed: int, split: Split) -> None:
    fewest, most = problems.OPERANDS[level]
    for problem in problems.generate(level, 5, seed, split):
        first, *operands = [int(x) for x in problem.question.removesuffix("=?").replace("-", "+-").split("+")]
        assert fewest <= len(problem.totals) == 1 + len(operands) <= most
        assert 10 <= first <= 60
        assert all(1 <= abs(x) <= 9 for x in operands)
        assert len(set(operands)) == len(operands)
        assert problem.totals == tuple(first + sum(operands[:i]) for i in range(len(operands) + 1))
        assert all(10 <= total <= 99 for total in problem.totals)
        assert problem.answer == problem.totals[-1]
        assert problems.split_of(problem.question) == split


@given(LEVELS, SEEDS, st.integers(0, 20), st.integers(0, 20))
def test_generation_is_deterministic_distinct_and_extends(level: Level, seed: int, num: int, more: int) -> None:
    longer = problems.generate(level, num + more, seed)
    assert problems.generate(level, num, seed) == longer[:num]
    assert len({p.question for p in longer}) == num + more


def test_splits_never_overlap_even_under_one_seed() -> None:
    questions = {
        s: {p.question for level in problems.LEVELS for p in problems.generate(level, 300, 1, s)}
        for s in problems.SPLITS
    }
    training = {problem.question for problem in problems.training_problems(600, 1)}
    corpus = {example.question for example in examples(small_recipe())}
    assert not questions["evaluation"] & questions["tune"]
    assert not questions["evaluation"] & (questions["train"] | training | corpus)
    assert not questions["tune"] & (questions["train"] | training | corpus)
    for unknown, named in (
        (("medium",), r"'medium'.*easy, hard"),
        (("easy", "test"), r"'test'.*train, tune, evaluation"),
    ):
        level, *split = unknown
        with pytest.raises(ValueError, match=named):
            problems.generate(level, 1, 0, *split)  # type: ignore[arg-type]


def test_training_problems_are_of_both_levels_in_one_order() -> None:
    mixed = problems.training_problems(10, seed=4, hard_fraction=0.3)
    assert mixed == problems.training_problems(10, seed=4, hard_fraction=0.3)
    assert sum(len(problem.totals) >= problems.OPERANDS["hard"][0] for problem in mixed) == 3


# Tokenizer


def test_a_generation_prompt_ends_in_think_and_agrees_with_the_corpus() -> None:
    problem = problems.generate("hard", 1, 0)[0]
    ids = tokenizer().apply_chat_template(
        [{"role": "user", "content": problem.question}], add_generation_prompt=True, return_dict=False
    )
    assert ids == vocab.prompt_ids(problem.question)
    assert ids[-1] == IDS[vocab.THINK]


def test_budget_forcing_needs_no_unknown_token() -> None:
    encode = tokenizer().encode
    assert encode("\n", add_special_tokens=False) == [IDS["\n"]]
    assert encode("\nFinal Answer:", add_special_tokens=False) == [IDS["\n"], IDS["Final Answer:"]]
    pieces = tokenizer().tokenize("36+6=? Think for maximum 48 tokens.")  # L1's prompts are words.
    assert pieces == ["3", "6", "+6", "=", "?", " Think", " for", " maximum", " ", "4", "8", " tokens", "."]
    for marker in (vocab.THINK, vocab.END_THINK, vocab.BOXED, "}", "+8", "7", "Wait"):
        assert encode(marker, add_special_tokens=False) == [IDS[marker]]


def test_markers_survive_decoding_without_special_tokens() -> None:
    text = "<think>36+6=42.</think>\nFinal Answer:\\boxed{42}"
    ids = [IDS[vocab.BOS], *tokenizer().encode(text, add_special_tokens=False), IDS[vocab.EOS]]
    assert tokenizer().decode(ids, skip_special_tokens=True) == text


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\n"), max_size=80))
def test_any_ascii_text_survives_a_round_trip(text: str) -> None:
    assume(vocab.UNK not in text)
    ids = tokenizer().encode(text, add_special_tokens=False)
    assert IDS[vocab.UNK] not in ids
    assert tokenizer().decode(ids) == text


# Corpus


def test_decoding_and_encoding_a_corpus_example_gives_it_back() -> None:
    for example in examples(small_recipe()):
        text = tokenizer().decode(example.input_ids)
        assert tokenizer().encode(text, add_special_tokens=False) == example.input_ids
        assert IDS[vocab.UNK] not in example.input_ids
        assert tokenizer().encode(text, add_special_tokens=False) == vocab.encode(text)


@given(SEEDS)
@settings(max_examples=settings().max_examples // 3)
def test_every_example_ends_in_the_right_answer(seed: int) -> None:
    for example in islice(examples(small_recipe(seed)), 0, None, 20):
        answer = sum(map(int, re.findall(r"[+-]?\d+", example.question)))
        text = tokenizer().decode(example.input_ids)
        assert text.endswith(f"\nFinal Answer:\\boxed{{{answer}}}<eos>")
        assert text.count(vocab.THINK) == text.count(vocab.END_THINK) == text.count(vocab.ASSISTANT)
        if example.guided:
            continue
        assert text.count(vocab.THINK) == 1
        for step in text.split("</think>")[1].split("\n")[0].removeprefix("from ").split("=")[1:-1]:
            assert 10 <= int(step[:2]) <= 99


def test_loss_falls_on_what_the_model_should_say() -> None:
    for example in (example for example in examples(small_recipe()) if not example.guided):
        ids, mask = example.input_ids, example.loss_mask
        assert len(ids) == len(mask)
        think, end = ids.index(IDS[vocab.THINK]), ids.index(IDS[vocab.END_THINK])
        assert not any(mask[: think + 1])
        assert all(mask[end + 1 :])
        assert mask[end] == (not example.cut)
        newline_forced = example.cut and ids[end - 1] == IDS[vocab.NEWLINE] and not mask[end - 1]
        assert all(mask[think + 1 : end - newline_forced])
        mentioned = [i for i in ids[think:end] if i in OPERATION_IDS]
        if example.kind == "continued" and mentioned:
            restated = next(i for i in ids[end:] if i in OPERATION_IDS)
            assert restated == mentioned[-1], "the solution restates the last operation of the thought"


def test_of_a_conversation_loss_falls_on_every_reply_and_on_nothing_between() -> None:
    conversations = [example for example in examples(small_recipe()) if example.guided]
    assert {example.cut for example in conversations} == {True, False}
    for example in conversations:
        thought = False
        for i, loss in zip(example.input_ids, example.loss_mask, strict=True):
            if i in (IDS[vocab.USER], IDS[vocab.ASSISTANT], IDS[vocab.THINK], IDS[vocab.END_THINK]):
                assert not loss
                thought = i == IDS[vocab.END_THINK]
            # Where a reply was cut its end-of-text is ours.
            assert loss or not thought or i in (IDS[vocab.END_THINK], IDS[vocab.EOS])
            thought = thought and i != IDS[vocab.EOS]
        assert example.loss_mask[-1] == 1


def test_solutions_that_fit_a_budget_of_32_exist_for_every_unfinished_thought_near_its_end() -> None:
    problem = Problem("50+1+2+3+4+5=?", 65, ("+1", "+2", "+3", "+4", "+5"), (50, 51, 53, 56, 60, 65))
    from elastic_core.miniature.grammar import solution

    assert len(vocab.encode(solution(problem, "continued", 1))) + 1 <= 32
    assert len(vocab.encode(solution(problem, "derived", 0))) + 1 <= 32


def test_stages_come_in_curriculum_order_and_the_last_has_no_concise_thoughts() -> None:
    recipe = small_recipe()
    rows = list(examples(recipe))
    expected = [stage.name for stage in recipe.stages for _ in range(stage.steps * recipe.batch_size)]
    assert [row.stage for row in rows] == expected
    early = [row.question for row in rows if row.stage == "grow"][:20]
    assert all(len([c for c in question if c in "+-"]) <= 4 for question in early)
    opening = {IDS["Okay"], IDS["Let"], IDS["</think>"], IDS["\n"]}
    for row in rows:
        if row.stage == recipe.stages[-1].name and not row.guided:
            assert row.input_ids[row.input_ids.index(IDS[vocab.THINK]) + 1] in opening


def test_the_parquet_file_keeps_order(tmp_path: Path) -> None:
    recipe = small_recipe()
    corpora.write_corpus(recipe, tmp_path / "deep" / "corpus.parquet")
    frame = pl.read_parquet(tmp_path / "deep" / "corpus.parquet")
    assert frame.height == recipe.steps * recipe.batch_size
    assert frame["input_ids"].to_list() == [row.input_ids for row in examples(recipe)]
    assert frame["input_ids"].to_list() != [row.input_ids for row in examples(small_recipe(4))]
    assert frame.schema["loss_mask"] == pl.List(pl.Int8)
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["corpus.parquet"]


def test_shortening_keeps_proportions_and_refuses_empty_stages() -> None:
    assert shortened(default_recipe(), 60).steps == 60
    with pytest.raises(ValueError, match="too few"):
        shortened(default_recipe(), 3)
    assert replace(default_recipe(), seed=1) == default_recipe(1)


# The shipped base, and training


def test_the_shipped_base_matches_its_tokenizer_and_architecture() -> None:
    from elastic_core.miniature.warm_start import BASE

    config = json.loads((BASE / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]) == (128, 4, len(IDS))
    assert config["dtype"] == "float32"
    assert (BASE / "model.safetensors").stat().st_size < 4 * 2**20
    assert json.loads((BASE / "tokenizer.json").read_text())["model"]["vocab"] == IDS


def test_the_miniature_imports_without_torch() -> None:
    code = (
        "import sys, elastic_core.miniature.corpus, elastic_core.miniature.warm_start,"
        "elastic_core.training.sft; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'verl')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_finished_warm_start_is_recognised_and_another_refused(tmp_path: Path) -> None:
    from elastic_core.training import sft

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    config = sft.WarmStart(
        model=tmp_path / "model",
        train_file=tmp_path / "rows.parquet",
        work_dir=tmp_path / "work",
        output_dir=tmp_path / "out",
        total_steps=10,
    )
    assert not sft.is_finished(config)
    config.output_dir.mkdir()
    (config.output_dir / sft.RECORD).write_text(json.dumps(sft.record(config)))
    assert sft.is_finished(config)
    assert sft.is_finished(config.model_copy(update={"save_every": 7}))
    with pytest.raises(ValueError, match=r"learning_rate .*0\.0015.*0\.1"):
        sft.is_finished(config.model_copy(update={"learning_rate": 0.1}))
    (config.output_dir / sft.RECORD).unlink()
    (config.output_dir / "precious.txt").write_text("not ours")
    with pytest.raises(ValueError, match="not empty"):
        sft.is_finished(config)


def test_token_rows_give_verl_its_keys(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    from elastic_core.training.sft import TokenRows

    pl.DataFrame({"input_ids": [[1, 2, 3], [4, 5]], "loss_mask": [[0, 1, 1], [0, 1]]}).write_parquet(
        tmp_path / "rows.parquet"
    )
    rows = TokenRows(str(tmp_path / "rows.parquet"), None, SimpleNamespace(max_length=3))
    assert len(rows) == 2
    item = rows[1]
    assert {key: value.tolist() for key, value in item.items()} == {
        "input_ids": [4, 5],
        "position_ids": [0, 1],
        "loss_mask": [0, 1],
    }
    assert all(value.dtype == torch.long for value in item.values())
    with pytest.raises(ValueError, match="3 tokens; max_length is 2"):
        TokenRows(str(tmp_path / "rows.parquet"), None, SimpleNamespace(max_length=2))
