"""Experiments as real processes: children that are killed, fail, are stopped, and go on."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.runs import WhaleProcess, toy_settings
from whale.alternation.retention import OPTIMIZER
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.experiment.cells import look
from whale.experiment.children import Children
from whale.experiment.grid import load_experiment

ACTING = Path(__file__).parent / "acting.py"


def write_grid(tmp_path: Path, model: Path, cycles: int = 1, **acts: str) -> str:
    """A grid file: a system for each act."""
    base = toy_settings(model) | {"domain": f"{ACTING}:create"}
    del base["seed"]
    base["schedule"] = {"cycles": cycles, "epochs": "0.5", "iterations": 1}
    systems = {name: {"domain_options": {"act": act, "marker": str(tmp_path / name)}} for name, act in acts.items()}
    grid: dict[str, Any] = {"seeds": [5], "matched": False, "base": base, "systems": systems}
    path = tmp_path / "grid.toml"
    path.write_text(tomli_w.dumps(grid), encoding="utf-8")
    return str(path)


def assert_whole(folder: Path) -> None:
    """The run is complete, its log unbroken, and no micro-batch was recorded twice."""
    run = RunFolder(folder)
    assert run.state().status == "completed"
    with run.open_log(readonly=True) as log:
        log.verify()
        batches = [r.event.batch for r in log.read() if isinstance(r.event, ev.RolloutsRecorded)]
    assert len(batches) == len(set(batches))


def test_a_killed_and_a_failing_child_are_named_stop_no_other_and_the_same_command_goes_on(
    tmp_path: Path, toy_model: Path, whale: WhaleProcess
) -> None:
    grid = write_grid(tmp_path, toy_model, killed="kill", broken="fail")
    runs = tmp_path / "runs" / "grid"
    first = whale("experiment", grid, check=False)
    assert first.returncode == 1
    assert "2 failed: acting-killed-s5, acting-broken-s5" in first.stderr
    assert "acting-killed-s5: FAILED: it was killed by SIGKILL" in first.stderr
    assert "the verifier broke" in first.stderr

    second = whale("experiment", grid, "--jobs", "2", "--json")
    cells = json.loads(second.stdout)["cells"]
    assert [cell["standing"] for cell in cells] == ["done"] * 2
    for name in ("killed", "broken"):
        assert_whole(runs / f"acting-{name}-s5")
    ends = {name: RunFolder(runs / f"acting-{name}-s5").state().weights for name in ("killed", "broken")}
    assert len(set(ends.values())) == 1, "both ended as if nothing had happened"


@pytest.mark.parametrize(
    "act", ["interrupt the experiment", pytest.param("kill the experiment", marks=pytest.mark.long)]
)
def test_a_stopped_experiment_leaves_no_process_behind_and_goes_on(
    act: str, tmp_path: Path, toy_model: Path, whale: WhaleProcess
) -> None:
    grid = write_grid(tmp_path, toy_model, stopped=act, later="")
    runs = tmp_path / "runs" / "grid"
    first = whale("experiment", grid, check=False)
    assert first.returncode == (130 if act.startswith("interrupt") else -9)
    assert not (runs / "acting-later-s5").exists(), "nothing else is started once it stops"
    # After a kill the child is told by the kernel, and may still be on its way to a safe point.
    second = whale("experiment", grid)
    assert_whole(runs / "acting-stopped-s5")
    assert_whole(runs / "acting-later-s5")
    assert "acting-stopped-s5: goes on" in second.stderr
    log = (runs / "acting-stopped-s5.log").read_text()
    assert "stopped at a safe point" in log


def test_a_part_of_the_grid_can_be_carried_out_and_keeps_only_what_it_needs(
    tmp_path: Path, toy_model: Path, whale: WhaleProcess
) -> None:
    grid = write_grid(tmp_path, toy_model, cycles=2, first="", second="", third="")
    runs = tmp_path / "runs" / "grid"
    done = whale("experiment", grid, "--only", "*-first-*", "--only", "*-sec?nd-s5", "--gc", "--json")
    assert [cell["run"] for cell in json.loads(done.stdout)["cells"]] == ["acting-first-s5", "acting-second-s5"]
    assert not (runs / "acting-third-s5").exists()
    for name in ("acting-first-s5", "acting-second-s5"):
        assert_whole(runs / name)
        ends = sorted((runs / name / "checkpoints").glob("[!.]*"))
        assert len(ends) == 2, "each phase's end stays, as the pairs need it"
        assert [(end / OPTIMIZER).exists() for end in ends] == [False, True]
    none = whale("experiment", grid, "--only", "*-frist-*", check=False)
    assert none.returncode == 2
    assert "--only *-frist-*: matches none of" in none.stderr


def test_a_run_of_the_same_name_with_another_config_is_a_conflict_and_nothing_starts(
    tmp_path: Path, toy_model: Path, whale_here: WhaleProcess
) -> None:
    grid = write_grid(tmp_path, toy_model, whole="")
    folder = tmp_path / "runs" / "grid" / "acting-whole-s5"
    folder.mkdir(parents=True)
    settings = toy_settings(toy_model)
    (folder / "whale.toml").write_text(tomli_w.dumps(settings))
    done = whale_here("experiment", grid, check=False)
    assert done.returncode == 3
    assert "domain" in done.stderr
    assert "another config" in done.stderr


def test_a_dry_run_shows_the_grid_and_makes_nothing(tmp_path: Path, toy_model: Path, whale_here: WhaleProcess) -> None:
    grid = write_grid(tmp_path, toy_model, whole="", other="none")
    document = json.loads(whale_here("experiment", grid, "--dry-run", "--json").stdout)
    assert [(cell["run"], cell["standing"]) for cell in document["cells"]] == [
        ("acting-whole-s5", "to do"), ("acting-other-s5", "to do")
    ]  # fmt: skip
    # Three questions × 2; one round × 2 × 4 and 4 twice for h0; two validations of 4, two tests of 2.
    assert document["cells"][0]["planned"] == {"train": 6, "search": 16, "evaluate": 12, "smoke": 3}
    assert not (tmp_path / "runs" / "grid").exists()


def test_what_a_config_names_and_is_not_there_is_said_before_anything_starts(
    tmp_path: Path, whale_here: WhaleProcess
) -> None:
    grid = write_grid(tmp_path, tmp_path / "nowhere", whole="")
    done = whale_here("experiment", grid, check=False)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert not (tmp_path / "runs" / "grid").exists()


def test_runs_are_dealt_over_the_gpus_and_one_that_takes_several_sees_them_all(tmp_path: Path, toy_model: Path) -> None:
    names = ("first", "second", "ranked", "wide")
    grid = Path(write_grid(tmp_path, toy_model, 1, **dict.fromkeys(names, "tell the GPU")))
    several = "\n[systems.ranked.weights]\nranks = 2\n[systems.wide.engine]\nreplicas = 2\n"
    grid.write_text(grid.read_text() + several, encoding="utf-8")
    runs = tmp_path / "runs"
    runs.mkdir()
    told: list[str] = []
    views = look(load_experiment(grid), runs)
    ended = asyncio.run(Children(runs, 2, told.append, gpus=("0", "7")).carry_out(views))
    assert [one.failure for one in ended] == [""] * 4
    seen = {name: (tmp_path / name).read_text() for name in names}
    all_of_them = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    assert seen == {"first": "0", "second": "7", "ranked": all_of_them, "wide": all_of_them}
    assert any(line.startswith("acting-first-s5: starts on GPU 0") for line in told)
