"""The demo on the vllm engine and the real model: every phase, a kill in the middle, the same run to its end."""

import importlib.util
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.alternation.test_resume import KILL_AT
from tests.alternation.test_vllm_run import rollouts
from tests.runs import WhaleProcess, environment, events_of
from whale.alternation.run_folder import RunFolder
from whale.config import load_config
from whale.events import types as ev

DEMO = Path(__file__).parents[2] / "examples" / "demo.toml"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.vllm_sample,
    pytest.mark.model,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vllm is not installed here; `make test-vllm` makes an environment that has it",
    ),
]


def test_the_demo_killed_in_its_harness_phase_goes_on_and_pays_no_rollout_twice(
    smollm2: Path, whale: WhaleProcess, tmp_path: Path
) -> None:
    """As a user runs it: the shipped config, with nothing but the engine's name changed."""
    runs = tmp_path / "runs"
    killed = subprocess.run(
        [sys.executable, str(KILL_AT), "vllm", "500", "run", str(DEMO), "--name", "demo", "--quiet",
         "--set", "engine.name=vllm"],
        capture_output=True, text=True, env=environment(runs), timeout=1200,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = RunFolder(runs / "demo")
    cut = folder.state()
    assert (cut.cycle, cut.phase) == (1, "harness")
    assert cut.weights != cut.model, "what goes on has to bring trained weights into a fresh engine"
    paid = rollouts(folder)

    whale("resume", "demo", "--quiet", timeout=1200)
    whale("events", "verify", "demo")
    assert json.loads(whale("status", "demo", "--json").stdout)["status"] == "completed"

    events = events_of(folder)
    ended = Counter((event.cycle, event.phase) for event in events if isinstance(event, ev.PhaseEnded))
    assert ended == Counter(
        {(0, "evaluate"): 1} | {(c, p): 1 for c in (1, 2) for p in ("weight", "harness", "evaluate")}
    )
    after = rollouts(folder)
    assert after[: len(paid)] == paid, "what was paid before the kill stands"
    assert len({recorded.batch for recorded in after}) == len(after), "no micro-batch is recorded twice"

    config = load_config(DEMO)
    steps = [event for event in events if isinstance(event, ev.StepTrained)]
    asked = config.weights.batch * config.weights.rollouts_per_prompt
    assert [step.rollouts for step in steps] == [asked] * 4
    recorded = Counter[str]()
    for batch in after:
        recorded[batch.purpose] += len(batch.outcomes)
    assert recorded["train"] == 4 * asked, "none of a step is lost, none is sampled for it twice"
    assert recorded["evaluate"] == 3 * config.domain_options["validation"]
    assert len({event.weights for event in steps if event.updates}) == sum(event.updates > 0 for event in steps) >= 2
