"""The tasks phase: passed questions of D_weight give their places to harder ones of the same domain.

A place is an index of D_weight. Its size never changes, and so neither do the sampler's slices, budgets or plans; the
other splits are never touched. What is new lies in an artifact, named by the event, so that a replay, a resume
and a fork read it instead of making it again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whale.alternation.units import derive_seed
from whale.config import Config
from whale.domains.base import Domain, Split, Task
from whale.errors import UsageError
from whale.events import Recorded
from whale.events import types as ev

if TYPE_CHECKING:
    from whale.alternation.runner import Runner

ATTEMPTS = 8
"""Seeds under which a harder task is asked for, before a question keeps its place."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A new task, and the place that it takes."""

    place: int
    replaces: str
    task: Task


def require_generator(config: Config, domain: Domain) -> None:
    """Raises UsageError where the config wants harder tasks of a domain that makes none."""
    if config.schedule.tasks_patience and not callable(getattr(domain, "harder", None)):
        raise UsageError(
            f"schedule.tasks_patience = {config.schedule.tasks_patience}: domain {domain.name} makes no harder tasks, "
            "it has no harder(task, seed); set 0, or use one that does, such as math"
        )


def propose(runner: "Runner", cycle: int) -> None:
    """Make the new tasks, keep them, and record that they are in place."""
    compute, config = runner.compute, runner.config
    splits = {split: compute.tasks_of(runner.state, split) for split in compute.tasks}
    known = [*compute.weight_tasks_by_id(runner.state).values()]
    rates = newest_success(runner.log.read())
    passed = {
        task.id: rates[task.id]
        for task in splits["weight"]
        if task.id in rates and rates[task.id] >= config.schedule.tasks_success
    }
    made, refused = replacements(config, runner.domain, splits, known, passed, cycle)
    runner.append(
        f"c{cycle:03d}/tasks/proposed",
        ev.TasksProposed(
            cycle=cycle,
            replaced={each.replaces: each.task.id for each in made},
            passed=len(passed),
            refused=refused,
            artifact=runner.folder.artifacts.put(encode(made)),
        ),
    )
    told = "".join(f", {count} {reason}" for reason, count in refused.items())
    runner.reporter.note(f"tasks: {len(made)} of {len(passed)} passed questions gave their places to harder ones{told}")


def newest_success(recorded: Iterable[Recorded]) -> dict[str, float]:
    """Each trained question's share of passed rollouts in the newest step that had it."""
    newest: dict[str, tuple[str, list[float]]] = {}
    for record in recorded:
        event = record.event
        if not isinstance(event, ev.RolloutsRecorded) or event.purpose != "train":
            continue
        step = event.batch.rpartition("/")[0]  # of its micro-batches, which may part a question's rollouts
        for outcome in event.outcomes:
            if newest.get(outcome.task, ("", []))[0] != step:
                newest[outcome.task] = (step, [])
            newest[outcome.task][1].append(float(outcome.reward >= 1))
    return {task: sum(passes) / len(passes) for task, (_, passes) in newest.items()}


def replacements(
    config: Config,
    domain: Domain,
    splits: Mapping[Split, Sequence[Task]],
    known: Sequence[Task],
    passed: Mapping[str, float],
    cycle: int,
) -> tuple[list[Replacement], dict[str, int]]:
    """Return the new tasks, those of the highest success first, and why other passed questions keep their places.

    At most `tasks_share` of D_weight is replaced. A new task is refused if its id or its words are those of a task of
    any split or of D_weight's past (`known`), or if the domain finds a hidden task in it. Pure: the same
    arguments give the same tasks. `passed` holds questions that may be replaced, with their success.
    """
    ids = {task.id for tasks in (*splits.values(), known) for task in tasks}
    words = {_words(task) for tasks in (*splits.values(), known) for task in tasks}
    most = int(config.schedule.tasks_share * len(splits["weight"]))
    order = [(place, task) for place, task in enumerate(splits["weight"]) if task.id in passed]
    order.sort(key=lambda item: (-passed[item[1].id], derive_seed(config.seed, "tasks", cycle, item[1].id)))
    made: list[Replacement] = []
    refused: Counter[str] = Counter()
    for place, task in order:
        if len(made) == most:
            break
        reason = "none harder"
        for attempt in range(ATTEMPTS):
            new: Task | None = domain.harder(  # type: ignore[attr-defined]  # asked for by require_generator
                task, derive_seed(config.seed, "tasks", cycle, task.id, attempt)
            )
            if new is None:
                break
            if new.id in ids or _words(new) in words:
                reason = "known"
            elif domain.leak("\n".join(_strings(new.public))):
                reason = "hidden"
            else:
                made.append(Replacement(place, task.id, new))
                ids.add(new.id)
                words.add(_words(new))
                reason = ""
                break
        if reason:
            refused[reason] += 1
    return made, dict(sorted(refused.items()))


def encode(made: Sequence[Replacement]) -> bytes:
    """The artifact: JSON, one new task a line."""
    lines = (
        {
            "place": each.place, "replaces": each.replaces, "id": each.task.id, "group": each.task.group,
            "public": dict(each.task.public), "private": dict(each.task.private),
        }
        for each in made
    )  # fmt: skip
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode("ascii")


def decode(content: bytes) -> list[Replacement]:
    """The inverse of `encode`."""
    found = []
    for line in content.decode().splitlines():
        raw = json.loads(line)
        found.append(
            Replacement(raw["place"], raw["replaces"], Task(raw["id"], raw["public"], raw["private"], raw["group"]))
        )
    return found


def _words(task: Task) -> str:
    """What a model reads of it, whatever its case and white space."""
    return json.dumps(_folded(task.public), sort_keys=True)


def _folded(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    if isinstance(value, Mapping):
        return {key: _folded(each) for key, each in value.items()}
    return [_folded(each) for each in value] if isinstance(value, list | tuple) else value


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _strings(each)]
    return [text for each in value for text in _strings(each)] if isinstance(value, list | tuple) else []
