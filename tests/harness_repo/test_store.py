"""What the store promises on an ordinary day."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whale.harness_repo import CommitFacts, HarnessRepo, RepoError, transaction

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]
Plain = Callable[..., str]
FILES = {"harness.py": b"class H:\n    max_turns = 2\n", "prompts/system.md": b"Answer.\n"}
SCORE = {
    "score": 0.125,
    "low": 0.05,
    "high": 0.28,
    "n": 24,
    "weights": "1a2b3c4d5e6f",
    "cycle": 0,
    "iteration": 0,
}


def test_a_new_store_is_empty_and_sound(repo: HarnessRepo, plain_git: Plain) -> None:
    assert repo.lineage() == []
    assert repo.accepted() == []
    assert repo.verify([]) == []
    assert plain_git("symbolic-ref", "HEAD") == "refs/heads/accepted\n"
    assert plain_git("rev-parse", "--is-bare-repository") == "true\n"


def test_files_come_back_byte_for_byte(repo: HarnessRepo) -> None:
    files = {
        "harness.py": b"a\r\nb\nc\r",
        "data/x.bin": bytes(range(256)),
        "prompts/deep/er/u.md": b"",
        "prompts/ärger.md": "ß".encode(),
        "data.json": b"{}",
    }
    assert repo.files(repo.write_tree(files)) == files


def test_equal_files_are_the_same_tree_whoever_writes_them(repo: HarnessRepo) -> None:
    first = repo.write_tree({"b.py": b"1", "a/x": b"2"})
    assert repo.write_tree({"a/x": b"2", "b.py": b"1"}) == first
    assert repo.write_tree({"a/x": b"2", "b.py": b"2"}) != first


def test_a_proposal_is_a_commit_with_its_lineage_and_facts(
    repo: HarnessRepo, propose: Propose, plain_git: Plain
) -> None:
    propose("h0")
    propose("c001-i01-m0", "h0", cycle=1, iteration=1, title="Say it twice", hypothesis="It helps.")
    propose("c001-i01-m1", "h0", cycle=1, iteration=1)
    tree = propose("c001-i02-m0", "c001-i01-m0", "c001-i01-m1", cycle=1, iteration=2, title="Both")

    entries = repo.lineage()
    assert [e.candidate for e in entries] == ["h0", "c001-i01-m0", "c001-i01-m1", "c001-i02-m0"]
    both = entries[-1]
    assert both.parents == ("c001-i01-m0", "c001-i01-m1")
    assert (both.tree, both.title, both.proposer) == (tree, "Both", "mutation")
    assert (both.cycle, both.iteration, both.note, both.accepted) == (1, 2, None, False)
    assert both.sha == repo.resolve("c001-i02-m0")
    assert both.time.isoformat() == "2026-01-01T01:02:00+00:00"
    body = plain_git("log", "-1", "--format=%B", "refs/whale/candidates/c001-i01-m0")
    assert body.startswith("c001-i01-m0: Say it twice\n\nHypothesis\n> It helps.\n\nWhale-Run: demo\n")
    assert plain_git("log", "-1", "--format=%(trailers:key=Whale-Cycle,valueonly)", both.sha).strip() == "1"


def test_proposing_again_returns_the_commit_that_is_there(repo: HarnessRepo, facts: Facts) -> None:
    tree = repo.write_tree(FILES)
    sha = repo.propose("h0", tree, [], facts())
    assert repo.propose("h0", tree, [], facts(title="told otherwise")) == sha
    other = repo.write_tree({"harness.py": b"other"})
    with pytest.raises(RepoError, match="h0 is already committed with the tree"):
        repo.propose("h0", other, [], facts())


def test_a_proposal_needs_its_parents_and_its_tree(repo: HarnessRepo, facts: Facts) -> None:
    tree = repo.write_tree(FILES)
    with pytest.raises(RepoError, match="no candidate 'nobody'"):
        repo.propose("c1-x", tree, ["nobody"], facts())
    with pytest.raises(RepoError, match="write it first"):
        repo.propose("c1-x", "1" * 40, [], facts())
    assert repo.lineage() == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "../x",
        "a/b",
        "x.lock",
        "x.",
        "a..b",
        "-x",
        "accepted",
        "HEAD",
        "c003",
        "f" * 40,
        "é",
        "a\n",
    ],
)
def test_an_id_that_could_be_taken_for_something_else_is_refused(repo: HarnessRepo, facts: Facts, name: str) -> None:
    tree = repo.write_tree(FILES)
    with pytest.raises(RepoError, match="cannot name a candidate"):
        repo.propose(name, tree, [], facts())


def test_plain_git_shows_every_proposal_with_its_score(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    propose("h0")
    for at in range(3):
        propose(f"c001-i01-m{at}", "h0", cycle=1, iteration=1, title=f"Try {at}")
        repo.record_score(f"c001-i01-m{at}", SCORE | {"score": at / 8, "cycle": 1, "iteration": 1})
    repo.record_score("h0", SCORE)
    out = plain_git("log", "--graph", "--oneline", "--notes=whale", "--all")
    for words in ("h0", "c001-i01-m0: Try 0", "c001-i01-m1: Try 1", "c001-i01-m2: Try 2"):
        assert words in out
    for score in ("0.000", "0.125", "0.250"):
        assert f"score {score} [0.05, 0.28] n=24 weights 1a2b3c4d" in out
    # Scores are one commit in that picture, however many there are.
    assert out.count("Scores, rebuilt from the event log") == 1


def test_scores_are_kept_per_weights_and_the_latest_leads(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    repo.record_score("h0", SCORE)
    repo.record_score("h0", SCORE | {"weights": "later", "score": 0.5, "cycle": 2})
    repo.record_score("h0", SCORE | {"weights": "between", "score": 0.25, "cycle": 1})
    note = repo.lineage()[0].note
    assert note is not None
    assert (note["weights"], note["score"]) == ("later", 0.5)
    assert [r["weights"] for r in note["earlier"]] == ["1a2b3c4d5e6f", "between"]


def test_recording_a_score_again_changes_nothing(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    propose("h0")
    repo.record_score("h0", SCORE)
    before = plain_git("rev-parse", "refs/notes/whale")
    repo.record_score("h0", SCORE)
    assert plain_git("rev-parse", "refs/notes/whale") == before


@pytest.mark.parametrize("loose", [0, 1_000])
def test_rebuilt_notes_are_the_notes_that_were_recorded(
    repo: HarnessRepo,
    propose: Propose,
    facts: Facts,
    plain_git: Plain,
    monkeypatch: pytest.MonkeyPatch,
    loose: int,
) -> None:
    trees = {name: propose(name) for name in ("h0", "x1", "x2", "x3")}
    scores = [(name, SCORE | {"weights": w, "cycle": c}) for name in trees for c, w in enumerate("ab")]
    for name, note in scores:
        repo.record_score(name, note)
    repo.accept(0, "h0", trees["h0"], facts())
    tree = plain_git("rev-parse", "refs/notes/whale^{tree}")
    plain_git("update-ref", "-d", "refs/notes/whale")
    plain_git("gc", "--quiet", "--prune=now")
    monkeypatch.setattr(transaction, "LOOSE_LIMIT", loose)
    assert repo.rebuild_notes(reversed(scores)) == 4
    assert plain_git("rev-parse", "refs/notes/whale^{tree}") == tree
    assert repo.verify([*trees.items(), (0, "h0", trees["h0"])]) == []
    with pytest.raises(RepoError, match="no candidate 'nobody'"):
        repo.rebuild_notes([("nobody", SCORE)])


def test_notes_that_a_user_added_with_git_survive_a_score(
    repo: HarnessRepo, propose: Propose, plain_git: Plain
) -> None:
    propose("h0")
    propose("x1", "h0")
    user = ("-c", "user.name=u", "-c", "user.email=u@u")
    plain_git(*user, "notes", "--ref=whale", "add", "-m", "mine", repo.resolve("x1"))
    repo.record_score("h0", SCORE)
    assert plain_git("notes", "--ref=whale", "show", repo.resolve("x1")) == "mine\n"
    assert plain_git("notes", "--ref=whale", "show", repo.resolve("h0")).startswith("score 0.125")
    assert [e.note is None for e in repo.lineage()] == [False, True]


def test_an_invalid_candidate_has_no_score_rather_than_0(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    propose("h0")
    repo.record_score("h0", {"valid": False, "reason": "no class\x1b[2J", "weights": "w"})
    assert "no score: no class\ufffd[2J" in plain_git("notes", "--ref=whale", "show", repo.resolve("h0"))
    note = repo.lineage()[0].note
    assert note is not None
    assert "score" not in note


def test_numpy_scalars_go_into_notes_and_nan_does_not(repo: HarnessRepo, propose: Propose) -> None:
    numpy = pytest.importorskip("numpy")
    propose("h0")
    repo.record_score("h0", SCORE | {"score": numpy.float32(0.5), "n": numpy.int64(3)})
    note = repo.lineage()[0].note
    assert note is not None
    assert (note["score"], note["n"]) == (0.5, 3)
    with pytest.raises(RepoError, match="a note cannot hold this"):
        repo.record_score("h0", SCORE | {"score": float("nan")})


def test_accepted_is_a_history_of_merges(repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain) -> None:
    h0 = propose("h0")
    one = propose("c001-i01-m0", "h0", cycle=1, iteration=1, title="One")
    three = propose("c003-i01-m0", "c001-i01-m0", cycle=3, iteration=1)
    repo.accept(0, "h0", h0, facts())
    repo.accept(1, "c001-i01-m0", one, facts(1, 4))
    repo.accept(2, "c003-i01-m0", three, facts(3, 4))
    repo.accept(3, "h0", h0, facts(3, 5), revert=True)

    assert [(a.serial, a.candidate, a.tree, a.cycle) for a in repo.accepted()] == [
        (0, "h0", h0, 0),
        (1, "c001-i01-m0", one, 1),
        (2, "c003-i01-m0", three, 3),
        (3, "h0", h0, 3),
    ]
    tags = plain_git("tag", "--list").split()
    assert tags == ["accepted/c000", "accepted/c001", "accepted/c003", "accepted/c003-revert-3"]
    assert plain_git("rev-parse", "accepted~1^2").strip() == repo.resolve("c003-i01-m0")
    assert plain_git("rev-parse", "accepted/c000^").strip() == repo.resolve("h0")
    assert "+c001-i01-m0" in plain_git("diff", "accepted/c001~1", "accepted/c001")
    assert repo.tree_id("accepted") == h0
    assert {e.candidate: e.serials for e in repo.lineage()} == {
        "h0": (0, 3),
        "c001-i01-m0": (1,),
        "c003-i01-m0": (2,),
    }


def test_an_acceptance_names_the_event_and_position_that_asked_for_it(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0 = propose("h0")
    repo.accept(0, "h0", h0, replace(facts(event_hash="cd" * 32), log_position=17))
    (accepted,) = repo.accepted()
    assert (accepted.serial, accepted.position, accepted.event_hash) == (0, 17, "cd" * 32)
    assert plain_git("log", "-1", "--format=%(trailers:key=Whale-Position,valueonly)", "accepted").strip() == "17"
    repo.accept(1, "h0", h0, facts(1))
    assert repo.accepted()[1].position is None  # a commit that does not say it


def test_accepting_again_returns_the_commit_that_is_there(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0, one = propose("h0"), propose("x1", "h0")
    first = repo.accept(0, "h0", h0, facts())
    second = repo.accept(1, "x1", one, facts(1))
    refs = plain_git("for-each-ref")
    assert repo.accept(0, "h0", h0, facts()) == first
    assert repo.accept(1, "x1", one, facts(1)) == second
    assert plain_git("for-each-ref") == refs


def test_an_acceptance_that_does_not_fit_is_refused(repo: HarnessRepo, propose: Propose, facts: Facts) -> None:
    h0, one = propose("h0"), propose("x1", "h0")
    with pytest.raises(RepoError, match="leave a gap"):
        repo.accept(1, "h0", h0, facts())
    with pytest.raises(RepoError, match="its tree is"):
        repo.accept(0, "h0", one, facts())
    repo.accept(0, "h0", h0, facts())
    with pytest.raises(RepoError, match="acceptance 0 is h0 already, not x1"):
        repo.accept(0, "x1", one, facts())


def test_two_acceptances_in_one_cycle_have_two_tags(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0, one = propose("h0"), propose("x1", "h0")
    repo.accept(0, "h0", h0, facts())
    repo.accept(1, "x1", one, facts())
    repo.accept(1, "x1", one, facts())
    assert plain_git("tag", "--list").split() == ["accepted/c000", "accepted/c000-accept-1"]


def test_the_score_stands_on_the_acceptance_too(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0 = propose("h0")
    repo.record_score("h0", SCORE)
    repo.accept(0, "h0", h0, facts())
    assert "score 0.125" in plain_git("log", "-1", "--first-parent", "--notes=whale", "accepted")
    repo.record_score("h0", SCORE | {"weights": "new", "score": 0.75, "cycle": 1})
    assert "score 0.750" in plain_git("log", "-1", "--first-parent", "--notes=whale", "accepted")


def test_names_that_people_use_resolve(repo: HarnessRepo, propose: Propose, facts: Facts) -> None:
    h0, one = propose("h0"), propose("c001-i01-m0", "h0", cycle=1, iteration=1)
    zero = repo.accept(0, "h0", h0, facts())
    top = repo.accept(1, "c001-i01-m0", one, facts(1, 2))
    for name in ("accepted", "c001", "c1", "accepted/c001", top, top[:10], "refs/heads/accepted"):
        assert repo.resolve(name) == top
    for name in ("accepted~1", "accepted^1", "c000", "accepted^"):
        assert repo.resolve(name) == zero
    assert repo.resolve("accepted^2") == repo.resolve("c001-i01-m0")
    assert repo.candidate_of(top) == repo.candidate_of(top[:10]) == "c001-i01-m0"
    assert repo.candidate_of(repo.resolve("h0")) == repo.candidate_of("c000") == "h0"
    assert repo.tree_id("c000") == repo.tree_id("h0") == repo.tree_id(h0) == h0


@pytest.mark.parametrize(
    "name", ["", "nobody", "accepted~99", "c042", "-x", "--all", "HEAD:x", "a\nb", "0" * 40, "@{1}"]
)
def test_a_name_of_nothing_is_one_clear_line(repo: HarnessRepo, propose: Propose, name: str) -> None:
    propose("h0")
    with pytest.raises(RepoError, match="no harness is called") as caught:
        repo.resolve(name)
    assert "\n" not in str(caught.value)


def test_export_writes_the_files_and_never_into_a_folder_that_exists(
    repo: HarnessRepo, propose: Propose, tmp_path: Path
) -> None:
    propose("h0")
    target = tmp_path / "out" / "h0"
    target.parent.mkdir()
    repo.export("h0", target)
    found = {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}
    assert found == repo.files("h0")
    with pytest.raises(RepoError, match="exists"):
        repo.export("h0", target)
    assert list(target.parent.iterdir()) == [target]


def test_a_clone_is_an_ordinary_repository(repo: HarnessRepo, propose: Propose, facts: Facts, tmp_path: Path) -> None:
    repo.accept(0, "h0", propose("h0"), facts())
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(["git", "clone", "-q", str(repo.path), str(tmp_path / "work")], check=True, env=env)
    assert (tmp_path / "work" / "prompts" / "user.md").read_bytes() == b"h0\n"


def test_opening_something_else_is_one_clear_line(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(RepoError, match="is not a harness store"):
            HarnessRepo.open(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RepoError, match="is not a harness store"):
        HarnessRepo.create(tmp_path / "file")


def test_creating_twice_keeps_what_is_there(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    with HarnessRepo.create(repo.path) as again:
        assert [e.candidate for e in again.lineage()] == ["h0"]


def test_lineage_is_one_git_process(repo: HarnessRepo, propose: Propose, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("h0", "x1", "x2"):
        propose(name)
        repo.record_score(name, SCORE)
    calls: list[str] = []
    start = subprocess.Popen.__init__

    def counted(self: "subprocess.Popen[bytes]", *args: Any, **options: Any) -> None:
        calls.append("git")
        start(self, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    assert len(repo.lineage()) == 3
    assert calls == ["git"]


def test_a_commit_that_claims_to_be_a_candidate_is_none_without_its_ref(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    h0 = propose("h0")
    forged = "x9: forged\n\nWhale-Candidate: x9\nWhale-Serial: 7\n"
    user = ("-c", "user.name=u", "-c", "user.email=u@u")
    sha = plain_git(*user, "commit-tree", "-p", repo.resolve("h0"), "-m", forged, h0).strip()
    plain_git("branch", "mine", sha)
    repo.accept(0, "h0", h0, facts())
    assert [(e.candidate, e.serials) for e in repo.lineage()] == [("h0", (0,))]
    with pytest.raises(RepoError, match="no candidate's commit"):
        repo.candidate_of(sha)


def test_a_note_is_json_that_other_programs_read(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    propose("h0")
    repo.record_score("h0", SCORE)
    line = plain_git("notes", "--ref=whale", "show", repo.resolve("h0")).splitlines()[1]
    assert json.loads(line) == SCORE
