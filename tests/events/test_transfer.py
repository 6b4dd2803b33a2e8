"""An exported log has every byte that the chain vouches for, and an import gives the same log."""

import gzip
import io
import json
import lzma
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whale.events import CorruptLog, InvalidEvent, LogError, MemoryLog, NewEvent, SqliteLog
from whale.events.transfer import EXPORTS, packed, read_file, read_jsonl, read_parquet, write_jsonl, write_parquet
from whale.events.types import PauseRequested, RunStarted

TEXT = "\"'\\\x00\x1b[31m\u2028é𝕏\U0010ffff\ufffe\r\n"


def sample(texts: list[str]) -> MemoryLog:
    log = MemoryLog()
    started = RunStarted(name="r", config={"a": [1, 2.5, {"b": None}]}, model="m", data="d", splits={"weight": 3})
    log.append("run", [NewEvent(started, key="started", meta={"pid": 7, "rate": 0.1})], 0)
    for n, text in enumerate(texts):
        log.append("control", [NewEvent(PauseRequested(by=text), key=f"pause/{n}", meta={text: text})], None)
    return log


@pytest.mark.parametrize("write, read", [(write_jsonl, read_jsonl), (write_parquet, read_parquet)])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=6))
def test_what_is_read_is_what_was_written(write, read, texts: list[str]) -> None:  # type: ignore[no-untyped-def]
    log = sample([TEXT, *texts])
    file = io.BytesIO()
    assert write(log.rows(), file) == len(texts) + 2
    rows = list(read(io.BytesIO(file.getvalue())))
    assert rows == list(log.rows())
    again = MemoryLog()
    assert again.restore(rows) == log.head()


def test_a_line_is_plain_json_with_the_data_in_it(tmp_path: Path) -> None:
    file = io.BytesIO()
    write_jsonl(sample([TEXT]).rows(), file)
    lines = [json.loads(line) for line in file.getvalue().split(b"\n")[:-1]]
    assert lines[0]["data"]["splits"] == {"weight": 3}
    assert lines[1]["data"]["by"] == TEXT


def test_the_table_is_plain_parquet(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    with path.open("wb") as file:
        write_parquet(sample(["x"]).rows(), file)
    table = pyarrow.parquet.read_table(path)
    assert table.column_names[:3] == ["position", "stream", "version"]
    assert table["position"].to_pylist() == [1, 2]


@pytest.mark.parametrize("suffix", EXPORTS)
def test_a_file_is_read_by_its_name(tmp_path: Path, suffix: str) -> None:
    log, path = sample([TEXT, "b"]), tmp_path / f"log{suffix}"
    with path.open("wb") as file, packed(file, path.name) as target:
        (write_parquet if suffix == ".parquet" else write_jsonl)(log.rows(), target)
    begins = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}.get(path.suffix, b"")
    assert path.read_bytes().startswith(begins)
    with SqliteLog(tmp_path / "events.db") as copy:
        assert copy.restore(read_file(path)) == log.head() == copy.verify()


@pytest.mark.parametrize(
    "name, content, error, says",
    [
        ("log.csv", b"", LogError, "named"),
        ("log.jsonl", b"{}\n", InvalidEvent, "line 1"),
        ("log.jsonl", b"\xff\xfe\n", InvalidEvent, "line 1"),
        ("log.parquet", b"PAR1 nothing", InvalidEvent, "not an exported log"),
        ("log.jsonl.gz", b"no gzip", CorruptLog, "damaged"),
        ("log.jsonl.gz", gzip.compress(b"{}\n", mtime=0)[:-12], CorruptLog, "cut off"),
        ("log.jsonl.xz", b"no xz", CorruptLog, "damaged"),
        ("log.jsonl.xz", lzma.compress(b"{}\n")[:-40], CorruptLog, "cut off"),
    ],
)
def test_a_file_that_is_no_export_says_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, error: type[Exception], says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error, match=says) as raised:
        list(read_file(path))
    assert str(path) in str(raised.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be read"):
        list(read_file(tmp_path / "none.jsonl"))
