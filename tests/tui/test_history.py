"""The past: any moment is the fold up to it, whatever was looked at before, and costs little."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tui.synthetic import Shape, made_up
from whale.alternation.state import State, reduce
from whale.events import EventLog, MemoryLog, Recorded, fold
from whale.events import types as ev
from whale.tui import history as history_module
from whale.tui.facts import Facts
from whale.tui.history import History
from whale.tui.views.rollouts import Filter, matching


@pytest.fixture(scope="module")
def log() -> Iterator[EventLog]:
    with MemoryLog() as made:
        made.append("run", list(made_up(Shape())), expected_version=0)
        yield made


@settings(max_examples=30, deadline=None)
@given(positions=st.lists(st.integers(1, 195), min_size=1, max_size=8))
def test_any_moment_in_any_order_is_the_fold_of_the_log_up_to_it(log: EventLog, positions: list[int]) -> None:
    history = History()
    history._stride = 10
    history.extend(log.read())
    for position in positions:
        assert history.at(position, log) == fold(reduce, State(), log.read(until=position))


def test_snapshots_stay_few_however_long_the_log(monkeypatch: pytest.MonkeyPatch, log: EventLog) -> None:
    monkeypatch.setattr(history_module, "MOST", 8)
    history = History()
    history._stride = 1
    history.extend(log.read())
    assert len(history._snapshots) <= 8
    assert history.at(101, log) == fold(reduce, State(), log.read(until=101))


class Counting:
    """A log that counts what is read of it."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.events = log, 0

    def read(self, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        for recorded in self.log.read(after, until):
            self.events += 1
            yield recorded


def test_stepping_about_reads_no_more_than_what_lies_between_two_snapshots(log: EventLog) -> None:
    history = History()
    history.extend(log.read())
    counting = Counting(log)
    history.at(190, counting)  # type: ignore[arg-type]
    first, counting.events = counting.events, 0
    for position in (189, 190, 188, 190):
        history.at(position, counting)  # type: ignore[arg-type]
    assert first <= 100
    assert counting.events <= 4 * history_module.NEAR


def test_a_past_moment_sees_no_rollout_that_came_later(log: EventLog) -> None:
    facts = Facts()
    for recorded in log.read():
        facts.add(recorded)
    total = 0
    for recorded in log.read():
        if isinstance(recorded.event, ev.RolloutsRecorded):
            total += len(recorded.event.outcomes)
        assert facts.rollouts_until(recorded.position) == total


@pytest.mark.parametrize("verdict", ["passed", "failed", "truncated", "broken"])
@pytest.mark.parametrize("purpose", ["all", "train", "score"])
def test_a_filter_lists_exactly_what_a_scan_of_the_log_finds(log: EventLog, verdict: str, purpose: str) -> None:
    facts = Facts()
    expected = []
    for recorded in log.read():
        facts.add(recorded)
        if isinstance(recorded.event, ev.RolloutsRecorded):
            for index, o in enumerate(recorded.event.outcomes):
                right = {
                    "passed": o.reward > 0,
                    "failed": o.reward <= 0,
                    "truncated": o.truncated,
                    "broken": o.status != "ok",
                }
                if right[verdict] and purpose in ("all", recorded.event.purpose):
                    expected.append((recorded.position, index, o.task))
    found = [
        (facts.rollout_positions[i], facts.rollout_index[i], facts.tasks.names[facts.rollout_tasks[i]])
        for i in matching(facts, facts.count, Filter(verdict, purpose))
    ]
    assert found == expected[::-1]


def test_a_synthetic_log_is_the_same_every_time(tmp_path: Path) -> None:
    assert list(made_up(Shape(cycles=1))) == list(made_up(Shape(cycles=1)))
