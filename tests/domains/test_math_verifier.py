"""The `\\boxed{}` verifier against honest and adversarial outputs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.domains.math.boxed import boxed_answer
from whale.domains.math.verifier import contains_answer, verify_strict
from whale.rollout.types import Completion

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("answer", "prefix", "sampled", "reward", "well_formed"),
    [
        ("42", "", r"\boxed{42}", 1, 1),
        ("42", "", r"The answer is $\boxed{42}$.", 1, 1),
        ("42", "", r"40 + 2 = 42. The answer is \boxed{42}. I am sure.", 1, 1),
        ("42", "", r"\boxed{41}", 0, 1),
        # exactly the reference, character by character
        ("42", "", r"\boxed{ 42 }", 0, 1),
        ("42", "", r"\boxed{42.0}", 0, 1),
        ("42", "", r"\boxed{+42}", 0, 1),
        ("42", "", r"\boxed{42\%}", 0, 1),
        ("42", "", r"\boxed{\$42}", 0, 1),
        ("42", "", r"\boxed{42 apples}", 0, 1),
        ("42", "", r"\boxed{\text{42}}", 0, 1),
        ("1024", "", r"\boxed{1,024}", 0, 1),
        ("1024", "", r"\boxed{1{,}024}", 0, 1),
        ("-3", "", r"\boxed{-3}", 1, 1),
        ("-3", "", "\\boxed{\N{MINUS SIGN}3}", 0, 1),
        (r"\frac{1}{2}", "", r"\boxed{\frac{1}{2}}", 1, 1),
        (r"\frac{1}{2}", "", r"\boxed{\dfrac{1}{2}}", 0, 1),
        (r"\frac{1}{2}", "", r"\boxed{0.5}", 0, 1),
        # unicode digits are other characters
        ("42", "", "\\boxed{４２}", 0, 1),
        ("42", "", "\\boxed{٤٢}", 0, 1),
        ("42", "", "\\boxed{42\u200b}", 0, 1),
        # several: the last opening counts, even if it is not closed
        ("42", "", r"\boxed{41} no, \boxed{42}", 1, 1),
        ("42", "", r"\boxed{42} no, \boxed{41}", 0, 1),
        ("42", "", r"\boxed{42} and \boxed{41", 0, 0),
        ("42", "", r"\boxed{42} and \boxed", 1, 1),
        # nested
        ("42", "", r"\boxed{\boxed{42}}", 1, 1),
        ("{42}", "", r"\boxed{{42}}", 1, 1),
        ("42", "", r"\boxed{{42}", 0, 0),
        # no well-formed box
        ("42", "", "42", 0, 0),
        ("42", "", r"\boxed 42", 0, 0),
        ("42", "", r"\boxed[42]", 0, 0),
        ("42", "", r"\boxed{}", 0, 0),
        ("42", "", r"\boxed{  }", 0, 0),
        ("42", "", r"boxed{42}", 0, 0),
        ("42", "", r"\fbox{42}", 0, 0),
        ("42", "", r"\Boxed{42}", 0, 0),
        ("42", "", "", 0, 0),
        # only the end of the text is looked at
        ("42", "", r"\boxed{42}" + "." * 90, 1, 1),
        ("42", "", r"\boxed{42}" + "." * 91, 0, 0),
        # the prompt's own text repeated is no answer
        ("42", "", r"Put the answer into \boxed{}.", 0, 0),
        # the prefix is the harness's, not the model's
        ("42", r"The answer is \boxed{", "42}", 1, 1),
        ("42", r"The answer is \boxed{ ", "42}", 0, 1),
        ("42", r"\box", "ed{42}", 1, 1),
        ("42", r"\boxed{42}", "", 0, 0),
        ("42", r"\boxed{42}", " I agree.", 0, 0),
        ("42", r"\boxed{42", "}", 0, 0),
        ("42", r"\boxed{4", "2}", 0, 0),
        ("42", r"\boxed{42}", r" \boxed{41}", 0, 1),
        ("42", r"\boxed{41}", r" \boxed{42}", 1, 1),
        ("42", "", "\\boxed{\ud800}", 0, 1),
        ("42", "", "\\boxed{\x00}", 0, 1),
    ],
)  # fmt: skip
def test_reward_and_format(answer: str, prefix: str, sampled: str, reward: float, well_formed: float) -> None:
    verdict = verify_strict(answer, Completion(prefix, sampled))
    assert (verdict.reward, verdict.metrics["format"]) == (reward, well_formed)


@pytest.mark.parametrize(
    "text",
    [
        "a" * MEGABYTE,
        "\\boxed{" * (MEGABYTE // 7),
        "{" * MEGABYTE,
        "\\boxed{" + "{" * MEGABYTE,
        "\\boxed{" + "{}" * (MEGABYTE // 2) + "}",
        "\\boxed{1}" * (MEGABYTE // 9),
        "\\" * MEGABYTE,
        "9," * (MEGABYTE // 2),
        "-" * MEGABYTE,
        "1" * MEGABYTE,
    ],
    ids=["letters", "openings", "braces", "deep", "pairs", "boxes", "backslashes", "commas", "signs", "digits"],
)
def test_a_megabyte_is_judged_in_bounded_time(text: str) -> None:
    started = time.process_time()
    assert verify_strict("42", Completion("", text)).reward == 0
    assert verify_strict("42", Completion(text, r" \boxed{42}")).reward == 1
    assert not contains_answer("42", text)
    assert time.process_time() - started < 5


@given(prefix=st.text(), sampled=st.text() | st.from_regex(r"(\\boxed\{|\}|42|[^\\])*", fullmatch=True))
def test_the_verifier_is_total_and_deterministic(prefix: str, sampled: str) -> None:
    completion = Completion(prefix, sampled)
    verdict = verify_strict("42", completion)
    assert verdict == verify_strict("42", completion)
    assert verdict.reward in (0.0, 1.0)
    assert verdict.reward <= verdict.metrics["format"] <= 1


@given(prefix=st.text(alphabet="\\boxed{}42 ") | st.just(r"\boxed{42}") | st.just(r"\boxed{42"))
def test_what_the_model_did_not_sample_never_passes(prefix: str) -> None:
    for sampled in ("", "ok", "}", " }."):
        assert verify_strict("42", Completion(prefix, sampled)).reward == 0


def test_the_box_is_what_stands_between_its_braces() -> None:
    assert boxed_answer(Completion("", r"\boxed{\frac{a}{b} }")) == r"\frac{a}{b} "
    assert boxed_answer(Completion("", "nothing")) is None


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("42", "It is 42.", True),
        ("42", "42", True),
        ("42", "x=42;", True),
        ("42", "142 and 421", False),
        ("42", "4.2 or 42.5 or 1.42", False),
        ("42", "42.0 metres", True),
        ("1024", "1,024 bytes", True),
        ("1,024", "1024 bytes", True),
        ("24", "1,024", False),
        ("42", "a42 42b", False),
        ("42", "", False),
        ("-3", "-3", True),
        (r"\frac{1}{2}", r"so \frac{1}{2}.", True),
        (r"\frac{1}{2}", "0.5", False),
    ],
)
def test_an_answer_stands_in_a_text_as_a_number_of_its_own(answer: str, text: str, expected: bool) -> None:
    assert contains_answer(answer, text) is expected
