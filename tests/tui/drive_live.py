"""The app in a real terminal on a live run: open, watch, pause, resume, lineage, diff, revert, quit, reopen.

    python -m tests.tui.drive_live --out FOLDER [--config examples/demo.toml] [--set KEY=VALUE ...]

Starts `whale run` in FOLDER/runs and `whale tui` in a tmux window, presses the keys of the story, checks the log and
Git after each act, and leaves what stood on the screen in FOLDER: NAME-WxH.txt and .svg. With the demo's config it
takes as long as `make demo` (some 10 minutes on two cores); `whale models fetch` must have been run.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.tui.terminal import Terminal
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.events import types as ev
from whale.harness_repo import HarnessRepo

SIZES = ((80, 24), (120, 40), (200, 60))
HOME = SIZES[1]
CHECKOUT = Path(__file__).parents[2]


class Drive:
    """One run, one terminal, and a folder for what was seen."""

    def __init__(self, out: Path, name: str) -> None:
        self.out, self.folder = out, RunFolder(out / "runs" / name)
        self.environment = {
            "WHALE_RUNS": str(out / "runs"),
            "WHALE_KEYS": str(out / "no-keys.toml"),
            "PYTHONPATH": str(CHECKOUT),
            "HF_HUB_OFFLINE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        self.app = f"{shlex.quote(sys.executable)} -m whale tui {shlex.quote(name)}"
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        """Progress, for whoever waits."""
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", file=sys.stderr, flush=True)

    def keep(self, terminal: Terminal, name: str) -> None:
        """The screen in every size, as text and as a picture."""
        for size in SIZES:
            terminal.resize(size)
            path = self.out / f"{name}-{size[0]}x{size[1]}.txt"
            path.write_text(terminal.text, encoding="utf-8")
            terminal.picture(path.with_suffix(".svg"))
        terminal.resize(HOME)
        self.say(f"kept {name}")

    def state(self) -> State:
        """The fold of the log as it is now."""
        return self.folder.state()

    def events(self) -> list[ev.Event]:
        """All events of the run."""
        with self.folder.open_log(readonly=True) as log:
            return [recorded.event for recorded in log.read()]

    def wait_until(self, what: str, seconds: float, runner: "subprocess.Popen[bytes]") -> None:
        """Wait for an event of this type."""
        end = time.monotonic() + seconds
        while not any(type(event).__name__ == what for event in self.events()):
            assert runner.poll() is None, f"the run ended before {what}: {runner.returncode}"
            assert time.monotonic() < end, f"no {what} within {seconds:g} s"
            time.sleep(1)


def story(drive: Drive, terminal: Terminal, runner: "subprocess.Popen[bytes]") -> None:
    """What a user does, and what must come of it."""
    # open and watch
    terminal.waits_to_see("▶ running")
    drive.keep(terminal, "opened")
    drive.wait_until("StepTrained", 900, runner)
    terminal.waits_to_see("step 1:")
    drive.keep(terminal, "watching")

    # pause at the next safe point, and nothing happens meanwhile
    terminal.press("p")
    terminal.waits_for(lambda text: "1 asked" in text or "‖ paused" in text, 30, "to see that it was asked")
    terminal.waits_to_see("‖ paused", 300)
    terminal.waits_to_see("doing paused at a safe point", 30)
    drive.keep(terminal, "paused")
    assert drive.state().status == "paused" and runner.poll() is None
    before = len(drive.events())
    time.sleep(5)
    assert len(drive.events()) == before, "a paused run records nothing"
    terminal.press("p")
    terminal.waits_to_see("▶ running", 60)
    drive.say("paused and resumed")

    # browse while it goes on
    drive.wait_until("CandidateScored", 900, runner)
    terminal.press("3")
    terminal.waits_to_see("lineage ·")
    terminal.press("g", "j", "u", "d")
    drive.keep(terminal, "lineage-early")
    terminal.press("6")
    terminal.waits_to_see("turn 1 of")
    drive.keep(terminal, "rollouts")
    terminal.press("7")
    terminal.waits_to_see("events ·")
    drive.keep(terminal, "events")
    terminal.press("2")
    drive.keep(terminal, "scoring")

    # the first acceptance: its diff
    drive.wait_until("AcceptanceCommitted", 60, runner)
    drive.wait_until("HarnessAccepted", 1800, runner)
    state = drive.state()
    new, old = str(state.accepted), next(e.previous for e in drive.events() if isinstance(e, ev.HarnessAccepted))
    terminal.press("3", "g", "/")
    terminal.types(new)
    terminal.press("Enter")
    terminal.waits_to_see("◆ the accepted harness", 20)
    drive.keep(terminal, "lineage")
    terminal.press("Enter")
    terminal.waits_to_see("Tasks +", 20)
    terminal.press("j")
    drive.keep(terminal, "harness")
    terminal.press("9")
    terminal.waits_to_see("proposer ·", 20)
    drive.keep(terminal, "proposer")
    terminal.press("4", "a")
    terminal.waits_to_see(f"{old} → {new}", 20)
    drive.keep(terminal, "diff")

    # back to what was accepted before, from the next phase on
    terminal.press("3", "/")
    terminal.types(old)
    terminal.press("Enter")
    time.sleep(1)
    terminal.press("R")
    terminal.waits_to_see(f"Revert to {old}?", 20)
    drive.keep(terminal, "revert")
    terminal.press("y")
    drive.wait_until("RevertRequested", 60, runner)
    terminal.press("2")
    terminal.waits_to_see(f"revert to {old}", 600)
    drive.keep(terminal, "revert-asked")
    drive.wait_until("HarnessReverted", 1200, runner)
    drive.wait_until("AcceptanceCommitted", 60, runner)
    terminal.press("o")
    terminal.waits_to_see(f"revert to {old}", 20)
    drive.keep(terminal, "outcomes")
    terminal.press("Escape")
    time.sleep(3)
    told = drive.events()
    at = next(i for i, event in enumerate(told) if isinstance(event, ev.HarnessReverted))
    with HarnessRepo.open(drive.folder.harnesses) as repo:
        history = repo.accepted()
    assert history[-1].candidate == old and len(history) == 3, history
    log = subprocess.run(
        ["git", "-C", str(drive.folder.harnesses), "log", "--first-parent", "--format=%h %s", "accepted"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (drive.out / "git-log.txt").write_text(log.stdout, encoding="utf-8")
    drive.say(f"reverted to {old}; git log accepted:\n{log.stdout}")

    # quit: the run goes on; reopen
    terminal.press("q")
    terminal.waits_for(lambda _: terminal.ended, 20, "the app to end")
    assert runner.poll() is None, "the run goes on without the app"
    terminal.start(drive.app)
    terminal.waits_to_see("▶ running")
    terminal.press("3")
    terminal.waits_to_see("lineage ·")
    drive.keep(terminal, "reopened")
    for _ in range(1800):
        later = [event for event in drive.events()[at:] if isinstance(event, ev.RolloutsRecorded)]
        started = [event for event in drive.events()[at:] if isinstance(event, ev.PhaseStarted)]
        if later and started:
            break
        time.sleep(1)
    assert later[0].candidate == old, f"the phase after the revert samples with {later[0].candidate}, not {old}"
    drive.say(f"the {started[0].phase} phase of cycle {started[0].cycle} starts from {old}")

    # the end, while it is watched
    terminal.press("2")
    terminal.waits_to_see("✓ completed", 2400)
    drive.keep(terminal, "completed")
    terminal.press("q")
    terminal.waits_for(lambda _: terminal.ended, 20, "the app to end")


def main(arguments: list[str] | None = None) -> None:
    """Tell the story once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=CHECKOUT / "examples" / "demo.toml")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    options = parser.parse_args(arguments)
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    drive = Drive(out, "demo")
    command = [sys.executable, "-m", "whale", "run", str(options.config), "--name", "demo"]
    for setting in options.sets:
        command += ["--set", setting]
    with (out / "run.out").open("wb") as printed:
        runner = subprocess.Popen(
            command, env={**os.environ, **drive.environment}, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
        )
    try:
        end = time.monotonic() + 300
        while not drive.folder.log_file.exists() or drive.state().status == "new":
            assert runner.poll() is None, (out / "run.out").read_text()
            assert time.monotonic() < end, "the run does not start"
            time.sleep(0.5)
        drive.say("the run has begun")
        with Terminal(drive.app, size=HOME, folder=out, environment=drive.environment) as terminal:
            story(drive, terminal, runner)
        assert runner.wait(60) == 0
        drive.say("the story is told")
    finally:
        if runner.poll() is None:
            runner.terminate()
            runner.wait(60)


if __name__ == "__main__":
    main()
