"""A run whose log is in PostgreSQL, watched and steered from another machine; each screen says what it lacks."""

from pathlib import Path

import pytest

from tests.events.conftest import server, shared_url, url
from tests.tui.conftest import story, watching
from tests.tui.synthetic import Shape, made_up
from whale.alternation.run_folder import RunFolder
from whale.errors import UsageError
from whale.events import NewEvent, PostgresLog
from whale.events import types as ev
from whale.tui.source import find_source

__all__ = ["server", "shared_url", "url"]  # fixtures


@story
async def test_from_another_machine_every_screen_shows_what_the_log_holds_and_says_what_it_lacks(
    shared_url: str, tmp_path: Path
) -> None:
    with PostgresLog(shared_url, "far") as log:
        log.append("run", list(made_up(Shape()))[:150], expected_version=0)
    async with watching(find_source(f"{shared_url}{_also(shared_url)}run=far"), (120, 40)) as user:
        user.sees("whale far", "▶ running", "event 150", "(θ0, h0)")
        await user.press("3")
        user.sees("lineage ·", "◆")
        await user.press("4")
        user.sees("the harness store is not here: name it with --git URL")
        await user.press("5")
        user.sees("! store", "Tasks")
        await user.press("6")
        user.sees("✗ failed", "texts are not here: they lie in the run's artifacts")
        await user.press("7")
        user.sees("CandidateScored", "RolloutsRecorded")
        await user.press("9")
        user.sees("proposer ·")
        await user.press("1")
        user.sees("far", "▶ running")
        await user.press("F", "enter")
        user.sees("the run's folder is not here")
        await user.press("p")
        await user.waits_to_see("… 1 asked")
        await user.press("o")
        user.sees("pause", "waits for the runner")
        await user.press("escape", "2")
        with PostgresLog(shared_url, "far") as log:
            assert isinstance(log.read(stream="control").__next__().event, ev.PauseRequested)
            log.append("run", list(made_up(Shape()))[150:], expected_version=150)
        await user.waits_to_see("✓ completed")


@story
async def test_a_git_url_brings_the_diffs_of_a_run_in_a_database(shared_url: str, finished_run: Path) -> None:
    with RunFolder(finished_run).open_log(readonly=True) as one, PostgresLog(shared_url, "with-git") as other:
        for recorded in one.read():
            other.append(recorded.stream, [NewEvent(recorded.event, recorded.key, recorded.meta)], None)
    source = find_source(f"{shared_url}{_also(shared_url)}run=with-git", git=f"file://{finished_run / 'harnesses.git'}")
    last = list(RunFolder(finished_run).state().candidates)[-1]
    async with watching(source, (120, 40)) as user:
        await user.press("4", "e")
        await user.types(f"h0 {last}")
        await user.press("enter")
        user.sees("━━ harness.py")


def test_a_database_with_one_run_needs_no_name_and_one_with_more_names_them(url: str) -> None:
    with pytest.raises(UsageError, match="none yet"):
        find_source(url)
    for n, name in enumerate(("one", "two")):
        with PostgresLog(url, name) as log:
            log.append("run", list(made_up(Shape()))[:3], expected_version=0)
        if n == 0:
            assert find_source(url).name == "one"
    with pytest.raises(UsageError, match="there: one, two"):
        find_source(url)
    with pytest.raises(UsageError, match="PGPASSWORD"):
        find_source("postgresql+psycopg://me:secret@host/db?run=x")


def _also(address: str) -> str:
    return "&" if "?" in address else "?"
