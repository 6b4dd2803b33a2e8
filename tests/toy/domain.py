"""A domain for tests of everything around the model: a random model passes about half of its tasks.

The verdict is the parity of a checksum of the sampled text, so that rewards depend on every sampled token.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whale.domains.base import SPLITS, Split, Task, ToolFunction, Verdict
from whale.rollout.types import Completion

HARNESS = Path(__file__).parent / "h0"


class ToyDomain:
    name = "toy"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.sizes = {split: int(options.get(split, 4)) for split in SPLITS}
        self.salt = str(options.get("salt", ""))
        self.harness = Path(str(options.get("harness_folder", HARNESS)))

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        return {
            split: [
                Task(f"{split}-{i}", {"question": f"{split} question {i}"}, {"answer": f"{split} answer {i}"})
                for i in range(self.sizes[split])
            ]
            for split in SPLITS
        }

    def fingerprint(self) -> str:
        return hashlib.sha256(repr((sorted(self.sizes.items()), self.salt)).encode()).hexdigest()

    def h0(self) -> Mapping[str, bytes]:
        return {
            path.relative_to(self.harness).as_posix(): path.read_bytes()
            for path in sorted(self.harness.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        def lookup(query: str, k: int = 1) -> list[dict[str, str]]:
            return [{"title": f"entry {i}", "text": f"note {i} on {query[:20]}"} for i in range(k)]

        return {"lookup": lookup}

    def verify(self, task: Task, completion: Completion) -> Verdict:
        checksum = zlib.crc32(completion.sampled.encode("utf-8", "replace"))
        return Verdict(float(checksum % 2 == 0), {"length": float(len(completion.sampled))})

    def answer_in(self, task: Task, text: str) -> bool:
        return str(task.private["answer"]) in text

    def leak(self, text: str) -> str | None:
        for split in ("harness", "validation", "test"):
            if f"{split} answer" in text:
                return f"it holds an answer of the {split} split"
        return None


def create(options: Mapping[str, Any]) -> ToyDomain:
    return ToyDomain(options)
