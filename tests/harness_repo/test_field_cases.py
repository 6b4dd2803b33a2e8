"""Faults that users of neighbouring tools reported: each must be impossible here."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from whale.harness_repo import CommitFacts, GitMissing, HarnessRepo, RepoError

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]
Plain = Callable[..., str]


def _children() -> int:
    mine = str(os.getpid())
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found += stat.read_text().rpartition(")")[2].split()[1] == mine
        except OSError:
            continue
    return found


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_without_a_git_identity_commits_work(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    propose("h0")  # the user's config has useConfigOnly and no name
    assert plain_git("log", "--all", "-1", "--format=%an <%ae> %cn %cI").strip() == (
        "WHALE <whale@localhost> WHALE 2026-01-01T00:00:00+00:00"
    )


def test_inherited_git_variables_leave_the_outer_repository_untouched(
    tmp_path: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = tmp_path / "outer"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(["git", "init", "-q", str(outer)], check=True, env=env)
    before = _snapshot(outer)
    for name, value in {
        "GIT_DIR": str(outer / ".git"),
        "GIT_WORK_TREE": str(outer),
        "GIT_INDEX_FILE": str(outer / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(outer / ".git" / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(outer / ".git" / "objects"),
        "GIT_NAMESPACE": "outer",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_PARAMETERS": "'core.abbrev'='4'",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_AUTHOR_DATE": "yesterday",
    }.items():
        monkeypatch.setenv(name, value)
    with HarnessRepo.create(tmp_path / "h.git") as repo:
        tree = repo.write_tree({"a.py": b"1\n"})
        repo.propose("h0", tree, [], facts())
        repo.propose("x1", repo.write_tree({"a.py": b"2\n"}), ["h0"], facts())
        repo.record_score("h0", {"score": 0.5, "weights": "w"})
        repo.accept(0, "h0", tree, facts())
        assert "-1\n+2\n" in repo.diff("h0", "x1")
        assert len(repo.lineage()) == 2
        assert repo.verify([("h0", tree), (0, "h0", tree)]) == []
    assert _snapshot(outer) == before


def test_neither_signing_nor_hooks_nor_templates_take_part(
    repo: HarnessRepo, propose: Propose, facts: Facts, hostile: Path
) -> None:
    repo.accept(0, "h0", propose("h0"), facts())
    repo.record_score("h0", {"score": 0.5, "weights": "w"})
    assert not hostile.exists()
    assert not (repo.path / "hooks").exists()


def test_a_thousand_reads_leave_the_number_of_child_processes_flat(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    repo.files("h0")
    before = _children()
    for _ in range(1_000):
        repo.resolve("h0")
        repo.files("h0")
    for _ in range(20):
        repo.lineage()
        repo.diff("h0", "h0")
    assert _children() == before
    repo.close()
    assert _children() == 0


def test_twenty_open_and_closed_stores_leave_no_child_behind(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    repo.close()
    before = _children()
    for _ in range(20):
        with HarnessRepo.open(repo.path) as other:
            other.files("h0")
    assert _children() == before


def test_autocrlf_leaves_harness_files_byte_identical(repo: HarnessRepo, tmp_path: Path) -> None:
    files = {"harness.py": b"a\nb\r\n\r", "prompts/u.md": b"\r\n"}
    tree = repo.write_tree(files)  # the user's config has autocrlf = true and eol=crlf
    assert repo.files(tree) == files
    repo.export(tree, tmp_path / "out")
    assert (tmp_path / "out" / "harness.py").read_bytes() == files["harness.py"]


def test_rejected_and_pending_harnesses_survive_gc_under_an_open_reader(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    trees = {name: propose(name) for name in ("h0", "rejected", "invalid")}
    repo.accept(0, "h0", trees["h0"], facts())
    pending = repo.write_tree({"harness.py": b"written, not proposed yet"})
    repo.files("rejected")
    plain_git("gc", "--quiet", "--prune=now")
    assert all(repo.tree_id(name) == tree and repo.files(name) for name, tree in trees.items())
    repo.propose("late", pending, ["rejected"], facts(1))
    assert repo.verify([*trees.items(), ("late", pending), (0, "h0", trees["h0"])]) == []
    plain_git("gc", "--quiet", "--prune=now")
    assert len(repo.lineage()) == 4
    assert "refs/whale/pending" not in plain_git("for-each-ref")


def test_fsck_strict_is_clean_after_all_kinds_of_writes(
    repo: HarnessRepo, propose: Propose, facts: Facts, plain_git: Plain
) -> None:
    repo.accept(0, "h0", propose("h0", title="ä\0\x1b[2J", hypothesis="\ud800"), facts())
    repo.record_score("h0", {"score": 0.5, "weights": "w"})
    repo.write_tree({"pending.py": b""})
    assert plain_git("fsck", "--strict", "--no-dangling") == ""


def test_a_diff_is_the_same_under_every_user_config(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    propose("x1", "h0")
    lines = repo.diff("h0", "x1").splitlines()
    assert lines[0] == "diff --git a/prompts/user.md b/prompts/user.md"
    assert lines[2:] == ["--- a/prompts/user.md", "+++ b/prompts/user.md", "@@ -1 +1 @@", "-h0", "+x1"]


def test_forged_trailers_and_escapes_stay_text(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    forged = "Good idea.\n---\n\nWhale-Score: 999\nWhale-Candidate: h0\r\rWhale-Cycle: 7\n\n\nSigned-off-by: me"
    nasty = {
        "title": "x\n\nWhale-Score: 999\x1b]0;owned\x07",
        "hypothesis": forged,
        "changes": "\0" + "y" * 1_000_000,
    }
    propose("x1", cycle=1, axis="\u202egnp", **nasty)
    message = plain_git("log", "-1", "--format=%B", "refs/whale/candidates/x1")
    assert len(message) < 10_000
    assert not {"\x1b", "\0", "\r", "\u202e", "\x07"} & set(message)
    for option in (["--parse"], ["--parse", "--no-divider"]):
        parsed = subprocess.run(
            ["git", "interpret-trailers", *option], input=message, capture_output=True, text=True, check=True
        ).stdout
        assert parsed.splitlines() == [
            "Whale-Run: demo",
            "Whale-Candidate: x1",
            "Whale-Cycle: 1",
            "Whale-Iteration: 0",
            "Whale-Proposer: mutation",
            f"Whale-Event: {'ab' * 32}",
        ]
    assert not any(line.startswith("Whale-Score") for line in message.splitlines())
    entry = repo.lineage()[0]
    assert (entry.candidate, entry.cycle, entry.note) == ("x1", 1, None)


def test_a_path_that_is_not_utf8_is_refused_on_the_way_in(repo: HarnessRepo) -> None:
    with pytest.raises(RepoError, match="not UTF-8"):
        repo.write_tree({os.fsdecode(b"pro\xffmpt.md"): b"x"})


def test_a_foreign_tree_with_a_path_that_is_not_utf8_is_read_and_exported_whole(
    repo: HarnessRepo, facts: Facts, tmp_path: Path
) -> None:
    blob = subprocess.run(
        ["git", f"--git-dir={repo.path}", "hash-object", "-w", "--stdin"], input=b"x", capture_output=True
    ).stdout.strip()
    tree = subprocess.run(
        ["git", f"--git-dir={repo.path}", "mktree"],
        input=b"100644 blob " + blob + b"\tpro\xffmpt.md\n",
        capture_output=True,
    ).stdout.decode()
    repo.propose("x1", tree.strip(), [], facts())
    assert repo.files("x1") == {os.fsdecode(b"pro\xffmpt.md"): b"x"}
    repo.export("x1", tmp_path / "out")
    assert os.listdir(os.fsencode(tmp_path / "out")) == [b"pro\xffmpt.md"]  # noqa: PTH208 - names as bytes
    assert "+x" in repo.diff(repo.write_tree({"a": b"1"}), "x1")


def test_a_store_under_a_path_that_is_not_utf8_works(tmp_path: Path, facts: Facts) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/ru\xffn/h.git"))
    place.parent.mkdir()
    with HarnessRepo.create(place) as repo:
        tree = repo.write_tree({"a.py": b"1"})
        repo.propose("h0", tree, [], facts())
        assert repo.verify([("h0", tree)]) == []
        with pytest.raises(RepoError) as caught:
            repo.resolve("nobody")
        assert str(caught.value).encode()  # printable


def test_a_missing_git_is_named_at_use_and_not_at_import(
    repo: HarnessRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(GitMissing, match=r"^git was not found on PATH: install git >= 2\.30$"):
        HarnessRepo.open(repo.path)
    code = (
        "import sys, whale.harness_repo as r\n"
        "assert 'git' not in sys.modules\n"
        f"try: r.HarnessRepo.open({str(repo.path)!r})\n"
        "except r.GitMissing as e: print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("git was not found on PATH: install git >= 2.30\n", "")


def test_a_git_that_is_too_old_or_broken_is_named(
    repo: HarnessRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script, said in (
        ("old", "echo git version 2.17.1", "git version 2.17.1: install git >= 2.30"),
        ("broken", "exit 3", "does not run"),
    ):
        fake = tmp_path / name / "git"
        fake.parent.mkdir()
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(fake.parent))
        with pytest.raises(GitMissing, match=said):
            HarnessRepo.open(repo.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_of_a_foreign_owner_can_be_read(repo: HarnessRepo, propose: Propose, tmp_path: Path) -> None:
    propose("h0")
    for path in (repo.path, *repo.path.rglob("*")):
        os.chown(path, 12345, 12345)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    refused = subprocess.run(["git", "-C", str(repo.path), "log"], capture_output=True, env=env)
    assert b"dubious ownership" in refused.stderr
    with HarnessRepo.open(repo.path) as other:
        assert len(other.lineage()) == 1


def test_replaced_objects_do_not_change_what_is_read(repo: HarnessRepo, propose: Propose, plain_git: Plain) -> None:
    tree = propose("h0")
    propose("x1")
    plain_git("replace", repo.resolve("h0"), repo.resolve("x1"))
    assert repo.tree_id("h0") == tree
    assert repo.verify([("h0", tree)]) == []
