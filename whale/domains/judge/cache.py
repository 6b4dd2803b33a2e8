"""Verdicts on disk, by the SHA-256 of everything that was asked: the same question is paid for once."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CachedVerdict:
    """A verdict, and what it cost when it was asked for."""

    correct: bool
    reply: str
    input_tokens: int
    output_tokens: int


class VerdictCache:
    """A folder of small files, each written whole or not at all; safe for threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    def key(question: Mapping[str, object]) -> str:
        """The address of a question: all that decides its verdict."""
        text = json.dumps(question, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def get(self, key: str) -> CachedVerdict | None:
        """The verdict, or None. A file that is not one is as good as none."""
        try:
            raw = json.loads(self._path(key).read_text(encoding="utf-8"))
            verdict = CachedVerdict(**raw)
        except (OSError, ValueError, TypeError):
            return None
        return verdict if isinstance(verdict.correct, bool) else None

    def put(self, key: str, verdict: CachedVerdict) -> None:
        """Keep a verdict."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(verdict), file, ensure_ascii=True)
        Path(temporary).replace(path)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
