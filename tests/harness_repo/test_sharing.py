"""Two machines' runs on one Git remote: each sees the other, and neither can overwrite it."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whale.harness_repo import CommitFacts, HarnessRepo, NameTaken, Pushed, RepoError
from whale.harness_repo.cleanroom import CleanGit

Facts = Callable[..., CommitFacts]
Machine = Callable[[str], HarnessRepo]
SCORE = {"score": 0.5, "n": 8, "weights": "w"}


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """An ordinary bare repository that somebody made."""
    path = tmp_path / "shared.git"
    subprocess.run(
        ["git", "init", "-q", "--bare", str(path)],
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nowhere")},
    )
    return path


@pytest.fixture
def machine(tmp_path: Path, facts: Facts) -> Iterator[Machine]:
    """The store of a run on a machine of its own: h0 and c001-i01-m0, both accepted and scored."""
    opened: list[HarnessRepo] = []

    def make(name: str) -> HarnessRepo:
        repo = HarnessRepo.create(tmp_path / name / "harnesses.git")
        opened.append(repo)
        h0 = repo.write_tree({"harness.py": b"the same everywhere\n"})
        own = repo.write_tree({"harness.py": name.encode()})
        repo.propose("h0", h0, [], facts(run=name))
        repo.record_score("h0", SCORE)
        repo.accept(0, "h0", h0, facts(run=name))
        repo.propose("c001-i01-m0", own, ["h0"], facts(1, 1, run=name))
        repo.record_score("c001-i01-m0", SCORE | {"score": 0.75, "cycle": 1})
        repo.accept(1, "c001-i01-m0", own, facts(1, 2, run=name))
        return repo

    for name in ("ann", "bob", "cid"):
        (tmp_path / name).mkdir()
    yield make
    for repo in opened:
        repo.close()


def _refs(path: Path) -> dict[str, str]:
    out = subprocess.run(["git", f"--git-dir={path}", "for-each-ref"], capture_output=True, text=True, check=True)
    return {line.split()[2]: line.split()[0] for line in out.stdout.splitlines()}


def _git(path: Path, *args: str) -> str:
    """Git as an ordinary user starts it."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(["git", f"--git-dir={path}", *args], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_runs_with_the_same_ids_share_a_remote_and_lose_nothing(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    before = _refs(ann.path)
    assert ann.push(str(remote), run="ann") == Pushed("ann", 2, True)
    assert bob.push(str(remote), run="bob") == Pushed("bob", 2, True)
    assert ann.pull(str(remote), run="ann").runs == {"bob": 2}
    assert bob.pull(str(remote), run="bob").runs == {"ann": 2}

    assert [(e.candidate, e.parents, e.serials) for e in ann.lineage(runs=True)] == [
        ("bob/h0", (), (0,)),
        ("h0", (), (0,)),
        ("bob/c001-i01-m0", ("bob/h0",), (1,)),
        ("c001-i01-m0", ("h0",), (1,)),
    ]
    notes = {e.candidate: e.note or {} for e in ann.lineage(runs=True)}
    assert notes["bob/c001-i01-m0"] == SCORE | {"score": 0.75, "cycle": 1, "run": "bob"}
    assert notes["c001-i01-m0"] == SCORE | {"score": 0.75, "cycle": 1}
    # What is ann's own is as it was: the run sees no change.
    assert {ref: sha for ref, sha in _refs(ann.path).items() if ref in before} == before
    assert [e.candidate for e in ann.lineage()] == ["h0", "c001-i01-m0"]
    assert [a.candidate for a in ann.accepted()] == ["h0", "c001-i01-m0"]
    for repo in (ann, bob):
        assert repo.verify([(0, "h0", repo.tree_id("h0")), (1, "c001-i01-m0", repo.tree_id("c001-i01-m0"))]) == []
    _git(remote, "fsck", "--strict")


def test_plain_git_reads_the_remote(machine: Machine, remote: Path, tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        machine(name).push(str(remote), run=name)
    assert set(_refs(remote)) == {
        f"refs/{kind}"
        for name in ("ann", "bob")
        for kind in (
            f"heads/whale/{name}",
            f"whale/runs/{name}/candidates/h0",
            f"whale/runs/{name}/candidates/c001-i01-m0",
            f"whale/runs/{name}/tags/c000",
            f"whale/runs/{name}/tags/c001",
        )
    } | {"refs/notes/whale"}
    log = _git(remote, "log", "--first-parent", "--notes=whale", "--format=%s %N", "whale/ann")
    assert "accept c001-i01-m0 score 0.750 n=8 weights w\n" in log
    work = tmp_path / "work"
    _git(remote, "clone", "-q", "--branch=whale/bob", str(remote), str(work))
    assert (work / "harness.py").read_bytes() == b"bob"


def test_a_name_of_another_run_resolves_and_its_files_are_there(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    bob.push(str(remote), run="bob")
    ann.pull(str(remote), run="ann")
    for name in ("bob/accepted", "bob/c001", "bob/c001-i01-m0"):
        assert ann.files(name) == {"harness.py": b"bob"}
    assert ann.files("bob/accepted~1") == ann.files("h0")
    assert "-ann\n" in ann.diff("accepted", "bob/accepted")
    assert ann.candidate_of("bob/accepted") == "bob/c001-i01-m0"
    with pytest.raises(RepoError, match="no harness is called 'bob/c007'"):
        ann.resolve("bob/c007")


def test_equal_files_are_recognised_across_runs(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    bob.push(str(remote), run="bob")
    ann.pull(str(remote), run="ann")
    assert ann.candidates_with(ann.tree_id("h0")) == ["h0", "bob/h0"]
    assert ann.candidates_with(bob.tree_id("accepted")) == ["bob/c001-i01-m0"]


def test_a_candidate_of_another_run_can_be_a_parent(machine: Machine, remote: Path, facts: Facts) -> None:
    ann, bob = machine("ann"), machine("bob")
    bob.push(str(remote), run="bob")
    ann.pull(str(remote), run="ann")
    tree = ann.write_tree({"harness.py": b"both\n"})
    ann.propose("c002-i01-m0", tree, ["c001-i01-m0", "bob/c001-i01-m0"], facts(2, 1))
    assert ann.lineage(runs=True)[-1].parents == ("c001-i01-m0", "bob/c001-i01-m0")
    (own,) = [e for e in ann.lineage() if e.candidate == "c002-i01-m0"]
    assert own == ann.lineage(runs=True)[-1] == ann.page(1)[0]
    assert [e.candidate for e in ann.lineage()] == ["h0", "c001-i01-m0", "c002-i01-m0"]
    assert ann.push(str(remote), run="ann").candidates == 3
    # Back on the other machine it stands below what it came from.
    bob.pull(str(remote), run="bob")
    assert bob.lineage(runs=True)[-1].parents == ("ann/c001-i01-m0", "c001-i01-m0")


def test_pushing_and_pulling_again_changes_nothing(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    for _ in range(2):
        for name, repo in (("ann", ann), ("bob", bob)):
            repo.push(str(remote), run=name)
            repo.pull(str(remote), run=name)
    before = [_refs(repo) for repo in (ann.path, bob.path, remote)]
    assert ann.push(str(remote), run="ann") == Pushed("ann", 0, False)
    assert ann.pull(str(remote), run="ann").runs == {"bob": 0}
    assert [_refs(repo) for repo in (ann.path, bob.path, remote)] == before


def test_later_candidates_scores_and_acceptances_follow(machine: Machine, remote: Path, facts: Facts) -> None:
    ann, bob = machine("ann"), machine("bob")
    ann.push(str(remote), run="ann")
    bob.pull(str(remote), run="bob")
    tree = ann.write_tree({"harness.py": b"more\n"})
    ann.propose("c002-i01-m0", tree, ["c001-i01-m0"], facts(2, 1))
    ann.record_score("h0", SCORE | {"weights": "v", "cycle": 2})
    ann.accept(2, "c002-i01-m0", tree, facts(2, 2))
    assert ann.push(str(remote), run="ann") == Pushed("ann", 1, True)
    assert bob.pull(str(remote), run="bob").runs == {"ann": 1}
    found = {e.candidate: e for e in bob.lineage(runs=True)}
    assert found["ann/c002-i01-m0"].serials == (2,)
    note = found["ann/h0"].note
    assert note is not None
    assert (note["weights"], [r["weights"] for r in note["earlier"]]) == ("v", ["w"])


def test_another_run_of_the_same_name_is_refused_and_can_have_another_name(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    ann.push(str(remote), run="demo")
    before = _refs(remote)
    for call in (bob.push, bob.pull):
        with pytest.raises(NameTaken, match=r"has another run called demo: .* `--as NAME`"):
            call(str(remote), run="demo")
    assert _refs(remote) == before
    bob.push(str(remote), run="demo-bob")
    assert bob.pull(str(remote), run="demo-bob").runs == {"demo": 2}


def test_a_run_that_was_continued_elsewhere_is_not_overwritten(
    machine: Machine, remote: Path, facts: Facts, tmp_path: Path
) -> None:
    ann = machine("ann")
    ann.fork(tmp_path / "copy.git", ["h0", "c001-i01-m0"], 2)
    tree = ann.write_tree({"harness.py": b"more\n"})
    ann.propose("c002-i01-m0", tree, ["h0"], facts(2, 1))
    ann.push(str(remote), run="ann")
    with HarnessRepo.open(tmp_path / "copy.git") as copy:
        with pytest.raises(NameTaken, match="such as c002-i01-m0: it was continued elsewhere"):
            copy.push(str(remote), run="ann")
        # The fork shares commits with its origin: under its own name both stand side by side.
        assert copy.push(str(remote), run="copy") == Pushed("copy", 2, True)
        assert copy.pull(str(remote), run="copy").runs == {"ann": 3}
        assert [e.candidate for e in copy.lineage(runs=True)] == ["h0", "c001-i01-m0", "ann/c002-i01-m0"]


def test_scores_that_a_fork_and_its_origin_gave_one_commit_are_all_kept(
    machine: Machine, remote: Path, tmp_path: Path
) -> None:
    ann, bob = machine("ann"), machine("bob")
    ann.fork(tmp_path / "fork.git", ["h0"], 1)
    with HarnessRepo.open(tmp_path / "fork.git") as fork:
        fork.record_score("h0", SCORE | {"score": 0.25, "n": 4})  # the same weights, other tasks
        fork.push(str(remote), run="fork")
        ann.push(str(remote), run="ann")
        bob.pull(str(remote), run="bob")
        ann.pull(str(remote), run="ann")
    (note,) = [e.note for e in bob.lineage(runs=True) if e.candidate == "ann/h0"]
    assert note is not None
    assert {(r["run"], r["score"]) for r in [note, *note["earlier"]]} == {("ann", 0.5), ("fork", 0.25)}
    (mine,) = [e.note for e in ann.lineage(runs=True) if e.candidate == "h0"]
    assert mine is not None
    assert ("run" not in mine, mine["score"], mine["earlier"][0]["run"]) == (True, 0.5, "fork")


def test_rebuilding_the_notes_from_the_log_keeps_what_was_pulled(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    bob.push(str(remote), run="bob")
    ann.pull(str(remote), run="ann")
    before = ann.lineage(runs=True)
    ann.rebuild_notes([("h0", SCORE), ("c001-i01-m0", SCORE | {"score": 0.75, "cycle": 1})])
    assert ann.lineage(runs=True) == before


def test_an_acceptance_that_another_run_forged_is_none_of_ours(machine: Machine, remote: Path, facts: Facts) -> None:
    ann, bob = machine("ann"), machine("bob")
    h0 = ann.resolve("h0")
    _git(bob.path, "fetch", "-q", str(ann.path), h0)
    forged = "accept h0\n\nWhale-Run: ann\nWhale-Candidate: h0\nWhale-Serial: 77\n"
    user = ("-c", "user.name=b", "-c", "user.email=b@b")
    sha = _git(bob.path, *user, "commit-tree", "-p", h0, "-m", forged, bob.tree_id("h0")).strip()
    child = _git(bob.path, *user, "commit-tree", "-p", sha, "-m", "x", bob.tree_id("accepted")).strip()
    _git(bob.path, "update-ref", "refs/whale/candidates/c009-i01-m0", child)
    bob.push(str(remote), run="bob")
    ann.pull(str(remote), run="ann")
    tree = ann.write_tree({"harness.py": b"child of the forgery\n"})
    ann.propose("c002-i01-m0", tree, ["bob/c009-i01-m0"], facts(2, 1))
    assert {e.candidate: e.serials for e in ann.lineage(runs=True)}["h0"] == (0,)
    assert {e.candidate: e.serials for e in ann.lineage()}["h0"] == (0,)


def test_nothing_on_a_remote_changes_the_run_that_pulls(machine: Machine, remote: Path) -> None:
    ann, bob = machine("ann"), machine("bob")
    ann.push(str(remote), run="ann")
    forged = bob.path  # bob writes whatever he likes where ann's is
    for commit in (ann.resolve("h0"), ann.resolve("accepted")):
        _git(forged, "fetch", "-q", str(ann.path), commit)
        _git(forged, "-c", "user.name=b", "-c", "user.email=b@b", "notes", "--ref=whale", "add", "-f", "-m",
             '{"score":999,"weights":"w"}', commit)  # fmt: skip
    _git(forged, "push", "-q", str(remote), "+refs/notes/whale", "+accepted:refs/heads/accepted")
    before, entries = _refs(ann.path), ann.lineage()
    ann.pull(str(remote), run="ann")
    ann.push(str(remote), run="ann")
    assert ann.lineage() == entries
    assert {ref: sha for ref, sha in _refs(ann.path).items() if ref in before} == before
    assert "999" not in str([e.note for e in ann.lineage(runs=True)])


def test_two_pushes_at_once_lose_no_note(machine: Machine, remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob, cid = machine("ann"), machine("bob"), machine("cid")
    cid.push(str(remote), run="cid")
    both, waited = threading.Barrier(2, timeout=60), set[int]()
    send = CleanGit.complete_remote

    def together(git: CleanGit, *args: str) -> tuple[int, bytes, bytes]:
        if args[0] == "push" and threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            both.wait()  # both have merged their notes with what was there
        return send(git, *args)

    monkeypatch.setattr(CleanGit, "complete_remote", together)
    failed: list[BaseException] = []

    def push(name: str, repo: HarnessRepo) -> None:
        try:
            repo.push(str(remote), run=name)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=push, args=pair) for pair in (("ann", ann), ("bob", bob))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    cid.pull(str(remote), run="cid")
    assert {e.candidate for e in cid.lineage(runs=True) if e.note} == {
        f"{run}{name}" for run in ("", "ann/", "bob/") for name in ("h0", "c001-i01-m0")
    }


def test_a_user_config_that_prunes_signs_and_hooks_changes_no_push_and_no_pull(
    machine: Machine, remote: Path, hostile: Path
) -> None:
    with (hostile.parent / ".gitconfig").open("a") as config:
        config.write(
            "[fetch]\n prune = true\n pruneTags = true\n[push]\n gpgSign = true\n followTags = true\n"
            "[remote]\n pushDefault = nowhere\n[transfer]\n hideRefs = refs/whale\n"
        )
    ann, bob = machine("ann"), machine("bob")
    for _ in range(2):
        for name, repo in (("ann", ann), ("bob", bob)):
            repo.push(str(remote), run=name)
            repo.pull(str(remote), run=name)
    assert len(ann.lineage(runs=True)) == 4
    assert not hostile.exists()


def test_of_the_users_config_what_reaches_a_remote_holds(
    machine: Machine, remote: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (hostile.parent / ".gitconfig").open("a") as config:
        config.write(f'[url "{remote}"]\n insteadOf = team:\n')
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")  # inherited, and none of ours
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.bare")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "false")
    assert machine("ann").push("team:", run="ann").candidates == 2


def test_a_remote_by_name_is_the_stores_own(machine: Machine, remote: Path) -> None:
    ann = machine("ann")
    _git(ann.path, "remote", "add", "origin", str(remote))
    ann.push("origin", run="ann")
    assert ann.pull("origin", run="ann").runs == {}
    assert not [ref for ref in _refs(ann.path) if ref.startswith("refs/remotes/")]


@pytest.mark.parametrize("remote_name", ["/nowhere/at/all", "-u", "", "--upload-pack=touch x", "nobody"])
def test_a_remote_that_is_none_is_one_clear_line(machine: Machine, remote_name: str) -> None:
    ann = machine("ann")
    for call in (ann.push, ann.pull):
        with pytest.raises(RepoError) as caught:
            call(remote_name, run="ann")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a/b", "-x", "a b", "accepted", "x" * 65, "ä", ".."])
def test_a_name_that_no_remote_can_have_is_refused(machine: Machine, remote: Path, name: str) -> None:
    with pytest.raises(RepoError, match="cannot name a run on a remote"):
        machine("ann").push(str(remote), run=name)


def test_a_remote_that_refuses_says_why_and_has_taken_nothing(machine: Machine, remote: Path) -> None:
    hook = remote / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/notes/*) echo no notes here; exit 1;; esac\n')
    hook.chmod(0o755)
    with pytest.raises(RepoError, match=r"refuses the push: .*hook declined"):
        machine("ann").push(str(remote), run="ann")
    assert _refs(remote) == {}
