"""math-verify as Math's verifier: what is equal passes, and no expression can hold or kill the run."""

import importlib.util
import sys
from collections.abc import Iterator

import pytest

from whale.domains.math.domain import create
from whale.domains.math.equivalence import MathVerify
from whale.domains.math.verifier import verify_equivalent
from whale.errors import UsageError
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Completion


@pytest.fixture(scope="module")
def checker() -> Iterator[MathVerify]:
    yield MathVerify(seconds=5)


@pytest.mark.parametrize(
    ("reference", "boxed", "right"),
    [
        ("0.5", r"\frac{1}{2}", True),
        ("0.5", r"\dfrac12", True),
        ("0.5", r"50\%", True),
        ("1024", "1,024", True),
        ("1024", r"2^{10}", True),
        ("42", r"\text{42}", True),
        ("42", " 42 ", True),
        ("42", "42.0", True),
        ("42", "41", False),
        ("42", "424", False),
        ("42", "", False),
        ("42", "x", False),
        ("42", "{", False),
        ("42", "\ud800", False),
        ("42", r"\frac{}{}", False),
        ("42", r"\infty", False),
    ],
)
def test_what_means_the_same_passes(checker: MathVerify, reference: str, boxed: str, right: bool) -> None:
    verdict = verify_equivalent(reference, Completion("", f"\\boxed{{{boxed}}}"), checker)
    assert bool(verdict.reward) is right


@pytest.mark.parametrize("boxed", ["9^{9^{9^{9}}}", "9^{99999999}", "(" * 90 + ")" * 90, "1!" + "!" * 60, "x^" * 60])
def test_an_expression_without_end_is_wrong_and_the_next_one_is_judged(checker: MathVerify, boxed: str) -> None:
    assert verify_equivalent("7", Completion("", f"\\boxed{{{boxed}}}"), checker).reward == 0
    assert verify_equivalent("0.5", Completion("", "\\boxed{\\frac{1}{2}}"), checker).reward == 1


def test_a_megabyte_is_not_even_asked(checker: MathVerify) -> None:
    text = "\\boxed{" + "1" * 10**6 + "}"
    assert verify_equivalent("7", Completion("", text), checker).reward == 0
    assert verify_equivalent("7", Completion("", "x" * 10**6 + "\\boxed{7.0}"), checker).reward == 1


def test_what_the_model_did_not_sample_never_passes(checker: MathVerify) -> None:
    assert verify_equivalent("42", Completion("\\boxed{42}", " yes"), checker).reward == 0
    assert verify_equivalent("42", Completion("\\boxed{4", "2}"), checker).reward == 0


def test_the_domain_names_its_verifier_in_fingerprint_and_metrics() -> None:
    sizes = {"weight": 4, "harness": 2, "validation": 2, "test": 2}
    domain = create({**sizes, "verifier": "math-verify"})
    task = domain.splits()["test"][0]
    answer = task.private["answer"]
    assert domain.fingerprint() != create(sizes).fingerprint()
    verdict = domain.verify(task, Completion("", f"\\boxed{{{answer}.0}}"))
    assert (verdict.reward, verdict.metrics) == (1.0, {"format": 1.0, "strict": 0.0})


def test_a_process_that_cannot_start_is_a_fault_and_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(VerifierFault, match="does not start"):
        MathVerify().same("1", "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'whale-evolve\[math\]'"):
        create({"verifier": "math-verify"})
