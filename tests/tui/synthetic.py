"""Logs of runs that never ran, of any length, as the schedule would have written them: for tests and benchmarks."""

import datetime
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from whale.config import config_from, to_builtins
from whale.events import NewEvent, SqliteLog
from whale.events import types as ev


@dataclass(frozen=True)
class Shape:
    """How much of everything a made-up run holds."""

    cycles: int = 3
    steps: int = 4
    batches: int = 2
    """Micro-batches a training step, and a candidate's score."""
    batch: int = 4
    """Rollouts a micro-batch."""
    iterations: int = 2
    candidates: int = 3
    seed: int = 1

    @property
    def all_candidates(self) -> int:
        return 1 + self.cycles * self.iterations * self.candidates


MILLION = Shape(cycles=500, steps=40, batches=96, batch=1, iterations=4, candidates=5)
"""Ten thousand candidates and a million events; see `events`, which stops where it is told."""


def digest(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def made_up(shape: Shape) -> Iterator[NewEvent]:
    """The events of a run, in order. The same shape gives the same events."""
    rng = random.Random(shape.seed)
    tasks = [f"task-{i}" for i in range(shape.batches * shape.batch)]
    config = config_from(
        {
            "schedule": {"cycles": shape.cycles, "epochs": "1", "iterations": shape.iterations},
            "weights": {"batch": 2, "rollouts_per_prompt": 2},
            "search": {"candidates": shape.candidates},
            "engine": {"micro_batch": shape.batch},
            "evaluate": {"samples": 1},
        },
        "synthetic",
    )
    splits = {"weight": 2 * shape.steps, "harness": len(tasks), "validation": shape.batch, "test": 4}
    weights, accepted, serial = "w" + digest("w0")[:40], "h0", 0
    trees: dict[str, str] = {}

    def outcomes(chosen: list[str], rate: float) -> list[ev.Outcome]:
        result = []
        for task in chosen:
            passed = rng.random() < rate
            broken = not passed and rng.random() < 0.05
            result.append(
                ev.Outcome(
                    task,
                    0,
                    float(passed),
                    "raised" if broken else "ok",
                    1 + rng.randrange(3),
                    20 + rng.randrange(40),
                    200 + rng.randrange(100),
                    not passed and rng.random() < 0.1,
                    False,
                )
            )
        return result

    def rollouts(key: str, purpose: ev.Purpose, candidate: str, rate: float) -> Iterator[NewEvent]:
        for b in range(shape.batches):
            chosen = tasks[b * shape.batch : (b + 1) * shape.batch]
            yield NewEvent(
                ev.RolloutsRecorded(
                    batch=f"{key}/b{b:04d}", purpose=purpose, candidate=candidate, weights=weights,
                    artifact=digest(key, b), outcomes=outcomes(chosen, rate),
                ),
                f"rollouts/{key}/b{b:04d}",
                {"seconds": 1.5},
            )  # fmt: skip

    def proposed(name: str, parents: list[str], cycle: int, iteration: int) -> Iterator[NewEvent]:
        trees[name] = digest("tree", name)[:40]
        yield NewEvent(
            ev.HarnessProposed(
                candidate=name, tree=trees[name], parents=parents, proposer="mutation", cycle=cycle,
                iteration=iteration, title=f"change {digest(name)[:6]} of the prompt and the stop strings",
                hypothesis="Failures are often failures of form.", axis="prompt",
            ),
            f"proposed/{name}",
        )  # fmt: skip
        yield NewEvent(ev.HarnessCommitted(candidate=name), f"committed/{name}", {"sha": digest("sha", name)[:40]})
        valid = not (iteration and rng.random() < 0.1)
        reason = "" if valid else "it does not parse: line 3"
        yield NewEvent(ev.HarnessValidated(candidate=name, valid=valid, reason=reason), f"validated/{name}")

    def scored(name: str, cycle: int, iteration: int, rate: float) -> Iterator[NewEvent]:
        yield from rollouts(f"c{cycle:03d}/harness/{name}", "score", name, rate)
        n = len(tasks)
        yield NewEvent(
            ev.CandidateScored(
                candidate=name, tree=trees[name], weights=weights, cycle=cycle, iteration=iteration, n=n,
                passed=rate * n, score=rate, low=max(0, rate - 0.1), high=min(1, rate + 0.1), mean_turns=2.0,
                mean_tokens=40.0, fabricated=0.0,
            ),
            f"scored/{cycle}/{name}",
        )  # fmt: skip

    def evaluated(cycle: int, rate: float) -> NewEvent:
        return NewEvent(
            ev.Evaluated(
                cycle=cycle, split="validation", candidate=accepted, tree=trees[accepted], weights=weights, n=64,
                tasks=64, passed=rate * 64, score=rate, low=max(0, rate - 0.1), high=min(1, rate + 0.1),
            ),
            f"evaluated/{cycle}/validation",
        )  # fmt: skip

    yield NewEvent(
        ev.RunStarted(name="synthetic", config=to_builtins(config), model=weights, data=digest("data"), splits=splits),
        "started",
    )
    yield from proposed("h0", [], 0, 0)
    yield NewEvent(ev.AcceptanceCommitted(serial=0, candidate="h0", tree=trees["h0"]), "accepted-commit/0")
    yield NewEvent(ev.PhaseStarted(cycle=0, phase="evaluate"), "c000/evaluate/started")
    yield evaluated(0, 0.2)
    yield NewEvent(ev.PhaseEnded(cycle=0, phase="evaluate", reason="complete"), "c000/evaluate/ended")
    best_ever = 0.2
    for cycle in range(1, shape.cycles + 1):
        yield NewEvent(ev.PhaseStarted(cycle=cycle, phase="weight"), f"c{cycle:03d}/weight/started")
        for step in range(1, shape.steps + 1):
            key = f"c{cycle:03d}/weight/s{step:04d}"
            rate = min(0.9, best_ever * (1 + step / shape.steps / 10))
            yield from islice(rollouts(key, "train", accepted, rate), max(1, min(2, shape.batches)))
            n = min(2, shape.batches) * shape.batch
            weights = "w" + digest("w", cycle, step)[:40]
            yield NewEvent(
                ev.StepTrained(
                    cycle=cycle, step=step, rollouts=n, passed=round(rate * n), kept=round(rate * n), dropped={},
                    trained_tokens=300, updates=1, loss=1.0 / (cycle + step / shape.steps), weights=weights,
                ),
                f"{key}/trained",
                {"seconds": 4.0},
            )  # fmt: skip
        yield NewEvent(
            ev.CheckpointSaved(
                checkpoint=f"c{cycle:03d}-end", weights=weights, trainer=digest("t", cycle), cycle=cycle,
                step=shape.steps, phase_end=True,
            ),
            f"checkpoint/c{cycle:03d}-end",
        )  # fmt: skip
        yield NewEvent(ev.PhaseEnded(cycle=cycle, phase="weight", reason="budget"), f"c{cycle:03d}/weight/ended")
        yield NewEvent(ev.PhaseStarted(cycle=cycle, phase="harness"), f"c{cycle:03d}/harness/started")
        incoming = min(0.9, best_ever)
        yield from scored(accepted, cycle, 0, incoming)
        archive = {accepted: incoming}
        for iteration in range(1, shape.iterations + 1):
            fates: dict[str, str] = {}
            for m in range(1, shape.candidates + 1):
                name = f"c{cycle:03d}-i{iteration:02d}-m{m}"
                parents = rng.sample(sorted(archive), 2 if len(archive) > 1 and rng.random() < 0.15 else 1)
                valid = True
                for new in proposed(name, parents, cycle, iteration):
                    if isinstance(new.event, ev.HarnessValidated):
                        valid = new.event.valid
                    yield new
                fates[name] = "scored" if valid else "invalid"
                if valid:
                    archive[name] = min(0.95, max(0.02, incoming + rng.gauss(0, 0.08)))
                    yield from scored(name, cycle, iteration, archive[name])
            best = max(archive, key=lambda c: archive[c])
            yield NewEvent(
                ev.IterationCompleted(
                    cycle=cycle, iteration=iteration, outcomes=fates, best=best, best_score=archive[best]
                ),
                f"c{cycle:03d}/harness/i{iteration:02d}/completed",
            )
        best = max(archive, key=lambda c: archive[c])
        if best != accepted:
            yield NewEvent(
                ev.HarnessAccepted(
                    cycle=cycle, candidate=best, tree=trees[best], previous=accepted, score=archive[best],
                    incoming_score=incoming,
                ),
                f"c{cycle:03d}/harness/settled",
            )  # fmt: skip
            accepted, serial = best, serial + 1
            yield NewEvent(
                ev.AcceptanceCommitted(serial=serial, candidate=best, tree=trees[best]), f"accepted-commit/{serial}"
            )
        else:
            yield NewEvent(
                ev.HarnessRetained(cycle=cycle, candidate=accepted, score=incoming), f"c{cycle:03d}/harness/settled"
            )
        yield NewEvent(ev.PhaseEnded(cycle=cycle, phase="harness", reason="budget"), f"c{cycle:03d}/harness/ended")
        yield NewEvent(ev.PhaseStarted(cycle=cycle, phase="evaluate"), f"c{cycle:03d}/evaluate/started")
        best_ever = min(0.9, best_ever + (archive[best] - incoming) * 0.2 + 0.02 / cycle)
        yield evaluated(cycle, best_ever)
        yield NewEvent(ev.PhaseEnded(cycle=cycle, phase="evaluate", reason="complete"), f"c{cycle:03d}/evaluate/ended")
    yield NewEvent(
        ev.RunCompleted(reason="budget", cycle=shape.cycles, candidate=accepted, weights=weights, score=best_ever),
        f"completed/{shape.cycles}",
    )


class Ticking:
    """A clock for a log: each look is a second later, so that a log is the same every time."""

    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        self.now += datetime.timedelta(seconds=1)
        return self.now


def write_log(path: Path, shape: Shape, limit: int | None = None) -> int:
    """Write the run's log; returns how many events it has."""
    count = 0
    source = islice(made_up(shape), limit)
    with SqliteLog(path, clock=Ticking()) as log:
        while page := list(islice(source, 1000)):
            log.append("run", page, expected_version=count)
            count += len(page)
    return count


def write_run(folder: Path, shape: Shape, limit: int | None = None) -> Path:
    """A run's folder with a log and a config file, and nothing else."""
    folder.mkdir(parents=True)
    (folder / "whale.toml").write_text("seed = 1\n")
    write_log(folder / "events.db", shape, limit)
    return folder
