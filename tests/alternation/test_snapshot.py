"""A snapshot is the fold's state or nothing, whatever is in its file."""

from pathlib import Path

import pytest

from tests.stored_logs import stored_run
from whale.alternation import snapshot
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, reduce
from whale.events import MemoryLog, NewEvent
from whale.events.types import PauseRequested, RevertRequested, RunStarted


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run's log in a folder."""
    folder = RunFolder(tmp_path / "demo")
    folder.path.mkdir()
    with folder.open_log() as log:
        log.restore(stored_run().rows())
    return folder


def test_at_every_event_a_snapshot_holds_exactly_the_state_of_the_fold(tmp_path: Path) -> None:
    log, state = stored_run(), State()
    for recorded in log.read():
        state = reduce(state, recorded)
        assert snapshot.write(tmp_path, recorded, state)
        assert snapshot.read(tmp_path, log) == (recorded.position, state)


def test_a_snapshot_keeps_the_digests_of_the_users_files(tmp_path: Path) -> None:
    started = RunStarted(name="one", config={}, model="m", data="d", splits={}, pinned={"search.space": "abc"})
    log = MemoryLog()
    log.append("run", [NewEvent(started, key="started")], None)
    (recorded,) = log.read()
    state = reduce(State(), recorded)
    assert snapshot.write(tmp_path, recorded, state)
    assert snapshot.read(tmp_path, log)[1].pinned == {"search.space": "abc"}


def test_a_reader_writes_a_snapshot_of_a_long_log_and_the_next_one_starts_there(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "EVERY", 100)
    whole = run.state()
    with run.open_log() as log:
        assert snapshot.read(run.path, log) == (127, whole)
        assert snapshot.read(run.path, log, until=126) == (0, State()), "it is later than what is asked for"
    assert run.state() == whole
    assert run.state(at=60).cycle == 1


def test_events_after_a_snapshot_are_folded_on_top_of_it(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "EVERY", 100)
    run.state()
    with run.open_log() as log:
        log.append("control", [NewEvent(RevertRequested(candidate="h0"), key="control/revert/1")], None)
    assert list(run.state().requests) == ["control/revert/1"]


def test_a_state_with_an_open_request_is_not_kept(tmp_path: Path) -> None:
    log = stored_run()
    (request,) = log.append("control", [NewEvent(PauseRequested(), key="control/pause/1")], None)
    state = State()
    for recorded in log.read():
        state = reduce(state, recorded)
    assert not snapshot.write(tmp_path, request, state)
    assert snapshot.read(tmp_path, log) == (0, State())


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other fold", "other log", "folder"])
def test_a_snapshot_that_does_not_fit_is_not_read(run: RunFolder, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr(snapshot, "EVERY", 100)
    whole = run.state()
    file = run.path / snapshot.FILE
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-20])
    elif damage == "changed":
        file.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "other fold":
        monkeypatch.setattr(snapshot, "fold_version", lambda: "another")
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        run.log_file.unlink()
        with run.open_log() as log:
            log.restore(stored_run(until=100).rows())
        whole = State()
        with run.open_log(readonly=True) as log:
            for recorded in log.read():
                whole = reduce(whole, recorded)
    assert run.state() == whole
