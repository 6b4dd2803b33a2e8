"""Whether a passed answer stands in text that the harness wrote.

A harness may compute an answer and have the model repeat it. That cannot be forbidden, so it is measured:
of all that the harness put in front of the model, words are set aside that came from elsewhere, and the
answer is looked for in the rest. From elsewhere are: a run of at least three words that a tool returned
before, or that stands in the task's public fields; a whole text of theirs, however short, such as a passage's
title; any word that the model itself sampled before. An answer table among the harness's files is no excuse,
nor is a worked example that happens to hold the answer: the measure errs towards naming a pass fabricated.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

_RUN = 3
_WORD = re.compile(r"\w+")


class Sources:
    """The words that the harness did not write itself, as far as the episode has come."""

    def __init__(self) -> None:
        self._runs: dict[int, set[tuple[str, ...]]] = {}

    def add(self, value: Any) -> None:
        """Excuse every text in a JSON value: as a whole, and any run of three words of it."""
        for text in _texts(value):
            words = tuple(_WORD.findall(text))
            length = min(len(words), _RUN)
            if length:
                self._add(words, length)

    def add_sampled(self, text: str) -> None:
        """Excuse every word of what the model sampled."""
        words = tuple(_WORD.findall(text))
        if words:
            self._add(words, 1)

    def _add(self, words: Sequence[str], length: int) -> None:
        runs = self._runs.setdefault(length, set())
        runs.update(tuple(words[i : i + length]) for i in range(len(words) - length + 1))

    def own_parts(self, text: str) -> Iterator[str]:
        """Yield the stretches of `text` that no source explains."""
        found = list(_WORD.finditer(text))
        words = [match.group() for match in found]
        covered = [False] * len(words)
        for length, runs in self._runs.items():
            for start in range(len(words) - length + 1):
                if tuple(words[start : start + length]) in runs:
                    covered[start : start + length] = [True] * length
        begin = 0
        for match, is_covered in zip(found, covered, strict=True):
            if is_covered:
                yield text[begin : match.start()]
                begin = match.end()
        yield text[begin:]


def stands_in_own_text(
    answer_in: Callable[[str], bool],
    public: Mapping[str, Any],
    history: Iterable[tuple[str, Any]],
) -> bool:
    """Whether the answer stands in what the harness wrote.

    `history` is the episode in order: ("wrote", text) for a message's content or a prefix, ("tool", result),
    ("sampled", text). A source excuses only what was written after it.
    """
    sources = Sources()
    sources.add(public)
    seen: set[str] = set()
    for kind, value in history:
        if kind == "tool":
            sources.add(value)
        elif kind == "sampled":
            sources.add_sampled(value)
        elif value not in seen:
            seen.add(value)
            if answer_in(value) and any(answer_in(part) for part in sources.own_parts(value) if part.strip()):
                return True
    return False


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, int | float):
        yield str(value)
