"""A kill at any point of a write, and several writers and readers at once."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from whale.harness_repo import CommitFacts, HarnessRepo, RepoError
from whale.harness_repo.cleanroom import CleanGit
from whale.harness_repo.locks import clear_stale_locks

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]
Plain = Callable[..., str]
SCORE = {"score": 0.5, "weights": "w"}

# A writer for other processes: argv = store, prefix, count. Prints a line after each candidate.
WRITER = """
import sys
from datetime import UTC, datetime
from whale.harness_repo import CommitFacts, HarnessRepo
store, prefix, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
facts = CommitFacts(run="r", cycle=1, iteration=1, proposer="p", when=datetime(2026, 1, 1, tzinfo=UTC))
with HarnessRepo.open(store) as repo:
    for at in range(count):
        name = f"{prefix}-{at}"
        tree = repo.write_tree({"harness.py": f"{at}".encode()})
        repo.propose(name, tree, [], facts)
        repo.propose(f"shared-{at}", tree, [], facts)
        repo.record_score(name, {"score": 0.5, "weights": "w"})
        print(name, flush=True)
"""


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


class Plug:
    """Ends the process before the k-th git command that writes (which is also after the one before)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        complete, transaction = CleanGit.complete, CleanGit.transaction

        def run(git: CleanGit, *args: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
            if args[0] == "unpack-objects":
                self.write()
            return complete(git, *args, stdin=stdin)

        def move(git: CleanGit, commands: Iterable[str]) -> None:
            self.write()
            transaction(git, commands)

        monkeypatch.setattr(CleanGit, "complete", run)
        monkeypatch.setattr(CleanGit, "transaction", move)

    def write(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Plug:
    return Plug(monkeypatch)


def _story(repo: HarnessRepo, facts: Facts) -> None:
    """What a runner does and, after a crash, does again from its start."""
    trees = {name: repo.write_tree({"harness.py": name.encode()}) for name in ("h0", "x1")}
    repo.propose("h0", trees["h0"], [], facts())
    repo.record_score("h0", SCORE)
    repo.accept(0, "h0", trees["h0"], facts())
    repo.propose("x1", trees["x1"], ["h0"], facts(1, 1))
    repo.record_score("x1", SCORE)
    repo.accept(1, "x1", trees["x1"], facts(1, 2))


def _refs(path: Path) -> str:
    return subprocess.run(
        ["git", f"--git-dir={path}", "for-each-ref"], capture_output=True, text=True, check=True
    ).stdout


def test_a_kill_before_any_git_command_leaves_what_the_next_start_completes(
    tmp_path: Path, facts: Facts, plug: Plug
) -> None:
    with HarnessRepo.create(tmp_path / "whole.git") as repo:
        _story(repo, facts)
        writes = -plug.left
    whole = _refs(tmp_path / "whole.git")
    assert writes >= 14
    for at in range(1, writes + 1):
        path = tmp_path / f"{at}.git"
        plug.left = at
        with HarnessRepo.create(path) as repo, pytest.raises(Killed):
            _story(repo, facts)
        plug.left = 0
        with HarnessRepo.open(path, exclusive=True) as repo:
            assert not [line for line in repo.verify([]) if line.startswith("git fsck")]
            _story(repo, facts)
        assert _refs(path) == whole


def test_a_tag_without_its_acceptance_is_put_right(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0, one = propose("h0"), propose("x1", "h0")
    repo.accept(0, "h0", h0, facts())
    # Refs of one transaction move one after the other: a kill can leave the tag ahead of the branch.
    left = repo.accept(1, "x1", one, facts(1))
    plain_git("update-ref", "refs/heads/accepted", "accepted~1")
    assert repo.accept(1, "x1", one, facts(1, event_hash="cd" * 32)) != left
    assert plain_git("rev-parse", "accepted/c001") == plain_git("rev-parse", "accepted")
    # ... or the branch ahead of the tag.
    plain_git("tag", "-d", "accepted/c001")
    top = repo.accept(1, "x1", one, facts(1))
    assert plain_git("rev-parse", "accepted/c001").strip() == top
    assert plain_git("tag", "--list").split() == ["accepted/c000", "accepted/c001"]


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_real_sigkill_loses_no_candidate_that_was_reported(repo: HarnessRepo, lines: int) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(repo.path), "w", "1000"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    reported = [writer.stdout.readline().strip() for _ in range(lines)]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with HarnessRepo.open(repo.path, exclusive=True) as again:
        found = {entry.candidate for entry in again.lineage()}
        assert set(reported) <= found
        assert again.verify([(name, again.tree_id(name)) for name in found]) == []


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are found through /proc")
@pytest.mark.parametrize("after", range(8))
def test_a_sigkill_of_the_writer_and_of_its_git_at_any_moment_is_made_good(repo: HarnessRepo, after: int) -> None:
    """The moment is `after` git processes: each is killed as soon as it is seen, wherever it is."""
    command = [sys.executable, "-c", WRITER, str(repo.path), "w", "2"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen: set[int] = set()
    while writer.poll() is None and len(seen) <= after:
        seen.update(_children(writer.pid))
    writer.send_signal(signal.SIGSTOP)
    for child in _children(writer.pid):
        os.kill(child, signal.SIGKILL)
    writer.kill()
    assert writer.stdout is not None
    reported = writer.stdout.read().split()
    writer.wait()
    with HarnessRepo.open(repo.path, exclusive=True) as again:
        entries = {entry.candidate for entry in again.lineage()}
        assert set(reported) <= entries
        assert again.verify([(name, again.tree_id(name)) for name in entries]) == []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # goes on, and ends as if it had not been killed
    assert {entry.candidate for entry in repo.lineage()} == {
        f"{name}-{at}" for name in ("w", "shared") for at in (0, 1)
    }
    assert repo.verify([]) == []


def test_two_processes_at_once_lose_neither_a_candidate_nor_a_score(repo: HarnessRepo) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(repo.path), name, "5"], stdout=subprocess.DEVNULL)
        for name in "ab"
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    entries = {entry.candidate: entry for entry in repo.lineage()}
    own = {f"{name}-{at}" for name in "ab" for at in range(5)}
    assert set(entries) == own | {f"shared-{at}" for at in range(5)}
    assert all(entries[name].note for name in own)
    assert repo.verify([]) == []


def test_a_reader_sees_only_whole_candidates_while_another_process_writes(repo: HarnessRepo) -> None:
    done = threading.Event()
    problems: list[str] = []

    def read() -> None:
        with HarnessRepo.open(repo.path) as reader:
            while not done.is_set():
                for entry in reader.lineage():
                    if list(reader.files(entry.candidate)) != ["harness.py"]:
                        problems.append(entry.candidate)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        subprocess.run([sys.executable, "-c", WRITER, str(repo.path), "w", "6"], check=True, stdout=subprocess.DEVNULL)
    finally:
        done.set()
        thread.join()
    assert problems == []
    assert len(repo.lineage()) == 12


@pytest.mark.parametrize(
    "lock", ["refs/heads/accepted.lock", "refs/whale/candidates/x1.lock", "packed-refs.lock", "HEAD.lock"]
)
def test_a_lock_of_a_killed_git_is_removed_by_the_lease_holder_alone(
    repo: HarnessRepo, propose: Propose, facts: Facts, lock: str
) -> None:
    repo.accept(0, "h0", propose("h0"), facts())
    (repo.path / lock).parent.mkdir(parents=True, exist_ok=True)
    (repo.path / lock).touch()
    with HarnessRepo.open(repo.path) as reader:
        assert len(reader.lineage()) == 1
        assert (repo.path / lock).exists()
    with HarnessRepo.open(repo.path, exclusive=True) as again:
        tree = again.write_tree({"harness.py": b"1"})
        again.propose("x1", tree, ["h0"], facts(1))
        again.accept(1, "x1", tree, facts(1))
    assert not (repo.path / lock).exists()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are seen through /proc")
def test_a_lock_that_a_living_process_holds_is_left_alone(repo: HarnessRepo) -> None:
    lock = repo.path / "packed-refs.lock"
    held = f"import sys; f = open({str(lock)!r}, 'w'); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RepoError, match=f"is held by process {holder.pid}"):
        clear_stale_locks(repo.path, patience=0)
    assert lock.exists()
    holder.communicate("")
    assert clear_stale_locks(repo.path, patience=0) == [lock]


def test_an_open_reader_does_not_count_as_a_holder(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    repo.files("h0")  # its cat-file process lives on
    (repo.path / "packed-refs.lock").touch()
    assert clear_stale_locks(repo.path, patience=0) == [repo.path / "packed-refs.lock"]


def test_a_writer_of_this_process_that_waits_does_not_count_as_a_holder(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")  # its update-ref process lives on
    (repo.path / "packed-refs.lock").touch()
    assert clear_stale_locks(repo.path, patience=0) == [repo.path / "packed-refs.lock"]
    propose("x1", "h0")


def test_a_write_goes_on_when_its_kept_git_was_killed(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    kept = [pid for pid in _children(os.getpid()) if b"update-ref" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in kept:
        os.kill(pid, signal.SIGKILL)
    propose("x1", "h0")
    assert kept
    assert [entry.candidate for entry in repo.lineage()] == ["h0", "x1"]


def test_closing_leaves_no_process(tmp_path: Path, facts: Facts) -> None:
    before = _children(os.getpid())
    with HarnessRepo.create(tmp_path / "r.git") as repo:
        _story(repo, facts)
        assert len(_children(os.getpid())) == len(before) + 2  # one that reads, one that moves refs
    assert _children(os.getpid()) == before


def test_a_creation_that_was_killed_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "h.git.creating" / "refs").mkdir(parents=True)
    with HarnessRepo.create(tmp_path / "h.git") as repo:
        assert repo.lineage() == []
    assert os.listdir(tmp_path).count("h.git.creating") == 0  # noqa: PTH208 - names only
