"""Raw files as batches of rows: JSON, JSONL, CSV and parquet, with every row's position.

The fast readers of polars and pyarrow do the work. Only when one refuses is the file read again, slowly, to say which
row is at fault and why.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from elastic_core.data.dataset import ROW, BadRow, Fields
from elastic_core.errors import kind_of

BATCH_BYTES = 64 << 20
"""Size of a batch of rows before decoding. A row of a code data set may hold 100 MB of tests, so a batch is bounded in
bytes, not in rows, and a row above the bound is a batch of its own."""
LARGE_BYTES = 8 << 20  # a larger line is read by itself

MEMORY = 3 << 30
"""Of the process that unpacks parquet, in bytes beside its own. A batch of 64 MiB in a row group of 600 MB takes
1.3 GB."""
BATCH_ROWS = 4096
LARGEST_RATIO = 1000  # unpacked bytes to those of a parquet file; a bomb has millions
ALWAYS_FINE = 1 << 30  # bytes unpacked, whatever the ratio

_BOM = b"\xef\xbb\xbf"


def read_batches(file: Path, fields: Fields | None) -> Iterator[pl.DataFrame]:
    """Rows of a file: ROW (from 1) and the fields with their types, null where a row lacks one; `fields` None gives
    each element of a JSON document as `key` and `json`. BadRow when the file is not what its name says, with the row
    where there is one."""
    readers = {".json": _json, ".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv, ".parquet": _parquet}
    if file.suffix not in readers:
        raise BadRow(None, f"unknown format {file.suffix!r}; expected one of {', '.join(readers)}")
    if fields is None:
        document = _parse(file.read_bytes().removeprefix(_BOM))
        if not isinstance(document, dict | list):
            raise BadRow(None, f"found {kind_of(document)}; expected a JSON list or object")
        items = document.items() if isinstance(document, dict) else ((None, value) for value in document)
        rows = [(key, orjson.dumps(value).decode()) for key, value in items]
        yield _numbered(pl.DataFrame(rows, schema={"key": pl.String, "json": pl.String}, orient="row"))
    else:
        yield from readers[file.suffix](file, fields)


def column_names(file: Path) -> list[str]:
    """Fields of a user's file, from its first row; BadRow when that cannot tell."""
    if file.suffix == ".csv":
        return pl.read_csv(file, n_rows=0).columns
    if file.suffix == ".parquet":
        return parquet_columns(file)
    first: Any
    if file.suffix == ".json":
        rows = _parse(file.read_bytes())
        first = rows[0] if isinstance(rows, list) and rows else None
    else:
        with file.open("rb") as stream:
            first = _parse(stream.readline())
    if not isinstance(first, dict):
        raise BadRow(1, f"found {kind_of(first)}; expected an object with fields")
    return list(first)


def _json(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    data = file.read_bytes().removeprefix(_BOM)
    try:
        rows = pl.read_json(data, schema=dict(fields)) if data.lstrip()[:1] == b"[" else None
        reason = "expected a list of objects"
    except pl.exceptions.PolarsError as error:
        rows, reason = None, str(error)
    if rows is None:
        document = _parse(data)
        if not isinstance(document, list):
            raise BadRow(None, f"found {kind_of(document)}; expected a list of objects")
        for number, row in enumerate(document, 1):
            _check_row(row, fields, number)
        raise BadRow(None, reason)
    yield _numbered(rows)


def _jsonl(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    lines: list[bytes] = []
    numbers: list[int] = []
    size = 0
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(_BOM)
            if not line.strip():
                continue
            is_large = len(line) > LARGE_BYTES
            if lines and (is_large or size + len(line) > BATCH_BYTES):
                yield _lines(lines, numbers, fields)
                lines, numbers, size = [], [], 0
            if is_large:
                yield _large_line(line, number, fields)
                continue
            lines.append(line)
            numbers.append(number)
            size += len(line)
    if lines:
        yield _lines(lines, numbers, fields)


def _lines(lines: list[bytes], numbers: list[int], fields: Fields) -> pl.DataFrame:
    try:
        rows = pl.read_ndjson(io.BytesIO(b"".join(lines)), schema=dict(fields))
        if rows.height == len(lines):
            return _numbered(rows, numbers)
        reason = f"{rows.height} objects on {len(lines)} lines; expected one object a line"
    except pl.exceptions.PolarsError as error:
        reason = str(error)
    for number, line in zip(numbers, lines, strict=True):
        _check_row(_parse(line, number), fields, number)
    raise BadRow(None, reason)


def _large_line(line: bytes, number: int, fields: Fields) -> pl.DataFrame:
    """A line of 100 MB costs polars' reader a gigabyte; its large texts are taken as they are instead."""
    row = _parse(line, number)
    if not isinstance(row, dict):
        raise BadRow(number, f"found {kind_of(row)}; expected an object")
    _check_row({name: None if _is_large(value) else value for name, value in row.items()}, fields, number)
    texts = {name for name, dtype in fields.items() if dtype == pl.String and _is_large(row.get(name))}
    rest = orjson.dumps({name: row.get(name) for name in fields if name not in texts})
    frame = pl.read_ndjson(io.BytesIO(rest), schema={name: fields[name] for name in fields if name not in texts})
    frame = frame.with_columns(pl.Series(name, [row[name]]) for name in texts).select(list(fields))
    return _numbered(frame, [number])


def _is_large(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LARGE_BYTES // 10


def _csv(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    data = file.read_bytes().removeprefix(_BOM)
    try:
        rows = pl.read_csv(data, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        _explain_encoding(data)
        raise BadRow(None, f"not a CSV file: {str(error).splitlines()[0]}") from None
    _require_columns(rows.columns, fields)
    rows = _numbered(rows.select(list(fields)))
    for name, dtype in fields.items():
        cast = rows[name].cast(dtype, strict=False)
        wrong = (cast.is_null() & rows[name].is_not_null()).arg_max()
        if wrong is not None and cast[wrong] is None and rows[name][wrong] is not None:
            raise BadRow(wrong + 1, f"{name}: {rows[name][wrong]!r}; expected {_expected(dtype)}")
        rows = rows.with_columns(cast)
    yield rows


def _parquet(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    _require_columns(parquet_columns(file), fields)
    done = 0
    for batch in parquet_batches(file, list(fields), BATCH_BYTES):
        columns = []
        for name, dtype in fields.items():  # A nested column that the entry declares as text is read as JSON.
            nested = pa.types.is_struct(batch.schema.field(name).type) and dtype == pl.String
            columns.append(pl.col(name).struct.json_encode() if nested else pl.col(name).cast(dtype))
        rows = pl.DataFrame(batch).select(columns)
        yield _numbered(rows, first=done + 1)
        done += rows.height


def _numbered(rows: pl.DataFrame, numbers: Sequence[int] | None = None, first: int = 1) -> pl.DataFrame:
    """With their positions, which follow each other from `first` if none are given."""
    return rows.with_columns(pl.Series(ROW, numbers or range(first, first + rows.height), dtype=pl.UInt32))


def _require_columns(present: list[str], fields: Fields) -> None:
    missing = [name for name in fields if name not in present]
    if missing:
        raise BadRow(None, f"no field {', '.join(missing)}; there are: {', '.join(present)}")


def _check_row(row: Any, fields: Fields, number: int) -> None:
    if not isinstance(row, dict):
        raise BadRow(number, f"found {kind_of(row)}; expected an object")
    for name, dtype in fields.items():
        value = row.get(name)
        try:
            pl.read_json(orjson.dumps([{name: value}]), schema={name: dtype})
        except pl.exceptions.PolarsError:
            raise BadRow(number, f"{name}: found {kind_of(value)}; expected {_expected(dtype)}") from None


def _parse(data: bytes, row: int | None = None) -> Any:
    """A JSON document; BadRow of this row when it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        _explain_encoding(data, row)
        if data.lstrip()[:1] == b"<":
            raise BadRow(row, "an HTML page in place of JSON") from None
        at_end = error.pos >= len(error.doc.rstrip())
        what = "ends in the middle (truncated?)" if at_end else "is not JSON"
        raise BadRow(row, f"{what} at line {error.lineno}, column {error.colno}: {error.msg}") from None


def _explain_encoding(data: bytes, row: int | None = None) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte {data[error.start]:#04x} at offset {error.start}, line {line}"
        raise BadRow(row, f"{byte} is not UTF-8") from None


def _expected(dtype: Any) -> str:
    if dtype == pl.String:
        return "text"
    if isinstance(dtype, pl.List):
        return f"a list ({_expected(dtype.inner)} each)"
    if isinstance(dtype, pl.Struct):
        return f"an object with {', '.join(field.name for field in dtype.fields)}"
    return "a number"


def parquet_columns(file: Path) -> list[str]:
    """Names of the columns; BadRow when it is not a parquet file."""
    try:
        return list(pq.read_schema(file).names)
    except (pa.ArrowException, OSError) as error:
        raise BadRow(None, f"not a parquet file: {error}") from None


def parquet_batches(file: Path, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """These columns of all rows, in batches of about `batch_bytes`, by the file's own record of its sizes. BadRow when
    it cannot be read, or is a bomb: it unpacks to more than `LARGEST_RATIO` times its size and to more than
    `ALWAYS_FINE`, or a batch takes more than `MEMORY`."""
    script = Path(__file__).with_name("unpack.py")
    bounds = [str(MEMORY), str(batch_bytes), str(BATCH_ROWS)]
    # -I: of the environment nothing is needed, and the modules beside the script have names of others.
    command = [sys.executable, "-I", str(script), str(file), *bounds, *columns]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    most = max(ALWAYS_FINE, LARGEST_RATIO * file.stat().st_size)
    unpacked = done = 0
    try:
        with pa.ipc.open_stream(process.stdout) as stream:
            for batch in stream:
                unpacked += batch.nbytes
                if unpacked > most:
                    found = f"{unpacked} bytes unpacked from {file.stat().st_size}"
                    raise BadRow(done + 1, f"{found}; expected no more than {most}")
                done += batch.num_rows
                yield batch
        ended = process.wait()
    except (pa.ArrowException, OSError):
        ended = process.wait() or 1
    finally:
        process.kill()
        process.wait()
        complaint = process.stderr.read().decode(errors="replace").strip().splitlines()
        process.stdout.close()
        process.stderr.close()
    if ended:
        why = complaint[-1] if complaint else f"its reader ended with {ended}"
        raise BadRow(None, f"not a parquet file that can be read: {why}")
