"""What can go wrong in a run, on the transformers engine: a clear outcome for each, and the run goes on.

The same on vllm is in test_vllm_run.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from tests.alternation.test_resume import Ending, assert_same_end, ending, reference
from tests.runs import WhaleProcess, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev
from whale.rollout.decoding import TransformersSession
from whale.rollout.models import write_tiny_model
from whale.rollout.parquet import decode_trajectories
from whale.rollout.tiny_model import CHATML
from whale.rollout.types import Trajectory
from whale.weights.objective import Objective
from whale.weights.samples import samples_from
from whale.weights.trainer import Trainer


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, Ending]:
    return {}


def without_memory() -> None:
    """Ask torch's allocator for more than any machine has."""
    torch.empty(2**60, dtype=torch.uint8)


def without_memory_on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


def at(nth: int, method: Callable[..., Any], fault: Callable[[], None]) -> Callable[..., Any]:
    passages = 0

    def wrapper(*arguments: Any, **named: Any) -> Any:
        nonlocal passages
        passages += 1
        if passages == nth:
            fault()
        return method(*arguments, **named)

    return wrapper


@pytest.mark.parametrize(
    "owner, name, nth, fault, words",
    [
        (TransformersSession, "generate", 9, without_memory, "whale: sampling ran out of memory ("),
        (Trainer, "_gradient", 3, without_memory, "whale: training ran out of memory ("),
        (Trainer, "_gradient", 2, without_memory_on_a_gpu, "(CUDA out of memory. Tried to allocate 2.00 GiB.); the"),
    ],
)
def test_a_run_out_of_memory_says_what_needs_less_and_goes_on(
    owner: type, name: str, nth: int, fault: Callable[[], None], words: str,
    uninterrupted: dict[str, Ending], whale_here: WhaleProcess, toy_config: Path, tmp_path: Path,
) -> None:  # fmt: skip
    whole = reference(uninterrupted, whale_here, toy_config, tmp_path / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, at(nth, getattr(owner, name), fault))
        failed = whale_here("run", str(toy_config), "--name", "cut", "--quiet", check=False)
    assert failed.returncode == 1
    (line,) = failed.stderr.strip().splitlines()
    assert words in line
    assert ("engine.micro_batch" if owner is TransformersSession else "weights.activation_checkpointing") in line
    whale_here("resume", "cut", "--quiet")
    assert_same_end(whole, ending(tmp_path / "runs" / "cut"))


def test_a_loss_that_is_not_finite_ends_the_run_at_its_step_and_the_run_goes_on(
    uninterrupted: dict[str, Ending], whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    whole = reference(uninterrupted, whale_here, toy_config, tmp_path / "runs")
    terms, accumulate, passages = Objective.terms, Trainer._accumulate, 0

    def poisoned(objective: Objective, layout: Any) -> Any:
        found = terms(objective, layout)
        return replace(found, chosen_T=found.chosen_T * torch.nan)

    def third_is_poisoned(trainer: Trainer, *arguments: Any) -> Any:
        nonlocal passages
        passages += 1
        with pytest.MonkeyPatch.context() as patch:
            if passages == 3:
                patch.setattr(Objective, "terms", poisoned)
            return accumulate(trainer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_accumulate", third_is_poisoned)
        failed = whale_here("run", str(toy_config), "--name", "cut", "--quiet", check=False)
    assert failed.returncode == 1
    (line,) = failed.stderr.strip().splitlines()
    assert "the loss is nan; weights unchanged" in line
    whale_here("resume", "cut", "--quiet")
    assert_same_end(whole, ending(tmp_path / "runs" / "cut"))


def train_rollouts(path: Path) -> tuple[list[Trajectory], list[ev.StepTrained]]:
    folder = RunFolder(path)
    log = folder.open_log(readonly=True)
    try:
        log.verify()
        events = [record.event for record in log.read()]
    finally:
        log.close()
    assert folder.state().status == "completed"
    done = [
        trajectory
        for event in events
        if isinstance(event, ev.RolloutsRecorded) and event.purpose == "train"
        for trajectory in decode_trajectories(folder.artifacts.get(event.artifact))
    ]
    return done, [event for event in events if isinstance(event, ev.StepTrained)]


# As Qwen3's: what is thought before </think> is left out of every turn but the last.
DROPS_THINKING = CHATML.replace("message['content']", "message['content'].split('</think>')[-1]")
DROPS_TURNS = "{% set messages = messages[-1:] %}" + CHATML


@pytest.mark.parametrize("template, forks", [(DROPS_THINKING, False), (DROPS_TURNS, True)])
def test_a_template_that_drops_what_was_said_before_trains_every_sampled_token_once(
    template: str, forks: bool, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    """Replies are spliced in as ids, so thinking stays; where a template drops whole turns a turn is a sample."""
    assert template != CHATML
    settings = toy_settings(write_tiny_model(tmp_path / "model", seed=3))
    (tmp_path / "model" / "chat_template.jinja").write_text(template, encoding="utf-8")
    settings["schedule"]["cycles"] = 1
    path = tmp_path / "thinks.toml"
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    whale_here("run", str(path), "--name", "thinks", "--quiet")
    done, steps = train_rollouts(tmp_path / "runs" / "thinks")
    kept = [trajectory for trajectory in done if trajectory.reward >= 1]
    assert kept
    assert sum(step.trained_tokens for step in steps) == sum(trajectory.generated for trajectory in kept)
    assert {len(samples_from(trajectory)) for trajectory in kept} == {2 if forks else 1}


LONG = """
from whale.harness import Harness


class LongHarness(Harness):
    max_turns = 2

    async def run(self, task, model, tools):
        messages = [{"role": "user", "content": task["question"]}]
        asked = await model.chat(messages, max_tokens=6)
        notes = "notes " * (2000 if int(task["question"].split()[-1]) % 2 else 2)
        messages += [asked, {"role": "user", "content": notes}]
        return await model.chat(messages, max_tokens=8)
"""


def test_prompts_longer_than_the_context_are_counted_and_the_run_goes_on(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    harness = tmp_path / "long"
    (harness / "prompts").mkdir(parents=True)
    (harness / "harness.py").write_text(LONG, encoding="utf-8")
    (harness / "prompts" / "system.md").write_text("Be brief.\n", encoding="utf-8")
    settings = toy_settings(toy_model)
    settings["domain_options"]["harness_folder"] = str(harness)
    settings["schedule"] = {"kind": "weight-only", "cycles": 1, "epochs": "1"}
    path = tmp_path / "long.toml"
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    whale_here("run", str(path), "--name", "long", "--quiet")
    done, steps = train_rollouts(tmp_path / "runs" / "long")
    long = [trajectory for trajectory in done if trajectory.task_id.endswith(("1", "3", "5"))]
    assert {(one.status, one.reward, len(one.turns)) for one in long} == {("overlong", 0.0, 1)}
    assert {one.status for one in done if one not in long} == {"ok"}
    assert sum(step.rollouts for step in steps) == len(done) == 12, "they count as sampled"
    assert sum(step.updates for step in steps), "the others are trained on"
