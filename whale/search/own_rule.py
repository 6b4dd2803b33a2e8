"""An acceptance rule of the user's own: tried on made-up phases at the start, and checked at each answer."""

import functools
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from whale.domains.source import blame, traceback_of
from whale.errors import UsageError, WhaleError
from whale.own_code import lacks, load_own, make_own
from whale.search.board import Board, Contender, Decision, Rescore
from whale.search.estimates import Scoring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whale.search.acceptance import AcceptanceRule

_CALLS = {
    "look": (("tasks",), ()),
    "stop": (("partial", "leader"), ()),
    "more": (("board",), ()),
    "judge": (("board",), ()),
}
_TASKS = 8
_WISHES = 100
"""Scorings that a rule may ask for in a trial of three contenders."""


def own_rule(name: str, options: Mapping[str, Any], built_in: frozenset[str]) -> "AcceptanceRule":
    """The rule that the file's factory makes of its options.

    Raises UsageError, in one line, for a file or factory that cannot be used, an object that is no rule, and one
    that fails or contradicts itself where nothing is paid yet.
    """
    about = f"acceptance {name!r} in [search]"
    return _own_rule(load_own(name, about), name, json.dumps(options, sort_keys=True, default=str), built_in)


@functools.lru_cache(maxsize=8)  # asked for at each step of a run; a factory that is loaded anew is another one
def _own_rule(factory: Callable[..., Any], name: str, options: str, built_in: frozenset[str]) -> "AcceptanceRule":
    about = f"acceptance {name!r} in [search]"
    rule = make_own(name, json.loads(options), about)
    called = getattr(rule, "name", None)
    if not isinstance(called, str) or not called or called in built_in:
        raise UsageError(f"{about}: the rule needs a `name`, a text that is none of {', '.join(sorted(built_in))}")
    lack = lacks(rule, _CALLS)
    if lack is not None:
        raise UsageError(f"{about}: this is no acceptance rule: {lack}")
    own = OwnRule(about, rule)
    try:
        _try(own)
    except WhaleError as error:
        raise UsageError(f"{error} (in a trial on a made-up phase)").with_details(error.details) from error
    return own


class OwnRule:
    """The user's rule between two checks. Raises WhaleError where it fails or answers what makes no sense."""

    def __init__(self, about: str, rule: "AcceptanceRule") -> None:
        self.about = about
        self.rule = rule
        self.name = rule.name

    def look(self, tasks: int) -> int:
        """How many tasks `stop` wants to see."""
        with self._named("look"):
            seen = self.rule.look(tasks)
        if not isinstance(seen, int) or not 0 <= seen <= tasks:
            raise self._wrong("look", seen, f"a whole number from 0 to {tasks}")
        return seen

    def stop(self, partial: Scoring, leader: Scoring) -> str | None:
        """Why the candidate cannot win."""
        with self._named("stop"):
            reason = self.rule.stop(partial, leader)
        if reason is not None and not (isinstance(reason, str) and reason):
            raise self._wrong("stop", reason, "a reason, or None")
        return reason

    def more(self, board: Board) -> Rescore | None:
        """The next scoring that the rule needs."""
        with self._named("more"):
            wish = self.rule.more(board)
        if wish is None:
            return None
        contender = board.find(wish.candidate) if isinstance(wish, Rescore) else None
        if contender is None:
            raise self._wrong("more", wish, "None, or a Rescore of a contender on the board")
        if wish.replicate != len(contender.scorings):
            raise self._wrong("more", wish, f"replicate={len(contender.scorings)}, the contender's next one")
        return wish

    def judge(self, board: Board) -> Decision:
        """The verdict."""
        with self._named("judge"):
            decision = self.rule.judge(board)
        if not isinstance(decision, Decision):
            raise self._wrong("judge", decision, "a whale.search.board.Decision")
        if decision.accepted and (decision.candidate == board.incoming or board.find(decision.candidate) is None):
            raise self._wrong("judge", decision, "a contender other than the incoming harness, if it accepts")
        if not decision.accepted and decision.candidate != board.incoming:
            raise self._wrong("judge", decision, f"the incoming harness, {board.incoming}, if it accepts nothing")
        return decision

    def _named(self, method: str) -> "AbstractContextManager[None]":
        return _failures_of(f"{self.about}: {method} failed")

    def _wrong(self, method: str, got: object, wanted: str) -> WhaleError:
        return WhaleError(f"{self.about}: {method} returned {repr(got)[:200]}; give {wanted}")


@contextmanager
def _failures_of(what: str) -> "Iterator[None]":
    try:
        yield
    except Exception as error:
        raise WhaleError(f"{what}: {blame(error)}").with_details(traceback_of(error)) from error


def _try(rule: OwnRule) -> None:
    """Ask the rule all that a run will ask it. Raises WhaleError, as the rule's methods do."""
    blocks = [rule.look(tasks) for tasks in range(4 * _TASKS + 1)]
    if any(later < earlier for earlier, later in itertools.pairwise(blocks)) or any(blocks[n] != n for n in blocks):
        raise WhaleError(f"{rule.about}: look must give the last of some fixed numbers of tasks, it gave {blocks}")
    worse, equal, better = (_scoring(passed) for passed in (2, 4, 7))
    for seen in sorted(set(blocks) - {0}):
        if seen < _TASKS:
            rule.stop(worse[:seen], better)
    incoming = Contender("h0", "t0", (equal,))
    others = (Contender("c1", "t1", (better,)), Contender("c2", "t2", (worse,)))
    for contenders in ((), (incoming,), others, (incoming, *others), (incoming, others[1])):
        board = _asked_out(rule, Board(contenders, "h0", planned=len(contenders) * _TASKS))
        if rule.judge(board) != rule.judge(board):
            raise WhaleError(f"{rule.about}: judge gave two answers to the same board; it must be a pure function")


def _asked_out(rule: OwnRule, board: Board) -> Board:
    """The board once the rule has all the scorings that it asks for."""
    for _ in range(_WISHES):
        wish = rule.more(board)
        if wish != rule.more(board):
            raise WhaleError(f"{rule.about}: more gave two answers to the same board; it must be a pure function")
        if wish is None:
            return board
        contenders = tuple(
            Contender(c.candidate, c.tree, (*c.scorings, c.scorings[0])) if c.candidate == wish.candidate else c
            for c in board.contenders
        )
        board = Board(contenders, board.incoming, planned=board.planned, rescored=board.rescored + _TASKS)
    raise WhaleError(f"{rule.about}: more asked for {_WISHES} scorings and for another one; it must come to None")


def _scoring(passed: int) -> Scoring:
    return np.array([float(task < passed) for task in range(_TASKS)], dtype=np.float64)
