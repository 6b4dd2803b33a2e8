"""An acceptance that waits for a reviewer is seen on every screen, and answered from the app."""

import os
import signal
import subprocess
from pathlib import Path

import tomli_w

from tests.runs import command, environment
from tests.tui.conftest import story, toy_settings, watching
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev


def given(run: Path) -> list[ev.ApprovalGiven]:
    with RunFolder(run).open_log(readonly=True) as log:
        return [recorded.event for recorded in log.read() if isinstance(recorded.event, ev.ApprovalGiven)]


def asked_for(run: Path) -> str:
    """The candidate that the run waits with; "" while it waits for none."""
    verdict = RunFolder(run).state().verdict
    return verdict.candidate if verdict is not None else ""


@story
async def test_a_reviewer_sees_the_change_declines_it_with_a_reason_and_accepts_the_next(
    tmp_path: Path, toy_model: Path
) -> None:
    settings = toy_settings(toy_model, cycles=40)
    settings["search"]["approve"] = "human"
    (tmp_path / "asks.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    run = tmp_path / "runs" / "asks"
    runner = subprocess.Popen(
        command("run", "asks.toml", "--quiet"), env=environment(tmp_path / "runs"), cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        for _ in range(2400):
            if (run / "events.db").exists() and RunFolder(run).state().phase is not None:
                break
            assert runner.poll() is None, runner.communicate()
            signal.sigtimedwait([], 0.05)
        async with watching(run, (120, 40)) as user:
            await user.pilot.press("3")
            await user.waits_to_see("waits for a reviewer · Y")
            user.sees("? review")
            state = RunFolder(run).state()
            await user.pilot.press("Y")
            await user.waits_to_see("n keep")
            assert state.verdict is not None
            user.sees(f"Accept {state.verdict.candidate}?", f"y accept {state.verdict.candidate}", "esc answer later")
            await user.pilot.press("escape")
            assert not given(run), "without an answer nothing is recorded"
            await user.pilot.press("Y")
            await user.waits_to_see("n keep")
            await user.pilot.press("n")
            await user.waits_to_see("why? for the log")
            await user.types("too long")
            await user.pilot.press("enter")
            await user.waits_for(lambda: RunFolder(run).state().cycle > state.cycle)
            (answer,) = given(run)
            assert (answer.approved, answer.note, answer.candidate) == (False, "too long", state.verdict.candidate)
            assert RunFolder(run).state().accepted == state.accepted
            # The screen may still show the one that was declined.
            await user.waits_for(lambda: f"? {asked_for(run)} waits for a reviewer · Y" in user.screen)
            wanted = RunFolder(run).state().verdict
            assert wanted is not None
            await user.pilot.press("Y")
            await user.waits_to_see("y accept")
            await user.pilot.press("y")
            await user.waits_to_see("why? for the log")
            await user.pilot.press("enter")
            await user.waits_for(lambda: RunFolder(run).state().accepted == wanted.candidate)
            await user.press("o")
            user.sees(f"approve {wanted.candidate}", "✓")
    finally:
        if runner.poll() is None:
            os.kill(runner.pid, signal.SIGKILL)
        runner.communicate()


@story
async def test_where_nothing_waits_the_answer_key_says_so(made_up_run: Path) -> None:
    async with watching(made_up_run) as user:
        await user.press("Y")
        user.sees("nothing waits for a reviewer")
        user.sees_not("waits for a reviewer · Y")
