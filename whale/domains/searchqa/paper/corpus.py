r"""A corpus of passages too large for memory: JSON lines, read by their number.

The format of wiki-18 as used with E5: {"id": ..., "contents": "\\"Title\\"\\nText"}; {"title", "text"} works too.
"""

import contextlib
import json
import mmap
from pathlib import Path
from typing import Any

from whale.domains.searchqa.passages import Passage
from whale.errors import UsageError

_CHUNK = 1 << 24


class Corpus:
    """Random access to the lines of a file. Where lines begin is found once and kept beside the file."""

    def __init__(self, path: Path) -> None:
        import numpy as np

        if not path.is_file():
            raise UsageError(f"{path}: no such corpus; give a file of JSON lines, one passage each")
        self.path = path
        try:
            self._starts: Any = self._load(np)
            self._file = path.open("rb")
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UsageError(f"{path}: the corpus cannot be read: {error.strerror or error}") from error

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> Passage:
        """The passage of line `number`, from 0. Raises UsageError for a line that is none."""
        line = self._map[int(self._starts[number]) : int(self._starts[number + 1])]
        try:
            return passage_of(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self.path}: line {number + 1} is no passage: {error!r}") from None

    def fingerprint(self) -> str:
        """Name, size and number of passages: the text itself may have tens of gigabytes."""
        return f"{self.path.name}:{self.path.stat().st_size}:{len(self)}"

    def _load(self, np: Any) -> Any:
        kept = self.path.with_name(self.path.name + ".lines.npy")
        size = self.path.stat().st_size
        if size == 0:
            raise UsageError(f"{self.path}: the corpus is empty")
        if kept.is_file() and kept.stat().st_mtime >= self.path.stat().st_mtime:
            starts = np.load(kept, mmap_mode="r")
            if len(starts) > 1 and starts[-1] == size:
                return starts
        parts, offset = [np.zeros(1, dtype=np.int64)], 0
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n")) + 1
                parts.append(ends.astype(np.int64) + offset)
                offset += len(chunk)
        starts = np.concatenate(parts)
        if starts[-1] != size:
            starts = np.append(starts, size)
        with contextlib.suppress(OSError):  # a read-only folder: found again each time
            np.save(kept, starts)
        return starts


def passage_of(row: Any) -> Passage:
    """One row of a corpus, or of a retrieval service. Raises KeyError or TypeError for something else."""
    if "contents" in row:
        title, _, text = str(row["contents"]).partition("\n")
        return Passage(title.strip().strip('"'), text.strip())
    return Passage(str(row.get("title", "")), str(row["text"]))
