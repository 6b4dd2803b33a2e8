"""`whale control`: what a harness's success is worth, on a run of Chess."""

import json
from pathlib import Path

import tomli_w

from tests.runs import WhaleProcess


def test_a_chess_run_goes_through_a_cycle_and_its_control_sets_a_coin_beside_it(
    whale: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    config = {
        "seed": 4,
        "domain": "chess",
        "model": str(toy_model),
        "domain_options": {"weight": 4, "harness": 3, "validation": 4, "test": 2},
        "engine": {"device": "cpu", "threads": 1, "micro_batch": 4},
        "sampling": {"max_turns": 5, "max_generated_tokens": 64, "max_tokens_per_turn": 16},
        "weights": {"batch": 2, "rollouts_per_prompt": 2, "minibatch": 2},
        "search": {"candidates": 1},
        "schedule": {"cycles": 1, "epochs": "0.5", "iterations": 1},
        "evaluate": {"samples": 1},
    }
    path = tmp_path / "chess.toml"
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    whale("run", str(path), "--name", "chess", "--quiet")

    groups = json.loads(whale("control", "chess", "h0", "--tasks", "4", "--json", "--quiet").stdout)["groups"]
    assert groups["all"]["n"] == 4
    assert 0 < groups["all"]["chance_legal"] < 4
    assert groups["all"]["chance_shown"] == groups["all"]["chance_legal"], "h0 lists all legal moves"
    table = whale("control", "chess", "h0", "--tasks", "2", "--quiet").stdout
    assert "of legal moves" in table


def test_a_domain_without_a_control_is_named_with_those_that_have_one(whale: WhaleProcess, toy_config: Path) -> None:
    whale("run", str(toy_config), "--name", "toy", "--quiet", "--set", "schedule.cycles=1")
    done = whale("control", "toy", check=False)
    assert done.returncode == 2
    assert "chess, searchqa" in done.stderr
