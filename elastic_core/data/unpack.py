"""Unpacks a parquet file within bounds of memory: run by `elastic_core.data.readers`, as a separate process.

A few hundred bytes of parquet can stand for gigabytes: one text for all rows, a prefix that all texts share, a row of a
billion nulls. The reader has no limit; a process has. Batches go to standard output as Arrow
IPC; errors go to standard error, on one line.
"""

import resource
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PAGE = resource.getpagesize()


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries: a reader would unpack those without bounds."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain(field.type)) for field in kind])
    return kind


def main() -> None:
    file, memory, batch_bytes, batch_rows, *columns = sys.argv[1:]
    held = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (held + int(memory),) * 2)
    # Buffered and not ahead: otherwise a row group, which may be a gigabyte, is in memory.
    source = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    schema = pa.schema([(column, plain(source.schema_arrow.field(column).type)) for column in columns])
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
        for group in range(source.num_row_groups):
            size = source.metadata.row_group(group)
            per_row = max(1, size.total_byte_size // max(1, size.num_rows))
            rows = min(int(batch_rows), max(1, int(batch_bytes) // per_row))
            for batch in source.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                stream.write_batch(batch.select(columns).cast(schema))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit("unpacks to more than there may be")
    except BrokenPipeError:  # The reader has closed the pipe.
        sys.stderr.close()
    except (pa.ArrowException, OSError) as error:
        sys.exit(" ".join(str(error).split()))
