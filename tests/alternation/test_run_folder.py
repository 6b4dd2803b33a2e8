"""What a user is told before anything runs, and what finds a run."""

from pathlib import Path

import pytest

from whale.alternation.run_folder import RunFolder
from whale.config import config_from, load_config
from whale.errors import UsageError


def test_a_run_is_spoken_of_by_what_finds_it_from_here_whatever_the_childs_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # An experiment gives its cells this; the shell of whoever reads their words does not have it.
    monkeypatch.setenv("WHALE_RUNS", str(tmp_path / "runs" / "grid"))
    assert RunFolder(Path("runs/first")).spoken == "first"
    assert RunFolder(tmp_path / "runs" / "grid" / "cell").spoken == "runs/grid/cell"
    assert RunFolder(Path("/elsewhere/cell")).spoken == "/elsewhere/cell"


def test_a_folder_in_a_configs_place_is_called_that(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder; name the file in it"):
        load_config(tmp_path)


def test_a_temperature_that_an_engine_would_refuse_is_refused_before_anything_runs() -> None:
    assert config_from({"sampling": {"temperature": 2.0}}, "here").sampling.temperature == 2.0
    with pytest.raises(UsageError, match=r"sampling\.temperature = 2\.5: at most 2"):
        config_from({"sampling": {"temperature": 2.5}}, "here")
