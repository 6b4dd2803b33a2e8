"""Which pair (θ, h) of a run is meant: the selected one, a cycle's, or another harness with its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whale.alternation.decide import selected
from whale.alternation.state import Candidate, State
from whale.errors import UsageError, WhaleError
from whale.report.results import PairRow, Results, pair_rows

if TYPE_CHECKING:
    from whale.alternation.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Pair:
    """Weights and a harness of one run, and what was measured of just these two together."""

    cycle: int
    """The cycle whose weights they are; 0: the initial model."""
    candidate: str
    tree: str
    weights: str
    rows: tuple[PairRow, ...] = ()
    """Held-out success of this pair; empty: it was never evaluated."""
    initial: tuple[PairRow, ...] = ()
    """That of (θ0, h0), for comparison."""


def choose(results: Results, *, cycle: int | None = None, harness: tuple[str, str] | None = None) -> Pair:
    """The pair of a cycle's evaluation (default: the selected one), with another harness if one is given.

    `harness` is (candidate, tree). Before the first evaluation it is the accepted harness under the newest weights.

    Raises:
        UsageError: the cycle has no evaluation, or nothing is accepted yet.
    """
    state = results.state
    evaluations = {e.cycle: e for e in state.evaluations if e.split == "validation"}
    if cycle is not None and cycle not in evaluations:
        known = ", ".join(map(str, evaluations)) or "none yet"
        raise UsageError(f"{state.name}: cycle {cycle} has no evaluated pair; there are: {known}")
    if evaluations:
        base = evaluations[cycle] if cycle is not None else selected(state)
        number, candidate, tree, weights = base.cycle, base.candidate, base.tree, base.weights
    elif state.accepted is not None:
        number, candidate, tree, weights = state.cycle, state.accepted, state.accepted_tree, state.weights
    else:
        raise UsageError(f"{state.name}: it has no accepted harness yet; `whale resume {state.name}` goes on")
    if harness is not None:
        candidate, tree = harness
    rows = pair_rows(results)
    own = [row for row in rows if (row.evaluated.tree, row.evaluated.weights) == (tree, weights)]
    return Pair(number, candidate, tree, weights, _one_a_split(own), tuple(r for r in rows if r.evaluated.cycle == 0))


def _one_a_split(rows: Sequence[PairRow]) -> tuple[PairRow, ...]:
    """A pair that stood through several cycles has one measurement, told once."""
    first: dict[str, PairRow] = {}
    for row in rows:
        first.setdefault(row.evaluated.split, row)
    return tuple(first.values())


def lineage(state: State, candidate: str) -> list[Candidate]:
    """A harness and its ancestors, the initial one first; a crossover brings both its parents."""
    seen: set[str] = set()
    waiting = [candidate]
    while waiting:
        name = waiting.pop()
        if name not in seen and name in state.candidates:
            seen.add(name)
            waiting += state.candidates[name].parents
    return [known for name, known in state.candidates.items() if name in seen]  # in order of proposal


def checkpoint_of(folder: "RunFolder", state: State, weights: str) -> Path | None:
    """The checkpoint folder that holds these weights; None: they are the model that the run began with.

    Raises:
        WhaleError: no checkpoint has them any more.
    """
    from whale.weights.checkpoints import CheckpointStore

    store = CheckpointStore(folder.checkpoints)
    for saved in reversed(list(state.checkpoints.values())):
        if saved.weights == weights and store.exists(saved.checkpoint):
            return store.path(saved.checkpoint)
    if weights == state.model:
        return None
    raise WhaleError(
        f"{folder.checkpoints}: no checkpoint holds the weights {weights[:12]}; inside a phase only the newest "
        "is kept: choose another --cycle, or let the phase end"
    )
