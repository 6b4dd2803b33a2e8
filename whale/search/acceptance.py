"""Which harness of the archive is accepted: small exchangeable rules, pure functions of the archive."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from whale.errors import UsageError
from whale.search.types import ArchiveEntry


@dataclass(frozen=True, slots=True)
class Decision:
    """The harness that the next phase runs, and why."""

    candidate: str
    accepted: bool
    """False: the incoming harness is retained, and there is no commit."""
    reason: str


class AcceptanceRule(Protocol):
    """A rule sees the archive in order of scoring and returns one decision."""

    @property
    def name(self) -> str:
        """What a config calls it."""
        ...

    def decide(
        self,
        entries: Sequence[ArchiveEntry],
        *,
        incoming: str,
        coverage: int,
        barred: AbstractSet[str] = frozenset(),
    ) -> Decision:
        """Choose among `entries`; `coverage` = rollouts that a full score takes, `barred` = tree ids."""
        ...


def contenders(
    entries: Sequence[ArchiveEntry], *, coverage: int, barred: AbstractSet[str] = frozenset()
) -> list[ArchiveEntry]:
    """The entries that may be ranked: valid, scored under the current weights, fully covered, not barred."""
    return [
        entry
        for entry in entries
        if entry.valid is not False
        and entry.current
        and entry.score is not None
        and entry.n >= coverage > 0
        and entry.tree not in barred
    ]


@dataclass(frozen=True, slots=True)
class ArchiveBest:
    """The paper's rule: the archive's highest score.

    Ties go to fewer turns (as in the public code), then to the incoming harness, then to the earlier one.
    """

    name: str = "archive-best"

    def decide(
        self,
        entries: Sequence[ArchiveEntry],
        *,
        incoming: str,
        coverage: int,
        barred: AbstractSet[str] = frozenset(),
    ) -> Decision:
        """Choose the highest score; without any contender the incoming harness stays."""
        ranked = contenders(entries, coverage=coverage, barred=barred)
        if not ranked:
            return Decision(incoming, False, "no harness is fully scored under the current weights")
        # max returns the first of equals, so that the earlier entry wins a tie that is left.
        best = max(ranked, key=lambda entry: (entry.score or 0.0, -entry.mean_turns, entry.candidate == incoming))
        own = next((entry for entry in ranked if entry.candidate == incoming), None)
        if own is not None and own.tree == best.tree:
            return Decision(incoming, False, f"nothing beats the incoming harness's {own.score:.4f}")
        if own is None:
            return Decision(best.candidate, True, f"{best.score:.4f}; the incoming harness is not ranked")
        if best.score == own.score:
            return Decision(
                best.candidate,
                True,
                f"{best.score:.4f} as the incoming harness, with fewer turns "
                f"({best.mean_turns:.2f} against {own.mean_turns:.2f})",
            )
        return Decision(best.candidate, True, f"{best.score:.4f} against the incoming {own.score:.4f}")


ACCEPTANCE_RULES: dict[str, Callable[[], AcceptanceRule]] = {"archive-best": ArchiveBest}


def acceptance_rule(name: str) -> AcceptanceRule:
    """The rule of this name. Raises UsageError for an unknown one."""
    try:
        return ACCEPTANCE_RULES[name]()
    except KeyError:
        known = ", ".join(sorted(ACCEPTANCE_RULES))
        raise UsageError(f"unknown acceptance rule {name!r} in [search] acceptance; known: {known}") from None
