"""What one rollout and one training step take on a machine: given, or measured in a recorded run."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from whale.alternation.run_folder import RunFolder
from whale.errors import UsageError
from whale.events import Recorded
from whale.events import types as ev


@dataclass(frozen=True, slots=True)
class Rates:
    """Means; None: not known."""

    source: str = ""
    rollouts: int = 0
    """Rollouts that were measured."""
    seconds_per_rollout: float | None = None
    seconds_per_kept: float | None = None
    """Of training, per rollout that was trained on."""
    passed: float | None = None
    """Share of training rollouts that passed, with the weights and harness that were measured."""
    prompt_tokens: float | None = None
    sampled_tokens: float | None = None
    """Per rollout."""
    bytes_per_rollout: float | None = None
    """Artifacts and log."""
    dollars_per_round: float | None = None
    """Of the proposer."""

    def over(self, other: "Rates") -> "Rates":
        """These where they are known, else the other's."""
        mine = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) not in (None, "", 0)}
        return replace(other, **mine)


def rates_of(folder: RunFolder) -> Rates:
    """The rates of a recorded run, from the times that stand beside its events.

    Raises UsageError if it has no rollouts to go by.
    """
    log = folder.open_log(readonly=True)
    try:
        rates = _measure(log.read(), folder.name)
    finally:
        log.close()
    if not rates.rollouts:
        raise UsageError(f"{folder.name}: it has recorded no rollouts yet, so there are no rates to take from it")
    stored = sum(path.stat().st_size for path in folder.artifacts.folder.rglob("*") if path.is_file())
    if folder.log_file.exists():
        stored += folder.log_file.stat().st_size
    return replace(rates, bytes_per_rollout=stored / rates.rollouts)


def _measure(events: Iterator[Recorded], name: str) -> Rates:
    sums: Counter[str] = Counter()
    seconds = {"rollouts": 0.0, "training": 0.0}
    dollars = 0.0
    for recorded in events:
        match recorded.event:
            case ev.RolloutsRecorded(outcomes=outcomes, purpose=purpose):
                sums["rollouts"] += len(outcomes)
                sums["prompted"] += sum(outcome.prompted for outcome in outcomes)
                sums["generated"] += sum(outcome.generated for outcome in outcomes)
                seconds["rollouts"] += float(recorded.meta.get("seconds", 0.0))
                if purpose == "train":
                    sums["trained on"] += len(outcomes)
                    sums["passed"] += sum(outcome.reward > 0 for outcome in outcomes)
            case ev.StepTrained(kept=kept):
                sums["kept"] += kept
                seconds["training"] += float(recorded.meta.get("seconds", 0.0))
            case ev.ProposerSessionEnded(dollars=cost):
                sums["sessions"] += 1
                dollars += cost

    def mean(total: float, count: int) -> float | None:
        return total / count if count else None

    n = sums["rollouts"]
    return Rates(
        source=f"run {name}",
        rollouts=n,
        seconds_per_rollout=mean(seconds["rollouts"], n) or None,
        seconds_per_kept=mean(seconds["training"], sums["kept"]) or None,
        passed=mean(sums["passed"], sums["trained on"]),
        prompt_tokens=mean(sums["prompted"], n),
        sampled_tokens=mean(sums["generated"], n),
        dollars_per_round=mean(dollars, sums["sessions"]) or None,
    )
