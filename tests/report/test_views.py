"""The SQL views are the fold, at whatever event they were made or brought up to."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlmodel import Session, select

from tests.stored_logs import stored_run
from whale.alternation.decide import selected
from whale.alternation.state import State, reduce
from whale.errors import UsageError, WhaleError
from whale.events import EventLog, NewEvent, fold
from whale.events.types import HarnessProposed
from whale.report.view_tables import TABLES, CycleView, HarnessView, RolloutView, RunView, StepView
from whale.report.views import Projection, follow, open_views, rebuild

LENGTH = 127


def rows(engine: Any) -> dict[str, list[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            table.__name__: sorted(
                map(tuple, connection.execute(text(f"SELECT * FROM {table.__tablename__}"))), key=repr
            )
            for table in TABLES
        }


def assert_views_are_the_fold(engine: Any, log: EventLog, run: str = "demo") -> None:
    state = fold(reduce, State(), log.read())
    with Session(engine) as session:
        (view,) = session.exec(select(RunView).where(RunView.run == run)).all()
        assert (view.position, view.hash) == (log.head().position, log.head().hash)
        assert (view.status, view.cycle, view.phase) == (state.status, state.cycle, state.phase)
        assert (view.accepted, view.weights, view.checkpoint) == (state.accepted, state.weights, state.checkpoint)
        assert view.rollouts == sum(t.rollouts for t in state.totals.values())
        assert view.selected_cycle == (selected(state).cycle if state.evaluations else None)

        rollouts = session.exec(select(RolloutView).where(RolloutView.run == run)).all()
        for purpose, totals in state.totals.items():
            of_purpose = [r for r in rollouts if r.purpose == purpose]
            assert len(of_purpose) == totals.rollouts
            assert sum(r.reward for r in of_purpose) == totals.passed
            assert sum(r.generated_tokens for r in of_purpose) == totals.generated
        assert len(rollouts) == view.rollouts

        harnesses = session.exec(select(HarnessView).where(HarnessView.run == run).order_by("number")).all()
        assert [h.candidate for h in harnesses] == list(state.candidates)
        for h in harnesses:
            candidate = state.candidates[h.candidate]
            assert (h.tree, tuple(h.parents), h.valid) == (candidate.tree, candidate.parents, candidate.valid)
            assert h.scores == len(candidate.scores)
            assert h.score == (candidate.scores[-1].score if candidate.scores else None)

        steps = session.exec(select(StepView).where(StepView.run == run).order_by("position")).all()
        assert [(s.cycle, s.step, s.weights) for s in steps] == [(s.cycle, s.step, s.weights) for s in state.steps]

        cycles = {c.cycle: c for c in session.exec(select(CycleView).where(CycleView.run == run)).all()}
        assert list(cycles) == list(range(state.cycle + 1)) if cycles else state.phase is None
        for evaluated in state.evaluations:
            cycle = cycles[evaluated.cycle]
            assert getattr(cycle, evaluated.split) == evaluated.score
            assert (cycle.harness, cycle.weights) == (evaluated.candidate, evaluated.weights)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(1, LENGTH), then=st.integers(0, LENGTH))
def test_rebuilt_at_any_event_and_followed_from_there_they_equal_the_fold(
    at: int, then: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = open_views(f"sqlite:///{tmp_path_factory.mktemp('views') / 'views.db'}")
    projection = rebuild(stored_run(until=at), engine, "demo")
    assert_views_are_the_fold(engine, stored_run(until=at))
    later = stored_run(until=max(at, then))
    follow(projection, later, engine, stop=lambda: True)
    assert_views_are_the_fold(engine, later)
    followed = rows(engine)
    rebuild(later, engine, "demo")
    assert rows(engine) == followed


def test_a_rebuild_repairs_what_was_changed_by_hand_and_leaves_other_runs(tmp_path: Path) -> None:
    engine = open_views(f"sqlite:///{tmp_path / 'views.db'}")
    rebuild(stored_run(until=60), engine, "other")
    rebuild(stored_run(), engine, "demo")
    whole = rows(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE view_harnesses SET score = 1 WHERE run = 'demo'"))
        connection.execute(text("DELETE FROM view_rollouts WHERE run = 'demo' AND number = 3"))
    assert rows(engine) != whole
    rebuild(stored_run(), engine, "demo")
    assert rows(engine) == whole
    assert_views_are_the_fold(engine, stored_run(until=60), "other")


def test_a_rebuild_that_is_cut_short_leaves_the_old_views(tmp_path: Path) -> None:
    engine = open_views(f"sqlite:///{tmp_path / 'views.db'}")
    rebuild(stored_run(until=60), engine, "demo")
    before = rows(engine)

    class Cut(Exception):
        pass

    class Broken:
        def read(self) -> Any:
            yield from stored_run().read(until=100)
            raise Cut

    with pytest.raises(Cut):
        rebuild(Broken(), engine, "demo")  # type: ignore[arg-type]
    assert rows(engine) == before


def test_a_proposers_nul_does_not_stop_the_views() -> None:
    """PostgreSQL cannot hold it; the log can, and keeps it."""
    log = stored_run()
    event = HarnessProposed(
        candidate="x", tree="t", parents=["h0"], proposer="p", cycle=2, iteration=9, title="a\0b", hypothesis="\0"
    )
    log.append("run", [NewEvent(event, key="proposed/x")], None)
    engine = open_views("sqlite://")
    rebuild(log, engine, "demo")
    with Session(engine) as session:
        assert session.get(HarnessView, ("demo", "x")).title == "a\ufffdb"  # type: ignore[union-attr]


@pytest.mark.parametrize("url", ["nonsense", "oracle://x", "nosuch+driver://x"])
def test_a_url_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="database URL"):
        open_views(url)


def test_a_database_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(WhaleError, match="cannot be made"):
        open_views(f"sqlite:///{tmp_path / 'missing' / 'views.db'}")


def test_a_projection_has_no_rows_before_its_first_event() -> None:
    engine = open_views("sqlite://")
    with engine.begin() as connection:
        Projection("demo").write(connection)
    assert [len(found) for found in rows(engine).values()] == [1, 0, 0, 0, 0]
