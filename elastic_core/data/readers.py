"""Raw files as batches of rows: JSON, JSONL, CSV, TSV (also compressed) and parquet, with every row's position. Errors
name the row, the value that was found and the expected type."""

from __future__ import annotations

import codecs
import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from elastic_core.data.dataset import JSON, ROW, BadRow, Fields, shortened
from elastic_core.errors import kind_of
from elastic_core.system.files import impostor

BATCH_BYTES = 64 << 20
"""Size of a batch of rows before decoding. A row of a code data set may hold 100 MB of tests, so a batch is bounded in
bytes, not in rows. A row above the bound is a batch by itself."""

MEMORY = 3 << 30
"""Bytes that unpacking parquet may use. A batch of 64 MiB in a row group of 600 MB takes 1.3 GB."""
BATCH_ROWS = 4096
LARGEST_RATIO = 1000  # unpacked bytes to those of a parquet file; a bomb has millions
LARGEST_TEXT_RATIO = 50  # the same of compressed text
ALWAYS_FINE = 1 << 30  # bytes unpacked, whatever the ratio

_FORMATS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_NOT_TEXT = {
    b"\x1f\x8b": "is compressed by gzip; expected a name that ends with .gz",
    b"BZh91AY&SY": "is compressed by bz2; expected a name that ends with .bz2",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; expected a name that ends with .zst",
    b"PK\x03\x04": "is a spreadsheet or another archive in zip; expected its rows in one of the formats",
    b"PAR1": "is a parquet file; expected a name that ends with .parquet",
    b"\xff\xfe": "is text in UTF-16; expected UTF-8",
    b"\xfe\xff": "is text in UTF-16; expected UTF-8",
}


def read_batches(file: Path, fields: Fields | None) -> Iterator[pl.DataFrame]:
    """Rows of a file: ROW (from 1) and the fields with their types, null where a row lacks one or has NaN; `fields`
    None gives each element of a JSON document as `key` and `json`. BadRow, if possible with the row, for a file that
    does not match its name or the fields."""
    if fields is None:
        document = _parse(b"".join(_lines(file)))
        if not isinstance(document, dict | list):
            raise BadRow(None, f"found {kind_of(document)}; expected a JSON list or object")
        items = document.items() if isinstance(document, dict) else ((None, value) for value in document)
        dump = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
        rows = ((number, {"key": key, "json": dump(value)}) for number, (key, value) in enumerate(items, 1))
        yield _frame(rows, {"key": pl.String(), "json": pl.String()})
    else:
        readers = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet}
        yield from readers.get(format_of(file), _json)(file, fields)


def format_of(file: Path) -> str:
    """Return a file's format by its name, in lower case: ".jsonl" for `A.JSONL.gz`. BadRow for an unknown one."""
    name = Path(file.name.lower())
    packing = name.suffix if name.suffix in _COMPRESSIONS else ""
    suffix = Path(name.name.removesuffix(packing)).suffix
    if suffix not in _FORMATS or (packing and suffix == ".parquet"):
        expected = f"{', '.join(_FORMATS)}, all but the last also compressed ({', '.join(_COMPRESSIONS)})"
        raise BadRow(None, f"unknown format {suffix + packing!r}; expected one of {expected}")
    return ".jsonl" if suffix == ".ndjson" else suffix


def column_names(file: Path) -> list[str]:
    """Fields of a user's file, from its first row; BadRow when that cannot tell."""
    if format_of(file) == ".parquet":
        return parquet_columns(file)
    if format_of(file) in (".csv", ".tsv"):
        return table(file).columns
    for _, row in records(file):
        return list(row)
    raise BadRow(None, "holds no rows; expected at least one")


def records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield position and fields of each row of a file in JSONL (the lines that are not blank) or JSON: the elements of
    a list, or of the only list in an object, as in `{"data": [...]}`. BadRow for a row that is not an object."""
    rows: Any
    if format_of(file) == ".jsonl":
        rows = ((number, _parse(line, number)) for number, line in enumerate(_lines(file), 1) if line.strip())
    else:
        document = _parse(b"".join(_lines(file)))
        lists = [each for each in document.values() if isinstance(each, list)] if isinstance(document, dict) else []
        elements = lists[0] if len(lists) == 1 else document
        if not isinstance(elements, list):
            raise BadRow(None, f"found {kind_of(document)}; expected a list of objects")
        rows = enumerate(elements, 1)
    for number, row in rows:
        if not isinstance(row, dict):
            raise BadRow(number, f"found {kind_of(row)}; expected an object with fields")
        yield number, row


def rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield position and fields of each row of a file in any of the formats; BadRow for one that cannot be read."""
    if format_of(file) == ".parquet":
        batches = parquet_batches(file, parquet_columns(file), BATCH_BYTES)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    elif format_of(file) in (".csv", ".tsv"):
        yield from enumerate(table(file).iter_rows(named=True), 1)
    else:
        yield from records(file)


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a text file, unpacked, without a byte order mark. BadRow for another format, and for a
    bomb."""
    compression = _COMPRESSIONS.get(file.suffix.lower())
    left = max(ALWAYS_FINE, LARGEST_TEXT_RATIO * file.stat().st_size)
    try:
        with io.BufferedReader(pa.input_stream(str(file), compression=compression)) as stream:
            if (head := stream.peek(256)).startswith(codecs.BOM_UTF8):
                head = head.removeprefix(stream.read(len(codecs.BOM_UTF8)))
            if found := impostor(head) or next((_NOT_TEXT[each] for each in _NOT_TEXT if head.startswith(each)), None):
                raise BadRow(None, found)
            while line := stream.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise BadRow(None, f"unpacks to far more than its {file.stat().st_size} bytes; expected text")
                yield line
    except (pa.ArrowException, OSError) as error:
        if not compression:
            raise
        raise BadRow(None, f"cannot be unpacked ({error}); expected data compressed by {compression}") from None


def _json(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    batch, size = list[tuple[int, dict[str, Any]]](), 0
    for number, row in records(file):
        length = sum(len(value) for value in row.values() if isinstance(value, str))
        if batch and size + length > BATCH_BYTES:
            yield _frame(batch, fields)
            batch, size = [], 0
        batch.append((number, {name: row.get(name) for name in fields}))
        size += length
    if batch:
        yield _frame(batch, fields)


def _frame(rows: Iterable[tuple[int, dict[str, Any]]], fields: Fields) -> pl.DataFrame:
    numbers, values = list[int](), {name: list[Any]() for name in fields}
    for number, row in rows:
        numbers.append(number)
        for name, dtype in fields.items():
            try:
                values[name].append(_converted(row[name], dtype))
            except (ValueError, TypeError, OverflowError) as error:
                found, expected = f"{kind_of(row[name])} ({shortened(json.dumps(row[name]))})", _expected(dtype)
                expected += " without halves of surrogate pairs" if isinstance(error, UnicodeError) else ""
                raise BadRow(number, f"{name}: found {found}; expected {expected}") from None
    return _numbered(pl.DataFrame(values, schema=dict(fields)), numbers)


def _converted(value: Any, dtype: Any) -> Any:
    """Convert a value of JSON or CSV to the type of a field: a number to text, the text of a number to that number.
    ValueError, TypeError or OverflowError for other values."""
    if value is None:
        return None
    if isinstance(dtype, pl.List) and isinstance(value, list):
        return [_converted(each, dtype.inner) for each in value]
    if isinstance(dtype, pl.Struct) and isinstance(value, dict):
        return {field.name: _converted(value.get(field.name), field.dtype) for field in dtype.fields}
    if isinstance(value, list | dict) or isinstance(value, bool) != (dtype == pl.Boolean):
        raise TypeError
    if dtype == pl.Boolean:
        return value
    if dtype == pl.String:
        return str(value).encode().decode()  # Half of a surrogate pair is a UnicodeError.
    number = float(value) if dtype == pl.Float64 else int(value)
    if (number != value and not isinstance(value, str)) or (dtype == pl.Int64 and not -(2**63) <= number < 2**63):
        raise ValueError
    return number


def table(file: Path) -> pl.DataFrame:
    """A file in CSV or TSV, every value as text. Where commas are decimal, spreadsheets write semicolons."""
    text = _text(data := b"".join(_lines(file)))
    separator = "\t" if format_of(file) == ".tsv" else max(",;", key=text.lstrip().partition("\n")[0].count)
    try:
        return pl.read_csv(data, infer_schema=False, separator=separator)
    except pl.exceptions.NoDataError:
        raise BadRow(None, "is empty; expected a line with the names of the columns, and rows") from None
    except pl.exceptions.PolarsError as error:
        csv.field_size_limit(sys.maxsize)  # Else a text of more than 128 KiB is an error.
        width, *widths = map(len, csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        if row := next((row for row, found in enumerate(widths, 1) if found > width), None):
            raise BadRow(row, f"{widths[row - 1]} fields; expected {width}, as the first line has") from None
        raise BadRow(None, f"not a CSV file: {str(error).splitlines()[0]}") from None


def _csv(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    rows = table(file)
    _require_columns(rows.columns, fields)
    yield _frame(enumerate(rows.select(list(fields)).iter_rows(named=True), 1), fields)


def _parquet(file: Path, fields: Fields) -> Iterator[pl.DataFrame]:
    _require_columns(parquet_columns(file), fields)
    done = 0
    for batch in parquet_batches(file, list(fields), BATCH_BYTES):
        columns = [_column(name, dtype, batch.schema.field(name).type) for name, dtype in fields.items()]
        try:
            rows = pl.DataFrame(batch).select(columns)
        except pl.exceptions.PolarsError as error:
            raise BadRow(None, f"rows from {done + 1}: {str(error).splitlines()[0]}; expected text in UTF-8") from None
        yield _numbered(rows, first=done + 1)
        done += rows.height


def _column(name: str, dtype: Any, found: pa.DataType) -> pl.Expr:
    """Convert a column of parquet to the type of a field. BadRow for a type that has no plain text."""
    if dtype == JSON:
        return pl.col(name).struct.json_encode() if pa.types.is_struct(found) else pl.col(name).cast(pl.String)
    if dtype == pl.String and (pa.types.is_nested(found) or pa.types.is_boolean(found) or pa.types.is_temporal(found)):
        raise BadRow(None, f"{name}: a column of {shortened(str(found))}; expected text or numbers")
    return (pl.col(name).fill_nan(None) if pa.types.is_floating(found) else pl.col(name)).cast(dtype)


def _numbered(rows: pl.DataFrame, numbers: Sequence[int] | None = None, first: int = 1) -> pl.DataFrame:
    """Add positions to rows, counted from `first` if none are given."""
    return rows.with_columns(pl.Series(ROW, numbers or range(first, first + rows.height), dtype=pl.UInt32))


def _require_columns(present: list[str], fields: Fields) -> None:
    missing = [name for name in fields if name not in present]
    if missing:
        raise BadRow(None, f"no field {', '.join(missing)}; there are: {', '.join(present)}")


def _parse(data: bytes, row: int | None = None) -> Any:
    """Decode a JSON document, NaN as null; BadRow with this row for other text."""
    text = _text(data, row)
    try:
        return json.loads(text, parse_constant=lambda name: None)
    except json.JSONDecodeError as error:
        at_end = error.pos >= len(error.doc.rstrip())
        what = "ends in the middle (truncated?)" if at_end else "is not JSON"
        if error.msg == "Extra data":
            what = "is more than one document (one a line? then call it .jsonl): it goes on"
        raise BadRow(row, f"{what} at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise BadRow(row, f"cannot be read as JSON: {error}") from None  # Too deep, or a number of 4,300 digits.


def _text(data: bytes, row: int | None = None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte {data[error.start]:#04x} at offset {error.start}, line {line}"
        raise BadRow(row, f"{byte} is not UTF-8; save the file as UTF-8") from None


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
        with file.open("rb") as stream:
            raise BadRow(None, f"not a parquet file: {impostor(stream.read(256)) or error}") from None


def parquet_batches(file: Path, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield these columns of all rows, in batches of about `batch_bytes`, by the file's record of its sizes. BadRow
    when it cannot be read, or is a bomb: it unpacks to more than `LARGEST_RATIO` times its size and to more than
    `ALWAYS_FINE`, or a batch takes more than `MEMORY`."""
    script = Path(__file__).with_name("unpack.py")
    bounds = [str(MEMORY), str(batch_bytes), str(BATCH_ROWS)]
    # -I: of the environment nothing is needed, and modules in the script's directory have names of others.
    command = [sys.executable, "-I", str(script), str(file), *bounds, *columns]
    most = max(ALWAYS_FINE, LARGEST_RATIO * file.stat().st_size)
    unpacked = done = 0
    is_whole = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            with suppress(pa.ArrowException, OSError), pa.ipc.open_stream(process.stdout) as stream:
                for batch in stream:
                    unpacked += batch.nbytes
                    if unpacked > most:
                        found = f"{unpacked} bytes unpacked from {file.stat().st_size}"
                        raise BadRow(done + 1, f"{found}; expected no more than {most}")
                    done += batch.num_rows
                    yield batch
                is_whole = True
            process.wait()
        finally:
            process.kill()
        complaint = process.stderr.read().decode(errors="replace").strip().splitlines()
    if process.returncode or not is_whole:
        why = complaint[-1] if complaint else f"its reader ended with {process.returncode}"
        raise BadRow(None, f"not a parquet file that can be read: {why}")
