"""What is known of one harness, as documents for programs: `--json` of lineage and show."""

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from whale.alternation.state import Candidate, State
    from whale.harness_repo import LineageEntry


def candidate_json(state: "State", candidate: "Candidate", entry: "LineageEntry | None" = None) -> dict[str, Any]:
    """From the log; with `entry`, also what only Git knows."""
    return {
        "candidate": candidate.id,
        "tree": candidate.tree,
        "parents": list(candidate.parents),
        "proposer": candidate.proposer,
        "cycle": candidate.cycle,
        "iteration": candidate.iteration,
        "title": candidate.title,
        "hypothesis": candidate.hypothesis,
        "axis": candidate.axis,
        "changes": candidate.changes,
        "valid": candidate.valid,
        "reason": candidate.reason,
        "duplicate_of": candidate.duplicate_of,
        "accepted": candidate.id == state.accepted,
        **({"commit": entry.sha, "acceptances": list(entry.serials)} if entry else {}),
        "scores": [msgspec.to_builtins(score) for score in candidate.scores],
    }


def git_json(entry: "LineageEntry") -> dict[str, Any]:
    """What Git knows of a candidate that this run's log does not have: another run's."""
    return {
        "candidate": entry.candidate,
        "commit": entry.sha,
        "tree": entry.tree,
        "parents": list(entry.parents),
        "proposer": entry.proposer,
        "cycle": entry.cycle,
        "iteration": entry.iteration,
        "title": entry.title,
        "acceptances": list(entry.serials),
        "note": entry.note,
    }
