"""Project a log into the read models (view_tables.py), whole or as its events come.

The rows of one commit are those of the fold at one position, which `view_runs.position` names: no reader ever
sees a rollout that its run's totals do not count.
"""

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, delete, insert
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlmodel import SQLModel

from whale.alternation.decide import selected
from whale.alternation.state import Candidate, State, reduce
from whale.errors import UsageError, WhaleError
from whale.events import GENESIS, EventLog, Recorded
from whale.events import types as ev
from whale.report.view_tables import TABLES, CycleView, HarnessView, RolloutView, RunView, StepView

_EVENTS_A_WRITE = 2_000
"""What is held in memory between writes, inside one transaction."""

_TEXTS = ("title", "hypothesis", "axis", "changes", "reason")
"""A proposer's or a gate's own words, which may hold NUL: PostgreSQL's text cannot."""

Row = dict[str, Any]


def open_views(url: str) -> Engine:
    """The database for the views, with their tables made.

    Raises:
        UsageError: the URL is not one, or its driver is not installed.
        WhaleError: the database cannot be opened.
    """
    try:
        engine = create_engine(url)
        SQLModel.metadata.create_all(engine, tables=[table.__table__ for table in TABLES])  # type: ignore[attr-defined]
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise UsageError(f"{url}: not a database URL that works here, such as sqlite:///views.db: {error}") from None
    except DBAPIError as error:
        raise WhaleError(f"{url}: the views cannot be made: {error.orig}") from error
    return engine


class Projection:
    """One run's rows, changed event by event and written when asked."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.state = State()
        self.position = 0
        self.hash = GENESIS
        self._order: dict[str, int] = {}
        self._cycles: dict[int, Row] = {}
        self._touched_cycles: set[int] = set()
        self._touched_candidates: set[str] = set()
        self._rollouts: list[Row] = []
        self._steps: list[Row] = []

    def apply(self, recorded: Recorded) -> None:
        """Take one event, the next one."""
        self.state = reduce(self.state, recorded)
        self.position, self.hash = recorded.position, recorded.hash
        event = recorded.event
        candidate = getattr(event, "candidate", None)
        if candidate is not None and candidate in self.state.candidates:
            self._order.setdefault(candidate, len(self._order) + 1)
            if not isinstance(event, ev.RolloutsRecorded):
                self._touched_candidates.add(candidate)
        match event:
            case ev.RolloutsRecorded():
                self._rollouts += _rollout_rows(self.run, recorded.position, event)
            case ev.StepTrained():
                self._steps.append(_step_row(self.run, recorded.position, event))
        self._cycle(recorded.position, event)

    def _cycle(self, position: int, event: ev.Event) -> None:
        state = self.state
        if not isinstance(event, ev.PhaseStarted) and state.cycle not in self._cycles:
            return
        row = self._cycles.setdefault(
            state.cycle,
            dict.fromkeys(CycleView.model_fields)
            | {"run": self.run, "cycle": state.cycle, "started": position, "search": "", "steps": 0, "iterations": 0},
        )
        match event:
            case ev.StepTrained():
                row["steps"] = event.step
            case ev.IterationCompleted():
                row["iterations"] = event.iteration
            case ev.HarnessAccepted():
                row["search"] = "accepted"
            case ev.HarnessRetained():
                row["search"] = "retained"
            case ev.Evaluated():
                # Not always this cycle's: the test of an earlier pair is read after the last cycle.
                row = self._cycles[event.cycle]
                values = {"": event.score, "_low": event.low, "_high": event.high, "_n": event.n}
                row |= {event.split + suffix: value for suffix, value in values.items()}
                row |= {"weights": event.weights, "harness": event.candidate}
            case ev.PhaseStarted():
                pass
            case _:
                return
        if row["validation"] is None:  # once evaluated, the pair is what was evaluated
            row |= {"weights": state.weights, "harness": state.accepted}
        self._touched_cycles.add(row["cycle"])

    def write(self, connection: Connection) -> None:
        """Write what has changed since the last time. The caller commits."""
        state = self.state
        harnesses = [_harness_row(self.run, self._order[c], state.candidates[c]) for c in self._touched_candidates]
        cycles = [self._cycles[cycle] for cycle in self._touched_cycles]
        _replace(connection, CycleView, cycles, "cycle")
        _replace(connection, HarnessView, harnesses, "candidate")
        _insert(connection, RolloutView, self._rollouts)
        _insert(connection, StepView, self._steps)
        connection.execute(delete(RunView).where(RunView.run == self.run))  # type: ignore[arg-type]
        _insert(connection, RunView, [_run_row(self.run, state, self.position, self.hash)])
        self._touched_cycles, self._touched_candidates = set(), set()
        self._rollouts, self._steps = [], []


def rebuild(log: EventLog, engine: Engine, run: str, progress: Callable[[int], None] | None = None) -> Projection:
    """Make the run's rows anew from its whole log, in one transaction; returns what can go on from there."""
    projection = Projection(run)
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(delete(table).where(table.run == run))  # type: ignore[attr-defined]
        for count, recorded in enumerate(log.read(), 1):
            projection.apply(recorded)
            if count % _EVENTS_A_WRITE == 0:
                projection.write(connection)
                if progress:
                    progress(count)
        projection.write(connection)
    return projection


def follow(projection: Projection, log: EventLog, engine: Engine, stop: Callable[[], bool], poll: float = 0.2) -> None:
    """Keep the rows up to the log until `stop()`; each commit holds whole events."""
    for recorded in log.tail(projection.position, stop=stop, poll=poll):
        projection.apply(recorded)
        with engine.begin() as connection:
            projection.write(connection)


def _insert(connection: Connection, table: type[SQLModel], rows: list[Row]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _replace(connection: Connection, table: Any, rows: list[Row], key: str) -> None:
    for row in rows:
        connection.execute(delete(table).where(table.run == row["run"], getattr(table, key) == row[key]))
    _insert(connection, table, rows)


def _run_row(run: str, state: State, position: int, hash_: str) -> Row:
    totals = list(state.totals.values())
    return {
        "run": run,
        "position": position,
        "hash": hash_,
        "status": state.status,
        "cycle": state.cycle,
        "phase": state.phase,
        "accepted": state.accepted,
        "accepted_tree": state.accepted_tree,
        "initial_weights": state.model,
        "weights": state.weights,
        "checkpoint": state.checkpoint,
        "candidates": len(state.candidates),
        "rollouts": sum(t.rollouts for t in totals),
        "generated_tokens": sum(t.generated for t in totals),
        "prompt_tokens": sum(t.prompted for t in totals),
        "interventions": len(state.interventions),
        "forked_from": state.origins[-1].run if state.origins else None,
        "selected_cycle": selected(state).cycle if state.evaluations else None,
        "config": json.dumps(state.config, sort_keys=True),
    }


def _harness_row(run: str, number: int, candidate: Candidate) -> Row:
    newest = candidate.scores[-1] if candidate.scores else None
    return {
        "run": run,
        "candidate": candidate.id,
        "number": number,
        "tree": candidate.tree,
        "parents": list(candidate.parents),
        "proposer": candidate.proposer,
        "cycle": candidate.cycle,
        "iteration": candidate.iteration,
        **{name: getattr(candidate, name).replace("\0", "\ufffd") for name in _TEXTS},
        "valid": candidate.valid,
        "duplicate_of": candidate.duplicate_of,
        "scores": len(candidate.scores),
        "score": newest and newest.score,
        "low": newest and newest.low,
        "high": newest and newest.high,
        "n": newest and newest.n,
        "scored_under": newest and newest.weights,
    }


def _rollout_rows(run: str, position: int, event: ev.RolloutsRecorded) -> list[Row]:
    return [
        {
            "run": run,
            "position": position,
            "number": number,
            "batch": event.batch,
            "purpose": event.purpose,
            "candidate": event.candidate,
            "weights": event.weights,
            "artifact": event.artifact,
            "task": o.task,
            "sample": o.sample,
            "reward": o.reward,
            "status": o.status,
            "turns": o.turns,
            "generated_tokens": o.generated,
            "prompt_tokens": o.prompted,
            "truncated": o.truncated,
            "fabricated": o.fabricated,
        }
        for number, o in enumerate(event.outcomes)
    ]


def _step_row(run: str, position: int, event: ev.StepTrained) -> Row:
    return {
        "run": run,
        "position": position,
        "cycle": event.cycle,
        "step": event.step,
        "rollouts": event.rollouts,
        "passed": event.passed,
        "kept": event.kept,
        "trained_tokens": event.trained_tokens,
        "updates": event.updates,
        "loss": event.loss,
        "weights": event.weights,
    }
