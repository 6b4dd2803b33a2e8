"""A completed run that the tests of this part copy."""

import os
import signal
from pathlib import Path

import pytest
import tomli_w

from tests.runs import environment, toy_settings


@pytest.fixture(scope="session")
def toy_runs(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    """A folder of runs with `toy`, which went through two cycles and changed both sides."""
    from whale.cli.__main__ import run

    folder = tmp_path_factory.mktemp("pair-runs")
    config = folder / "toy.toml"
    config.write_text(tomli_w.dumps(toy_settings(toy_model)), encoding="utf-8")
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.environ.update(environment(folder))
    try:
        assert run(["run", str(config), "--name", "toy", "--quiet"]) == 0
    finally:
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return folder
