"""Tables of any size: written and read in bounded pieces, whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from elastic_core.errors import UserError
from elastic_core.files import replacing

PIECE_BYTES = 64 << 20
"""Size of a row group in memory. The tests of one problem may be 100 MB, so pieces are bounded in bytes and not in
rows."""


class TableWriter:
    """Appends frames of one schema to a parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def write(self, frame: pl.DataFrame) -> None:
        for piece in _pieces(frame):
            table = piece.to_arrow()
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path,
                    table.schema,
                    # Level 1 is as small as the default within a few percent, and several times as fast.
                    compression="zstd",
                    compression_level=1,
                    # Both would copy texts of 100 MB, and nobody looks a row up by them.
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


def _pieces(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    size = max(1, int(frame.estimated_size()))
    yield from frame.iter_slices(max(1, frame.height * PIECE_BYTES // size))
