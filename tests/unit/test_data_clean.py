import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data import clean
from elastic_core.data.clean import clean_batches, file_batches, write_clean
from elastic_core.data.dataset import PROBLEMS, Dataset
from elastic_core.data.registry import REGISTRY, select
from elastic_core.errors import UserError

ENTRY = replace(REGISTRY["math-train"], rows=None)
ROWS = [{"problem": f"{i}+1=?", "answer": f" {i + 1} "} for i in range(5)]


def write(file: Path, rows: list[Any]) -> Path:
    file.write_text(json.dumps(rows))
    return file


def build(entry: Dataset, file: Path, ids: pl.Series | None = None) -> int:
    return write_clean(entry, file_batches(entry, [file]), file.with_name("clean.parquet"), ids)


def refusal(entry: Dataset, file: Path, ids: pl.Series | None = None) -> str:
    with pytest.raises(UserError) as caught:
        build(entry, file, ids)
    assert list(file.parent.iterdir()) == [file], "nothing half-built stays"
    return str(caught.value)


def test_a_clean_table_has_normal_answers_ids_and_positions(tmp_path: Path) -> None:
    assert build(ENTRY, write(tmp_path / "rows.json", ROWS)) == 5
    table = pl.read_parquet(tmp_path / "clean.parquet")
    assert table.schema == PROBLEMS
    assert table.row(4) == ("4", "4+1=?", None, "5", None, 5)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"problem": "p", "answer": None}, "answer"),
        ({"problem": "p"}, "answer"),
        ({"problem": None, "answer": "1"}, "question"),
        ({"problem": "p", "answer": " "}, "answer"),
        ({"problem": "p", "answer": [1]}, "answer"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_and_too_few_are_refused(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    file = write(tmp_path / "rows.json", [*ROWS, row])
    message = refusal(ENTRY, file)
    assert message.startswith(f"math-train: {file}: row 6: ") and reason in message
    few = refusal(REGISTRY["math-train"], write(file, ROWS))
    assert few.startswith("math-train: 5 rows in rllm/data/train/math/math.json") and "7474" in few


def test_an_id_that_occurs_twice_is_refused_within_and_across_files(tmp_path: Path) -> None:
    entry = replace(REGISTRY["math500"], rows=None)
    rows = [{**row, "unique_id": str(i)} for i, row in enumerate(ROWS)]
    assert "row 6: id '2' " in refusal(entry, write(tmp_path / "rows.json", [*rows, rows[2]]))
    files = [write(tmp_path / "a.json", rows[:3]), write(tmp_path / "b.json", rows[2:])]
    with pytest.raises(UserError, match=r"b\.json: row 1: id '2' "):
        list(clean_batches(entry, file_batches(entry, files)))


def test_ids_from_another_data_set_must_be_as_many_as_the_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.json", ROWS)
    assert "5 rows, 4 ids" in refusal(ENTRY, file, pl.Series("id", list("abcd")))
    assert "5 rows, 6 ids" in refusal(ENTRY, file, pl.Series("id", list("abcdef")))
    build(ENTRY, file, pl.Series("id", list("abcde")))
    assert pl.read_parquet(tmp_path / "clean.parquet")["id"].to_list() == list("abcde")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.json", ROWS)
    # Where the table is written first; writing to this device fails like writing to a full disk.
    (tmp_path / f".clean.parquet.{os.getpid()}.tmp").symlink_to("/dev/full")
    assert f"no space left on the disk of {tmp_path}" in refusal(ENTRY, file)


def test_rows_of_any_size_are_written_and_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "PIECE_BYTES", 1000)
    frame = pl.DataFrame({"truth": ["x" * 300 * (i % 5) for i in range(40)]})
    rows = clean.write_table(tmp_path / "t.parquet", frame.schema, [frame, frame[:0]])
    pieces = list(clean.read_pieces(tmp_path / "t.parquet"))
    assert len(pieces) > 10
    assert pl.concat(pieces).equals(frame)
    assert clean.num_rows(tmp_path / "t.parquet") == rows == 40
    assert clean.write_table(tmp_path / "none.parquet", PROBLEMS, []) == 0
    assert pl.read_parquet(tmp_path / "none.parquet").schema == PROBLEMS, "a table without rows has its columns"


def test_a_data_set_brings_those_that_it_refers_to() -> None:
    brought = ["codeforces-ratings", "codeforces-ids", "codeforces", "amc"]
    assert [entry.name for entry in select(["codeforces", "amc", "amc"], REGISTRY)] == brought
    with pytest.raises(UserError, match=r'"math50".*"math500"'):
        select(["math50"], REGISTRY)
