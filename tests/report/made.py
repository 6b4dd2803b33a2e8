"""Logs made by hand, event by event, for figures that can be computed on paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whale.config import config_from, for_the_log
from whale.events import MemoryLog, NewEvent
from whale.events import types as ev
from whale.events.transfer import write_jsonl
from whale.report.compare.records import RunRecord, read_record

Rewards = Sequence[float]
"""The reward of each held-out task, one rollout each."""


def outcome(task: str, reward: float, sample: int = 0, **more: Any) -> ev.Outcome:
    return ev.Outcome(
        task, sample, reward, more.pop("status", "ok"), 1, 5, 50, more.pop("truncated", False), False, **more
    )


class MadeLog:
    """A run of the embedded kind: two questions of D_weight, two rollouts each a step."""

    def __init__(self, seed: int = 1, name: str = "made", **tables: Any) -> None:
        self.log = MemoryLog()
        self.keys = 0
        raw: dict[str, Any] = {"seed": seed, "domain": "math", "weights": {"rollouts_per_prompt": 2}, **tables}
        config = for_the_log(config_from(raw, "test"))
        splits = {"weight": 4, "harness": 2, "validation": 4, "test": 4}
        self.add(ev.RunStarted(name=name, config=config, model="w0", data="d", splits=splits))
        self.add(ev.HarnessProposed(candidate="h0", tree="t0", parents=[], proposer="domain", cycle=0, iteration=0))

    def add(self, event: ev.Event) -> None:
        self.keys += 1
        self.log.append("run", [NewEvent(event=event, key=f"k{self.keys}")], expected_version=None)

    def rollouts(self, purpose: ev.Purpose, batch: str, weights: str, outcomes: Sequence[ev.Outcome]) -> None:
        self.add(
            ev.RolloutsRecorded(
                batch=batch, purpose=purpose, candidate="h0", weights=weights, artifact="a", outcomes=list(outcomes)
            )
        )

    def train(self, cycle: int, steps: int, reason: str = "budget") -> None:
        """A weight phase: each step is two questions × two rollouts, half an epoch."""
        self.add(ev.PhaseStarted(cycle=cycle, phase="weight"))
        for step in range(1, steps + 1):
            four = [outcome(f"q{i}", 1.0) for i in range(4)]
            self.rollouts("train", f"c{cycle:03d}/weight/s{step}", "w", four)
            self.add(
                ev.StepTrained(
                    cycle=cycle, step=step, rollouts=4, passed=4, kept=4, dropped={}, trained_tokens=9, updates=1,
                    loss=0.5, weights=f"w{cycle}",
                )
            )  # fmt: skip
        self.add(ev.PhaseEnded(cycle=cycle, phase="weight", reason=reason, sampled=2 * steps))

    def search(self, cycle: int, iterations: int, reason: str = "budget") -> None:
        """A harness phase: each round scores two candidates on two tasks; nothing is accepted."""
        self.add(ev.PhaseStarted(cycle=cycle, phase="harness"))
        for iteration in range(1, iterations + 1):
            self.rollouts("score", f"c{cycle:03d}/harness/i{iteration}", "w", [outcome("s", 0.0)] * 4)
            self.add(ev.IterationCompleted(cycle=cycle, iteration=iteration, outcomes={}, best="h0", best_score=0.0))
        self.add(ev.HarnessRetained(cycle=cycle, candidate="h0", score=0.0))
        self.add(ev.PhaseEnded(cycle=cycle, phase="harness", reason=reason))

    def evaluate(self, cycle: int, split: str, rewards: Rewards, weights: str | None = None, **more: Any) -> None:
        weights = weights or f"w{cycle}"
        own: Mapping[str, Any] = more
        seen = [outcome(f"{split}-{i}", reward, **own) for i, reward in enumerate(rewards)]
        self.rollouts("evaluate", f"c{cycle:03d}/evaluate/{split}/b0", weights, seen)
        score = sum(rewards) / len(rewards)
        self.add(
            ev.Evaluated(
                cycle=cycle, split=split, candidate="h0", tree="t0", weights=weights, n=len(seen), tasks=len(seen),
                passed=sum(rewards), score=score, low=0.0, high=1.0,
            )
        )  # fmt: skip

    def complete(self) -> None:
        self.add(ev.RunCompleted(reason="budget", cycle=0, candidate="h0", weights="w0"))

    def record(self, source: str = "made") -> RunRecord:
        return read_record(self.log, source)

    def export(self, path: Path) -> Path:
        with path.open("wb") as file:
            write_jsonl(self.log.rows(), file)
        return path


def two_cycles(seed: int, first: Rewards, second: Rewards, last: Rewards, **tables: Any) -> MadeLog:
    """(θ0, h0), a cycle of one step and one round, a cycle of two steps; validation only, then the test of the first
    and of the last pair, on the same rewards."""
    made = MadeLog(seed, name=f"made-{seed}", **tables)
    made.evaluate(0, "validation", first)
    made.train(1, 1)
    made.search(1, 1)
    made.evaluate(1, "validation", second)
    made.train(2, 2)
    made.evaluate(2, "validation", last)
    made.evaluate(0, "test", first)
    made.evaluate(2, "test", last)
    made.complete()
    return made
