"""A whole run whose log is in PostgreSQL: same facts as in a file, one runner, steered from elsewhere."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.alternation.test_resume import KILL_AT, ending
from tests.events.conftest import server, shared_url
from tests.runs import WhaleProcess, command, environment
from whale.alternation.run_folder import RunFolder
from whale.events import PostgresLease

__all__ = ["server", "shared_url"]  # fixtures


@pytest.fixture
def database(shared_url: str, request: pytest.FixtureRequest) -> list[str]:
    """Options that put a run's log into a database under a name of the test's own."""
    return ["--set", f"events.url={shared_url}", "--set", f"events.run={request.node.name}"]


def killed_run(runs: Path, config: Path, name: str, point: str, nth: str, options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(KILL_AT), point, nth, "run", str(config), "--name", name, "--quiet", *options],
        env=environment(runs), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_run_in_postgresql_ends_as_one_in_a_file(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, database: list[str], shared_url: str
) -> None:
    whale_here("run", str(toy_config), "--name", "file", "--quiet")
    whale_here("run", str(toy_config), "--name", "server", "--quiet", *database)
    server_run = RunFolder(tmp_path / "runs" / "server")
    assert not server_run.log_file.exists()
    assert ending(server_run.path) == ending(tmp_path / "runs" / "file")
    assert json.loads(whale_here("status", "server", "--json").stdout)["status"] == "completed"
    assert json.loads(whale_here("events", "verify", "server", "--json").stdout)["witnessed_by_git"] >= 1
    whale_here("replay", "server", "--deep", "--quiet")
    whale_here("events", "rebuild", "server", "--quiet")

    # To a file and back: the same rows.
    whale_here("fork", "server", "--name", "taken-out", "--set", "events.url=")
    whale_here("events", "export", "server", "--output", "log.jsonl")
    whale_here("events", "import", "log.jsonl", "--name", "back", *database[:2], "--set", "events.run=back")
    with server_run.open_log(readonly=True) as one, RunFolder(tmp_path / "runs" / "back").open_log() as other:
        assert list(one.rows()) == list(other.rows())
    taken_out = RunFolder(tmp_path / "runs" / "taken-out")
    assert taken_out.log_file.exists()
    assert taken_out.state().weights == server_run.state().weights


def test_killed_and_resumed_on_a_server_a_run_ends_the_same(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, database: list[str]
) -> None:
    whale_here("run", str(toy_config), "--name", "whole", "--quiet")
    killed_run(tmp_path / "runs", toy_config, "killed", "rollout", "7", database)
    assert RunFolder(tmp_path / "runs" / "killed").runner_pid() is None, "a dead process holds no lease"
    whale_here("resume", "killed", "--quiet")
    assert ending(tmp_path / "runs" / "killed") == ending(tmp_path / "runs" / "whole")


def test_a_second_runner_is_refused_also_from_another_folder(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, shared_url: str
) -> None:
    """Two machines may have the run's folder each; the database has one lease."""
    killed_run(tmp_path / "runs", toy_config, "one", "git", "9", ["--set", f"events.url={shared_url}"])
    shutil.copytree(tmp_path / "runs" / "one", tmp_path / "elsewhere" / "one")
    folder = RunFolder(tmp_path / "elsewhere" / "one")
    with PostgresLease(shared_url, "one"):
        assert folder.runner_pid() == os.getpid()
        done = whale_here("resume", str(folder.path), "--quiet", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert f"process {os.getpid()}" in done.stderr
    whale_here("resume", str(folder.path), "--quiet")
    assert folder.state().status == "completed"


def test_a_run_is_paused_and_goes_on_by_requests_in_the_database(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, database: list[str]
) -> None:
    runner = subprocess.Popen(
        command("run", str(toy_config), "--name", "steered", "--quiet", *database, "--set", "schedule.cycles=6"),
        env=environment(tmp_path / "runs"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "runs" / "steered")
    try:
        deadline = time.monotonic() + 240
        while not (folder.config_file.exists() and folder.state().phase):
            assert runner.poll() is None and time.monotonic() < deadline, runner.communicate()
            time.sleep(0.2)
        assert whale_here("pause", "steered").stdout.strip() == "paused"
        assert folder.state().status == "paused"
        assert whale_here("resume", "steered").stdout.strip() == "resumed"
        whale_here("stop", "steered")
        assert runner.wait(timeout=120) == 0
    finally:
        runner.kill()
        runner.communicate()
    assert folder.runner_pid() is None


@pytest.mark.parametrize(
    "url, code, says",
    [
        ("postgresql+psycopg://me:secret@localhost/db", 2, "PGPASSWORD"),
        ("postgresql+psycopg://me@localhost:1/db", 1, "localhost"),
        ("mysql://me@localhost/db", 2, "PostgreSQL"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_and_leaves_no_run(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, url: str, code: int, says: str
) -> None:
    done = whale_here("run", str(toy_config), "--name", "none", "--quiet", "--set", f"events.url={url}", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert says in done.stderr
    assert "secret" not in done.stderr
    assert not (tmp_path / "runs" / "none").exists()


def test_a_name_that_the_database_has_already_is_a_conflict(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, shared_url: str
) -> None:
    url = f"events.url={shared_url}"
    whale_here("run", str(toy_config), "--name", "twice", "--quiet", "--set", url, "--set", "schedule.cycles=1")
    (tmp_path / "runs" / "twice").rename(tmp_path / "runs" / "away")
    done = whale_here("run", str(toy_config), "--name", "twice", "--quiet", "--set", url, check=False)
    assert done.returncode == 3
    assert "is there already" in done.stderr
    whale_here("status", "away")  # a folder may have any name: its log is found by the one in whale.toml
