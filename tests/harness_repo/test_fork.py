"""A fork is a store of its own with a part of another one's history."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from whale.harness_repo import CommitFacts, HarnessRepo, RepoError
from whale.harness_repo.cleanroom import CleanGit

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]
Plain = Callable[..., str]


@pytest.fixture
def trees(repo: HarnessRepo, propose: Propose, facts: Facts) -> dict[str, str]:
    """h0 and x1 accepted, x2 a crossover, x3 accepted last."""
    made = {"h0": propose("h0")}
    repo.record_score("h0", {"score": 0.5, "weights": "w"})
    repo.accept(0, "h0", made["h0"], facts())
    made["x1"] = propose("x1", "h0", cycle=1, iteration=1)
    repo.accept(1, "x1", made["x1"], facts(1, 1))
    made["x2"] = propose("x2", "x1", "h0", cycle=2, iteration=1)
    made["x3"] = propose("x3", "x1", cycle=2, iteration=2)
    repo.accept(2, "x3", made["x3"], facts(2, 3))
    return made


def _refs(path: Path) -> dict[str, str]:
    out = subprocess.run(["git", f"--git-dir={path}", "for-each-ref"], capture_output=True, text=True, check=True)
    return {line.split()[2]: line.split()[0] for line in out.stdout.splitlines()}


def test_a_fork_holds_what_was_named_under_the_same_ids_and_nothing_else(
    repo: HarnessRepo, trees: dict[str, str], tmp_path: Path
) -> None:
    where = tmp_path / "fork.git"
    repo.fork(where, ["h0", "x1", "x2"], 2)
    before = _refs(repo.path)
    wanted = {f"refs/whale/candidates/{name}": repo.resolve(name) for name in ("h0", "x1", "x2")}
    wanted |= {"refs/heads/accepted": repo.resolve("accepted~1")}
    wanted |= {f"refs/tags/accepted/c00{at}": repo.resolve(f"c00{at}") for at in (0, 1)}
    assert _refs(where) == wanted
    with HarnessRepo.open(where) as fork:
        assert [(e.candidate, e.parents, e.serials, e.note) for e in fork.lineage()] == [
            ("h0", (), (0,), None),
            ("x1", ("h0",), (1,), None),
            ("x2", ("x1", "h0"), (), None),
        ]
        assert fork.files("x2") == repo.files("x2")
        assert fork.verify([("x2", trees["x2"]), (0, "h0", trees["h0"]), (1, "x1", trees["x1"])]) == []
        with pytest.raises(RepoError, match="no harness is called"):
            fork.resolve("x3")
        assert fork._git.get(repo.resolve("x3")) is None
    assert _refs(repo.path) == before


def test_a_fork_stands_alone_and_goes_its_own_way(
    repo: HarnessRepo, trees: dict[str, str], facts: Facts, tmp_path: Path
) -> None:
    repo.fork(tmp_path / "fork.git", ["h0", "x1"], 2)
    repo.close()
    shutil.rmtree(repo.path)
    with HarnessRepo.open(tmp_path / "fork.git", exclusive=True) as fork:
        tree = fork.write_tree({"harness.py": b"its own\n"})
        fork.propose("x2", tree, ["x1"], facts(2, 1))
        fork.rebuild_notes([("h0", {"score": 0.5, "weights": "w"})])
        fork.accept(2, "x2", tree, facts(2, 2))
        assert [a.candidate for a in fork.accepted()] == ["h0", "x1", "x2"]
        assert fork.verify([("x2", tree)])[-1:] == ["accepted: the log knows no acceptance 2 (x2)"]


def test_what_was_proposed_and_not_yet_committed_can_be_committed_in_the_fork(
    repo: HarnessRepo, trees: dict[str, str], facts: Facts, tmp_path: Path
) -> None:
    # The log was forked between the event of the proposal and that of its commit.
    repo.fork(tmp_path / "fork.git", ["h0", "x1"], 1, pending=[trees["x2"]])
    with HarnessRepo.open(tmp_path / "fork.git") as fork:
        assert fork.propose("x2", trees["x2"], ["x1", "h0"], facts(2, 1)) == repo.resolve("x2")
        assert fork.accept(1, "x1", trees["x1"], facts(1, 1)) == repo.resolve("c001")


def test_a_fork_of_nothing_is_an_empty_store(repo: HarnessRepo, tmp_path: Path) -> None:
    repo.fork(tmp_path / "fork.git", [], 0)
    with HarnessRepo.open(tmp_path / "fork.git") as fork:
        assert fork.lineage() == []
        assert fork.accepted() == []


def test_what_cannot_be_forked_is_one_clear_line_and_leaves_nothing(
    repo: HarnessRepo, trees: dict[str, str], tmp_path: Path
) -> None:
    where = tmp_path / "fork.git"
    with pytest.raises(RepoError, match="no candidate 'x9'"):
        repo.fork(where, ["h0", "x9"], 0)
    with pytest.raises(RepoError, match="has 3 acceptances, not 4"):
        repo.fork(where, ["h0"], 4)
    with pytest.raises(RepoError, match=f"the tree {'1' * 40} is missing"):
        repo.fork(where, ["h0"], 0, pending=["1" * 40])
    assert not where.exists()
    with pytest.raises(RepoError, match="exists: name a new folder"):
        repo.fork(repo.path, ["h0"], 0)


def test_a_fork_that_was_killed_is_absent_and_done_again(
    repo: HarnessRepo, trees: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    where = tmp_path / "fork.git"
    run = CleanGit.run

    def die(git: CleanGit, *args: str, stdin: bytes | None = None) -> bytes:
        out = run(git, *args, stdin=stdin)
        if args[0] == "pack-objects":
            raise Killed
        return out

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CleanGit, "run", die)
        repo.fork(where, trees, 3)
    assert not where.exists()
    repo.fork(where, trees, 3)
    with HarnessRepo.open(where) as fork:
        assert len(fork.lineage()) == 4
    assert not where.with_name("fork.git.creating").exists()


def test_refs_of_a_fork_are_packed_and_plain_git_can_write_on(
    repo: HarnessRepo, trees: dict[str, str], tmp_path: Path
) -> None:
    where = tmp_path / "fork.git"
    repo.fork(where, trees, 3)
    assert not [path for path in (where / "refs").rglob("*") if path.is_file()]
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nowhere")}
    for command in ("update-ref -d refs/whale/candidates/x2", "pack-refs --all", "fsck --strict"):
        subprocess.run(["git", f"--git-dir={where}", *command.split()], check=True, env=plain)
    assert set(_refs(repo.path)) - set(_refs(where)) == {"refs/whale/candidates/x2", "refs/notes/whale"}
