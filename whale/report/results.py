"""What a run reached, by one reading of its log: its pairs, their gains over (θ0, h0), what search came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from whale.alternation.decide import selected
from whale.alternation.spent import add_spent, placed
from whale.alternation.state import State, reduce
from whale.events import EventLog
from whale.events import types as ev
from whale.search.scoring import PairedGain, paired_interval

Pair = tuple[str, str, str]
"""(split, tree, weights): what an evaluation is of."""


@dataclass(frozen=True, slots=True)
class Results:
    """The fold of a log, and what tables need beside it."""

    state: State
    outcomes: dict[Pair, list[ev.Outcome]]
    """The recorded outcomes of each evaluated pair."""
    fates: dict[int, str]
    """What became of each cycle's search, in words."""
    sessions: int = 0
    """Sessions of a proposer that is a model, which have ended."""
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Wall time by place in the run (`spent.PLACES`) and part, of all runners; of an older log nothing."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """A pair (θ, h) on a held-out split."""

    evaluated: ev.Evaluated
    gain: PairedGain | None
    """Against (θ0, h0), on the same tasks and seeds; None where it is that pair itself, or where none was evaluated."""
    fate: str
    selected: bool
    is_first: bool = False
    """Its weights and harness are those of (θ0, h0): there is nothing to gain."""


def read_results(log: EventLog) -> Results:
    """Fold the log and gather. Raises CorruptLog or UnknownEvent."""
    state = State()
    outcomes: dict[Pair, list[ev.Outcome]] = {}
    fates: dict[int, list[str]] = {}
    evaluated: set[int] = set()
    sessions = 0
    seconds: dict[str, dict[str, float]] = {}
    for place, recorded in placed(log.read()):
        state = reduce(state, recorded)
        if "spent" in recorded.meta:
            add_spent(seconds.setdefault(place, {}), recorded)
        match recorded.event:
            case ev.RolloutsRecorded(purpose="evaluate") as event:
                split = event.batch.split("/")[2]
                pair = (split, state.candidates[event.candidate].tree, event.weights)
                outcomes.setdefault(pair, []).extend(event.outcomes)
            case ev.HarnessAccepted(cycle=cycle, candidate=candidate):
                fates.setdefault(cycle, []).append(f"accepted {candidate}")
            case ev.HarnessRetained(cycle=cycle, candidate=candidate):
                fates.setdefault(cycle, []).append(f"retained {candidate}")
            case ev.HarnessChosen(cycle=cycle, candidate=candidate) if cycle not in evaluated:
                fates.setdefault(cycle, []).append(f"{candidate} accepted by hand")
            case ev.HarnessReverted(cycle=cycle, candidate=candidate) if cycle not in evaluated:
                # A revert after the evaluation does not touch the pair of this row.
                fates.setdefault(cycle, []).append(f"reverted to {candidate}")
            case ev.Evaluated(cycle=cycle, split="validation"):
                evaluated.add(cycle)
            case ev.ProposerSessionEnded():
                sessions += 1
    told = {cycle: ", ".join(words) for cycle, words in fates.items()}
    return Results(state, outcomes, told, sessions, seconds)


def pair_rows(results: Results) -> list[PairRow]:
    """All evaluations, validation first, then the test."""
    evaluations = results.state.evaluations
    if not evaluations:
        return []
    best = selected(results.state)
    rows = []
    for evaluated in sorted(evaluations, key=lambda e: (e.split == "test", e.cycle)):
        # A fork that lets the test select from a later cycle on has no first pair on it yet.
        first = next((e for e in evaluations if e.cycle == 0 and e.split == evaluated.split), None)
        gain = None
        is_first = first is not None and (evaluated.tree, evaluated.weights) == (first.tree, first.weights)
        if first and not is_first:
            gain = paired_interval(
                results.outcomes[first.split, first.tree, first.weights],
                results.outcomes[evaluated.split, evaluated.tree, evaluated.weights],
            )
        fate = results.fates.get(evaluated.cycle, "")
        rows.append(PairRow(evaluated, gain, fate, evaluated.cycle == best.cycle, is_first))
    return rows
