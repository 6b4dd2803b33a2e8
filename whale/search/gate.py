"""The gates before any scoring: what a proposal must pass to be worth a rollout.

An invalid candidate is recorded with its reason and has no score, never 0.
"""

import re
from collections.abc import Callable, Mapping

from whale.search.spaces import search_space
from whale.search.tree import check_tree
from whale.search.types import Proposal

TITLE_CHARS = 200
TEXT_CHARS = 4000
AXIS_CHARS = 120

# Terminal control bytes, and marks that reorder or hide text: none can move a reader's cursor.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(proposal: Proposal) -> Proposal:
    """The proposal with its texts made safe and bounded; what a proposer writes is untrusted. Files stay."""
    return Proposal(
        title=_line(proposal.title, TITLE_CHARS) or "untitled",
        hypothesis=_text(proposal.hypothesis, TEXT_CHARS),
        axis=_line(proposal.axis, AXIS_CHARS),
        changes=_text(proposal.changes, TEXT_CHARS),
        parents=proposal.parents[:2],
        files=dict(proposal.files),
    )


def shown(text: str) -> str:
    """The text without control characters, lines kept."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def _text(text: str, limit: int) -> str:
    # Cut first: a megabyte of text is not worth a substitution. Each mark becomes one character.
    shown = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text[:limit].replace("\r\n", "\n"))
    return shown.strip() if len(text) <= limit else shown[: limit - 1].rstrip() + "…"


def _line(text: str, limit: int) -> str:
    return " ".join(_text(text, limit).split())


def outside_space(files: Mapping[str, bytes], base: Mapping[str, bytes], space: str) -> str | None:
    """Why a tree changes more than the search space (`spaces.py`) allows, measured against `base`, or None."""
    return search_space(space)(files, base)


def leaked(files: Mapping[str, bytes], leak: Callable[[str], str | None]) -> str | None:
    """Why a tree smuggles answers of D_harness, validation or test, or None. Every file and path is read."""
    for path in sorted(files):
        try:
            text = files[path].decode()
        except UnicodeDecodeError:
            return f"{path} is not UTF-8 text"
        reason = leak(path) or leak(text)
        if reason is not None:
            return f"{path}: {reason}"
    return None


def gate(
    files: Mapping[str, bytes],
    *,
    base: Mapping[str, bytes],
    space: str,
    check_source: Callable[[Mapping[str, bytes]], str | None],
    leak: Callable[[str], str | None],
    smoke: Callable[[Mapping[str, bytes]], str | None] | None = None,
) -> str | None:
    """The first reason against scoring a tree, or None. No candidate code runs before `smoke`.

    `base` is what the search space is measured against (h0); `check_source` the contract
    (`whale.harness.validation`); `leak` the domain's; `smoke` runs one task in the sandbox.
    """
    return (
        check_tree(files)
        or outside_space(files, base, space)
        or check_source(files)
        or leaked(files, leak)
        or (smoke(files) if smoke is not None else None)
    )
