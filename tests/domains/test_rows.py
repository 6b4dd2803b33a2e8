"""Rows of data sets: the hub's formats on disk, and clear words where something is missing."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whale.domains.rows import load_rows
from whale.errors import UsageError, WhaleError

ROWS = [{"question": "q1", "golden_answers": ["a", "b"]}, {"question": "q2", "golden_answers": ["c"]}]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(json.dumps(rows) if path.suffix == ".json" else text)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.json"])
def test_a_file_gives_its_rows_in_every_format(tmp_path: Path, name: str) -> None:
    assert load_rows(str(write(tmp_path / name, ROWS)), "train") == ROWS


@pytest.mark.parametrize(
    "name", ["test.parquet", "data/test-00000-of-00002.parquet", "test_all.jsonl", "data/test.jsonl"]
)
def test_a_folder_gives_the_files_of_the_split(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, ROWS)
    write((tmp_path / name).with_name("train.jsonl"), [{"question": "other"}])
    (tmp_path / "README.md").write_text("card")
    assert load_rows(str(tmp_path), "test") == ROWS


def test_shards_are_read_in_order_and_a_subset_has_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path / "nq" / "test-00001-of-00002.parquet", ROWS[1:])
    write(tmp_path / "nq" / "test-00000-of-00002.parquet", ROWS[:1])
    assert load_rows(str(tmp_path), "test", config="nq") == ROWS


def test_the_only_data_file_of_a_folder_serves_any_split(tmp_path: Path) -> None:
    write(tmp_path / "data" / "dapo-math-17k.parquet", ROWS)
    assert load_rows(str(tmp_path), "train") == ROWS


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "none.parquet", "no such file or folder"),
        (lambda folder: folder, "no train split here"),
        (lambda folder: _text(folder / "a.parquet", "junk"), "cannot be read as rows"),
        (lambda folder: _text(folder / "a.jsonl", "{"), "cannot be read as rows"),
        (lambda folder: _text(folder / "a.jsonl.gz", "{"), "cannot be read as rows"),
        (lambda folder: _text(folder / "a.json", "{}"), "cannot be read as rows"),
        (lambda folder: _text(folder / "a.json", "[1, 2]"), "a row must be an object of columns, not '1'"),
        (lambda folder: _text(folder / "a.jsonl", '["x"]'), "a row must be an object of columns"),
        (lambda folder: "x" * 5000, "cannot be read: File name too long"),
        (lambda folder: "~nobody-of-this-name/x", "cannot be read: Could not determine home directory"),
        (lambda folder: "a\0b", "cannot be read: "),
        (lambda folder: _text(folder / "a.csv", "x"), "cannot be read as rows"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path, make: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        load_rows(str(make(tmp_path)), "train")
    assert "\n" not in str(caught.value)


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'whale-evolve\[paper\]'.*hf download owner/name"):
        load_rows("owner/name", "train")


def test_a_hub_that_cannot_be_reached_is_one_line_with_the_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def refuse(*args: object, **named: object) -> object:
        raise ConnectionError("Couldn't reach the Hub:\noffline")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(WhaleError, match="hf download owner/name --repo-type dataset --local-dir data/name") as caught:
        load_rows("owner/name", "train")
    assert "\n" not in str(caught.value)


def test_rows_come_through_the_datasets_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    write(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet", ROWS)
    real = datasets.load_dataset
    cache = str(tmp_path / "cache")

    def local(name: str, config: str | None, split: str) -> Any:
        assert name == "owner/name"
        return real(str(tmp_path / "hub"), config, split=split, cache_dir=cache)

    monkeypatch.setattr(datasets, "load_dataset", local)
    assert load_rows("owner/name", "test") == ROWS
