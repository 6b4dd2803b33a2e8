"""`verify` names what is wrong, and is silent when nothing is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from whale.harness_repo import CommitFacts, HarnessRepo, RepoError

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]
Plain = Callable[..., str]


def _object(repo: HarnessRepo, name: str) -> Path:
    return repo.path / "objects" / name[:2] / name[2:]


def test_a_whole_store_has_no_problems(repo: HarnessRepo, propose: Propose, facts: Facts) -> None:
    trees = {name: propose(name) for name in ("h0", "x1")}
    repo.accept(0, "h0", trees["h0"], facts())
    repo.accept(1, "x1", trees["x1"], facts(1))
    expected: list[tuple[str, str] | tuple[int, str, str]] = [
        (1, "x1", trees["x1"]),
        *trees.items(),
        (0, "h0", trees["h0"]),
    ]
    assert repo.verify(expected) == []


def test_a_missing_ref_another_tree_and_a_moved_ref_are_named(
    repo: HarnessRepo, propose: Propose, plain_git: Plain
) -> None:
    trees = {name: propose(name) for name in ("h0", "x1", "x2")}
    plain_git("update-ref", "-d", "refs/whale/candidates/x1")
    plain_git("update-ref", "refs/whale/candidates/x2", repo.resolve("h0"))
    assert repo.verify([("h0", "1" * 40), ("x1", trees["x1"]), ("x2", trees["h0"])]) == [
        f"h0: its tree is {trees['h0']}, the log says {'1' * 40}",
        "x1: its ref or its commit is missing or damaged",
        f"x2: its ref names another commit, {repo.resolve('h0')}",
    ]


def test_a_damaged_commit_is_named(repo: HarnessRepo, propose: Propose) -> None:
    trees = {name: propose(name) for name in ("h0", "x1")}
    commit = repo.resolve("x1")
    repo.close()
    _object(repo, commit).chmod(0o644)
    _object(repo, commit).write_bytes(b"not zlib")
    problems = repo.verify(trees.items())
    assert problems[0] == "x1: its ref or its commit is missing or damaged"
    assert not any(line.startswith("h0") for line in problems)
    assert any(line.startswith("git fsck: ") and commit in line for line in problems)
    assert all("\n" not in line for line in problems)


def test_a_missing_tree_is_named(repo: HarnessRepo, propose: Propose) -> None:
    trees = {name: propose(name) for name in ("h0", "x1")}
    repo.close()
    _object(repo, trees["h0"]).unlink()
    problems = repo.verify(trees.items())
    assert problems[0] == "h0: its tree is missing"
    assert not any(line.startswith("x1") for line in problems)
    assert any(line.startswith("git fsck: ") and trees["h0"] in line for line in problems)


def test_a_missing_file_of_a_harness_is_found(repo: HarnessRepo, propose: Propose) -> None:
    tree = propose("h0")
    blob = repo._git.get(f"{tree}:prompts/user.md")
    assert blob is not None
    repo.close()
    _object(repo, blob.id).unlink()
    assert any(blob.id in line for line in repo.verify([("h0", tree)]))


def test_a_damaged_file_is_an_error_and_never_other_content(repo: HarnessRepo, propose: Propose) -> None:
    tree = propose("h0")
    blob = repo._git.get(f"{tree}:harness.py")
    assert blob is not None
    repo.close()
    whole = _object(repo, blob.id).read_bytes()
    _object(repo, blob.id).chmod(0o644)
    _object(repo, blob.id).write_bytes(whole[:-6] + b"\0" * 6)
    with pytest.raises(RepoError, match=f"git cannot read '{blob.id}'"):
        repo.files("h0")
    assert any(blob.id in line for line in repo.verify([("h0", tree)]))
    assert repo.lineage()[0].tree == tree  # the reader goes on


def test_an_accepted_history_that_differs_is_named(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0, one = propose("h0"), propose("x1")
    repo.accept(0, "h0", h0, facts())
    repo.accept(1, "x1", one, facts(1))
    assert repo.verify([(0, "h0", h0)]) == ["accepted: the log knows no acceptance 1 (x1)"]
    assert repo.verify([(0, "h0", h0), (1, "h0", h0)]) == [
        f"accepted: acceptance 1 is x1 with tree {one}, the log says 1: h0 with tree {h0}"
    ]
    plain_git("update-ref", "refs/heads/accepted", "accepted~1")
    assert repo.verify([(0, "h0", h0), (1, "x1", one)]) == ["accepted: acceptance 1 (x1) is missing"]
    plain_git("update-ref", "-d", "refs/heads/accepted")
    assert repo.verify([(0, "h0", h0)]) == ["accepted: acceptance 0 (h0) is missing"]


def test_a_trailer_that_the_log_does_not_say_is_named(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    tree = propose("h0", cycle=1, title="First")
    said = facts(1, title="First")
    assert repo.verify([("h0", tree)], commits=[("h0", said)]) == []
    # Made before commits said their position: not a problem.
    assert repo.verify([], commits=[("h0", replace(said, log_position=3))]) == []
    assert repo.verify([], commits=[("h0", replace(said, event_hash="ef" * 32, cycle=2))]) == [
        "h0: its Whale-Cycle is '1', the log says '2'",
        f"h0: its Whale-Event is '{'ab' * 32}', the log says '{'ef' * 32}'",
    ]


def test_a_note_that_the_log_does_not_say_is_named_and_rebuilding_mends_it(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    scores = [(name, {"score": 0.5, "weights": "w"}) for name in ("h0", "x1")]
    tree = propose("h0")
    propose("x1", "h0")
    repo.accept(0, "h0", tree, facts())
    repo.rebuild_notes(scores)
    assert repo.verify([(0, "h0", tree)], scores=scores) == []
    top = repo.resolve("accepted")
    plain_git("-c", "user.name=u", "-c", "user.email=u@u", "notes", "--ref=whale", "remove", top)
    plain_git("-c", "user.name=u", "-c", "user.email=u@u", "notes", "--ref=whale", "add", "-f", "-m",
              '{"score":0.9,"weights":"w"}', repo.resolve("x1"))  # fmt: skip
    assert sorted(repo.verify([(0, "h0", tree)], scores=scores)) == [
        f"{name}: its note is not what the log says: `whale resume` writes it anew" for name in ("h0", "x1")
    ]
    repo.rebuild_notes(scores)
    assert repo.verify([(0, "h0", tree)], scores=scores) == []
