"""Rows of a data set: from local files in the Hugging Face hub's formats, or from the hub itself.

Local files are Parquet, JSON lines (also gzipped) or a JSON list; a folder is one as `hf download` writes it.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whale.domains.places import place
from whale.errors import UsageError, WhaleError

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json")


def load_rows(source: str, split: str, *, config: str | None = None) -> list[dict[str, Any]]:
    """All rows of a split of a data set.

    `source` is a file, a folder, or "owner/name" on the hub; `config` is the hub's name for a subset. A folder
    with files of several splits must name them by it (`test.parquet`, `data/test-00000-of-00001.parquet`); its
    only data file is taken for any split. Raises UsageError or WhaleError, in one line that says what to do.
    """
    path = place(source, "rows of a data set")
    if path.is_file():
        return list(_read(path))
    if path.is_dir():
        try:
            files = _files_of(path, split, config)
        except OSError as error:
            raise UsageError(f"{path}: the folder cannot be read: {error.strerror or error}") from error
        if not files:
            raise UsageError(f"{path}: no {split} split here: looked for {split}*.parquet, .jsonl or .json")
        return [row for file in files for row in _read(file)]
    if source.count("/") != 1 or source.startswith(("/", ".", "~")) or source.endswith(SUFFIXES):
        raise UsageError(
            f"{source}: no such file or folder; a data set of the hub comes by `{fetch_command('OWNER/NAME')}`"
        )
    return _from_hub(source, split, config)


def fetch_command(source: str) -> str:
    """The command that brings a data set of the hub into a folder."""
    return f"hf download {source} --repo-type dataset --local-dir data/{source.rpartition('/')[2]}"


def _from_hub(source: str, split: str, config: str | None) -> list[dict[str, Any]]:
    offline = f"; or fetch it where there is a network, `{fetch_command(source)}`, and name that folder"
    try:
        from datasets import load_dataset
    except ImportError:
        raise UsageError(
            f"{source}: reading from the Hugging Face hub needs a package: pip install 'whale-evolve[paper]'{offline}"
        ) from None
    try:
        return [dict(row) for row in load_dataset(source, config, split=split)]
    except Exception as error:  # the library raises most of Python's own kinds
        reason = " ".join(str(error).split())[:300]
        raise WhaleError(
            f"{source}: no such folder here, and the split {split} cannot be read from the hub: {reason}{offline}, if "
            f"{source} is its name there"
        ) from error


def _files_of(folder: Path, split: str, config: str | None) -> list[Path]:
    places = [folder / config] if config and (folder / config).is_dir() else [folder, folder / "data"]
    found = [
        path
        for place in places
        if place.is_dir()
        for path in sorted(place.iterdir())
        if path.name.endswith(SUFFIXES) and path.is_file()
    ]
    named = [path for path in found if path.name.startswith((f"{split}.", f"{split}-", f"{split}_"))]
    return named or (found if len(found) == 1 else [])


def _read(path: Path) -> Iterator[dict[str, Any]]:
    try:
        if path.name.endswith(".parquet"):
            import pyarrow.parquet as pq

            yield from pq.read_table(path).to_pylist()
        elif path.name.endswith(".json"):
            rows = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(rows, list):
                raise ValueError("it holds no list of rows")
            yield from map(_row, rows)
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            with (
                gzip.open(path, "rt", encoding="utf-8")
                if path.name.endswith(".gz")
                else path.open(encoding="utf-8") as lines
            ):
                yield from (_row(json.loads(line)) for line in lines if line.strip())
        else:
            raise ValueError(f"give one of {', '.join(SUFFIXES)}")
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"{path}: cannot be read as rows: {reason}") from error


def _row(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a row must be an object of columns, not {str(value)[:60]!r}")
    return value
