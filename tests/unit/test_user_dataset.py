"""`elastic data add`: a user's own file as a data set."""

import bz2
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from elastic_core.data import readers, user_dataset
from elastic_core.data.build import DataBuild, build
from elastic_core.data.clean import clean_batches, file_batches
from elastic_core.data.dataset import Dataset
from elastic_core.data.fetch import fetch
from elastic_core.data.problems import read_problems
from elastic_core.data.registry import all_datasets
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.rewards import grade
from elastic_core.system.fingerprint import hash_files
from flows.commands.data import add_data, record
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


def test_a_file_of_ones_own_is_copied_and_a_data_set_whose_prompts_are_shown(
    mine: user_dataset.UserDataset, runs: Path
) -> None:
    said = record(mine, leave_out=False, tokenizer=BASE)
    assert "<bos><|user|>1+1=? " in said and "<|assistant|><think>" in said, "as the model reads them"
    said, entry = added(mine, runs)
    Path(mine.file).unlink()
    assert clean(entry).select("id", "question", "truth").rows() == [("0", "1+1=?", "2"), ("1", "2+2=?", "4")]
    assert entry.files[0].sha256 == mine.sha256
    assert "prompt: 1+1=? " in said and "\\boxed{}.\ntruth: 2" in said and "mine: 2 rows" in said


BOM = b"\xef\xbb\xbf"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
HTML = b"<!DOCTYPE html><html><body>404</body></html>"


def lines(*answers: Any) -> bytes:
    return "".join(json.dumps({"q": f"{i}?", "a": answer}) + "\n" for i, answer in enumerate(answers)).encode()


def document(*answers: Any) -> bytes:
    return json.dumps([{"q": f"{i}?", "a": answer} for i, answer in enumerate(answers)]).encode()


def table(*answers: str, separator: str = ",") -> bytes:
    return "".join(f"{separator.join(row)}\n" for row in [("q", "a"), *(("0?", each) for each in answers)]).encode()


def parquet(answers: list[Any], kind: Any = None, questions: list[Any] | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    columns = {"q": questions or ["0?"] * len(answers), "a": pa.array(answers, kind)}
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


ALL_OF_TWO = '{"answers":["2","3"],"match":"all"}'
READ: dict[str, tuple[str, bytes, list[str]]] = {
    # Encoding
    "a byte order mark in JSONL": ("my.jsonl", BOM + lines("5", "6"), ["5", "6"]),
    "a byte order mark in CSV": ("my.csv", BOM + table("5"), ["5"]),
    # Suffix
    "TSV": ("my.tsv", table("1,234", separator="\t"), ["1,234"]),
    "CSV with semicolons": ("my.csv", table("1,234", separator=";"), ["1,234"]),
    "NDJSON": ("my.ndjson", lines("5"), ["5"]),
    "capital letters, JSONL": ("MY.JSONL", lines("5"), ["5"]),
    # Compression
    "JSONL, gzip": ("my.jsonl.gz", gzip.compress(lines("5")), ["5"]),
    "JSONL, gzip, byte order mark": ("MY.JSONL.GZ", gzip.compress(BOM + lines("5")), ["5"]),
    "TSV, bzip2": ("my.tsv.bz2", bz2.compress(table("5", separator="\t")), ["5"]),
    # Container
    "an object that holds the list": ("my.json", b'{"version": 1, "data": ' + document("5") + b"}", ["5"]),
    "blank lines at first, JSONL": ("my.jsonl", b"\n\n" + lines("5"), ["5"]),
    "a blank line at first, CSV": ("my.csv", b"\n" + table("5"), ["5"]),
    "lines that end as on Windows": ("my.csv", table("5").replace(b"\n", b"\r\n"), ["5"]),
    # Answers
    "numbers, JSONL": ("my.jsonl", lines(5, 0.5, 12345678901234567890123), ["5", "0.5", "12345678901234567890123"]),
    "numbers, parquet": ("my.parquet", parquet([5, 6]), ["5", "6"]),
    "text that looks like a list": ("my.jsonl", lines("[1,2]", "true"), ["[1,2]", "true"]),
    "mathematics with quotes and angles": ("my.jsonl", lines("f'(x)", "<1,2>", "y''"), ["f'(x)", "<1,2>", "y''"]),
    "bytes that are text": ("my.parquet", parquet([b"5"]), ["5"]),
    "several accepted answers": ("my.jsonl", lines('{"answers":["1/2","0.5"]}'), ['{"answers":["1/2","0.5"]}']),
    "several wanted answers": ("my.jsonl", lines(ALL_OF_TWO), [ALL_OF_TWO]),
    "an emoji in escapes": ("my.jsonl", lines(r"\text{\U0001f600}"), [r"\text{\U0001f600}"]),
}


@pytest.mark.parametrize("kind", READ)
def test_a_file_of_any_common_kind_is_read(tmp_path: Path, runs: Path, kind: str) -> None:
    name, data, answers = READ[kind]
    (tmp_path / name).write_bytes(data)
    entry = user_dataset.UserDataset("mine", *user_dataset.describe(tmp_path / name), "q", "a")
    assert clean(added(entry, runs)[1])["truth"].to_list() == answers


REFUSED: dict[str, tuple[str, bytes, str]] = {
    # Encoding
    "Latin-1, CSV": ("my.csv", table("5").replace(b"0", b"\xe9"), "byte 0xe9 at offset 4, line 2 is not UTF-8"),
    "Latin-1, JSONL": ("my.jsonl", lines("5") + b'{"q": "\xe9"}', "row 2: byte 0xe9 .* is not UTF-8"),
    "UTF-16": ("my.csv", table("5").decode().encode("utf-16"), "text in UTF-16; expected UTF-8"),
    "bytes in parquet": ("my.parquet", parquet([b"\xff"]), "invalid utf8; expected text in UTF-8"),
    "half of a surrogate pair": (
        "my.jsonl",
        rb'{"q": "\ud800?", "a": "5"}',
        r'row 1: q: found text \("\\ud800\?"\); expected .*sur',
    ),
    # Suffix and container
    "text": ("my.txt", lines("5"), r"unknown format '\.txt'; expected one of \.json, "),
    "a spreadsheet called CSV": ("my.csv", b"PK\x03\x04", "spreadsheet"),
    "parquet called JSON": ("my.json", parquet(["5"]), r"is a parquet file; expected .*\.parquet"),
    "a web page": ("my.csv", HTML, "an HTML page"),
    "a pointer of Git LFS": ("my.jsonl", LFS, "pointer of Git LFS .*git lfs pull"),
    "a pointer of Git LFS called parquet": ("my.parquet", LFS, "pointer of Git LFS .*git lfs pull"),
    "columns in place of rows": ("my.json", b'{"q": {"0": "0?"}, "a": {"0": "5"}}', "found an object; expected a list"),
    "lines called JSON": ("my.json", lines("5", "6"), r"more than one document .*\.jsonl.* line 2"),
    "a document called JSONL": ("my.jsonl", document("5"), "row 1: found a list; expected an object"),
    "nested too deeply, JSONL": ("my.jsonl", b'{"a": ' + b"[" * 20_000, "row 1: .*(nested|recursion)"),
    "a row of another kind": ("my.jsonl", lines("5") + b"5\n", "row 2: found a number; expected an object"),
    "more fields than columns": ("my.csv", table("5", "6,7"), "row 2: 3 fields; expected 2"),
    "another separator": ("my.csv", table("5", separator="|"), r"--question q: .* there are: q\|a"),
    # Compression
    "not compressed": ("my.jsonl.gz", lines("5"), "cannot be unpacked .*expected data compressed by gzip"),
    "cut off": ("my.jsonl.gz", gzip.compress(lines("5"))[:-12], "cannot be unpacked .*Truncated"),
    "compressed without saying so": ("my.jsonl", gzip.compress(lines("5")), r"compressed by gzip; .*\.gz"),
    "parquet, compressed": ("my.parquet.gz", gzip.compress(parquet(["5"])), r"unknown format '\.parquet\.gz'"),
    # Emptiness
    "an empty list": ("my.json", b"[]", "holds no rows; expected at least one"),
    "blank lines, JSONL": ("my.jsonl", b"\n\n", "holds no rows"),
    "no bytes, CSV": ("my.csv", b"", "is empty; expected a line with the names of the columns"),
    "columns without rows, parquet": ("my.parquet", parquet([], pa.string()), "holds no rows"),
    "no question": ("my.jsonl", lines("5") + b'{"q": " ", "a": "5"}', "row 2: q: is empty"),
    "no answer": ("my.jsonl", lines("5") + b'{"q": "1?"}', "row 2: the answer is missing"),
    # Answers of another type
    "a list, JSONL": ("my.jsonl", lines("5", ["2"]), r'row 2: a: found a list \(\["2"\]\); expected text'),
    "a list, parquet": ("my.parquet", parquet([["2"]]), "a: a column of list<.*; expected text or numbers"),
    "a list, CSV": ("my.csv", table("5", "['2']"), r"row 2 \"\['2'\]\" \(a notation of data"),
    "an object, JSONL": (
        "my.jsonl",
        lines({"value": "2"}),
        r'row 1: a: found an object \({"value": "2"}\); expected text',
    ),
    "an object, parquet": (
        "my.parquet",
        parquet([{"value": "2"}]),
        "a: a column of struct<value: string>; expected text",
    ),
    "an object as text": ("my.jsonl", lines('{"value": "2"}'), r"line 1 .*\(a notation of data"),
    "true, JSONL": ("my.jsonl", lines("5", True), "row 2: a: found true or false .true.; expected text"),
    "true, parquet": ("my.parquet", parquet([True]), "a: a column of bool; expected text or numbers"),
    "NaN, JSONL": ("my.jsonl", lines(5.0, float("nan")), "row 2: the answer is missing or null .as NaN is."),
    "NaN, parquet": ("my.parquet", parquet([5.0, float("nan")]), "row 2: the answer is missing or null .as NaN is."),
    "NaN, CSV": ("my.csv", table("5", "nan"), "row 2 'nan' .*NaN"),
    "a control character": ("my.jsonl", lines("5\0"), r"line 1 .*notation of data"),
    "a tensor": ("my.csv", table("tensor(5)"), r"row 1 .*notation of data"),
    "a question that is a list, parquet": ("my.parquet", parquet(["5"], questions=[["0?"]]), "q: a column of list<"),
    # Encoded truths
    "a number among the answers": ("my.jsonl", lines('{"answers":[5]}'), r"line 1 .*answers are \(5,\); expected"),
    "no answers": ("my.jsonl", lines('{"answers":[]}'), r"line 1 .*answers are \(\); expected"),
    "answers that are no list": ("my.jsonl", lines('{"answers":"5"}'), "line 1 .*answers are '5'; expected"),
    "a unit that is none": ("my.jsonl", lines('{"answers":["5"],"unit":5}'), "line 1 .*unit is 5; expected text"),
    "a tolerance that is none": ("my.jsonl", lines('{"answers":["5"],"tolerance":NaN}'), "line 1 .*tolerance is nan"),
    "a match that is none": ("my.jsonl", lines('{"answers":["5"],"match":"x"}'), "line 1 .*match is 'x'; expected any"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, runs: Path, kind: str) -> None:
    name, data, reason = REFUSED[kind]
    (tmp_path / name).write_bytes(data)
    entry = user_dataset.UserDataset("mine", *user_dataset.describe(tmp_path / name), "q", "a")
    with pytest.raises(UserError, match=reason) as refused:
        added(entry, runs)
    assert name in str(refused.value) and "\n" not in str(refused.value)
    assert not list(runs.rglob("*.*")), "nothing is recorded"


def test_a_compressed_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ALWAYS_FINE", 1000)
    for name, data in (("my.jsonl.gz", lines("5" * 20000)), ("my.csv.gz", table("5" * 20000))):
        (tmp_path / name).write_bytes(gzip.compress(data))
        entry = user_dataset.UserDataset("mine", *user_dataset.describe(tmp_path / name), "q", "a")
        with pytest.raises(UserError, match=r"unpacks to far more than its \d+ bytes"):
            added(entry, runs)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question": "question"}, "--question question: .* problem, solution"), ({"id": "name"}, "--id name: "),
        ({"name": "../mine"}, "lower-case letters"), ({"name": "amc"}, '"amc".*--name'),
        ({"prompt": "boxed"}, "boxed"), ({"form": "conversations", "split": "train"}, "rationale"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("file", "said"), [("Mine & yours_2 ü.jsonl", "mine-yours-2: 1 rows"), ("数据.jsonl", 'error: --name "": expected')]
)
def test_a_data_set_is_called_like_its_file_as_far_as_a_name_can_be(tmp_path: Path, file: str, said: str) -> None:
    (tmp_path / file).write_bytes(lines("5"))
    arguments = [str(tmp_path / file), "--question", "q", "--answer", "a"]
    result = CliRunner().invoke(add_data, arguments)
    assert said in f"{result.output}\nerror: {result.exception}"


def test_another_choice_is_another_data_set(tmp_path: Path, runs: Path) -> None:
    """What is built from it is called by these."""
    entry = described(tmp_path, ["5"])
    chosen = [added(replace(entry, prompt=prompt), runs)[1].chosen for prompt in ("boxed-v1", "plain-v1")]
    assert chosen[0] != chosen[1]


def test_a_field_of_groups_gives_problems_their_clusters_and_the_benchmark_keeps_its_hash(
    tmp_path: Path, runs: Path
) -> None:
    file = tmp_path / "my.jsonl"
    rows = [{"q": f"{i}?", "a": i, "of": of} for i, of in enumerate(("first", "first", "second", None, ""))]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = {}
    for cluster in (None, "of"):
        entry = user_dataset.UserDataset("mine", *user_dataset.describe(file), "q", "a", cluster=cluster)
        data, known = tmp_path / f"data {cluster}", added(entry, runs)[1]
        build(DataBuild([known], fetch([known], sources=tmp_path / "sources"), BASE, None), data)
        built[cluster] = hash_files([data / "mine.parquet"]), read_problems(data / "mine.parquet")
    assert built[None][0] == built["of"][0]
    assert [problem.cluster for problem in built["of"][1]] == ["first", "first", "second", None, None]
    assert [replace(problem, cluster=None) for problem in built["of"][1]] == built[None][1]
    (data / "clean/mine.parquet").unlink()  # As of data that was built before there were clusters.
    assert read_problems(data / "mine.parquet") == built[None][1]
    with pytest.raises(UserError, match=r"--cluster group: .* no such field"):
        added(replace(entry, cluster="group"), runs)


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
