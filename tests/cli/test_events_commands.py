"""`whale events`: what goes out comes back, what was changed is found, and each fault is one line."""

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.runs import WhaleProcess
from tests.stored_logs import RUN_V1, stored_run
from whale.alternation.run_folder import RunFolder
from whale.events import MemoryLog, NewEvent
from whale.events.types import PauseRequested


@pytest.fixture
def demo(tmp_path: Path, whale_here: WhaleProcess) -> RunFolder:
    """A run that has its log only."""
    whale_here("events", "import", str(RUN_V1))
    return RunFolder(tmp_path / "runs" / "demo")


def test_an_imported_run_reads_as_the_one_that_was_exported(demo: RunFolder, whale_here: WhaleProcess) -> None:
    told = json.loads(whale_here("status", "demo", "--json").stdout)
    assert (told["cycle"], told["candidates"], told["total"]["rollouts"]) == (2, 13, 845)
    assert "845" in whale_here("status", "demo").stdout
    assert json.loads(whale_here("replay", "demo", "--at", "70", "--json").stdout)["state"]["cycle"] == 2
    with demo.open_log(readonly=True) as log:
        assert log.verify() == stored_run().head()


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.xz", "log.parquet"])
def test_export_and_import_again_give_the_same_log(
    demo: RunFolder, whale_here: WhaleProcess, tmp_path: Path, name: str
) -> None:
    format_ = "parquet" if name.endswith("parquet") else "jsonl"
    whale_here("events", "export", "demo", "--format", format_, "--output", name, "--at", "100")
    assert json.loads(whale_here("events", "verify", name, "--json").stdout)["events"] == 100
    whale_here("events", "import", name, "--name", "again")
    with RunFolder(tmp_path / "runs" / "again").open_log() as log:
        assert list(log.rows()) == list(stored_run().rows(until=100))
        log.append("control", [NewEvent(PauseRequested(), key="control/pause/1")], None)


def test_an_export_to_stdout_is_json_lines(demo: RunFolder, whale: WhaleProcess) -> None:
    lines = whale("events", "export", "demo").stdout.splitlines()
    assert [json.loads(line)["position"] for line in lines] == list(range(1, 128))


@pytest.mark.parametrize("packing", ["gz", "xz"])
def test_packing_the_same_log_twice_gives_the_same_bytes(
    demo: RunFolder, whale_here: WhaleProcess, tmp_path: Path, packing: str
) -> None:
    """So that a published log does not change in Git for nothing."""
    names = [f"{name}.jsonl.{packing}" for name in "ab"]
    for name in names:
        whale_here("events", "export", "demo", "-o", name)
    first, second = ((tmp_path / name).read_bytes() for name in names)
    assert first == second


def test_views_are_rebuilt_into_the_run_or_elsewhere(demo: RunFolder, whale_here: WhaleProcess, tmp_path: Path) -> None:
    whale_here("events", "rebuild", "demo")
    whale_here("events", "rebuild", "demo", "--into", f"sqlite:///{tmp_path / 'all.db'}")
    for path in (demo.path / "views.db", tmp_path / "all.db"):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM view_rollouts").fetchone() == (845,)
            assert connection.execute("SELECT run, status FROM view_runs").fetchall() == [("demo", "completed")]


def test_a_damaged_views_file_is_made_anew(demo: RunFolder, whale_here: WhaleProcess) -> None:
    (demo.path / "views.db").write_bytes(b"no database" * 1000)
    whale_here("events", "rebuild", "demo")
    with closing(sqlite3.connect(demo.path / "views.db")) as connection:
        assert connection.execute("SELECT count(*) FROM view_harnesses").fetchone() == (13,)


def test_a_log_that_somebody_wrote_anew_does_not_fit_what_git_says_of_it(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    """The chain alone cannot show it: it was computed anew, too."""
    whale_here("run", str(toy_config), "--name", "toy", "--quiet", "--set", "schedule.cycles=1")
    folder = RunFolder(tmp_path / "runs" / "toy")
    told = json.loads(whale_here("events", "verify", "toy", "--json").stdout)
    assert told["witnessed_by_git"] >= 1
    with folder.open_log(readonly=True) as log:
        recorded = list(log.read())
    forged = MemoryLog()
    for r in recorded:  # another time, so other hashes; the facts are the same
        forged.append(r.stream, [NewEvent(r.event, key=r.key, meta=r.meta)], None)
    folder.log_file.unlink()
    with folder.open_log() as log:
        log.restore(forged.rows())
        log.verify()
    done = whale_here("events", "verify", "toy", check=False)
    assert done.returncode == 4
    assert "written anew" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["export", "demo", "--format", "csv"], 2, "jsonl or parquet"),
        (["export", "demo", "--format", "parquet"], 2, "--output"),
        (["export", "demo", "--output", "/nonexistent/x.jsonl"], 1, "cannot be written"),
        (["export", "nowhere"], 2, "no run"),
        (["import", "missing.jsonl"], 2, "cannot be read"),
        (["import", "odd.csv"], 2, "is named .jsonl"),
        (["import", str(RUN_V1)], 3, "is there already"),
        (["import", str(RUN_V1), "--name", "x", "--set", "seed=2"], 2, "changes nothing"),
        (["import", str(RUN_V1), "--name", "../x"], 2, "--name"),
        (["import", "changed.jsonl", "--name", "x"], 4, "event 3"),
        (["import", "tail.jsonl", "--name", "x"], 4, "event 1"),
        (["import", "empty.jsonl", "--name", "x"], 2, "holds no run"),
        (["verify", "changed.jsonl"], 4, "event 3"),
        (["verify", "cut.jsonl.gz"], 4, "cut off"),
        (["rebuild", "demo", "--into", "nonsense"], 2, "database URL"),
        (["list", "demo", "--type", "Nothing"], 2, "unknown event type"),
        (["list", "demo", "--after", "-5"], 2, "--after -5: give a position"),
        (["list", "demo", "--after", "-1", "--follow"], 2, "--after -1: give a position"),
        (["export", "demo", "--at", "-5"], 2, "--at -5: give a position"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    demo: RunFolder, whale_here: WhaleProcess, tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    whale_here("events", "export", "demo", "-o", "good.jsonl")
    lines = (tmp_path / "good.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "changed.jsonl").write_text("".join([*lines[:2], lines[2].replace('"h0"', '"h1"'), *lines[3:]]))
    (tmp_path / "tail.jsonl").write_text("".join(lines[5:]))
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "odd.csv").write_text("a,b\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode())[:-1000])
    done = whale_here("events", *arguments, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert says in done.stderr
    assert [p.name for p in (tmp_path / "runs").iterdir() if p.is_dir()] == ["demo"]
    assert not [p for p in tmp_path.iterdir() if p.name.endswith(".tmp")]


def test_a_run_folder_can_be_copied_and_goes_on_elsewhere(
    whale: WhaleProcess, whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    whale_here("run", str(toy_config), "--name", "whole", "--quiet")
    import subprocess
    import sys

    from tests.alternation.test_resume import KILL_AT, ending
    from tests.runs import environment

    subprocess.run(
        [sys.executable, str(KILL_AT), "appended", "24", "run", str(toy_config), "--name", "killed", "--quiet"],
        env=environment(tmp_path / "runs"), check=False, capture_output=True,
    )  # fmt: skip
    shutil.copytree(tmp_path / "runs" / "killed", tmp_path / "elsewhere" / "moved")
    shutil.rmtree(tmp_path / "runs" / "killed")
    whale_here("resume", str(tmp_path / "elsewhere" / "moved"), "--quiet")
    assert ending(tmp_path / "elsewhere" / "moved") == ending(tmp_path / "runs" / "whole")
