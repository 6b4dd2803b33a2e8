"""The check for hidden problems that are smuggled into a harness."""

import re
from collections.abc import Iterable

from whale.domains.base import Split, Task

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z][a-z]+\b")


class LeakCheck:
    """Looks for the problems of hidden splits in a text, by their words, and again with the names left out.

    It finds what is written in clear, not what is encoded, and it does not look for answers: a table of small
    numbers says nothing about problems that it does not name.
    """

    def __init__(self, hidden: Iterable[tuple[Split, Task]]) -> None:
        self._hidden = [
            (split, task.id, f" {_words(task.public['question'])} ", f" {_nameless(task.public['question'])} ")
            for split, task in hidden
        ]

    def __call__(self, text: str) -> str | None:
        """The reason, naming the split and the problem's id but not the answer; None if the text is clean."""
        text = _ESCAPE.sub(lambda m: chr(int(m.group(1), 16)) if m.group(1) else " ", text)
        plain, nameless = f" {_words(text)} ", f" {_nameless(text)} "
        for split, id_, question, dressed_down in self._hidden:
            if question in plain or dressed_down in nameless:
                return f"it contains a problem of the {split} split ({id_})"
        return None


def _words(text: str) -> str:
    return " ".join(word.casefold() for word in _WORD.findall(text))


def _nameless(text: str) -> str:
    """The words without those that begin with a capital: names, and the first words of sentences."""
    return _words(_NAME.sub(" ", text))
