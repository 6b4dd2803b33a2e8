"""What docs/domains/own.md shows works as it stands there."""

import re
from pathlib import Path

import pytest

from tests.rollout.scripted import LIMITS, ByteChat, ScriptedEngine
from whale.domains.base import Domain
from whale.domains.check import check_domain
from whale.domains.registry import load_domain
from whale.rollout.episodes import Sampling, run_micro_batch
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import Completion, EpisodeSpec, GenerateRequest, Trajectory

BLOCKS = re.findall(r"```python\n(.*?)```", Path("docs/domains/own.md").read_text(encoding="utf-8"), re.DOTALL)


def block(mark: str) -> str:
    (found,) = (text for text in BLOCKS if mark in text)
    return str(found)


@pytest.fixture
def prices(tmp_path: Path) -> str:
    (tmp_path / "prices.py").write_text(block("class PriceHarness"), encoding="utf-8")
    return f"{tmp_path / 'prices.py'}:create"


def rollout(domain: Domain, item: str) -> Trajectory:
    """One by a model that asks for `item` and repeats what the tool says."""
    task = next(t for t in domain.splits()["weight"])

    def say(prompt: str, request: GenerateRequest) -> str:
        if prompt.endswith("<item>"):
            asked = task.public["question"].removeprefix("How much is the ").removesuffix("?")
            return f"{item or asked}</item>"
        return str(re.findall(r"The tool says: (\d+|[a-z]+)", prompt)[-1]) + "</answer>"

    with HarnessWorker(domain.h0(), best_tier(), LIMITS) as worker:
        (trajectory,) = run_micro_batch(
            ScriptedEngine(say), ByteChat(), worker.files, {task.id: task}, [EpisodeSpec(task.id, 0, 1)], domain,
            Sampling(), worker.limits, worker,
        )  # fmt: skip
    return trajectory


def test_the_first_example_is_the_one_that_is_shipped() -> None:
    shipped = Path("examples/own/weekdays.py").read_text(encoding="utf-8")
    assert block('qa_domain("weekdays"').strip() in shipped


def test_the_example_with_a_tool_keeps_the_contract_and_its_harness_runs(prices: str) -> None:
    broken = [finding for finding in check_domain(lambda: load_domain(prices)) if not finding.holds]
    assert not broken, broken


def test_its_harness_calls_the_tool_and_a_model_that_repeats_the_price_passes(prices: str) -> None:
    domain = load_domain(prices)
    right = rollout(domain, "")
    assert (right.status, right.reward, right.fabricated) == ("ok", 1.0, False), right.reason
    assert [(call.name, call.error) for call in right.calls] == [("price", "")]
    wrong = rollout(domain, "wooden spoon")
    assert (wrong.status, wrong.reward) == ("ok", 0.0), wrong.reason
    assert wrong.calls[0].error == "there is no 'wooden spoon'"


def test_its_verifier_counts_what_is_close_and_not_what_is_no_number(tmp_path: Path) -> None:
    rows = "def rows():\n    return [{'question': f'q {n}', 'answer': str(n)} for n in range(40)]\n"
    imported = "from whale.domains.simple import qa_domain\n"
    (tmp_path / "guess.py").write_text(imported + rows + block("def close"), encoding="utf-8")
    domain = load_domain(f"{tmp_path / 'guess.py'}:create")
    task = domain.splits()["test"][0]
    near = str(int(task.private["answer"]) + 1)
    rewards = [domain.verify(task, Completion("", f"<answer>{text}</answer>")).reward for text in (near, "many", "-99")]
    assert rewards == [1, 0, 0]
    assert all(finding.holds for finding in check_domain(lambda: domain, run_h0=False))
