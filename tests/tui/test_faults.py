"""What goes wrong while a user watches: each is said clearly, and what can be shown is shown."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.runs import WhaleProcess
from tests.tui.conftest import story, watching
from tests.tui.synthetic import Shape, made_up, write_run
from whale.alternation.run_folder import RunFolder
from whale.events import MemoryLog, NewEvent, SqliteLog
from whale.events import types as ev
from whale.tui.source import LogSource, find_source
from whale.tui.views import VIEWS
from whale.tui.views.lineage import Lineage

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202eevil\u2066 \x9b31m \u200b\x00 \ud800 [red]markup[/red] [/]"


@story
async def test_a_killed_runner_is_not_called_running(tmp_path: Path) -> None:
    run = write_run(tmp_path / "killed", Shape(), limit=120)
    async with watching(run) as user:
        user.sees("! interrupted")
        user.sees("no process runs it; p starts one")
        await user.press("p")
        user.sees("No process runs this run now.", "whale resume", "y start it")


@story
async def test_a_corrupt_log_is_named_at_its_event_and_what_came_before_is_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "broken", Shape())
    with sqlite3.connect(run / "events.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE events SET at = '2025' || substr(at, 5) WHERE position = 34")
    database.close()
    async with watching(run, settled=False) as user:
        await user.waits_to_see("! event 34:")
        user.sees("what was read before it is shown", "33 events")
        await user.pilot.press("3")
        await user.waits_to_see("lineage ·")
        await user.pilot.press("7", "g")
        await user.waits_to_see("RunStarted")
        user.sees_not("cannot be read")
        await user.pilot.press("2")
        await user.waits_to_see("doing nothing: the log is damaged")
        await user.pilot.press("p")
        await user.waits_to_see("no runner can", 20)


@story
async def test_without_colour_text_can_be_told_from_what_is_behind_it(
    made_up_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with watching(made_up_run) as user:
        strips = user.app.screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.text.strip() and segment.style]
        assert styles
        assert all(s.color is None or s.color.is_default for s in styles), "the terminal's own colour"
        assert all(s.bgcolor is None or s.bgcolor.is_default for s in styles)


@story
async def test_a_jump_to_the_parent_before_the_past_is_drawn_does_nothing(made_up_run: Path) -> None:
    async with watching(made_up_run) as user:
        await user.press("3", "g", "j")
        lineage = user.app.views["lineage"]
        assert isinstance(lineage, Lineage)
        assert lineage.candidate is not None and user.app.opened is not None
        lineage._moment = user.app.opened.moment(3)  # as in the moment before the picture of event 3 is drawn
        lineage.action_parent()
        lineage.action_child()


@story
async def test_a_locked_log_is_said_and_read_once_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whale.tui.source.READ_TIMEOUT", 0.1)
    monkeypatch.setattr("whale.tui.opened.AGAIN", 0.2)
    run = write_run(tmp_path / "busy", Shape(cycles=1))
    lock = sqlite3.connect(run / "events.db", isolation_level=None)
    lock.execute("PRAGMA journal_mode = DELETE")
    lock.execute("BEGIN EXCLUSIVE")
    async with watching(run, settled=False) as user:
        await user.waits_to_see("the log is locked")
        lock.execute("ROLLBACK")
        lock.close()
        await user.waits_to_see("✓ completed")
        user.sees_not("the log is locked")


@story
async def test_without_its_git_store_the_lineage_is_still_there_and_the_diff_says_what_is_missing(
    own_run: Path,
) -> None:
    (own_run / "harnesses.git").rename(own_run / "elsewhere.git")
    async with watching(own_run) as user:
        await user.press("3")
        user.sees("lineage ·", "◆ the accepted harness", "score ")
        await user.press("4")
        user.sees("the harness store is not here", "harnesses.git")
        await user.press("5")
        user.sees("! store")
        (own_run / "elsewhere.git").rename(own_run / "harnesses.git")
        await user.press("4")
        user.sees_not("is not here")
        await user.press("5")
        user.sees("harness.py")


@story
async def test_without_its_artifacts_rollouts_are_listed_and_the_transcript_says_what_is_missing(own_run: Path) -> None:
    shutil.rmtree(own_run / "artifacts")
    async with watching(own_run) as user:
        await user.press("6")
        user.sees("passed", "the run's artifacts are not here")


@story
async def test_a_run_that_goes_on_and_ends_while_it_is_watched_needs_no_key(tmp_path: Path) -> None:
    events = list(made_up(Shape()))
    run = write_run(tmp_path / "growing", Shape(), limit=100)
    async with watching(run) as user:
        user.sees_not("✓ completed")
        await user.press("7")
        with SqliteLog(run / "events.db") as log:
            log.append("run", events[100:], expected_version=100)
        await user.waits_to_see("✓ completed")
        user.sees("RunCompleted")


@story
async def test_a_tiny_terminal_shows_every_screen_without_a_crash(finished_run: Path) -> None:
    async with watching(finished_run, (120, 40)) as user:
        for size in ((40, 10), (20, 5), (200, 60), (40, 10)):
            await user.pilot.resize_terminal(*size)
            for key in "123456789":
                await user.press(key)
                user.sees("whale")


@story
async def test_text_from_models_and_proposers_cannot_reach_the_terminal_as_escapes(tmp_path: Path) -> None:
    hostile = HOSTILE.replace("\ud800", "")
    log = MemoryLog()
    events = list(made_up(Shape(cycles=1)))
    for i, new in enumerate(events):
        if isinstance(new.event, ev.HarnessProposed) and new.event.candidate != "h0":
            fields = {f: getattr(new.event, f) for f in new.event.__struct_fields__}
            fields |= {"title": hostile, "hypothesis": hostile, "axis": hostile, "changes": hostile}
            events[i] = NewEvent(ev.HarnessProposed(**fields), new.key)
    log.append("run", events, expected_version=0)
    last = next(e.event.candidate for e in reversed(events) if isinstance(e.event, ev.HarnessProposed))
    log.append("control", [NewEvent(ev.NoteAdded(candidate=last, text=hostile, by=hostile), "n")], None)
    source = LogSource("hostile" + hostile, "memory" + hostile, lambda _: log)
    async with watching(source, (120, 40)) as user:
        user.app.choose(last)
        for key in "23456789":
            await user.press(key)
            assert not set(user.screen) & set("\x1b\x07\x00\x9b\u202e\u2066\u200b"), key
        await user.press("3")
        user.sees("[red]markup[/red]")
        user.app.tell(hostile)
        await user.pilot.pause()
        assert "\x1b" not in user.screen


@story
async def test_closing_the_app_leaves_no_thread_and_no_process(finished_run: Path) -> None:
    import threading

    before = {thread.name for thread in threading.enumerate()}
    async with watching(finished_run) as user:
        await user.press("4", "5", "6", "7")
    await asyncio.sleep(0)
    left = {thread.name for thread in threading.enumerate()} - before
    assert not [name for name in left if name.startswith("follow")]
    assert not [p for p in psutil.Process().children(recursive=True) if "git" in p.name()]


@story
async def test_a_log_alone_opens_from_anywhere_and_says_what_is_missing(made_up_run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.db"
    shutil.copy(made_up_run / "events.db", alone)
    async with watching(find_source(str(alone)), (100, 30)) as user:
        user.sees("✓ completed")
        await user.press("4")
        user.sees("--git URL")
        await user.press("6")
        user.sees("they lie in the run's artifacts")


@story
async def test_a_git_url_brings_the_diffs_of_a_log_without_its_folder(finished_run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.db"
    shutil.copy(finished_run / "events.db", alone)
    source = find_source(str(alone), git=f"file://{finished_run / 'harnesses.git'}")
    async with watching(source) as user:
        await user.press("4", "e")
        await user.types(f"h0 {list(RunFolder(finished_run).state().candidates)[1]}")
        await user.press("enter")
        user.sees("━━ harness.py")


def test_no_colour_tells_what_no_sign_or_word_tells() -> None:
    from whale.tui.views.base import SIGNS
    from whale.tui.views.runs import STATUS

    for table in (SIGNS, STATUS):
        assert len({sign for sign, _ in table.values()}) == len(table)


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["tui"], 2, "needs a terminal"),
        (["tui", "nope"], 2, "no run 'nope'"),
        (["tui", "--view", "nope"], 2, "overview"),
        (["tui", "--theme", "nope"], 2, "whale-light"),
        (["tui", "--size", "9"], 2, "80x24"),
        (["tui", "--at", "0"], 2, "--at"),
        (["tui", "mysql://x/y"], 2, "mysql"),
        (["web", "--host", "0.0.0.0"], 2, "WHALE_WEB_TOKEN"),
    ],
)
def test_what_cannot_be_opened_is_one_line_and_an_exit_code(
    words: list[str], code: int, said: str, whale: WhaleProcess
) -> None:
    done = whale(*words, check=False)
    assert done.returncode == code, done.stderr
    lines = [part for part in done.stderr.splitlines() if part.startswith("whale: ")]
    assert len(lines) == 1 and said in lines[0]
    assert "\x1b" not in done.stdout + done.stderr


def test_a_screenshot_needs_no_terminal_and_is_what_the_app_shows(
    made_up_run: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    for name in ("a.txt", "a.svg"):
        whale("tui", str(made_up_run), "--screenshot", str(tmp_path / name), "--size", "80x24", "--press", "3")
    text = (tmp_path / "a.txt").read_text()
    assert "lineage · 19 candidates" in text and len(text.splitlines()) == 24
    assert "lineage" in (tmp_path / "a.svg").read_text()


def test_the_app_never_loads_torch_or_a_model(made_up_run: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom whale.tui.app import WhaleApp\n"
        "from whale.tui.screenshot import take\nfrom whale.tui.source import find_source\n"
        f"app = WhaleApp(find_source({str(made_up_run)!r}))\n"
        "asyncio.run(take(app, None, (80, 24), list('12345678')))\n"
        "print([m for m in ('torch', 'transformers', 'vllm', 'anthropic', 'typer') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_screen_is_a_module_of_its_own() -> None:
    import importlib

    assert all(importlib.import_module(f"whale.tui.views.{name}") for name in VIEWS)
