"""`python -m tests.events.samples.make N`: write `run_vN.jsonl.gz` and `run_vN.json`, a run with every type of event.

Run it when a type is new or has changed, and commit both files: they are kept for ever.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import tomli_w

from tests.events.test_stored_logs import summary
from tests.runs import toy_settings
from tests.stored_logs import SAMPLES, stored_run
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, reduce
from whale.cli.__main__ import run
from whale.cli.run_commands import carry_through
from whale.cli.steer_commands import request
from whale.events import fold
from whale.events import types as ev
from whale.harness_repo import HarnessRepo
from whale.rollout.models import write_tiny_model


def whale(*arguments: str, code: int = 0) -> None:
    got = run(list(arguments))
    assert got == code, (arguments, got)


def make(version: str) -> None:
    target = SAMPLES / f"run_v{version}.jsonl.gz"
    assert not target.exists(), "a stored log is never written anew"
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WHALE_RUNS": folder, "WHALE_ERROR_LOG": f"{folder}/error.log"}
        path = Path(folder)
        config = path / "toy.toml"
        config.write_text(tomli_w.dumps(toy_settings(write_tiny_model(path / "model", seed=3))))
        whale("run", str(config), "--name", "toy", "--quiet")
        toy = RunFolder(path / "toy")
        with toy.open_log(readonly=True) as log:
            accepted = next(r.position for r in log.read() if isinstance(r.event, ev.HarnessAccepted))
            phase = next(r.position for r in log.read(after=accepted) if isinstance(r.event, ev.PhaseStarted))
        whale("fork", "toy", "--at", str(phase - 1), "--name", "sample", "--set", "schedule.kind=stagewise",
              "--set", "schedule.weight_cycles=1", "--set", "schedule.harness_cycles=3")  # fmt: skip
        sample = RunFolder(path / "sample")
        mine = path / "mine"
        mine.mkdir()
        with HarnessRepo.open(sample.harnesses) as repo:
            for name, content in repo.files(sample.state().candidates["h0"].tree).items():
                (mine / name).parent.mkdir(parents=True, exist_ok=True)
                (mine / name).write_bytes(content)
        (mine / "harness.py").write_text((mine / "harness.py").read_text() + "\n# mine\n")
        request(sample, ev.PauseRequested(by="me"))
        request(sample, ev.ResumeRequested(by="me"))
        request(sample, ev.NoteAdded(candidate="h0", text="the first one", by="me"))
        request(sample, ev.PhaseStopRequested(by="me"))
        whale("propose", "sample", str(mine), "--wait", "0")
        carry_through(sample, quiet=True)  # to the end of the phase: `resume` would call the stop off
        request(sample, ev.StopRequested(by="me"))
        request(sample, ev.RevertRequested(candidate="c001-i01-m1", by="me"))
        (sample.path / "artifacts").rename(sample.path / "away")
        (sample.path / "artifacts").write_text("")
        whale("resume", "sample", "--quiet", code=1)  # interrupted: nothing can be stored
        (sample.path / "artifacts").unlink()
        (sample.path / "away").rename(sample.path / "artifacts")
        whale("resume", "sample", "--quiet")
        request(sample, ev.ExtendRequested(cycles=1, by="me"))
        request(sample, ev.AcceptRequested(candidate="h0", by="me"))
        whale("resume", "sample", "--quiet")
        whale("replay", "sample")
        whale("events", "export", "sample", "--output", str(target))
    state = fold(reduce, State(), stored_run(target).read())
    text = json.dumps(summary(state), indent=1, sort_keys=True)
    target.with_name(f"run_v{version}.json").write_text(text + "\n")


if __name__ == "__main__":
    make(sys.argv[1])
