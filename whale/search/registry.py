"""Proposers by name, as a config names them."""

from collections.abc import Callable, Mapping
from typing import Any

from whale.errors import UsageError
from whale.own_code import is_own
from whale.search.agentic.proposers import anthropic_proposer, openai_proposer
from whale.search.agentic.types import SessionProposer
from whale.search.claude_code.proposer import ClaudeCodeProposer
from whale.search.gepa.proposer import GepaProposer
from whale.search.mutation import MutationProposer
from whale.search.own_proposer import own_proposer
from whale.search.scripted import ScriptedProposer
from whale.search.taken import check_taken
from whale.search.types import Proposer

PROPOSERS: dict[str, Callable[..., Proposer | SessionProposer]] = {
    "anthropic": anthropic_proposer,
    "gepa": GepaProposer,
    "openai": openai_proposer,
    "claude-code": ClaudeCodeProposer,
    "mutation": MutationProposer,
    "scripted": ScriptedProposer,
}


def proposer(name: str, options: Mapping[str, Any] | None = None) -> Proposer | SessionProposer:
    """The proposer of this name with its options: a built-in one, or "path/to/mine.py:factory".

    Raises UsageError, in one line, for an unknown name or option, or a proposer of the user's own that is none.
    """
    if is_own(name):
        return own_proposer(name, options or {}, frozenset(PROPOSERS))
    try:
        make = PROPOSERS[name]
    except KeyError:
        known = ", ".join(sorted(PROPOSERS))
        raise UsageError(
            f"unknown proposer {name!r} in [search] proposer; known: {known}, or path/to/mine.py:factory"
        ) from None
    try:
        check_taken(make, options or {})
        return make(**(options or {}))
    except (TypeError, ValueError) as error:
        raise UsageError(f"bad options for the proposer {name!r} in [search]: {error}") from None
