import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_core.data import readers
from elastic_core.data.dataset import JSON, BadRow
from elastic_core.data.readers import column_names, read_batches

FIELDS = {"problem": pl.String(), "answer": pl.String()}
ROWS = [{"problem": f"{i}+1", "answer": str(i + 1), "more": [i]} for i in range(5)]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def as_json(rows: list[Any]) -> bytes:
    return json.dumps(rows).encode()


def as_jsonl(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_csv(rows: list[Any]) -> bytes:
    return pl.DataFrame([{k: row[k] for k in FIELDS} for row in rows], schema=FIELDS).write_csv().encode()


def as_parquet(rows: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2)
    return sink.getvalue().to_pybytes()


FORMATS: dict[str, Callable[[list[Any]], bytes]] = {
    "json": as_json,
    "jsonl": as_jsonl,
    "csv": as_csv,
    "parquet": as_parquet,
}


def read(tmp_path: Path, name: str, data: bytes, fields: Any = FIELDS) -> pl.DataFrame:
    (tmp_path / name).write_bytes(data)
    return pl.concat(read_batches(tmp_path / name, fields))


def refusal(tmp_path: Path, name: str, data: bytes, fields: Any = FIELDS) -> BadRow:
    with pytest.raises(BadRow) as caught:
        read(tmp_path, name, data, fields)
    return caught.value


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_fields_asked_for_and_where_each_row_was(tmp_path: Path, suffix: str) -> None:
    rows = read(tmp_path, f"rows.{suffix}", FORMATS[suffix](ROWS))
    assert rows.to_dicts() == [
        {"problem": r["problem"], "answer": r["answer"], "row": i} for i, r in enumerate(ROWS, 1)
    ]
    assert column_names(tmp_path / f"rows.{suffix}")[:2] == ["problem", "answer"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_are_numbered_through_over_batches(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 10)
    (tmp_path / f"rows.{suffix}").write_bytes(FORMATS[suffix](ROWS))
    batches = list(read_batches(tmp_path / f"rows.{suffix}", FIELDS))
    assert len(batches) > 1
    assert pl.concat(batches)["row"].to_list() == [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


TEXTS = st.fixed_dictionaries({"problem": TEXT, "answer": TEXT})


@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_any_text_survives_every_format(directory: Path, rows: list[dict[str, str]]) -> None:
    for suffix in ("json", "jsonl", "csv"):
        found = read(directory, f"rows.{suffix}", FORMATS[suffix](rows))
        # CSV cannot tell an empty text from a missing one.
        expected = [{k: v or None for k, v in row.items()} if suffix == "csv" else row for row in rows]
        assert (
            found.drop("row").with_columns(pl.all().replace("", None) if suffix == "csv" else pl.all()).to_dicts()
            == expected
        )


@settings(max_examples=3)
@given(st.lists(TEXTS, min_size=50, max_size=100))
def test_any_text_survives_parquet(directory: Path, rows: list[dict[str, str]]) -> None:
    """Few and large: each file is read by a process of its own."""
    assert read(directory, "rows.parquet", as_parquet(rows)).drop("row").to_dicts() == rows


def test_numbers_become_the_text_that_is_asked_for(tmp_path: Path) -> None:
    rows = read(tmp_path, "rows.json", as_json([{"problem": "p", "answer": 70}, {"problem": "q", "answer": "x"}]))
    assert rows["answer"].to_list() == ["70", "x"]
    error = refusal(tmp_path, "rows.csv", b"a\n1\nx\n", {"a": pl.Float64()})
    assert (error.row, error.reason) == (2, 'a: found text ("x"); expected a number')


def test_lines_are_counted_as_an_editor_shows_them(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + as_jsonl(ROWS[:1]) + b"\n\n" + as_jsonl(ROWS[1:2])
    assert read(tmp_path, "rows.jsonl", data)["row"].to_list() == [1, 4]


@pytest.mark.parametrize(
    ("name", "data", "row", "reason"),
    [
        ("rows.json", as_json(ROWS)[:-30], None, "truncated"),
        ("rows.jsonl", as_jsonl(ROWS)[:-30], 5, "truncated"),
        ("rows.jsonl", b"<html>404</html>", None, "HTML page"),
        ("rows.csv", as_csv(ROWS).replace(b"3+1", b"3\xff1"), None, "line 5 is not UTF-8"),
        ("rows.json", as_json([*ROWS, 5]), 6, "found a number; expected an object"),
        ("rows.json", b"", None, "truncated"),
        ("rows.csv", b"question,answer\n1,2\n", None, "no field problem; there are: question, answer"),
        ("rows.parquet", b"PAR1 and no more", None, "not a parquet file"),
        ("rows.csv", b"problem,answer\n%s,1,2\n" % (b"x" * 200_000), 1, "3 fields; expected 2"),
        ("rows.csv", b"\xef\xbb\xbf<!DOCTYPE html>", None, "HTML page"),
        ("rows.jsonl", bz2.compress(as_jsonl(ROWS)), None, "expected a name that ends with .bz2"),
        ("rows.json", b"\x28\xb5\x2f\xfd", None, "expected a name that ends with .zst"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, name: str, data: bytes, row: int | None, reason: str
) -> None:
    """More of it, by the command that a user runs, in test_user_dataset.py."""
    error = refusal(tmp_path, name, data)
    assert error.row == row
    assert reason in error.reason


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(pl.Int64(), "1e400"), (pl.Int64(), str(2**63)), (pl.Int64(), str(-(2**63) - 1)), (pl.Float64(), "9" * 400)],
)
def test_a_number_that_a_column_cannot_hold_is_refused(tmp_path: Path, dtype: pl.DataType, number: str) -> None:
    error = refusal(tmp_path, "rows.jsonl", b'{"problem": 1}\n{"problem": %s}' % number.encode(), {"problem": dtype})
    assert error.row == 2
    assert error.reason.startswith("problem: found a number") and error.reason.endswith("expected a number")


def bomb(rows: int, text: int, **options: Any) -> bytes:
    """A parquet file of a few hundred bytes: one text, for every row."""
    sink = pa.BufferOutputStream()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * text]))
    if options:
        column = column.cast(pa.string())
    pq.write_table(pa.table({"problem": column, "answer": column}), sink, compression="zstd", **options)
    return sink.getvalue().to_pybytes()


def test_a_parquet_file_that_unpacks_to_gigabytes_is_refused_before_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert readers.ALWAYS_FINE == 1 << 30
    monkeypatch.setattr(readers, "ALWAYS_FINE", 128 << 20)
    data = bomb(50_000, 50_000)
    assert len(data) < 2000
    (tmp_path / "rows.parquet").write_bytes(data)
    sizes = []
    with pytest.raises(BadRow, match=rf"bytes unpacked from {len(data)}; expected no more than {128 << 20}"):
        for batch in read_batches(tmp_path / "rows.parquet", FIELDS):
            sizes.append(batch.estimated_size())
    assert sum(sizes) <= 128 << 20


def as_list(rows: int, text: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"problem": ["p"], "answer": [["x" * text] * rows]}), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "data, fields",
    [
        (lambda: bomb(100, 1_000_000), FIELDS),
        (lambda: bomb(100, 1_000_000, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"), FIELDS),
        (lambda: as_list(10_000, 10_000), FIELDS | {"answer": pl.List(pl.String())}),
    ],
    ids=["one text", "one prefix", "one row"],
)
def test_a_parquet_batch_that_takes_more_memory_than_there_may_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Callable[[], bytes], fields: Any
) -> None:
    monkeypatch.setattr(readers, "MEMORY", 64 << 20)
    assert "unpacks to more" in refusal(tmp_path, "rows.parquet", data(), fields).reason


def test_a_parquet_column_of_few_texts_is_read_as_text(tmp_path: Path) -> None:
    rows = read(tmp_path, "rows.parquet", bomb(10_000, 10))
    assert rows.height == 10_000
    assert rows["problem"].unique().to_list() == ["x" * 10]


def test_whoever_stops_reading_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(bomb(20_000, 1000))
    before = set(psutil.Process().children())
    batches = read_batches(tmp_path / "rows.parquet", FIELDS)
    next(batches)
    batches.close()
    assert set(psutil.Process().children()) == before


def test_an_object_in_parquet_is_text_only_where_json_is_asked_for(tmp_path: Path) -> None:
    data = as_parquet([{"problem": "p", "answer": {"func_name": "f"}}])
    assert json.loads(read(tmp_path, "rows.parquet", data, FIELDS | {"answer": JSON})["answer"][0]) == {
        "func_name": "f"
    }
    assert "a column of struct<func_name: string>" in refusal(tmp_path, "rows.parquet", data).reason


def test_elements_of_an_irregular_document_keep_their_keys(tmp_path: Path) -> None:
    rows = read(tmp_path, "rows.json", b'{"a": [1, {"x": "y"}], "b": "c"}', None)
    assert rows.rows() == [("a", '[1,{"x":"y"}]', 1), ("b", '"c"', 2)]
    assert read(tmp_path, "rows.json", b'["a", null]', None).rows() == [(None, '"a"', 1), (None, "null", 2)]
    error = refusal(tmp_path, "rows.json", rb'["a", "\ud800"]', None)
    assert error.row == 2 and "surrogate" in error.reason
