"""Parquet files that anyone may have written, in batches, within bounds of memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from elastic_core.data.dataset import BadRow

MEMORY = 3 << 30
"""Of the process that unpacks, in bytes beside its own. A batch of 64 MiB in a row group of 600 MB takes 1.3 GB."""
BATCH_ROWS = 4096
LARGEST_RATIO = 1000
"""Unpacked bytes to those of the file; a bomb has millions."""
ALWAYS_FINE = 1 << 30
"""Bytes unpacked, whatever the ratio."""


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
