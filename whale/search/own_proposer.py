"""A proposer of the user's own: its form is checked at the start, and what it hands over each time."""

from collections.abc import Mapping, Sequence
from typing import Any

from whale.domains.source import blame, traceback_of
from whale.errors import UsageError, WhaleError
from whale.events import LogError
from whale.own_code import lacks, make_own
from whale.search.agentic.types import SessionProposer, SessionResult, Suspended, Workbench
from whale.search.types import Archive, Proposal, Proposer

_WHEN = ("count", "seed", "cycle", "iteration")
_TEXTS = ("title", "hypothesis", "axis", "changes")


def own_proposer(name: str, options: Mapping[str, Any], built_in: frozenset[str]) -> Proposer | SessionProposer:
    """The proposer that the file's factory makes of [search.options].

    Raises UsageError, in one line, for a file or factory that cannot be used, or an object that is no proposer.
    """
    about = f"proposer {name!r} in [search]"
    made = make_own(name, options, about)
    called = getattr(made, "name", None)
    if not isinstance(called, str) or not called or called in built_in:
        raise UsageError(f"{about}: it needs a `name`, a text that is none of {', '.join(sorted(built_in))}")
    in_sessions = hasattr(made, "session")
    calls = {"session": (("archive", "bench"), _WHEN), "preflight": ((), ())} if in_sessions else {}
    lack = lacks(made, calls or {"propose": (("archive",), _WHEN)})
    if lack is not None:
        raise UsageError(f"{about}: this is no proposer: {lack}")
    return OwnSessionProposer(about, made) if in_sessions else OwnProposer(about, made)


class OwnProposer:
    """The user's proposer before a check of what it returns. Raises WhaleError where it fails or that is nothing."""

    def __init__(self, about: str, proposer: Proposer) -> None:
        self.about = about
        self.proposer = proposer
        self.name = proposer.name

    def propose(self, archive: Archive, *, count: int, seed: int, cycle: int, iteration: int) -> Sequence[Proposal]:
        """Its proposals."""
        try:
            made = self.proposer.propose(archive, count=count, seed=seed, cycle=cycle, iteration=iteration)
        except WhaleError:
            raise
        except Exception as error:
            raise _failed(self.about, "propose", error) from error
        return checked(made, f"{self.about}: propose returned")


class OwnSessionProposer:
    """The same, for one that works in sessions."""

    def __init__(self, about: str, proposer: SessionProposer) -> None:
        self.about = about
        self.proposer = proposer
        self.name = proposer.name

    def preflight(self) -> None:
        """Its own look at what it stands on."""
        try:
            self.proposer.preflight()
        except WhaleError:
            raise
        except Exception as error:
            raise _failed(self.about, "preflight", error) from error

    def session(
        self, archive: Archive, bench: Workbench, *, count: int, seed: int, cycle: int, iteration: int
    ) -> SessionResult:
        """Its session."""
        try:
            result = self.proposer.session(archive, bench, count=count, seed=seed, cycle=cycle, iteration=iteration)
        except (WhaleError, LogError, Suspended):  # the run's own, which passed through
            raise
        except Exception as error:
            raise _failed(self.about, "session", error) from error
        if not isinstance(result, SessionResult):
            raise WhaleError(f"{self.about}: session returned {repr(result)[:100]}; give a SessionResult")
        checked(result.proposals, f"{self.about}: session handed over")
        return result


def checked(made: object, what: str) -> Sequence[Proposal]:
    """The proposals, if that is what they are. Raises WhaleError, which begins with `what`, for anything else."""
    if not isinstance(made, Sequence) or isinstance(made, str | bytes):
        raise WhaleError(f"{what} {repr(made)[:100]}; give a list of whale.search.types.Proposal")
    for number, proposal in enumerate(made, start=1):
        problem = _problem(proposal)
        if problem is not None:
            raise WhaleError(f"{what} as number {number} {problem}")
    return made


def _problem(proposal: object) -> str | None:
    if not isinstance(proposal, Proposal):
        return f"{repr(proposal)[:100]}; give a whale.search.types.Proposal"
    for field in _TEXTS:
        if not isinstance(getattr(proposal, field), str):
            return f"a proposal whose {field} is no text"
    if not isinstance(proposal.parents, tuple) or not all(isinstance(parent, str) for parent in proposal.parents):
        return "a proposal whose parents are no tuple of candidate ids"
    files = proposal.files
    if not isinstance(files, Mapping):
        return "a proposal whose files are no mapping of path to bytes"
    wrong = [path for path, content in files.items() if not (isinstance(path, str) and isinstance(content, bytes))]
    return f"a proposal whose file {wrong[0]!r} is no bytes under a path" if wrong else None


def _failed(about: str, method: str, error: Exception) -> WhaleError:
    return WhaleError(f"{about}: {method} failed: {blame(error)}").with_details(traceback_of(error))
