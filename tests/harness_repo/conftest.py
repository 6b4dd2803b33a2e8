"""All tests of the store run against real git, with a hostile user config in place."""

import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from whale.harness_repo import CommitFacts, HarnessRepo

FILES = {"harness.py": b"class H:\n    max_turns = 2\n", "prompts/system.md": b"Answer.\n"}


@pytest.fixture(autouse=True)
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose config breaks naive callers of git. Returns a marker that every hook touches."""
    home = tmp_path / "home"
    hooks, template = home / "hooks", home / "template" / "hooks"
    marker = home / "a-hook-ran"
    for folder in (hooks, template):
        folder.mkdir(parents=True)
        for name in ("reference-transaction", "post-commit", "pre-commit", "post-update", "commit-msg"):
            (folder / name).write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 1\n")
            (folder / name).chmod(0o755)
    (home / "order").write_text("nothing\n")
    (home / "attributes").write_text("* -diff text eol=crlf\n")
    (home / ".gitconfig").write_text(
        f"""
[user]
    useConfigOnly = true
[commit]
    gpgSign = true
[tag]
    gpgSign = true
[gpg]
    program = /nonexistent/gpg
[core]
    hooksPath = {hooks}
    autocrlf = true
    attributesFile = {home / "attributes"}
    pager = false
[init]
    templateDir = {home / "template"}
    defaultBranch = trunk
[diff]
    noprefix = true
    mnemonicPrefix = true
    external = false
    orderFile = {home / "order"}
    context = 0
[color]
    ui = always
[log]
    showSignature = true
    date = relative
[safe]
    bareRepository = explicit
"""
    )
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return marker


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[HarnessRepo]:
    with HarnessRepo.create(tmp_path / "harnesses.git") as made:
        yield made


@pytest.fixture
def facts() -> Callable[..., CommitFacts]:
    def make(cycle: int = 0, iteration: int = 0, **more: Any) -> CommitFacts:
        when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=cycle, minutes=iteration)
        given = {"run": "demo", "proposer": "mutation", "event_hash": "ab" * 32} | more
        return CommitFacts(cycle=cycle, iteration=iteration, when=when, **given)

    return make


@pytest.fixture
def plain_git(repo: HarnessRepo, tmp_path: Path) -> Callable[..., str]:
    """Git as an ordinary user starts it: `git -C harnesses.git ...`, with no config."""
    (tmp_path / "plain").mkdir()

    def run(*args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(repo.path), *args],
            capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "plain")},
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


@pytest.fixture
def propose(repo: HarnessRepo, facts: Callable[..., CommitFacts]) -> Callable[..., str]:
    """Propose a candidate that differs from all others by one line; returns its tree."""

    def make(candidate: str, *parents: str, cycle: int = 0, iteration: int = 0, **more: str) -> str:
        tree = repo.write_tree({**FILES, "prompts/user.md": f"{candidate}\n".encode()})
        repo.propose(candidate, tree, parents, facts(cycle, iteration, **more))
        return tree

    return make
