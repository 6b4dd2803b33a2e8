"""Small edits of source text at places that the syntax tree names, so that layout and comments survive."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters start..end of a text."""

    start: int
    end: int
    text: str


def splice(source: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap. Raises ValueError if they do."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    parts, position = [], 0
    for edit in ordered:
        if edit.start < position or edit.end < edit.start:
            raise ValueError("edits overlap")
        parts += [source[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, source[position:]])


class SourceText:
    """A text whose syntax-tree positions (line, UTF-8 byte column) can be asked for as character offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Python's own lines only: str.splitlines also breaks at form feeds and Unicode separators.
        self._lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Character offset of a 1-based line and a UTF-8 byte column."""
        if line > len(self._lines):
            return len(self.text)
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where a node stands."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def code(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """The node's own text."""
        start, end = self.span(node)
        return self.text[start:end]

    def indent(self, statement: ast.stmt) -> str | None:
        """The statement's indentation, or None if it does not begin its line or does not end it alone."""
        start, end = self.span(statement)
        before = self.text[self._starts[statement.lineno - 1] : start]
        after = self.text[end : self._line_end(end)].strip()
        return before if not before.strip() and (not after or after.startswith("#")) else None

    def _line_end(self, offset: int) -> int:
        end = self.text.find("\n", offset)
        return len(self.text) if end < 0 else end

    def replace(self, node: ast.expr | ast.stmt | ast.keyword, text: str) -> Edit:
        """An edit that puts `text` in the node's place."""
        return Edit(*self.span(node), text)

    def before(self, statement: ast.stmt, lines: Sequence[str], indent: str) -> Edit:
        """An edit that puts lines above a statement."""
        start = self._starts[statement.lineno - 1]
        return Edit(start, start, "".join(f"{indent}{line}\n" for line in lines))

    def after(self, statement: ast.stmt, lines: Sequence[str], indent: str) -> Edit:
        """An edit that puts lines below a statement, its trailing comment kept beside it."""
        end = self._line_end(self.span(statement)[1])
        return Edit(end, end, "".join(f"\n{indent}{line}" for line in lines))

    def remove_statement(self, statement: ast.stmt) -> Edit:
        """An edit that deletes a statement with its whole lines."""
        start = self._starts[statement.lineno - 1]
        return Edit(start, min(len(self.text), self._line_end(self.span(statement)[1]) + 1), "")

    def add_argument(self, call: ast.Call, text: str) -> Edit:
        """An edit that appends an argument to a call."""
        end = self.span(call)[1] - 1
        arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        if not arguments:
            return Edit(end, end, text)
        last = max(self.span(argument)[1] for argument in arguments)
        tail = _blank_comments(self.text[last:end])
        comma = tail.find(",")
        if comma >= 0:
            return Edit(last + comma, last + comma, f", {text}")
        at = last + len(tail.rstrip())
        return Edit(at, at, f", {text}")

    def remove_item(self, item: ast.expr | ast.keyword, siblings: Sequence[ast.expr | ast.keyword]) -> Edit:
        """An edit that deletes an argument or a list element, and the comma that goes with it."""
        spans = sorted(self.span(sibling) for sibling in siblings)
        own = self.span(item)
        index = spans.index(own)
        if index + 1 < len(spans):
            return Edit(own[0], spans[index + 1][0], "")
        if index == 0:
            return Edit(*own, "")
        previous = spans[index - 1][1]
        comma = _blank_comments(self.text[previous : own[0]]).find(",")
        return Edit(previous + comma, own[1], "")


def _blank_comments(text: str) -> str:
    """The text with comments blanked out at equal length; only for text between a call's arguments."""
    return re.sub(r"#[^\n]*", lambda match: " " * len(match.group()), text)


def literal(text: str) -> str:
    """A double-quoted Python literal of a string."""
    if '"' in text or not text.isprintable():
        return repr(text)
    return '"' + text.replace("\\", "\\\\") + '"'
