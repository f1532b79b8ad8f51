"""`elastic data add`: a user's own file as a data set."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data import user_dataset
from elastic_core.data.build import DataBuild, build
from elastic_core.data.clean import clean_batches, file_batches
from elastic_core.data.dataset import Dataset
from elastic_core.data.fetch import fetch
from elastic_core.data.problems import read_problems
from elastic_core.data.registry import all_datasets
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.rewards import grade
from flows.commands.data import record
from tests.upstream import UPSTREAM

GSM8K = UPSTREAM / "openai/grade-school-math/grade_school_math/data"
needs_gsm8k = pytest.mark.skipif(
    not GSM8K.is_dir(), reason=f"no GSM8K at {GSM8K}; set ELASTIC_DATA_MIRROR to a tree that has it"
)
MARKED = "She sold 48/2 = <<48/2=24>>24 clips in May.\nThat is 48+24 = <<48+24=72>>72 clips.\n#### 72"


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[user_dataset.UserDataset]:
    file = tmp_path / "my problems.csv"
    file.write_text("problem,solution\n1+1=?,2\n2+2=?, 4 \n")
    yield user_dataset.UserDataset("mine", *user_dataset.describe(file), "problem", "solution")


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def described(tmp_path: Path, answers: list[Any], **changes: Any) -> user_dataset.UserDataset:
    file = tmp_path / "my.jsonl"
    file.write_text("".join(json.dumps({"q": f"{i}?", "a": answer}) + "\n" for i, answer in enumerate(answers)))
    return replace(user_dataset.UserDataset("mine", *user_dataset.describe(file), "q", "a"), **changes)


def added(entry: user_dataset.UserDataset, runs: Path, leave_out: bool = False) -> tuple[str, Dataset]:
    said = record(entry, leave_out=leave_out, tokenizer=None)
    return said, all_datasets(runs / "datasets")[entry.name]


def clean(entry: Dataset) -> pl.DataFrame:
    assert hasattr(entry.source, "directory")
    return pl.concat(clean_batches(entry, file_batches(entry, [entry.source.directory / entry.files[0].path])))


def test_a_file_of_ones_own_is_copied_and_a_data_set(mine: user_dataset.UserDataset, runs: Path) -> None:
    said, entry = added(mine, runs)
    Path(mine.file).unlink()
    assert clean(entry).select("id", "question", "truth").rows() == [("0", "1+1=?", "2"), ("1", "2+2=?", "4")]
    assert entry.files[0].sha256 == mine.sha256
    assert "prompt: 1+1=? " in said and "\\boxed{}.\ntruth: 2" in said and "mine: 2 rows" in said


def test_its_prompts_are_shown_as_the_model_reads_them(mine: user_dataset.UserDataset) -> None:
    said = record(mine, leave_out=False, tokenizer=BASE)
    assert "<bos><|user|>1+1=? " in said and "<|assistant|><think>" in said


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question": "question"}, "--question question: .* problem, solution"),
        ({"id": "name"}, "--id name: "),
        ({"name": "../mine"}, "lower-case letters"),
        ({"name": "amc"}, '"amc".*--name'),
        ({"prompt": "boxed"}, "boxed"),
        ({"form": "conversations", "split": "train"}, "rationale"),
    ],
)
def test_what_does_not_fit_ones_own_file_is_said(
    mine: user_dataset.UserDataset, runs: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        added(replace(mine, **changes), runs)
    assert not list(runs.rglob("*.*")), "nothing is recorded"


def test_the_truth_of_a_rationale_is_its_last_line(tmp_path: Path, runs: Path) -> None:
    answers = [MARKED, "#### 5", "It is 2,520 x 1000.\n #### 2,520,000 ", "negative\n#### -3.5", "a pair\n#### (1,234)"]
    _, entry = added(described(tmp_path, answers), runs)
    assert clean(entry)["truth"].to_list() == ["72", "5", "2520000", "-3.5", "(1,234)"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([MARKED, "72"], "a: no last line `#### N`"),
        (["72", MARKED], "a: a last line `#### N`"),
        ([MARKED, "1 #### 2"], "a: no last line"),
        ([MARKED, "nothing\n####"], "answer is empty"),
        ([MARKED, None], "answer is missing"),
    ],
)
def test_one_file_has_one_form_of_answers(tmp_path: Path, runs: Path, answers: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=rf"my\.jsonl: row 2: .*{reason}"):
        added(described(tmp_path, answers), runs)
    with pytest.raises(UserError, match=r"row 2: a: .*rationale"):
        added(described(tmp_path, [MARKED, "#### 5"], form="conversations", split="train"), runs)


def test_rationales_become_conversations_under_the_prompt_that_is_asked_later(tmp_path: Path, runs: Path) -> None:
    _, entry = added(described(tmp_path, [MARKED], form="conversations", split="train"), runs)
    fetched = fetch([entry], sources=tmp_path / "sources")
    record = build(DataBuild([entry], fetched, BASE, None), tmp_path / "data")["datasets"]["mine"]
    (messages,) = pl.read_parquet(tmp_path / "data/mine.parquet")["messages"]
    assert messages.to_list() == [
        {"role": "user", "content": "0? Let's think step by step and output the final answer within \\boxed{}."},
        {
            "role": "assistant",
            "content": "<think>\nShe sold 48/2 = 24 clips in May.\nThat is 48+24 = 72 clips.\n</think>\n\n"
            "The answer is \\boxed{72}.",
        },
    ]
    assert (record["form"], record["prompt"], record["split"]) == ("conversations", "boxed-v1", "train")


def test_a_conversation_whose_question_is_a_benchmarks_is_left_out(tmp_path: Path, runs: Path) -> None:
    """By the question alone, whatever the prompt adds to it."""
    _, measured = added(described(tmp_path, ["1"], name="measured"), runs)
    _, imitated = added(
        described(tmp_path, [MARKED, MARKED], name="imitated", form="conversations", split="train"), runs
    )
    fetched = fetch([measured, imitated], sources=tmp_path / "sources")
    record = build(DataBuild([measured, imitated], fetched, BASE, None), tmp_path / "data")["datasets"]["imitated"]
    assert record["overlap"] == {"measured": {"exact": 1, "ngram": 0, "ngram_rare": 0}} and record["kept_rows"] == 1


def test_an_answer_that_nobody_could_give_is_refused_by_line(tmp_path: Path, runs: Path) -> None:
    entry = described(tmp_path, ["5", "}{", "6", '{"answers": 3}'])
    with pytest.raises(UserError, match=r"2 of 4 .*line 2 '}{', line 4 .*--leave-out"):
        added(entry, runs)
    assert not list(runs.rglob("*.*"))
    said, recorded = added(entry, runs, leave_out=True)
    assert "mine: 2 rows" in said and "2 left out (line 2" in said
    assert clean(recorded).select("question", "truth").rows() == [("0?", "5"), ("2?", "6")]
    with pytest.raises(UserError):
        added(described(tmp_path, ["}{"], name="none"), runs, leave_out=True)


def test_an_encoded_truth_is_graded_as_what_it_says(tmp_path: Path, runs: Path) -> None:
    answers = ['{"answers":["2","3"],"match":"all"}', '{"answers":["1/2","0.5"]}']
    assert "2 rows" in added(described(tmp_path, answers), runs)[0]


def test_another_choice_is_another_data_set(tmp_path: Path, runs: Path) -> None:
    """What is built from it is called by these."""
    entry = described(tmp_path, ["5"])
    chosen = [added(replace(entry, prompt=prompt), runs)[1].chosen for prompt in ("boxed-v1", "plain-v1")]
    assert chosen[0] != chosen[1]


@needs_gsm8k
def test_gsm8k_is_read_as_it_is_published(tmp_path: Path, runs: Path) -> None:
    file = GSM8K / "test.jsonl"
    entry = user_dataset.UserDataset("gsm8k", *user_dataset.describe(file), "question", "answer")
    said, recorded = added(entry, runs)
    assert "gsm8k: 1319 rows" in said
    fetched = fetch([recorded], sources=tmp_path / "sources")
    build(DataBuild([recorded], fetched, BASE, None), tmp_path / "data")
    problems = read_problems(tmp_path / "data/gsm8k.parquet")
    assert len(problems) == 1319 and all(problem.truth.lstrip("-").isdecimal() for problem in problems)
    assert problems[146].truth == "2125"
    sft = replace(entry, name="gsm8k-sft", form="conversations", split="train")
    responses = clean(added(sft, runs)[1])["messages"].list.last().struct.field("content")
    assert not responses.str.contains("<<|####").any()
    assert all(
        grade("math", response, problem.truth).score == 1 for response, problem in zip(responses, problems, strict=True)
    )


def test_records_that_cannot_be_used_are_named(tmp_path: Path, mine: user_dataset.UserDataset) -> None:
    user_dataset.add(replace(mine, name="amc"), tmp_path / "records")
    with pytest.raises(UserError, match="amc"):
        all_datasets(tmp_path / "records")
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(UserError, match=r"odd\.json"):
        all_datasets(tmp_path)
