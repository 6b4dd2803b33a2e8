"""What the harness store must say, as the log has it: each commit's facts, and the notes of late facts."""

import datetime
from collections.abc import Iterator, Mapping

from whale.alternation.state import Candidate, State
from whale.events import Recorded
from whale.events import types as ev
from whale.harness_repo import CommitFacts


def commit_facts(
    state: State,
    candidate_id: str,
    cause: Recorded,
    cycle: int | None = None,
    witness: bool = False,
    run: str = "",
) -> CommitFacts:
    """What a commit says that carries out `cause`: a candidate's proposal, or the event that decided its acceptance.

    With `witness` it names the event's position too, where `whale events verify` looks for the hash. `run` is the run
    that made the commit, where that is not this one: a fork holds its origin's commits.
    """
    candidate = state.candidates[candidate_id]
    return CommitFacts(
        run=run or state.name,
        cycle=candidate.cycle if cycle is None else cycle,
        iteration=candidate.iteration,
        proposer=candidate.proposer,
        title=candidate.title,
        hypothesis=candidate.hypothesis,
        axis=candidate.axis,
        changes=candidate.changes,
        event_hash=cause.hash,
        log_position=cause.position if witness else None,
        when=datetime.datetime.fromisoformat(cause.at),
    )


def notes(state: State) -> Iterator[tuple[str, Mapping[str, object]]]:
    """(candidate, note) of every committed candidate: each of its scores, or why it has none."""
    for candidate in state.candidates.values():
        if candidate.committed:
            if candidate.duplicate_of:
                yield candidate.id, duplicate_note(candidate)
            if candidate.valid is False:
                yield candidate.id, invalid_note(candidate)
            for scored in candidate.scores:
                yield candidate.id, score_note(scored)


def invalid_note(candidate: Candidate) -> dict[str, object]:
    """Why a candidate was never scored."""
    return {
        "valid": False, "reason": candidate.reason, "cycle": candidate.cycle, "iteration": candidate.iteration,
    }  # fmt: skip


def duplicate_note(candidate: Candidate) -> dict[str, object]:
    """Why a candidate is not scored: another one has its files."""
    return {
        "reason": f"the same files as {candidate.duplicate_of}",
        "cycle": candidate.cycle, "iteration": candidate.iteration,
    }  # fmt: skip


def score_note(event: ev.CandidateScored) -> dict[str, object]:
    """The late facts that Git shows; the log is the authority."""
    return {
        "score": round(event.score, 6),
        "low": round(event.low, 6),
        "high": round(event.high, 6),
        "n": event.n,
        "weights": event.weights,
        "cycle": event.cycle,
        "iteration": event.iteration,
        "mean_turns": round(event.mean_turns, 3),
        "mean_tokens": round(event.mean_tokens, 3),
        "fabricated": round(event.fabricated, 4),
        "failures": event.failures,
    }
