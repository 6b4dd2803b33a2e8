"""What a run tells on stderr of how far it is, and of episodes that all fail."""

import re
import shutil
from math import inf
from pathlib import Path

import pytest

from tests.runs import WhaleProcess
from tests.toy.domain import HARNESS
from whale.cli import progress
from whale.cli.progress import TerminalProgress
from whale.weights import sampler

ONE_CYCLE = ("--set", "schedule.cycles=1")


@pytest.mark.parametrize("apart, told", [(0.0, True), (inf, False)])
def test_without_a_terminal_a_line_tells_how_fast_a_unit_goes_and_what_is_left(
    apart: float, told: bool, whale_here: WhaleProcess, toy_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINES_APART", apart)
    lines = whale_here("run", str(toy_config), "--name", "a", *ONE_CYCLE).stderr
    found = re.findall(
        r"  c001/weight/s0001: (\d of \d), [\d.]+ rollouts/s, (\d+) tokens/s, reward ([\d.]+), (\d+:\d\d:\d\d) left\n",
        lines,
    )
    assert [counted for counted, *_ in found] == (["3 of 4", "4 of 4"] if told else [])
    if told:
        assert all(int(tokens) > 0 for _, tokens, *_ in found)
        assert found[-1][-1] == "0:00:00"
        assert f"step 1/2: {round(float(found[-1][2]) * 4)} of 4 passed" in lines


def test_a_bar_counts_rollouts_and_tokens_and_other_things_alone() -> None:
    bar = TerminalProgress()
    bar.begin("c001/weight/s0001", 8, 4)
    bar.advance(6, "reward 0.500", 120)
    rollouts = bar.progress.tasks[0].fields
    bar.begin("events", 8)
    bar.advance(6)
    events = bar.progress.tasks[0].fields
    bar.end()
    assert re.fullmatch(r"[\d.]+ rollouts/s, \d+ tokens/s", rollouts["rate"])
    assert rollouts["note"] == "reward 0.500"
    assert re.fullmatch(r"[\d.]+/s", events["rate"])


SEED = 5
"""`toy_config`'s."""
ALIKE = [
    ("000", "evaluate", "3 of 3"),
    ("001", "weight", "3 of 3"),
    ("001", "harness", "3 of 3"),
    ("000", "evaluate", "2 of 2"),  # the test, after the last phase
]


@pytest.mark.parametrize("micro_batch, told", [(3, ALIKE), (1, [])])
def test_episodes_that_all_fail_alike_are_told_once_a_phase_with_the_reason_of_the_first(
    micro_batch: int, told: list[tuple[str, str, str]], whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    harness = shutil.copytree(HARNESS, tmp_path / "h0")
    program, asked = (harness / "harness.py").read_text(encoding="utf-8"), 'task["question"]'
    # Of D_weight's 6 questions the first step takes others than this one, in which h0 runs through.
    short = next(n for n in range(6) if n not in sampler.take(SEED, 6, 0, 3))
    long = f'{asked} + (" far too long" * 400) * ({asked} != "weight question {short}")'
    (harness / "harness.py").write_text(program.replace(asked, long), encoding="utf-8")
    settings = (f"domain_options.harness_folder={harness}", f"engine.micro_batch={micro_batch}", "schedule.cycles=1")
    changed = [word for setting in settings for word in ("--set", setting)]
    lines = whale_here("run", str(toy_config), "--name", "long", *changed).stderr
    found = re.findall(
        r"  c(\d+)/(\w+)/.*: (\d+ of \d+) episodes ended as overlong: "
        r"a prompt of \d{4,} tokens and 6 to sample exceed the context of 1024\n",
        lines,
    )
    assert found == told
    assert lines.count("episodes ended as overlong") == len(found)
