"""The grid of an experiment, and whether its systems may spend the same."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from whale.config import config_from, load_config
from whale.errors import UsageError
from whale.experiment.budget import Budget, budget_of, check_matched, planned
from whale.experiment.grid import Experiment, load_experiment

BASE: dict[str, Any] = {
    "seed": 9,
    "schedule": {"cycles": 3, "epochs": "0.4", "iterations": 5},
    "weights": {"rollouts_per_prompt": 2},
}


def load(folder: Path, **tables: Any) -> Experiment:
    path = folder / "grid.toml"
    path.write_text(tomli_w.dumps({"base": BASE, "seeds": [1, 2]} | tables), encoding="utf-8")
    return load_experiment(path)


TWO = {"one": {"schedule": {"kind": "weight-only"}}, "both": {}}


def test_each_system_meets_each_domain_and_seed_once_and_seeds_come_one_after_the_other(tmp_path: Path) -> None:
    grid = load(tmp_path, systems=TWO, domains={"math": {}, "searchqa": {}})
    assert [cell.name for cell in grid.cells] == [
        "math-one-s1", "math-both-s1", "searchqa-one-s1", "searchqa-both-s1",
        "math-one-s2", "math-both-s2", "searchqa-one-s2", "searchqa-both-s2",
    ]  # fmt: skip
    assert grid.name == "grid"


def test_a_grid_that_is_taken_for_a_run_is_told_what_it_is(tmp_path: Path) -> None:
    path = load(tmp_path, systems=TWO).path
    with pytest.raises(UsageError, match="is an experiment's file, of many runs: `whale experiment"):
        load_config(path)


def test_a_cell_is_the_base_with_its_domain_its_system_its_own_exception_and_its_seed(tmp_path: Path) -> None:
    grid = load(
        tmp_path,
        systems=TWO | {"one": {"schedule": {"kind": "weight-only", "epochs": "0.7"}}},
        domains={
            "math": {"schedule": {"cycles": 9}, "systems": {"one": {"schedule": {"epochs": "0.9"}}}},
            "easy": {"domain": "searchqa"},
        },
    )
    cells = {cell.name: cell.config for cell in grid.cells}
    one, both, easy = cells["math-one-s2"], cells["math-both-s2"], cells["easy-one-s1"]
    assert (one.domain, one.seed, one.schedule.kind) == ("math", 2, "weight-only")
    assert (one.schedule.cycles, one.schedule.epochs, one.schedule.iterations) == (9, "0.9", 5)
    assert (both.schedule.cycles, both.schedule.epochs) == (9, "0.4")
    assert (easy.domain, easy.schedule.cycles) == ("searchqa", 3)


def test_the_base_may_be_a_file_beside_the_experiment_and_its_domain_is_then_the_one(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(tomli_w.dumps(BASE | {"domain": "math"}), encoding="utf-8")
    grid = load(tmp_path, base="base.toml", systems=TWO)
    assert [cell.name for cell in grid.cells[:2]] == ["math-one-s1", "math-both-s1"]
    assert grid.cells[0].config.domain == "math"


@pytest.mark.parametrize(
    "tables, told",
    [
        ({"systems": {}}, "systems.NAME"),
        ({"systems": {"a": {"schedule": {"cycle": 2}}}}, "did you mean cycles"),
        ({"systems": TWO, "seed": [1]}, "did you mean seeds"),
        ({"systems": TWO, "seeds": [1, 1]}, "different whole numbers"),
        ({"systems": TWO, "seeds": [True]}, "different whole numbers"),
        ({"systems": TWO, "seeds": []}, "different whole numbers"),
        ({"systems": TWO, "matched": "yes"}, "true or false"),
        ({"systems": {"a/b": {}}}, "letters"),
        ({"systems": {"a": {}, "b": {}}}, "same config"),
        ({"systems": TWO, "domains": {"math": {"systems": {"bot": {}}}}}, "did you mean both"),
        ({"systems": {"b-c": {"schedule": {"cycles": 1}}, "c": {}},
          "domains": {"a": {"domain": "math"}, "a-b": {"domain": "searchqa"}}},
         "two cells would have the name a-b-c-s1"),
        ({"systems": {"a": {"seed": 4}}}, "seeds of the experiment"),
        ({"base": "none.toml", "systems": TWO}, "no such file"),
        ({"base": 3, "systems": TWO}, "base ="),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_in_one_line(tmp_path: Path, tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        load(tmp_path, **tables)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "schedule, epochs, iterations",
    [
        ({"kind": "fixed", "cycles": 6, "epochs": "0.6", "iterations": 6}, "3.6", 36),
        ({"kind": "fixed", "cycles": 6, "epochs": "0.6", "iterations": 6, "count_incoming": True}, "3.6", 30),
        ({"kind": "weight-only", "cycles": 4, "epochs": 1, "iterations": 6}, "4", 0),
        ({"kind": "harness-only", "cycles": 10, "epochs": "0.6", "iterations": 4}, "0", 40),
        ({"kind": "stagewise", "weight_cycles": 5, "harness_cycles": 4, "epochs": "0.6", "iterations": 10}, "3", 40),
        ({"kind": "adaptive", "cycles": 2, "max_epochs": "2", "max_iterations": 15}, "4", 30),
        ({"kind": "adaptive", "cycles": 9, "budget_epochs": "3.6", "budget_iterations": 36}, "3.6", 36),
        ({"kind": "fixed", "cycles": 2, "epochs": "0.6", "iterations": 6, "budget_iterations": 50}, "1.2", 12),
    ],
)
def test_a_budget_is_what_all_phases_may_spend_together(schedule: dict[str, Any], epochs: str, iterations: int) -> None:
    config = config_from({"schedule": schedule}, "test")
    assert budget_of(config) == Budget(Decimal(epochs), iterations, 8, 3)


def test_systems_with_the_same_budget_on_the_sides_that_they_have_match(tmp_path: Path) -> None:
    check_matched(load(tmp_path, systems=TWO | {"other": {"schedule": {"kind": "harness-only"}}}))


@pytest.mark.parametrize(
    "change, told",
    [
        ({"schedule": {"epochs": "0.5"}}, "1.2 epochs of training against 1.5"),
        ({"schedule": {"iterations": 4}}, "15 iterations of search against 12"),
        ({"weights": {"rollouts_per_prompt": 4}}, "2 rollouts per question against 4"),
        ({"search": {"candidates": 1}}, "3 rollouts per iteration and task against 1"),
        ({"evaluate": {"samples": 1}}, "another evaluate"),
        ({"domain_options": {"harness": 8}}, "another domain_options"),
    ],
)
def test_systems_that_differ_in_what_they_may_spend_or_share_are_refused_unless_it_is_said(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    systems = TWO | {"more": change}
    with pytest.raises(UsageError, match=f"and more do not match in domain searchqa: {told}"):
        check_matched(load(tmp_path, systems=systems))
    check_matched(load(tmp_path, systems=systems, matched=False))


def test_planned_rollouts_are_the_phases_times_their_sizes() -> None:
    config = config_from(
        {
            "schedule": {"cycles": 2, "epochs": "0.5", "iterations": 3},
            "weights": {"rollouts_per_prompt": 4},
            "search": {"candidates": 2, "rollouts_per_task": 2},
            "evaluate": {"tasks": 10, "samples": 8, "test_tasks": 5, "test_samples": 1},
        },
        "test",
    )
    plan = planned(config, {"weight": 7, "harness": 6, "validation": 20, "test": 9})
    # 7 questions × 4; 6 rounds × 2 candidates × 12, and 12 each for two incoming harnesses and the noise floor;
    # three validations of 10 × 8, two tests of 5.
    assert (plan.train, plan.search, plan.evaluate) == (28, 6 * 2 * 12 + 3 * 12, 3 * 80 + 2 * 5)
    assert (plan.smoke, plan.total) == (1 + 6 * 2, plan.train + plan.search + plan.evaluate + 13)
