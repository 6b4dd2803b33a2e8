"""Runs to look at: a real one of the toy domain, made once, and made-up ones; and a user in front of the app."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from textual.pilot import Pilot

from tests.runs import TOY, command, environment
from tests.tui.synthetic import Shape, write_run
from whale.alternation.run_folder import RunFolder
from whale.tui.app import WhaleApp
from whale.tui.screenshot import screen_text, settle
from whale.tui.source import FolderSource, RunSource

NOW = 1_767_300_000.0
"""The frozen clock: 1 January 2026, 20:40 UTC."""


def story(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An async test, run to its end."""

    @wraps(test)
    def told(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 540))

    return told


class User:
    """Someone at the keyboard who sees what the screen says."""

    def __init__(self, app: WhaleApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> str:
        return screen_text(self.app)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await settle(self.app)
        await self.pilot.pause()

    async def types(self, text: str) -> None:
        for character in text:
            await self.pilot.press({" ": "space", "-": "minus", "~": "tilde"}.get(character, character))

    def sees(self, *words: str) -> None:
        for word in words:
            assert word in self.screen, f"{word!r} is not on the screen:\n{self.screen}"

    def sees_not(self, *words: str) -> None:
        for word in words:
            assert word not in self.screen, f"{word!r} is on the screen:\n{self.screen}"

    async def waits_for(self, what: Callable[[], bool], seconds: float = 120) -> None:
        for _ in range(int(seconds * 20)):
            if what():
                await self.pilot.pause()
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"it did not come to pass; the screen:\n{self.screen}")

    async def waits_to_see(self, word: str, seconds: float = 120) -> None:
        await self.waits_for(lambda: word in self.screen, seconds)


@asynccontextmanager
async def watching(
    run: Path | RunSource | None, size: tuple[int, int] = (80, 24), *, settled: bool = True, **options: Any
) -> AsyncIterator[User]:
    source = FolderSource(RunFolder(run)) if isinstance(run, Path) else run
    app = WhaleApp(source, clock=lambda: NOW, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        if settled:
            await settle(app)
        await pilot.pause()
        yield User(app, pilot)


def toy_settings(model: Path, **schedule: Any) -> dict[str, Any]:
    return {
        "seed": 5,
        "domain": f"{TOY}:create",
        "model": str(model),
        "domain_options": {"weight": 6, "harness": 4, "validation": 4, "test": 2},
        "engine": {"device": "cpu", "threads": 1, "micro_batch": 3},
        "sampling": {"max_generated_tokens": 48, "max_tokens_per_turn": 12},
        "weights": {
            "batch": 2, "rollouts_per_prompt": 2, "minibatch": 2, "learning_rate": 1e-3, "filters": "paper",
        },
        "search": {"candidates": 2},
        "schedule": {"cycles": 2, "epochs": "0.5", "iterations": 1, **schedule},
        "evaluate": {"samples": 1},
    }  # fmt: skip


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    """A completed run of two cycles, with its Git store and its rollouts. For reading only."""
    place = tmp_path_factory.mktemp("tui")
    (place / "toy.toml").write_text(tomli_w.dumps(toy_settings(toy_model)), encoding="utf-8")
    done = subprocess.run(
        command("run", "toy.toml", "--quiet"),
        env=environment(place / "runs"),
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return place / "runs" / "toy"


@pytest.fixture
def own_run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the completed run that a test may change."""
    return Path(shutil.copytree(finished_run, tmp_path / "runs" / "toy"))


@pytest.fixture(scope="session")
def made_up_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up run of three cycles: only its log. For reading only."""
    return write_run(tmp_path_factory.mktemp("made-up") / "made-up", Shape())


@pytest.fixture(autouse=True)
def _no_keys_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHALE_KEYS", str(tmp_path / "keys.toml"))
    monkeypatch.setenv("WHALE_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("NO_COLOR", raising=False)
