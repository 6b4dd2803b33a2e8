"""Which harness of a phase is accepted: small exchangeable rules, pure functions of the board."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from whale.errors import UsageError
from whale.own_code import is_own
from whale.search.board import Board, Contender, Decision, Rescore
from whale.search.estimates import Scoring
from whale.search.own_rule import own_rule
from whale.search.taken import check_taken

ALPHA = 0.05


class AcceptanceRule(Protocol):
    """A rule may stop a scoring early, ask for more scorings, and then judges."""

    @property
    def name(self) -> str:
        """What a config calls it."""
        ...

    def look(self, tasks: int) -> int:
        """How many of the first `tasks` tasks of a scoring `stop` wants to see; 0: it never stops one."""
        ...

    def stop(self, partial: Scoring, leader: Scoring) -> str | None:
        """Why a candidate that is scored on its first tasks cannot win against the leader's full scoring, or None."""
        ...

    def more(self, board: Board) -> Rescore | None:
        """The next scoring that the rule needs after the last iteration; None once it can judge."""
        ...

    def judge(self, board: Board) -> Decision:
        """The decision; without any contender the incoming harness stays."""
        ...


@dataclass(frozen=True, slots=True)
class _Full:
    """What rules share that score every candidate in full, once."""

    def look(self, tasks: int) -> int:
        """Never."""
        return 0

    def stop(self, partial: Scoring, leader: Scoring) -> str | None:
        """Never."""
        return None

    def more(self, board: Board) -> Rescore | None:
        """Nothing more is needed."""
        return None


@dataclass(frozen=True, slots=True)
class ArchiveBest(_Full):
    """The paper's rule: the archive's highest score.

    Ties go to fewer turns (as in the public code), fewer tokens, the incoming harness, the earlier one.
    """

    name: str = "archive-best"

    def judge(self, board: Board) -> Decision:
        """Choose the highest score."""
        best = _best(board)
        if isinstance(best, Decision):
            return best
        own = board.own
        assert own is not None
        better = board.ranked()[0] is best
        reason = f"{best.score:.4f} against the incoming {own.score:.4f}" if better else _nothing_better(own)
        if better and best.score == own.score:
            reason = (
                f"{best.score:.4f} as the incoming harness, with fewer turns or tokens "
                f"({best.mean_turns:.2f} turns against {own.mean_turns:.2f})"
            )
        return verdict(board, best, better, reason, ALPHA / 2)


@dataclass(frozen=True, slots=True)
class Paired(_Full):
    """Accept the best only if its gain on the same tasks lies above zero, for all that were tried.

    One-sided at `alpha`, divided by the number of challengers (Bonferroni): the best of many is tested as one of
    many. It costs no further rollout.
    """

    alpha: float = ALPHA
    name: str = "paired"

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def judge(self, board: Board) -> Decision:
        """Test the best against the incoming harness."""
        best = _best(board)
        if isinstance(best, Decision):
            return best
        alpha = self.alpha / len(board.challengers())
        gain = board.gain(best, alpha)
        assert gain is not None
        told = f"{gain.gain:+z.4f} [{gain.low:+z.4f}, {gain.high:+z.4f}] against the incoming harness"
        return verdict(board, best, gain.low > 0, told, alpha)


@dataclass(frozen=True, slots=True)
class Confirm(_Full):
    """Accept the highest score only if it holds on fresh rollouts.

    The winner and the incoming harness are scored again on the same tasks under new seeds, and that scoring alone
    decides: chosen by the first, it owes nothing to luck in the second. Where the two are equally good on these
    tasks, the winner is accepted with probability `alpha` at most.
    """

    alpha: float = ALPHA
    rounds: int = 1
    """Fresh scorings of each of the two."""
    name: str = "confirm"

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        if self.rounds < 1:
            raise ValueError(f"rounds = {self.rounds}: a confirmation takes at least one scoring")

    def more(self, board: Board) -> Rescore | None:
        """Fresh scorings of the winner and the incoming harness, if another one leads."""
        best = _best(board)
        if isinstance(best, Decision) or board.ranked()[0] is not best:
            return None
        own = board.own
        assert own is not None
        for replicate in range(1, self.rounds + 1):
            for contender in (best, own):
                if len(contender.scorings) <= replicate:
                    return Rescore(contender.candidate, replicate)
        return None

    def judge(self, board: Board) -> Decision:
        """Judge by the fresh scorings."""
        best = _best(board)
        if isinstance(best, Decision):
            return best
        own = board.own
        assert own is not None
        if board.ranked()[0] is not best:
            return verdict(board, best, False, _nothing_better(own), self.alpha)
        fresh = Board(
            tuple(
                Contender(c.candidate, c.tree, c.scorings[1 : 1 + self.rounds], c.mean_turns, c.mean_tokens)
                for c in (own, best)
            ),
            board.incoming,
            board.samples,
        )
        gain = fresh.gain(fresh.contenders[1], self.alpha, self.rounds)
        assert gain is not None
        reason = (
            f"on fresh rollouts {gain.gain:+z.4f} [{gain.low:+z.4f}, {gain.high:+z.4f}] "
            f"(first scoring: {best.score - own.score:+z.4f})"
        )
        # Chosen by other rollouts than these, the fresh gain has no winner's curse to take off.
        return Decision(
            best.candidate if gain.low > 0 else board.incoming,
            gain.low > 0,
            reason,
            best.candidate,
            gain.gain,
            gain.low,
            gain.high,
            gain.gain,
        )


def _best(board: Board) -> Contender | Decision:
    """The best challenger; or the decision where there is nothing to compare."""
    challengers = board.challengers()
    if not challengers:
        own = board.own
        reason = _nothing_better(own) if own else "no harness is fully scored under the current weights"
        return Decision(board.incoming, False, reason)
    if board.own is None:
        best = challengers[0]
        return Decision(best.candidate, True, f"{best.score:.4f}; the incoming harness is not ranked", best.candidate)
    return challengers[0]


def _nothing_better(own: Contender) -> str:
    return f"nothing beats the incoming harness's {own.score:.4f}"


def verdict(board: Board, best: Contender, accepted: bool, reason: str, alpha: float, scorings: int = 1) -> Decision:
    """The decision on the best challenger with its figures, each bound at `alpha`."""
    gain = board.gain(best, alpha, scorings)
    assert gain is not None
    return Decision(
        best.candidate if accepted else board.incoming,
        accepted,
        reason,
        best.candidate,
        gain.gain,
        gain.low,
        gain.high,
        board.corrected(gain.gain, scorings),
    )


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha = {alpha}: must lie between 0 and 0.5")


def acceptance_rule(name: str, options: Mapping[str, Any] | None = None) -> AcceptanceRule:
    """The rule of this name with its options: a built-in one, or "path/to/rule.py:factory".

    Raises UsageError, in one line, for an unknown name or option, or a rule of the user's own that is none.
    """
    from whale.search.racing import Racing

    rules: dict[str, Callable[..., AcceptanceRule]] = {
        "archive-best": ArchiveBest,
        "paired": Paired,
        "confirm": Confirm,
        "racing": Racing,
    }
    if is_own(name):
        return own_rule(name, options or {}, frozenset(rules))
    if name not in rules:
        known = ", ".join(sorted(rules))
        raise UsageError(
            f"unknown acceptance rule {name!r} in [search] acceptance; known: {known}, or path/to/rule.py:factory"
        )
    try:
        check_taken(rules[name], options or {}, but=["name"])
        return rules[name](**(options or {}))
    except (TypeError, ValueError) as error:
        raise UsageError(f"bad acceptance_options for {name!r} in [search]: {error}") from None
