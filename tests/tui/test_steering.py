"""Steering from the app: what an act says before it is done, and what the run, the log and Git say afterwards."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import tomli_w

from tests.runs import command, environment
from tests.tui.conftest import NOW, story, toy_settings, watching
from tests.tui.synthetic import Shape, made_up
from whale.alternation.run_folder import RunFolder
from whale.events import MemoryLog
from whale.events import types as ev
from whale.harness_repo import HarnessRepo
from whale.tui import steering
from whale.tui.opened import Moment, OpenRun
from whale.tui.source import LogSource


def moment(until: int | None = None, runner: int | None = 1, run: str | None = "made-up") -> Moment:
    log = MemoryLog()
    log.append("run", list(made_up(Shape()))[:until], expected_version=0)
    opened = OpenRun(LogSource("made-up", "memory", lambda _: log, run=run), lambda: NOW)
    opened.history.extend(log.read())
    return replace(opened.moment(), runner=runner)


def test_a_pause_asks_a_running_run_and_resumes_a_paused_one_and_starts_a_runner_where_none_is() -> None:
    running = moment(until=100)
    assert steering.pause(running, "me").event == ev.PauseRequested(by="me")
    alone = steering.pause(replace(running, runner=None), "me")
    assert alone.command == ("resume", "made-up", "--quiet") and alone.background and alone.ask
    running.run.history.state = msgspec.structs.replace(running.run.history.state, status="paused")
    assert steering.pause(running, "me").event == ev.ResumeRequested(by="me")
    assert "complete" in steering.pause(moment(), "me").refused


def test_from_another_machine_requests_go_through_the_log_and_no_process_is_started() -> None:
    far = moment(until=100, runner=None, run=None)
    assert steering.pause(far, "me").event == ev.PauseRequested(by="me")
    assert steering.stop(far, "me", after_phase=True).event == ev.PhaseStopRequested(by="me")
    assert "own machine" in steering.fork(far, "x").refused


def test_a_revert_says_when_it_takes_effect_and_what_is_barred_and_refuses_what_cannot_be() -> None:
    now = moment(until=170)
    state = now.run.history.state
    target = next(c for c in state.candidates.values() if c.valid and c.tree != state.accepted_tree)
    plan = steering.change_harness(now, target.id, "me", revert=True)
    words = " ".join(plan.consequences)
    assert plan.event == ev.RevertRequested(candidate=target.id, by="me") and plan.ask
    assert f"when the {state.phase} phase" in words and "barred" in words and str(state.accepted) in words
    assert plan.diff == (state.accepted_tree, target.tree)
    by_hand = steering.change_harness(now, target.id, "me", revert=False)
    assert by_hand.event == ev.AcceptRequested(candidate=target.id, by="me")
    assert "Nothing is barred" in " ".join(by_hand.consequences)
    invalid = next(c for c in state.candidates.values() if c.valid is False)
    assert invalid.reason in steering.change_harness(now, invalid.id, "me", revert=True).refused
    assert steering.change_harness(now, state.accepted, "me", revert=True).refused
    assert steering.change_harness(now, None, "me", revert=False).refused


def test_the_past_is_no_place_to_steer_from_the_run_as_it_is_now_counts() -> None:
    now = moment()
    then = replace(now, state=moment(until=30).state, position=30, live=False)
    candidate = next(c.id for c in now.state.candidates.values() if c.valid and c.id not in then.state.candidates)
    assert not steering.change_harness(then, candidate, "me", revert=True).refused
    assert steering.fork(then, "new").command == ("fork", "made-up", "--at", "30", "--name", "new")


@story
async def test_a_live_run_is_paused_resumed_and_stopped_after_its_phase_and_each_outcome_is_shown(
    tmp_path: Path, toy_model: Path
) -> None:
    settings = toy_settings(toy_model, cycles=200)
    settings["domain_options"] = {"weight": 12, "harness": 8, "validation": 8, "test": 2}
    (tmp_path / "live.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    runs = tmp_path / "runs"
    runner = subprocess.Popen(
        command("run", "live.toml", "--quiet"), env=environment(runs), cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        for _ in range(2400):
            if (runs / "live" / "events.db").exists() and RunFolder(runs / "live").state().phase is not None:
                break
            assert runner.poll() is None, runner.communicate()
            signal.sigtimedwait([], 0.05)
        async with watching(runs / "live", (120, 40)) as user:
            await user.waits_to_see("▶ running")
            await user.pilot.press("p")
            await user.waits_to_see("‖ paused")
            await user.waits_to_see("paused at a safe point")
            assert runner.poll() is None, "a paused run keeps its process"
            assert RunFolder(runs / "live").state().status == "paused"
            await user.pilot.press("p")
            await user.waits_to_see("▶ running")
            await user.pilot.press("S")
            await user.pilot.pause(0.2)
            await user.pilot.press("enter")
            await user.waits_for(lambda: runner.poll() is not None)
            await user.waits_to_see("■ stopped")
            await user.press("o")
            user.sees("stop after this phase", "stopped: the phase has ended", "✓ pause")
        state = RunFolder(runs / "live").state()
        assert (state.status, state.phase) == ("stopped", None)
        assert runner.returncode == 0
    finally:
        if runner.poll() is None:
            os.kill(runner.pid, signal.SIGKILL)
        runner.communicate()


@story
async def test_a_revert_is_shown_with_its_diff_confirmed_and_then_stands_in_log_and_git(own_run: Path) -> None:
    folder = RunFolder(own_run)
    state = folder.state()
    with HarnessRepo.open(folder.harnesses) as repo:
        serials = len(repo.accepted())
    target = next(c for c in state.candidates.values() if c.valid and c.tree != state.accepted_tree)
    async with watching(own_run, (120, 40)) as user:
        await user.press("3")
        user.app.choose(target.id)
        await user.press("R")
        user.sees(f"Revert to {target.id}?", "barred", "no history is rewritten", "━━", "y revert")
        await user.press("escape")
        assert folder.state().accepted == state.accepted, "without a yes nothing happens"
        await user.press("R")
        await user.pilot.press("y")
        await user.waits_for(lambda: folder.state().accepted == target.id)
        await user.waits_for(lambda: user.app.moment is not None and user.app.moment.state.accepted == target.id)
        assert any("◆" in row and target.id in row for row in user.screen.splitlines()), user.screen
    with HarnessRepo.open(folder.harnesses) as repo:
        history = repo.accepted()
    assert (len(history), history[-1].candidate, history[-1].tree) == (serials + 1, target.id, target.tree)
    after = folder.state()
    assert state.accepted_tree in after.barred
    assert any("reverted" in words for words in after.interventions)


@story
async def test_a_note_is_recorded_and_shown_with_its_candidate(own_run: Path) -> None:
    async with watching(own_run, (120, 40)) as user:
        await user.press("3")
        name = user.app.chosen or RunFolder(own_run).state().accepted
        await user.press("m")
        user.sees(f"note on {name}")
        await user.types("look here")
        await user.press("enter")
        await user.waits_to_see("✎ look here")
    assert [n.text for n in RunFolder(own_run).state().notes[str(name)]] == ["look here"]


@story
async def test_what_cannot_be_done_is_said_and_nothing_is_recorded(own_run: Path) -> None:
    before = RunFolder(own_run).open_log(readonly=True).head().position
    async with watching(own_run) as user:
        await user.press("p")
        user.sees("the run is complete")
        await user.press("S", "enter")
        user.sees("stop: the run is complete")
        await user.press("R")
        user.sees("choose a candidate")
    assert RunFolder(own_run).open_log(readonly=True).head().position == before
