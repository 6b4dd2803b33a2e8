"""Fork a run: a new one that continues from an event of another, on both sides of the pair.

The fork stands alone: its log begins with the origin's events, byte for byte, so that their hashes still
hold; its harness store has the same commits; artifacts and checkpoints are hard links. `RunForked` comes
next and says where it comes from. From then on it is a run as any other.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from whale.alternation.decide import config_of
from whale.alternation.movable import MOVABLE, with_moved
from whale.alternation.retention import OPTIMIZER, kept_checkpoints
from whale.alternation.run_folder import RunFolder, runs_folder
from whale.alternation.session import rebuild_notes, require_log, run_in_the_making, write_config
from whale.alternation.started_in import as_started
from whale.alternation.state import State, reduce
from whale.alternation.units import phase_slice
from whale.config import (
    AROUND,
    Config,
    adapter_settings,
    apply_overrides,
    config_from,
    for_the_log,
    load_around,
    to_builtins,
)
from whale.errors import CorruptLogError, UsageError, WhaleError
from whale.events import EventLog, LogError, NewEvent, Recorded, fold
from whale.events import types as ev
from whale.search.pinned import pinned

FIXED = ("model", "domain", "domain_options")
"""What all recorded facts stand on: another one is another run."""


@dataclass(frozen=True, slots=True)
class SafePoint:
    """An event after which a run can be continued."""

    position: int
    state: State
    artifacts: tuple[str, ...]
    """All that the events up to here name, in order."""
    reason: str
    """Why it is an earlier one than was asked for, or empty."""


def fork(
    origin: RunFolder, name: str, at: int | None, overrides: Sequence[str], runs: Path | None = None
) -> tuple[RunFolder, SafePoint]:
    """Make the run `name` from `origin` as it was after event `at` (default: the newest), in the folder `runs`.

    Raises:
        UsageError: no such event, or a key that a fork cannot change.
        ConflictError: there is a run of that name.
        CorruptLogError: the origin's log or its files are not what was written.
        WhaleError: something that the point needs is missing, or there is no room.
    """
    log = origin.open_log(readonly=True)
    try:
        with run_in_the_making(name, runs) as making:
            head = log.head().position
            if at is not None and not 1 <= at <= head:
                raise UsageError(f"--at {at}: {origin.name} has events 1 to {head}")
            at = at or head
            new = _config(origin, log, at, name, overrides)
            point = safe_point(origin, log.read(until=at + 1), at, boundary=False)
            with as_started(origin):
                files = pinned(new.search)
            if _changed(point, new, files):
                point = safe_point(origin, log.read(until=at + 1), at, boundary=True)
            _require_same_adapters(origin, point.state, new)
            new = require_log(new, name)
            _copy_files(origin, making, point)
            write_config(making, new)
            _write_log(making, log, point.position, _forked(origin, log, name, point, new, files))
    except LogError as error:
        raise WhaleError(f"{origin.name}: {error}") from error
    finally:
        log.close()
    return RunFolder((runs or runs_folder()) / name), point


def _config(origin: RunFolder, log: EventLog, at: int, name: str, overrides: Sequence[str]) -> Config:
    """The fork's config: the one that held at event `at`, with the overrides."""
    started = [r for r in log.read(until=at) if isinstance(r.event, ev.RunStarted | ev.RunForked)]
    if not started:
        raise UsageError(f"{origin.name}: nothing is recorded at event {at}, there is nothing to fork")
    old = config_of(fold(reduce, State(), started))
    # What is around the experiment is not in the log, and where it runs may have changed since.
    around = to_builtins(load_around(origin.config_file))
    raw = (
        with_moved(to_builtins(old), origin.config_file)
        | {key: around[key] for key in AROUND}
        | {"events": {"url": around["events"]["url"]}}
    )
    new = config_from(apply_overrides(raw, list(overrides)), source=f"fork {name}")
    for key in _differences(for_the_log(old), for_the_log(new)):
        if key.split(".")[0] in FIXED:
            raise UsageError(
                f"--set {key}: a fork keeps its origin's {key.split('.')[0]}, all that is recorded stands on it; "
                "start a new run"
            )
    return new


def _changed(point: SafePoint, new: Config, files: Mapping[str, str]) -> list[str]:
    """Keys in which the fork's experiment differs from the one at the point, or whose file is another one now."""
    differing = _differences(for_the_log(config_of(point.state)), for_the_log(new))
    changed = [key for key in differing if key not in MOVABLE]
    before = point.state.pinned
    return changed + [key for key, digest in files.items() if before.get(key, digest) != digest and key not in changed]


def _require_same_adapters(origin: RunFolder, state: State, new: Config) -> None:
    """What is trained, all of θ or which adapters, stays once something is."""
    old, changed = (
        adapter_settings(weights.lora_rank, weights.lora_alpha, weights.lora_targets)
        for weights in (config_of(state).weights, new.weights)
    )
    for key in old:
        if old[key] != changed[key] and (state.steps or state.checkpoint):
            raise UsageError(
                f"--set {key}: {origin.name} has trained steps with {old[key]}, and no others go on from them; "
                f"fork before its first step, or `whale export {origin.name}` and start a new run whose model is the "
                "exported one"
            )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{path}{key}.")
        elif a != b:
            yield path + key


def safe_point(origin: RunFolder, events: Iterable[Recorded], at: int, *, boundary: bool) -> SafePoint:
    """The newest event up to `at` from which the run can go on.

    Between phases that is any event. Inside one it is an event whose checkpoint is still there: a phase
    keeps its newest one only while it lasts, and then its last. With `boundary` (the config changes), only
    events between phases will do, since a phase is planned as a whole. `events` go one further than `at`:
    candidates of one iteration are one fact, whose middle is no state that a run was ever in.

    Raises:
        UsageError: there is none.
        CorruptLogError: the origin's log is damaged.
    """
    state = State()
    artifacts: list[str] = []
    found: SafePoint | None = None
    skipped = ""
    for recorded, following in pairwise(chain(events, [None])):
        if recorded is None or recorded.position > at:
            break
        state = reduce(state, recorded)
        artifact = ev.artifact_of(recorded.event)
        if artifact is not None:
            artifacts.append(artifact)
        obstacle = _obstacle(origin, state, boundary)
        if _of_one_batch(recorded, following):
            obstacle = "the iteration's other candidates were proposed with this one"
        if obstacle:
            skipped = obstacle
        else:
            found = SafePoint(recorded.position, state, (), "")
            count = len(artifacts)
    if found is None:
        raise UsageError(f"{origin.name} cannot be forked at event {at}: {skipped or 'nothing is recorded there'}")
    reason = skipped if found.position < at else ""
    return SafePoint(found.position, found.state, tuple(dict.fromkeys(artifacts[:count])), reason)


def _of_one_batch(recorded: Recorded, after: Recorded | None) -> bool:
    event, following = recorded.event, after and after.event
    return (
        isinstance(event, ev.HarnessProposed)
        and isinstance(following, ev.HarnessProposed)
        and (event.cycle, event.iteration) == (following.cycle, following.iteration)
    )


def _obstacle(origin: RunFolder, state: State, boundary: bool) -> str:
    if state.acceptance_serial < 0:
        return "the initial harness is not accepted yet; a new run loses nothing"
    if boundary and state.phase is not None:
        return f"the {state.phase} phase of cycle {state.cycle} was planned with the old config"
    if boundary and state.acceptance_pending:
        return "an acceptance is not written to Git yet"
    if state.checkpoint and not (origin.checkpoints / state.checkpoint).is_dir():
        return f"checkpoint {state.checkpoint}, from inside a phase, is not kept"
    if state.checkpoint and not (origin.checkpoints / state.checkpoint / OPTIMIZER).is_file():
        return f"the optimiser's state of checkpoint {state.checkpoint} was dropped by `whale gc`"
    return ""


def _copy_files(origin: RunFolder, making: RunFolder, point: SafePoint) -> None:
    from whale.harness_repo import HarnessRepo

    for digest in point.artifacts:
        source, place = origin.artifacts.path(digest), making.artifacts.path(digest)
        if not source.is_file():
            raise CorruptLogError(f"{source}: an artifact that the log names is missing")
        place.parent.mkdir(parents=True, exist_ok=True)
        _link(source, place)
    state = point.state
    for saved in kept_checkpoints(state):
        source = origin.checkpoints / saved.checkpoint
        if source.is_dir():
            (making.checkpoints / saved.checkpoint).mkdir(parents=True)
            for file in source.iterdir():
                _link(file, making.checkpoints / saved.checkpoint / file.name)
    committed = [candidate.id for candidate in state.candidates.values() if candidate.committed]
    waiting = [candidate.tree for candidate in state.candidates.values() if not candidate.committed]
    with HarnessRepo.open(origin.harnesses) as repo:
        repo.fork(making.harnesses, committed, state.acceptance_serial + 1, pending=waiting)
    with HarnessRepo.open(making.harnesses) as new:
        rebuild_notes(new, state)


def _link(source: Path, place: Path) -> None:
    """A hard link: these files never change. A copy, where the file system has no links."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)


def _forked(
    origin: RunFolder, log: EventLog, name: str, point: SafePoint, new: Config, files: dict[str, str]
) -> ev.RunForked:
    at = next(iter(log.rows(after=point.position - 1, until=point.position)))
    state, changed = point.state, _changed(point, new, files)
    phases, sampled = state.sampler_origin
    if changed:
        # Between phases: the weight phases that are over, and how far they sampled under their own config.
        over = state.cycle if "weight" in state.phases_ended else max(0, state.cycle - 1)
        if over > phases:
            sampled = phase_slice(config_of(state), state.splits["weight"], over, state.sampler_origin)[1]
            phases = over
    return ev.RunForked(
        name=name,
        origin=ev.Origin(state.name, point.position, at.hash),
        config=for_the_log(new),
        changed=changed,
        pinned=files,
        phases=phases,
        sampled=sampled,
    )


def _write_log(making: RunFolder, log: EventLog, position: int, event: ev.RunForked) -> None:
    new = making.open_log()
    try:
        new.restore(log.rows(until=position))
        new.append("run", [NewEvent(event, key=f"forked/{position}")], expected_version=None)
    finally:
        new.close()
