"""Parquet files of any size, in bounded pieces: our tables, written whole or not at all, and files that anyone may have
written, read within bounds of memory."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from elastic_core.data.dataset import BadRow
from elastic_core.errors import UserError
from elastic_core.system.files import replacing

PIECE_BYTES = 64 << 20
"""Size of a row group in memory. The tests of one problem may be 100 MB, so pieces are bounded in bytes and not in
rows."""

MEMORY = 3 << 30
"""Of the process that unpacks, in bytes beside its own. A batch of 64 MiB in a row group of 600 MB takes 1.3 GB."""
BATCH_ROWS = 4096
LARGEST_RATIO = 1000
"""Unpacked bytes to those of the file; a bomb has millions."""
ALWAYS_FINE = 1 << 30
"""Bytes unpacked, whatever the ratio."""


class TableWriter:
    """Appends frames of one schema to a parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def write(self, frame: pl.DataFrame) -> None:
        size = max(1, int(frame.estimated_size()))
        for piece in frame.iter_slices(max(1, frame.height * PIECE_BYTES // size)):
            table = piece.to_arrow()
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path,
                    table.schema,
                    # Level 1 is as small as the default within a few percent, and several times as fast.
                    compression="zstd",
                    compression_level=1,
                    # Both would copy texts of 100 MB, and rows are never looked up by them.
                    use_dictionary=False,
                    write_statistics=False,
                )
            self._writer.write_table(table)
        self.rows += frame.height

    def close(self, empty: pl.DataFrame) -> None:
        """Finish the file; without rows it is that of `empty`."""
        if self._writer is None:
            empty.write_parquet(self._path)
        else:
            self._writer.close()


@contextmanager
def writing(path: Path, schema: pl.Schema) -> Iterator[TableWriter]:
    """A writer whose file appears under its name when the block succeeds.

    Raises:
        UserError: when the disk is full.
    """
    try:
        with replacing(path) as temporary:
            writer = TableWriter(temporary)
            yield writer
            writer.close(pl.DataFrame(schema=schema))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(f"{path.stem}: no space left on the disk of {path}; free some and run again") from None


def read_pieces(path: Path) -> Iterator[pl.DataFrame]:
    """The table's row groups, one after the other."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        frame = pl.from_arrow(file.read_row_group(group))
        assert isinstance(frame, pl.DataFrame)
        yield frame


def num_rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def remove_leftovers(directory: Path) -> None:
    """Temporary files of a process that was killed."""
    for file in directory.rglob(".*.tmp"):
        file.unlink()


def parquet_columns(file: Path) -> list[str]:
    """Raises:
    BadRow: when it is no parquet file.
    """
    try:
        return list(pq.read_schema(file).names)
    except (pa.ArrowException, OSError) as error:
        raise BadRow(None, f"not a parquet file: {error}") from None


def parquet_batches(file: Path, columns: Sequence[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """These columns of all rows.

    Args:
        batch_bytes: size of a batch, as far as the file's own record of its sizes tells.

    Raises:
        BadRow: when it cannot be read, or is a bomb: it unpacks to more than `LARGEST_RATIO` times its size and to more
            than `ALWAYS_FINE`, or a batch takes more than `MEMORY`.
    """
    script = Path(__file__).with_name("unpack.py")
    bounds = [str(MEMORY), str(batch_bytes), str(BATCH_ROWS)]
    # -I: of the environment nothing is needed, and the modules beside the script have names of others.
    process = subprocess.Popen(
        [sys.executable, "-I", str(script), str(file), *bounds, *columns],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    most = max(ALWAYS_FINE, LARGEST_RATIO * file.stat().st_size)
    unpacked = done = 0
    try:
        with pa.ipc.open_stream(process.stdout) as stream:
            for batch in stream:
                unpacked += batch.nbytes
                if unpacked > most:
                    raise BadRow(
                        done + 1, f"{unpacked} bytes unpacked from {file.stat().st_size}; expected no more than {most}"
                    )
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
