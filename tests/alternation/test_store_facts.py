"""Git says what the log says: notes of scores and of refusals, trailers, and a store that stays small."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runs import TOY, WhaleProcess
from whale.alternation import runner
from whale.alternation.run_folder import RunFolder
from whale.alternation.store_facts import score_note
from whale.harness_repo import HarnessRepo


@pytest.fixture
def run(whale_here: WhaleProcess, toy_config: Path, tmp_path: Path) -> RunFolder:
    """A finished run, one of whose candidates always fails, and one comes twice."""
    whale_here("run", str(toy_config), "--name", "toy", "--quiet")
    whale_here("extend", "toy", "--cycles", "1")
    broken = tmp_path / "broken"
    shutil.copytree(TOY.parent / "h0", broken)
    source = (broken / "harness.py").read_text()
    (broken / "harness.py").write_text(source.replace("messages = [", "raise ValueError\n        messages = [", 1))
    whale_here("propose", "toy", str(broken), "--title", "broken")
    (broken / "harness.py").write_text(source + "\n# the same but for this line\n")
    for title in ("once", "again"):
        whale_here("propose", "toy", str(broken), "--title", title)
    whale_here("resume", "toy", "--quiet")
    return RunFolder(tmp_path / "runs" / "toy")


def git(run: RunFolder, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(run.harnesses), *words], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


def test_git_shows_why_a_candidate_is_invalid(run: RunFolder) -> None:
    (refused,) = (c for c in run.state().candidates.values() if c.valid is False)
    shown = git(run, "log", "-1", "--notes=whale", f"refs/whale/candidates/{refused.id}")
    assert refused.reason and f"no score: {refused.reason.splitlines()[0][:60]}" in shown


def test_git_and_the_lineage_show_whose_files_a_duplicate_has(run: RunFolder, whale_here: WhaleProcess) -> None:
    once, again = (next(c for c in run.state().candidates.values() if c.title == t) for t in ("once", "again"))
    shown = git(run, "log", "-1", "--notes=whale", f"refs/whale/candidates/{again.id}")
    assert f"no score: the same files as {once.id}" in shown
    line = next(line for line in whale_here("lineage", "toy").stdout.splitlines() if again.id in line)
    assert f"no score: the same files as {once.id}" in line
    assert json.loads(whale_here("replay", "toy", "--json").stdout)["problems"] == []


def test_a_note_that_says_another_score_is_found_and_written_anew(run: RunFolder, whale_here: WhaleProcess) -> None:
    with HarnessRepo.open(run.harnesses, exclusive=True) as repo:
        repo.record_score("h0", {**score_note(run.state().candidates["h0"].scores[0]), "score": 0.99})
    done = whale_here("replay", "toy", check=False)
    assert done.returncode == 4
    assert "h0: its note is not what the log says" in done.stderr
    assert "complete" in whale_here("resume", "toy", "--quiet").stdout
    assert json.loads(whale_here("replay", "toy", "--json").stdout)["problems"] == []


def test_many_loose_objects_are_packed_after_an_acceptance(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOOSE_OBJECTS", 1)
    whale_here("run", str(toy_config), "--name", "toy", "--quiet")
    counts = git(RunFolder(tmp_path / "runs" / "toy"), "count-objects", "-v")
    assert int(counts.split("in-pack: ")[1].split()[0]) > 0
    assert json.loads(whale_here("replay", "toy", "--json").stdout)["problems"] == []
