"""A log as a file that other tools read, and back: JSON lines or Parquet, nothing lost on the way.

An export holds each event's envelope with the very bytes of `data` and `meta`, so that whoever has the file
can check the chain, and an import gives a log with the same hashes.
"""

import gzip
import lzma
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from whale.events.log import CorruptLog, InvalidEvent, LogError, Row

Binary = IO[bytes] | gzip.GzipFile | lzma.LZMAFile
EXPORTS = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".parquet")
"""What names an exported log."""

_ROWS_A_GROUP = 10_000


class _Line(msgspec.Struct):
    position: int
    stream: str
    version: int
    key: str
    event_id: str
    at: str
    type: str
    schema_version: int
    data: msgspec.Raw
    meta: msgspec.Raw
    prev_hash: str
    hash: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


def write_jsonl(rows: Iterable[Row], file: Binary) -> int:
    """Write one JSON object a line, data and meta as objects in it; returns how many."""
    count = 0
    for row in rows:
        count += 1
        line = _Line(*row[:8], msgspec.Raw(row.data), msgspec.Raw(row.meta), *row[10:])
        file.write(_encoder.encode(line) + b"\n")
    return count


def read_jsonl(file: Binary) -> Iterator[Row]:
    """The rows of what `write_jsonl` wrote. Raises InvalidEvent with the line's number for another file."""
    for number, text in enumerate(file, 1):
        try:
            line = _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidEvent(f"line {number} is not an exported event: {error}") from error
        values = msgspec.structs.astuple(line)
        yield Row._make((*values[:8], bytes(line.data), bytes(line.meta), *values[10:]))


def write_parquet(rows: Iterable[Row], file: Binary) -> int:
    """Write a Parquet table with the log's columns, zstd; data and meta as JSON text. Returns how many rows."""
    pyarrow, parquet = _pyarrow()
    whole, text = pyarrow.int64(), pyarrow.string()
    kinds = {"position": whole, "version": whole, "schema_version": whole}
    schema = pyarrow.schema([(name, kinds.get(name, text)) for name in Row._fields])
    source, count = iter(rows), 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while page := list(islice(source, _ROWS_A_GROUP)):
            columns = list(zip(*page, strict=True))
            columns[8] = tuple(data.decode() for data in columns[8])
            columns[9] = tuple(meta.decode() for meta in columns[9])
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            count += len(page)
    return count


def read_parquet(file: Binary) -> Iterator[Row]:
    """The rows of what `write_parquet` wrote. Raises InvalidEvent for another file."""
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.ParquetFile(file)
        for batch in table.iter_batches(_ROWS_A_GROUP, columns=list(Row._fields)):
            columns = batch.select(list(Row._fields)).to_pydict()
            for values in zip(*columns.values(), strict=True):
                yield Row._make((*values[:8], values[8].encode(), values[9].encode(), *values[10:]))
    except (pyarrow.ArrowException, KeyError, OSError, AttributeError) as error:
        raise InvalidEvent(f"not an exported log: {error}") from error


def read_file(path: Path) -> Iterator[Row]:
    """The rows of an exported file, by its name, which ends as one of `EXPORTS`.

    Raises:
        LogError: the file cannot be read, or its name says nothing.
        InvalidEvent: it is no export.
        CorruptLog: it is damaged.
    """
    name = path.name
    try:
        with path.open("rb") as file:
            if name.endswith(".parquet"):
                yield from read_parquet(file)
            elif name.endswith(".jsonl"):
                yield from read_jsonl(file)
            elif name.endswith(".jsonl.gz"):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield from read_jsonl(unpacked)
            elif name.endswith(".jsonl.xz"):
                with lzma.LZMAFile(file) as unpacked_xz:
                    yield from read_jsonl(unpacked_xz)
            else:
                raise LogError(f"{path}: an exported log is named {', '.join(EXPORTS[:-1])} or {EXPORTS[-1]}")
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise CorruptLog(None, f"{path} is cut off or damaged: {error}") from error
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from error
    except InvalidEvent as error:
        raise InvalidEvent(f"{path}: {error}") from error


@contextmanager
def packed(file: IO[bytes], name: str) -> Iterator[Binary]:
    """What to write into for a file of this name: .gz and .xz are packed, to the same bytes each time."""
    if name.endswith(".gz"):
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as target:
            yield target
    elif name.endswith(".xz"):
        with lzma.LZMAFile(file, "wb", preset=6 | lzma.PRESET_EXTREME) as target_xz:
            yield target_xz
    else:
        yield file


def _pyarrow() -> tuple[Any, Any]:
    import pyarrow
    import pyarrow.parquet

    return pyarrow, pyarrow.parquet
