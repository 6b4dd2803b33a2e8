"""Where a run's wall time goes: on the real parts, by a clock that ticks when it is read."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.alternation.test_resume import KILL_AT
from tests.runs import WhaleProcess, environment
from whale import stopwatch
from whale.alternation.run_folder import RunFolder
from whale.alternation.spent import PARTS, PLACES, final_test_spent, phase_spent, spent_in
from whale.events import types as ev
from whale.stopwatch import Stopwatch

ONE_CYCLE = ("--set", "schedule.cycles=1")


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator["count[int]"]:
    """A stopwatch's clock: one more at each look."""
    clock = count()
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    yield clock


@pytest.mark.usefixtures("ticks")
def test_a_second_counts_once_for_the_innermost_part() -> None:
    watch = Stopwatch()  # 0
    with watch.part("harness"):  # from 1
        with watch.part("generate"):  # from 2
            pass  # to 3
        with watch.part("generate"):  # from 4
            watch.share({"verify": 0.5, "harness": 0.25})  # at 5
    assert watch.lap() == {"other": 2.0, "harness": 3.25, "generate": 2.25, "verify": 0.5}, "8 ticks have passed"
    with pytest.raises(ValueError, match="left"), watch.part("train"):
        raise ValueError("left")
    assert watch.lap() == {"other": 2.0, "train": 1.0}


def test_each_phase_tells_its_parts_which_sum_to_all_the_time_of_the_run(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, ticks: "count[int]"
) -> None:
    told = whale_here("run", str(toy_config), "--name", "a", *ONE_CYCLE).stderr
    with RunFolder(tmp_path / "runs" / "a").open_log(readonly=True) as log:
        assert spent_in(log.read()).wall == next(ticks) - 1, (
            "from the first look to the last, which the last event took"
        )
        phases = [
            (r.event.cycle, r.event.phase, phase_spent(log, r.event.cycle, r.event.phase))
            for r in log.read()
            if isinstance(r.event, ev.PhaseEnded)
        ]
    assert [(cycle, phase) for cycle, phase, _ in phases] == [
        (0, "evaluate"), (1, "weight"), (1, "harness"), (1, "evaluate"),
    ]  # fmt: skip
    for cycle, phase, spent in phases:
        assert tuple(spent.seconds) == PARTS
        assert {part for part, seconds in spent.seconds.items() if seconds < 0} == set()
        assert min(spent.seconds[part] for part in ("generate", "harness", "verify", "other")) > 0
        assert (spent.seconds["train"] > 0) == (phase == "weight")
        assert (spent.seconds["sync"] > 0) == ((cycle, phase) in {(1, "weight"), (1, "harness")})
        assert f"cycle {cycle}: {phase} phase took {spent}\n" in told
    seconds = json.loads(whale_here("status", "a", "--json").stdout)["seconds"]
    assert list(seconds) == ["start", "weight", "harness", "evaluate", "test", "between"]
    for kind in ("weight", "harness", "evaluate"):
        assert sum(seconds[kind].values()) == sum(spent.wall for _, phase, spent in phases if phase == kind)
    assert min(seconds["test"][part] for part in ("generate", "harness", "verify")) > 0
    assert seconds["start"]["generate"] > 0 and not seconds["between"].get("generate"), "h0's smoke run is the start's"
    with RunFolder(tmp_path / "runs" / "a").open_log(readonly=True) as log:
        test = final_test_spent(log)
    assert test.wall == sum(seconds["test"].values()) and test.rollouts == 4, "both pairs, 2 tasks each"
    assert f"test evaluation took {test}\n" in told
    table = whale_here("status", "a").stdout.partition("wall time")[2]
    rows = [line.split("  ")[0] for line in table.strip().splitlines()[1:7]]
    assert rows == [PLACES[place] for place in seconds]
    assert whale_here("replay", "a", "--deep", "--quiet").returncode == 0


def test_a_phase_that_was_killed_and_resumed_is_told_whole(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    arguments = [sys.executable, str(KILL_AT), "train", "2", "run", str(toy_config), "--name", "r", "--quiet"]
    killed = subprocess.run([*arguments, *ONE_CYCLE], env=environment(runs), timeout=600, check=False)
    assert killed.returncode == -signal.SIGKILL
    with RunFolder(runs / "r").open_log(readonly=True) as log:
        before, until = phase_spent(log, 1, "weight"), log.head().position
    assert before.seconds["generate"] > 0 and before.rollouts > 0

    told = whale_here("resume", "r").stderr
    with RunFolder(runs / "r").open_log(readonly=True) as log:
        whole = phase_spent(log, 1, "weight")
        ended = log.find("c001/weight/ended", "run")
        assert ended is not None
        after = spent_in(log.read(after=until, until=ended.position))
    assert whole.seconds == pytest.approx({part: before.seconds[part] + after.seconds[part] for part in PARTS})
    assert after.seconds["train"] > 0
    assert (whole.rollouts, whole.tokens) == (before.rollouts + after.rollouts, before.tokens + after.tokens)
    assert f"cycle 1: weight phase took {whole}\n" in told
