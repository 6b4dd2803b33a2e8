"""`whale plan` against a real run of the same config."""

import json
from pathlib import Path

from tests.runs import WhaleProcess


def test_a_run_takes_what_was_planned_and_a_run_tells_the_rates_of_the_next(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    planned = json.loads(whale_here("plan", str(toy_config), "--json").stdout)
    assert not (tmp_path / "runs" / "toy").exists(), "a plan makes nothing"
    whale_here("run", str(toy_config), "--name", "toy", "--quiet")
    status = json.loads(whale_here("status", "toy", "--json").stdout)
    assert planned["rollouts"]["most"] >= status["total"]["rollouts"] > 0.6 * planned["rollouts"]["most"]
    assert planned["most"]["train"] == status["cost"]["train"]["rollouts"]
    like = json.loads(whale_here("plan", str(toy_config), "--like", "toy", "--dollars-per-hour", "1", "--json").stdout)
    assert like["rates"]["rollouts"] == status["total"]["rollouts"]
    assert like["seconds"]["most"] >= like["seconds"]["least"] > 0
    assert like["unknown"] == []
    text = whale_here("plan", str(toy_config), "--like", "toy").stdout
    assert "run toy" in text and "disk" in text
    assert f"passed: {100 * like['rates']['passed']:.1f} % of the training rollouts" in text


def test_a_probe_measures_and_leaves_nothing(whale_here: WhaleProcess, toy_config: Path, tmp_path: Path) -> None:
    found = json.loads(whale_here("plan", str(toy_config), "--probe", "4", "--json", "--quiet").stdout)
    assert found["rates"]["rollouts"] == 4
    assert found["seconds"]["most"] > 0 and found["disk_bytes"] > 0
    assert not list((tmp_path / "runs").iterdir())


def test_a_wrong_config_or_run_is_a_usage_error(whale_here: WhaleProcess, toy_config: Path) -> None:
    assert whale_here("plan", "none.toml", check=False).returncode == 2
    assert whale_here("plan", str(toy_config), "--like", "none", check=False).returncode == 2
