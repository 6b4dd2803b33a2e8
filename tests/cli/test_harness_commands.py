"""The harness store from the command line, as processes: lineage, diff, blame, score, push, pull, pack."""

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.runs import command, environment
from whale.events import SqliteLog
from whale.harness_repo import CommitFacts, HarnessRepo

Whale = Callable[..., "subprocess.CompletedProcess[str]"]

SCORES = {"h0": 0.25, "c001-i01-m1": 0.5, "c002-i01-m1": 0.75, "c003-i01-m1": 0.375}
"""Accepted one after the other: the last one is worse than the one before."""


def make_run(runs: Path, name: str) -> Path:
    """A run's folder with a store of four accepted harnesses and one rejected, unscored one."""
    folder = runs / name
    folder.mkdir(parents=True)
    SqliteLog(folder / "events.db").close()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with HarnessRepo.create(folder / "harnesses.git") as repo:
        lines, parent = ["first\n"], ""
        for at, (candidate, score) in enumerate(SCORES.items()):
            lines.append(f"line of {candidate}\n")
            when = start + timedelta(hours=at)
            facts = CommitFacts(
                run=name, cycle=at, iteration=1, proposer="mutation", title=f"Step {at}\x1b[2J", when=when
            )
            tree = repo.write_tree({"harness.py": "".join(lines).encode(), "prompts/system.md": b"Answer.\x1b[2J\n"})
            repo.propose(candidate, tree, [parent] if parent else [], facts)
            repo.record_score(candidate, {"score": score, "low": 0.1, "high": 0.9, "n": 8, "weights": "w", "cycle": at})
            repo.accept(at, candidate, tree, facts)
            parent = candidate
        rejected = repo.write_tree({"harness.py": b"no\n"})
        repo.propose("c003-i01-m2", rejected, ["c002-i01-m1"], facts)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs", "demo")
    return tmp_path / "runs"


@pytest.fixture
def call(runs: Path) -> Whale:
    def run(*words: str, code: int = 0, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command(*words), capture_output=True, text=True, env=environment(runs), cwd=cwd or runs, timeout=120
        )
        assert done.returncode == code, (words, done.returncode, done.stderr)
        return done

    return run


def test_the_lineage_is_a_tree_of_scores(call: Whale) -> None:
    lines = call("lineage", "demo").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["◆", "h0"],
        ["└─◆", "c001-i01-m1"],
        ["└─◆", "c002-i01-m1"],
        ["├─◆", "c003-i01-m1"],
        ["└─·", "c003-i01-m2"],
    ]
    assert "0.750 [0.10, 0.90] n=8 c2" in lines[2]


def test_a_lineage_can_be_narrowed_and_paged(call: Whale) -> None:
    assert len(call("lineage", "demo", "--accepted").stdout.splitlines()) == 4
    assert len(call("lineage", "demo", "--cycle", "3").stdout.splitlines()) == 2
    first = call("lineage", "demo", "--limit", "2")
    assert [line.split()[1] for line in first.stdout.splitlines()] == ["c003-i01-m1", "c003-i01-m2"]
    assert first.stderr == "older ones: --limit 2 --before c003-i01-m1, or --all\n"
    older = call("lineage", "demo", *first.stderr.partition(",")[0].split()[2:])
    assert [line.split()[1] for line in older.stdout.splitlines()] == ["c001-i01-m1", "c002-i01-m1"]
    last = call("lineage", "demo", "--before", "c001-i01-m1")
    assert (last.stdout.split()[:2], last.stderr) == (["◆", "h0"], "")
    assert call("lineage", "demo", "--all").stdout == call("lineage", "demo").stdout


def test_a_lineage_of_nothing_says_so(call: Whale) -> None:
    nothing = call("lineage", "demo", "--cycle", "77")
    assert (nothing.stdout, nothing.stderr) == ("", "demo has no candidate of cycle 77\n")
    assert call("lineage", "demo", "--before", "h0").stderr == "demo has no candidate before h0\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--format", "svg"], ["--limit", "2", "--before", "x9"], ["--limit", "0"], ["--limit", "2", "--all"],
        ["--limit", "2", "--all-runs"], ["--before", "h0", "--all-runs"],
    ],
)  # fmt: skip
def test_a_wrong_lineage_is_a_usage_error(call: Whale, words: list[str]) -> None:
    assert call("lineage", "demo", *words, code=2).stdout == ""


def test_every_format_of_a_lineage_names_every_candidate(call: Whale, tmp_path: Path) -> None:
    page = tmp_path / "lineage.html"
    assert call("lineage", "demo", "--format", "html", "--output", str(page)).stdout == ""
    dot = call("lineage", "demo", "--format", "dot").stdout
    entries = json.loads(call("lineage", "demo", "--json").stdout)
    assert [entry["candidate"] for entry in entries] == [*SCORES, "c003-i01-m2"]
    for name in (*SCORES, "c003-i01-m2"):
        assert f'"{name}" [label=' in dot
        assert f'id="{name}"' in page.read_text()
    assert "\x1b" not in dot + page.read_text()
    call("lineage", "demo", "--format", "html", "-o", str(tmp_path / "no" / "where.html"), code=1)


def test_a_diff_is_unified_or_in_two_columns(call: Whale) -> None:
    assert "+line of c003-i01-m1\n" in call("diff", "demo").stdout
    assert "-line of c003-i01-m1\n" in call("diff", "demo", "c003", "c002-i01-m1").stdout
    columns = call("diff", "demo", "h0", "c001-i01-m1", "-y").stdout
    assert " >    3 line of c001-i01-m1" in columns
    assert call("diff", "demo", "accepted", "c003").stderr == "accepted and c003 are the same harness\n"
    call("diff", "demo", "nobody", code=2)


def test_blame_names_the_proposal_of_each_line_and_its_gain(call: Whale) -> None:
    lines = [line.split(maxsplit=3) for line in call("blame", "demo", "harness.py").stdout.splitlines()]
    assert lines == [
        ["h0", "(0.250)", "1", "first"],
        ["h0", "(0.250)", "2", "line of h0"],
        ["c001-i01-m1", "+0.250", "3", "line of c001-i01-m1"],
        ["c002-i01-m1", "+0.250", "4", "line of c002-i01-m1"],
        ["c003-i01-m1", "-0.375", "5", "line of c003-i01-m1"],
    ]
    first, *_, last = json.loads(call("blame", "demo", "harness.py", "--json").stdout)
    assert (first["change"], last["change"]) == (None, {"before": 0.75, "after": 0.375, "weights": "w"})
    call("blame", "demo", "nothing.py", code=2)


def test_a_score_is_shown_or_judged(call: Whale) -> None:
    assert call("score", "demo", "c002").stdout == "0.750 [0.10, 0.90] n=8, weights w, cycle 2\n"
    call("score", "demo", "c002", "--min", "0.75")
    call("score", "demo", "c002", "--min", "0.76", code=1)
    call("score", "demo", "c003-i01-m2", "--min", "0.1", code=125)
    # What is no verdict must not look like one to `git bisect run`.
    call("score", "demo", "nobody", "--min", "0.1", code=128)
    call("score", "nothing", "h0", "--min", "0.1", code=128)
    call("score", "demo", "nobody", code=2)
    call("score", "demo", "HEAD", "--minn", "0.4", code=128)  # 2 would be a verdict to `git bisect run`


def test_git_bisect_finds_the_acceptance_that_made_it_worse(call: Whale, runs: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nobody")}

    def git(*args: str, **more: str) -> str:
        done = subprocess.run(["git", *args], capture_output=True, text=True, env={**env, **more})
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("clone", "-q", str(runs / "demo" / "harnesses.git"), str(work))
    assert (work / "harness.py").read_text().endswith("line of c003-i01-m1\n")
    log = git("-C", str(work), "log", "--first-parent", "--format=%s", "accepted").splitlines()
    assert [line.split(":")[0] for line in log] == [*(f"accept {name}" for name in reversed(SCORES)), "h0"]
    git("-C", str(work), "bisect", "start", "--first-parent", "accepted", "accepted/c001")
    judge = command("score", str(runs / "demo"), "HEAD", "--min", "0.4")
    found = git("-C", str(work), "bisect", "run", *judge, **environment(runs))
    top = git("-C", str(work), "rev-parse", "accepted").strip()
    assert f"{top} is the first bad commit" in found
    assert "accept c003-i01-m1" in found


def test_two_runs_share_a_remote_from_the_command_line(call: Whale, runs: Path, tmp_path: Path) -> None:
    make_run(runs, "other")
    remote = tmp_path / "shared.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    assert "has demo: 5 new candidates" in call("push", "demo", "../shared.git").stdout
    assert json.loads(call("push", "other", "../shared.git", "--json").stdout)["new_candidates"] == 5
    assert "other: 5 new candidates" in call("pull", "demo", "../shared.git").stdout
    assert "+line of" not in call("diff", "demo", "accepted", "other/accepted").stdout  # the same files
    assert len(call("lineage", "demo").stdout.splitlines()) == 5
    both = json.loads(call("lineage", "demo", "--all-runs", "--json").stdout)
    assert {entry["candidate"] for entry in both} == {
        f"{run}{name}" for run in ("", "other/") for name in (*SCORES, "c003-i01-m2")
    }
    shown = json.loads(call("show", "demo", "other/c002", "--json").stdout)
    assert (shown["candidate"], shown["note"]["score"]) == ("other/c002-i01-m1", 0.75)
    assert shown["same_files"] == ["c002-i01-m1"]


def test_another_run_of_the_same_name_is_a_conflict_and_takes_a_name_that_is_remembered(
    call: Whale, runs: Path, tmp_path: Path
) -> None:
    twin = make_run(tmp_path / "elsewhere", "demo")
    with HarnessRepo.open(twin / "harnesses.git") as repo:  # another run: other facts, other commits
        repo.propose("c004-i01-m1", repo.tree_id("h0"), [], CommitFacts(
            run="demo", cycle=4, iteration=1, proposer="p", when=datetime(2026, 2, 1, tzinfo=UTC)))  # fmt: skip
    remote = tmp_path / "shared.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    call("push", str(twin), str(remote))
    refused = call("push", "demo", str(remote), code=3)
    assert "--as NAME" in refused.stderr
    assert "has demo-2: 5 new" in call("push", "demo", str(remote), "--as", "demo-2").stdout
    assert "has demo-2: 0 new" in call("push", "demo", str(remote)).stdout
    assert "demo: 6 new candidates" in call("pull", "demo", str(remote)).stdout


def test_packing_needs_the_run_for_itself(call: Whale, runs: Path) -> None:
    from whale.alternation.run_folder import RunFolder

    with RunFolder(runs / "demo").lease():
        call("pack", "demo", code=3)
    packed = json.loads(call("pack", "demo", "--json").stdout)
    assert packed["bytes"] < packed["bytes_before"]
    assert len(call("lineage", "demo").stdout.splitlines()) == 5


# --- a terminal ---


@pytest.fixture
def terminal(runs: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Run a command with a terminal as its stdin and stdout; returns what the terminal got."""

    def run(*words: str, **more: str) -> str:
        ours, theirs = pty.openpty()
        env = {key: value for key, value in environment(runs).items() if key != "NO_COLOR"}
        env |= {"TERM": "xterm", **more}
        process = subprocess.Popen(command(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=runs)
        os.close(theirs)
        got = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            got += part
        process.wait()
        os.close(ours)
        return got.decode().replace("\r\n", "\n")

    yield run


def test_at_a_terminal_a_diff_goes_through_the_users_pager(terminal: Callable[..., str], tmp_path: Path) -> None:
    got = tmp_path / "paged"
    keep = f"import sys; open('{got}', 'w').write(sys.stdin.read())"
    assert terminal("diff", "demo", PAGER=shlex.join([sys.executable, "-c", keep])) == ""
    assert "\x1b[32m+line of c003-i01-m1\x1b[0m\n" in got.read_text()


def test_no_color_and_a_pager_that_is_none_are_respected(terminal: Callable[..., str]) -> None:
    for pager in ("cat", "no-such-program", "'"):
        shown = terminal("diff", "demo", PAGER=pager, NO_COLOR="1")
        assert "+line of c003-i01-m1\n" in shown
        assert "\x1b" not in shown
    assert "\x1b[31m" in terminal("diff", "demo", "accepted", "c002", PAGER="cat")


def test_a_proposers_escape_sequence_does_not_reach_the_terminal(terminal: Callable[..., str]) -> None:
    for words in (["lineage", "demo"], ["diff", "demo", "h0", "c003-i01-m2"], ["blame", "demo", "prompts/system.md"]):
        assert "\x1b[2J" not in terminal(*words, PAGER="cat")


def test_a_pager_that_leaves_early_is_no_failure(terminal: Callable[..., str]) -> None:
    assert "whale:" not in terminal("lineage", "demo", PAGER="true")
