"""Killed after every single event, a run ends in the very state of one that was never interrupted."""

import subprocess
import sys
from pathlib import Path

import msgspec
import tomli_w

from tests.alternation.test_resume import ending
from tests.runs import WhaleProcess, environment
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.config import load_config, to_builtins

SCRIPT = Path(__file__).parent / "kill_after_each.py"
SHORT = [
    "domain_options.weight=2", "domain_options.validation=2", "domain_options.harness=2", "schedule.epochs=1",
    "schedule.cycles=1", "search.candidates=2", "evaluate.test_tasks=0", "weights.checkpoint_every=1",
    "search.noise_floor=false",
]  # fmt: skip


def test_killed_after_each_event_once_a_run_has_the_same_final_fold(
    whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    config = tmp_path / "short.toml"
    config.write_text(tomli_w.dumps(to_builtins(load_config(toy_config, SHORT))))
    whale("run", str(config), "--name", "whole", "--quiet")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(config), "killed"],
        capture_output=True, text=True, env={**environment(runs), "PYTHONPATH": str(Path.cwd())}, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole, killed = RunFolder(runs / "whole"), RunFolder(runs / "killed")
    with whole.open_log(readonly=True) as log:
        events = log.head().position
    with killed.open_log(readonly=True) as log:
        assert log.verify().position == events, "no event came twice, and none was left out"
    assert 20 <= int(done.stdout.splitlines()[-1]) <= events <= 40, done.stdout
    assert ending(killed.path) == ending(whole.path)
    one, other = whole.state(), killed.state()
    assert (one.name, other.name) == ("whole", "killed")
    assert {**vars_of(one), "name": ""} == {**vars_of(other), "name": ""}


def vars_of(state: State) -> dict[str, object]:
    return msgspec.structs.asdict(state)
