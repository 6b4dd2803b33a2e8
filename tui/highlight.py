"""Syntax roles for source text, by Pygments: whole files while they are small, single lines above that."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from whale.tui.text import Line, Span, clean

WHOLE_FILE = 200_000
"""Characters up to which a file is coloured as a whole, so that strings over many lines are right."""

_LEXERS = {".py": "python", ".json": "json", ".jsonl": "json", ".md": "markdown", ".toml": "toml", ".yaml": "yaml"}


@lru_cache(maxsize=16)
def _lexer(path: str) -> Any:
    ending = "." + path.rpartition(".")[2]
    name = _LEXERS.get(ending)
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


@lru_cache(maxsize=256)
def _role(token: Any) -> str:
    from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

    for kind, role in (
        (Comment, "comment"), (String.Doc, "comment"), (String, "string"), (Number, "number"),
        (Keyword, "keyword"), (Operator.Word, "keyword"), (Name.Function, "name"), (Name.Class, "name"),
        (Name.Decorator, "name"), (Name.Tag, "keyword"), (Name.Builtin, "operator"), (Generic.Heading, "keyword"),
        (Generic.Subheading, "keyword"),
    ):  # fmt: skip
        if token in kind:
            return role
    return ""


def paint(text: str, path: str) -> list[Line]:
    """The lines of a file with roles."""
    lexer = _lexer(path)
    if lexer is None or len(text) > WHOLE_FILE:
        return [(Span(clean(part)),) for part in text.split("\n")]
    lines: list[list[Span]] = [[]]
    for token, value in lexer.get_tokens(text.replace("\r\n", "\n")):
        role = _role(token)
        for n, part in enumerate(value.split("\n")):
            if n:
                lines.append([])
            if part:
                lines[-1].append(Span(clean(part), role))
    return [tuple(spans) for spans in lines]


class Painter:
    """One file's lines, by number from 1; lines of a file that is not here are coloured one by one."""

    def __init__(self, path: str, text: str | None) -> None:
        self.path = path
        self._text = text
        self._lines: Sequence[Line] | None = None
        self._single = lru_cache(maxsize=2000)(self._one)

    def line(self, number: int, text: str) -> Line:
        """Line `number`, which reads `text`."""
        if self._text is not None and len(self._text) <= WHOLE_FILE:
            if self._lines is None:
                self._lines = paint(self._text, self.path)
            if 0 < number <= len(self._lines):
                found = self._lines[number - 1]
                if "".join(span.text for span in found) == text:
                    return found
        return self._single(text)

    def _one(self, text: str) -> Line:
        if len(text) > 2000:
            return (Span(text),)
        return paint(text, self.path)[0]
