"""A user's own proposer, rule, space and script in whole runs, as the guide writes them; and what pins their files."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.alternation.kill_at import POINTS
from tests.alternation.test_acceptance_run import facts
from tests.alternation.test_resume import KILL_AT, assert_same_end, ending
from tests.runs import TOY, WhaleProcess, environment, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev

DOCS = Path(__file__).parents[2] / "docs"


def example(page: str, heading: str, language: str) -> str:
    """The first block of a language after a heading of the guide."""
    after = (DOCS / page).read_text(encoding="utf-8").split(heading, 1)[1]
    found = re.search(rf"```{language}\n(.*?)```", after, re.DOTALL)
    assert found is not None
    return found[1]


def configured(folder: Path, model: Path, search: dict[str, Any]) -> Path:
    """A config of one short cycle with a [search] table."""
    settings = toy_settings(model)
    settings["domain_options"] |= {"weight": 2}
    settings["schedule"] |= {"cycles": 1, "iterations": 2}
    settings["evaluate"] |= {"test_tasks": 0}
    settings["search"] = {"candidates": 2, "noise_floor": False} | search
    path = folder / "own.toml"
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    return path


def own_search(folder: Path) -> dict[str, Any]:
    """The guide's own proposer and own rule, their files written."""
    (folder / "mine.py").write_text(example("proposers.md", "## A proposer of your own", "python"))
    (folder / "rule.py").write_text(example("search.md", "**A rule of your own**", "python"))
    proposing = tomllib.loads(example("proposers.md", "## A proposer of your own", "toml"))["search"]
    accepting = tomllib.loads(example("search.md", "**A rule of your own**", "toml"))["search"]
    return {**proposing, **accepting}


def proposed(run: Path) -> list[ev.HarnessProposed]:
    return [fact for fact in facts(run) if isinstance(fact, ev.HarnessProposed) and fact.cycle]


def test_the_guides_script_is_played_from_a_config(whale_here: WhaleProcess, toy_model: Path, tmp_path: Path) -> None:
    written = tomllib.loads(example("proposers.md", "## A script", "toml"))["search"]
    shutil.copytree(TOY.parent / "h0", tmp_path / "two-entries", ignore=shutil.ignore_patterns("__pycache__"))
    program = tmp_path / "two-entries" / "harness.py"
    program.write_text(program.read_text().replace("entries = 1", "entries = 2"))
    whale_here("run", str(configured(tmp_path, toy_model, written)), "--name", "played", "--quiet")
    run = tmp_path / "runs" / "played"
    assert [fact.title for fact in proposed(run)] == ["Two entries", "Three entries"]
    scored = {fact.candidate for fact in facts(run) if isinstance(fact, ev.CandidateScored)}
    assert {"c001-i01-m1", "c001-i01-m2"} <= scored
    assert whale_here("replay", "played").returncode == 0


@pytest.mark.parametrize(("point", "nth"), [("append", 16), ("appended", 25)])
def test_a_run_with_an_own_proposer_and_an_own_rule_ends_after_a_kill_as_if_never_interrupted(
    point: str, nth: int, whale: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    assert point in POINTS
    config = configured(tmp_path, toy_model, own_search(tmp_path))
    whale("run", str(config), "--name", "whole", "--quiet")
    arguments = [sys.executable, str(KILL_AT), point, str(nth), "run", str(config), "--name", "killed", "--quiet"]
    killed = subprocess.run(arguments, env=environment(tmp_path / "runs"), cwd=tmp_path, capture_output=True)
    assert killed.returncode == -9, killed.stderr
    whale("resume", "killed", "--quiet")
    whole, resumed = tmp_path / "runs" / "whole", tmp_path / "runs" / "killed"
    assert_same_end(ending(whole), ending(resumed))
    assert {fact.proposer for fact in proposed(resumed)} == {"sentences"}
    assert [fact.rule for fact in facts(resumed) if isinstance(fact, ev.AcceptanceJudged)] == ["margin"]
    assert whale("replay", "killed").returncode == 0


SPACE = "def texts(files, base):\n    return None\n"


def test_a_file_that_changed_between_stop_and_resume_is_refused_and_a_fork_goes_on_with_it(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "space.py").write_text(SPACE)
    config = configured(tmp_path, toy_model, {**own_search(tmp_path), "space": "space.py:texts"})
    broken = (tmp_path / "mine.py").read_text().replace("scored = [", "scored = archive.wrong or [")
    mended = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(broken)
    stopped = whale_here("run", str(config), "--name", "one", "--quiet", check=False)
    assert stopped.returncode == 1
    assert "propose failed: mine.py line 13: AttributeError" in stopped.stderr
    assert "whale_own" not in stopped.stderr

    for name, text in (("mine.py", mended), ("rule.py", "# new\n"), ("space.py", SPACE + "# new\n")):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text)
        refused = whale_here("resume", "one", "--quiet", check=False)
        assert refused.returncode == 3
        assert str(tmp_path / name) in refused.stderr
        assert "has changed since this run began" in refused.stderr
        assert "whale fork one" in refused.stderr
        (tmp_path / name).unlink()
        gone = whale_here("resume", "one", "--quiet", check=False)
        assert gone.returncode == 3
        assert "is not there" in gone.stderr
        (tmp_path / name).write_text(before)
    assert whale_here("resume", "one", "--quiet", check=False).returncode == 1, "restored, it fails as before"

    (tmp_path / "mine.py").write_text(mended)
    whale_here("fork", "one", "--name", "two")
    whale_here("resume", "two", "--quiet")
    forked = next(fact for fact in facts(tmp_path / "runs" / "two") if isinstance(fact, ev.RunForked))
    assert forked.changed == ["search.proposer"]
    assert RunFolder(tmp_path / "runs" / "two").state().status == "completed"
    assert whale_here("replay", "two").returncode == 0


def test_the_texts_of_a_models_proposer_and_a_scripts_folders_are_pinned(tmp_path: Path) -> None:
    from whale.config import SearchConfig
    from whale.errors import ConflictError
    from whale.search.pinned import pinned, require_pinned

    text, folder = tmp_path / "skill.md", tmp_path / "harness"
    text.write_text("Look at the tool's results.")
    folder.mkdir()
    (folder / "harness.py").write_text("x = 1\n")
    model = SearchConfig(proposer="openai", options={"model": "m", "skill": str(text), "system": str(text)})
    entry = {"cycle": 1, "iteration": 1, "files": str(folder)}
    script = SearchConfig(proposer="scripted", options={"script": [entry]})
    shipped = SearchConfig(proposer="openai", options={"model": "m", "skill": "math"})
    assert pinned(shipped) == {}, "a text of ours belongs to the release"
    assert set(pinned(model)) == {"search.options.skill", "search.options.system"}
    for search, path in ((model, text), (script, folder / "harness.py")):
        began = pinned(search)
        require_pinned(search, began, "run")
        path.write_text("another one\n")
        with pytest.raises(ConflictError, match="whale fork run"):
            require_pinned(search, began, "run")
        require_pinned(search, {}, "run")  # a log of an earlier release knows of no digest
