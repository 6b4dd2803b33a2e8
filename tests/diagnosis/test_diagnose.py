"""`whale diagnose` end to end: real runs in a folder of its own, training tasks only."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.runs import WhaleProcess, toy_settings
from whale.config import config_from
from whale.diagnosis.domain import ProbeDomain
from whale.diagnosis.probe import Sizes, probe_config
from whale.domains.registry import load_domain
from whale.errors import UsageError
from whale.plan.amounts import amounts


@pytest.fixture
def config_file(tmp_path: Path, toy_model: Path) -> Path:
    settings = toy_settings(toy_model)
    settings["domain_options"]["weight"] = 24
    path = tmp_path / "toy.toml"
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    return path


def options(**more: Any) -> dict[str, Any]:
    toy = toy_settings(Path("model"))
    return {
        "domain": toy["domain"], "options": {**toy["domain_options"], "weight": 24}, "seed": 1, "measure": 8,
        "harness_tasks": 3, "harness": "", **more,
    }  # fmt: skip


def test_a_probe_reads_training_tasks_only_and_measures_on_those_it_does_not_train_on() -> None:
    found = ProbeDomain(options())
    names = {split: {task.id for task in tasks} for split, tasks in found.splits().items()}
    assert len(names["weight"]) == 16 and len(names["validation"]) == 8 and len(names["harness"]) == 3
    assert not names["weight"] & names["validation"]
    assert all(name.startswith("weight-") for name in names["weight"] | names["validation"] | names["test"])
    assert all(name.startswith("harness-") for name in names["harness"])
    assert found.leak("a test answer"), "the real check is asked"
    assert found.fingerprint() != ProbeDomain(options(seed=2)).fingerprint()
    with pytest.raises(UsageError, match="at least 8"):
        small = options()
        ProbeDomain({**small, "options": {**small["options"], "weight": 4}}).splits()


def test_a_short_training_has_steps_that_learn_from_each_other() -> None:
    own = config_from({"weights": {"batch": 32, "rollouts_per_prompt": 4}}, "test")
    probe = probe_config(own, Sizes(rollouts=192, measure=96), 480, None)
    assert probe.weights.batch == 12
    assert math.ceil(float(probe.epochs) * (480 - 96)) == 48


@pytest.mark.parametrize(
    "rollouts, weight_tasks, batch", [(256, 600, 16), (256, 96 + 96, 16), (64, 50, 16), (8, 18_946, 256)]
)
def test_each_side_stays_within_its_rollouts(rollouts: int, weight_tasks: int, batch: int) -> None:
    own = config_from({"weights": {"batch": batch, "rollouts_per_prompt": 8}, "search": {"candidates": 3}}, "test")
    sizes = Sizes(rollouts, 96, 1)
    config = probe_config(own, sizes, weight_tasks, None)
    measured = min(96, weight_tasks // 2)
    harness_tasks = config.domain_options["harness_tasks"]
    splits = {"weight": weight_tasks - measured, "harness": harness_tasks, "validation": measured, "test": 1}
    assert rollouts * 0.5 <= amounts(config, splits).train <= rollouts
    assert harness_tasks * (1 + 3) <= rollouts


def test_a_probe_asks_for_no_new_tasks() -> None:
    own = config_from({"schedule": {"tasks_patience": 2}}, "test")
    assert probe_config(own, Sizes(64, 16, 1), 64, None).schedule.tasks_patience == 0


def test_a_config_and_a_run_are_probed_and_nothing_of_them_changes(
    whale_here: WhaleProcess, config_file: Path, tmp_path: Path
) -> None:
    small = ["--rollouts", "12", "--measure", "8", "--quiet", "--json"]
    found = json.loads(whale_here("diagnose", str(config_file), *small).stdout)
    assert found["verdict"]["side"] in ("harness", "weights", "undecided")
    assert found["measured"] == 8
    assert found["verdict"]["harness"]["tasks"] == found["verdict"]["weights"]["tasks"] == 8
    # The base is measured once, the two others once each; what a side did not change is not measured again.
    assert found["rollouts"] <= found["harness_rollouts"] + found["weight_rollouts"] + 3 * 8 + 1
    assert found["weight_rollouts"] == 12
    assert found["suggestion"]
    assert not list((tmp_path / "runs").glob("*"))

    whale_here("run", str(config_file), "--name", "toy", "--quiet", "--set", "schedule.cycles=1")
    run = tmp_path / "runs" / "toy"

    def listing() -> dict[str, int]:
        return {p.relative_to(run).as_posix(): p.stat().st_size for p in run.rglob("*") if p.suffix != ".db-shm"}

    before = listing()
    done = whale_here("diagnose", "toy", "--rollouts", "12", "--measure", "1000")
    assert re.search(r"D_weight has (\d+) questions: \d+ measure the pairs \(--measure 1000\), the other", done.stderr)
    assert "cycle 1, harness" in done.stdout and "suggested" in done.stdout and "cost: " in done.stdout
    assert listing() == before
    whale_here("replay", "toy")


def test_the_domain_by_its_file_is_the_one_that_a_probe_names() -> None:
    own = config_from({**toy_settings(Path("model")), "domain_options": {**options()["options"]}}, "test")
    config = probe_config(own, Sizes(12, 8, 1), 24, None)
    assert load_domain(config.domain, config.domain_options).name == "toy"
