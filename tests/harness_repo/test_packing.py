"""A packed store holds all that it held, and stays small."""

import os
from collections.abc import Callable
from pathlib import Path

from whale.harness_repo import CommitFacts, HarnessRepo

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]
Plain = Callable[..., str]
OLD = 1_000_000_000


def _loose(path: Path) -> list[Path]:
    return [file for file in (path / "objects").glob("??/*") if file.is_file()]


def test_packing_keeps_every_candidate_and_every_note(repo: HarnessRepo, propose: Propose, facts: Facts) -> None:
    trees = {name: propose(name) for name in ("h0", "x1", "x2")}
    pending = repo.write_tree({"harness.py": b"not yet proposed\n"})
    repo.accept(0, "h0", trees["h0"], facts())
    for name in trees:
        repo.record_score(name, {"score": 0.5, "weights": "w"})
    before = repo.lineage()
    for file in _loose(repo.path):
        os.utime(file, (OLD, OLD))
    size = repo.pack()
    assert (size.loose, _loose(repo.path)) == (0, [])
    assert not [file for file in (repo.path / "refs").rglob("*") if file.is_file()]
    assert repo.lineage() == before
    assert repo.files(pending) == {"harness.py": b"not yet proposed\n"}
    assert repo.verify([*trees.items(), (0, "h0", trees["h0"])]) == []


def test_packing_drops_old_notes_and_leaves_what_a_writer_has_just_stored(
    repo: HarnessRepo, propose: Propose, plain_git: Plain
) -> None:
    propose("h0")
    repo.record_score("h0", {"score": 0.25, "weights": "w"})
    old = plain_git("rev-parse", "refs/notes/whale").strip()
    repo.record_score("h0", {"score": 0.5, "weights": "w"})
    for file in _loose(repo.path):
        os.utime(file, (OLD, OLD))
    (repo.path / "young").write_text("just stored\n")
    blob = plain_git("hash-object", "-w", "young").strip()
    repo.pack()
    assert repo._git.get(old) is None
    assert repo._git.get(blob) is not None
    # Packed and unreachable since long ago is dropped, too.
    repo.record_score("h0", {"score": 0.75, "weights": "w"})
    repo.pack(expire="now")
    assert repo._git.get(blob) is None
    assert repo.size().bytes > 0


def test_a_packed_store_is_written_to_as_before(repo: HarnessRepo, propose: Propose, facts: Facts) -> None:
    h0 = propose("h0")
    repo.accept(0, "h0", h0, facts())
    repo.pack(expire="now")
    one = propose("x1", "h0", cycle=1)
    repo.record_score("x1", {"score": 0.5, "weights": "w"})
    repo.accept(1, "x1", one, facts(1))
    assert repo.verify([("h0", h0), ("x1", one), (0, "h0", h0), (1, "x1", one)]) == []
