"""Trackers: the same curves beside a run and from its log, and no fault of theirs reaches the run."""

import itertools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runs import WhaleProcess
from whale.alternation.run_folder import RunFolder
from whale.trackers import feed, writers
from whale.trackers.feed import Following, Reader
from whale.trackers.points import Point
from whale.trackers.writers import FOLDER

Curve = dict[str, list[tuple[int, float, float]]]


def curves(folder: Path) -> Curve:
    """What TensorBoard reads: records of (length, crc, an Event message, crc)."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.out.tfevents.*")
    content, at = path.read_bytes(), 0
    found: Curve = {}
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        event = Event.FromString(content[at + 12 : at + 12 + length])
        at += 12 + length + 4
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value, event.wall_time))
    return found


def test_the_curves_beside_a_run_are_those_of_its_log_and_can_be_made_anew(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    whale_here("run", str(toy_config), "--name", "toy", "--quiet", "--set", 'track.to=["tensorboard"]')
    folder = RunFolder(tmp_path / "runs" / "toy")
    live = curves(folder.path / FOLDER)
    state = folder.state()
    assert "track" not in state.config, "trackers are no part of the experiment"
    success = [(step, value) for step, value, _ in live["validation/success"]]
    validation = [e for e in state.evaluations if e.split == "validation"]
    assert [value for _, value in success] == pytest.approx([e.score for e in validation])
    assert [value for _, value, _ in live["train/success"]] == pytest.approx(
        [s.passed / s.rollouts for s in state.steps]
    )
    assert live["cost/sampled_tokens"][-1][1] == sum(t.generated for t in state.totals.values())
    assert max(step for curve in live.values() for step, _, _ in curve) == sum(
        t.rollouts for t in state.totals.values()
    )
    whale_here("track", "toy")
    assert curves(folder.path / FOLDER) == live


class Broken:
    """A writer as a library gone wrong: it raises where it is told to."""

    name = "tensorboard"
    calls: list[str] = []  # noqa: RUF012 - shared on purpose
    fails = ""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        self._do("open")

    def write(self, points: Sequence[Point]) -> None:
        self._do("write")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.calls.append(what)
        if what == self.fails:
            raise SystemExit(f"cannot {what}")


@pytest.mark.parametrize("fails, calls", [("open", ["open"]), ("write", ["open", "write"]), ("close", None)])
def test_a_tracker_that_fails_is_left_and_the_run_ends_as_without_it(
    fails: str,
    calls: list[str] | None,
    whale_here: WhaleProcess,
    toy_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = ["--set", "schedule.cycles=1"]
    whale_here("run", str(toy_config), "--name", "plain", "--quiet", *short)
    monkeypatch.setitem(writers.WRITERS, "tensorboard", Broken)
    monkeypatch.setattr(Broken, "fails", fails)
    monkeypatch.setattr(Broken, "calls", [])
    done = whale_here("run", str(toy_config), "--name", "toy", *short, "--set", 'track.to=["tensorboard"]')
    assert f"SystemExit: cannot {fails}" in done.stderr
    assert calls is None or Broken.calls == calls, "it is not asked again"
    states = [RunFolder(tmp_path / "runs" / name).state() for name in ("plain", "toy")]
    assert states[0].weights == states[1].weights
    assert states[1].status == "completed"


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    done = whale_here(
        "run", str(toy_config), "--name", "toy", "--set", "schedule.cycles=1", "--set", 'track.to=["wandb"]'
    )
    assert "pip install 'whale-evolve[wandb]'" in done.stderr
    assert RunFolder(tmp_path / "runs" / "toy").state().status == "completed"
    done = whale_here("track", "toy", "--to", "wandb", check=False)
    assert done.returncode == 2
    assert whale_here("track", "toy", "--to", "paper", check=False).returncode == 2


def test_a_tracker_that_hangs_holds_the_end_up_for_a_while_only(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    whale_here("run", str(toy_config), "--name", "toy", "--quiet", "--set", "schedule.cycles=1")
    let_go = threading.Event()
    monkeypatch.setattr(Broken, "_do", lambda self, what: let_go.wait() if what == "write" else None)
    monkeypatch.setitem(writers.WRITERS, "tensorboard", Broken)
    monkeypatch.setattr(feed, "END_SECONDS", 0.2)
    notes: list[str] = []
    with Following(RunFolder(tmp_path / "runs" / "toy"), ["tensorboard"], notes.append):
        pass
    assert "not through" in notes[0]
    let_go.set()


def test_points_come_once_however_often_the_log_is_looked_at(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    whale_here("run", str(toy_config), "--name", "toy", "--quiet", "--set", "schedule.cycles=1")
    log = RunFolder(tmp_path / "runs" / "toy").open_log(readonly=True)
    whole, reader = Reader().more(log), Reader()
    assert reader.more(log) == whole
    assert reader.more(log) == []
    log.close()
    assert all(earlier.step <= later.step for earlier, later in itertools.pairwise(whole))
