"""The `<answer>` verifier against honest and adversarial outputs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.verifier import answer_span, contains, verify
from whale.rollout.types import Completion

PARIS = ["Paris"]
MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("answers", "prefix", "sampled", "reward", "well_formed"),
    [
        (PARIS, "", "<answer>Paris</answer>", 1, 1),
        (PARIS, "", "thinking... <answer> paris. </answer> done", 1, 1),
        (PARIS, "", "<answer>The Paris</answer>", 1, 1),
        (PARIS, "", "<answer>\nPARIS\n</answer>", 1, 1),
        (PARIS, "", "<answer>Paris, France</answer>", 0, 1),
        (PARIS, "", "<answer>London</answer>", 0, 1),
        # several tags: the last complete one counts
        (PARIS, "", "<answer>London</answer><answer>Paris</answer>", 1, 1),
        (PARIS, "", "<answer>Paris</answer><answer>London</answer>", 0, 1),
        (PARIS, "", "<answer>Paris</answer> or <answer>", 1, 1),
        (PARIS, "", "<answer>Paris</answer></answer>", 1, 1),
        # nested
        (PARIS, "", "<answer><answer>Paris</answer></answer>", 1, 1),
        (PARIS, "", "<answer>London <answer>Paris</answer>", 1, 1),
        # no well-formed tag
        (PARIS, "", "Paris", 0, 0),
        (PARIS, "", "<answer>Paris", 0, 0),
        (PARIS, "", "Paris</answer>", 0, 0),
        (PARIS, "", "</answer>Paris<answer>", 0, 0),
        (PARIS, "", "<answer></answer>", 0, 0),
        (PARIS, "", "<answer>  \n </answer>", 0, 0),
        (PARIS, "", "<ANSWER>Paris</ANSWER>", 0, 0),
        (PARIS, "", "<answer >Paris</answer>", 0, 0),
        (PARIS, "", "", 0, 0),
        # the prefix is the harness's, not the model's
        (PARIS, "<answer>", "Paris</answer>", 1, 1),
        (PARIS, "<answer> ", "Paris</answer>", 1, 1),
        (PARIS, "So: <ans", "wer>Paris</answer>", 1, 1),
        (PARIS, "<answer>Paris</answer>", "", 0, 0),
        (PARIS, "<answer>Paris</answer>", " I agree.", 0, 0),
        (PARIS, "<answer>Paris", "</answer>", 0, 0),
        (PARIS, "<answer>Pa", "ris</answer>", 0, 0),
        (PARIS, "<answer>Paris</answer>", "<answer>London</answer>", 0, 1),
        (PARIS, "<answer>London</answer>", "<answer>Paris</answer>", 1, 1),
        (PARIS, "<answer>Paris</ans", "wer>", 0, 0),
        # unicode, accents, punctuation
        (["Sao Paulo"], "", "<answer>São Paulo</answer>", 1, 1),
        (["N'Djamena"], "", "<answer>N\u2019Djaména</answer>", 1, 1),
        (["Porto-Novo"], "", "<answer>Porto Novo</answer>", 1, 1),
        (["Lodz"], "", "<answer>Łódź</answer>", 1, 1),
        (["St. John's"], "", "<answer>St Johns</answer>", 1, 1),
        (["Paris"], "", "<answer>Ｐａｒｉｓ</answer>", 1, 1),
        (["Paris"], "", "<answer>\u202eParis\u202c</answer>", 1, 1),
        (["376"], "", "<answer>+376</answer>", 1, 1),
        (["376"], "", "<answer>3760</answer>", 0, 1),
        (["32"], "", "<answer>3.2</answer>", 0, 1),
        ([".fr"], "", "<answer>fr</answer>", 1, 1),
        ([".fr"], "", "<answer>.FR.</answer>", 1, 1),
        (["Ivory Coast", "Cote d'Ivoire"], "", "<answer>Côte d’Ivoire</answer>", 1, 1),
        (["Washington", "Washington, D.C."], "", "<answer>Washington D.C.</answer>", 1, 1),
        (PARIS, "", "<answer>\ud800</answer>", 0, 1),
        (PARIS, "", "<answer>...</answer>", 0, 1),
        (PARIS, "", "<answer>\x00</answer>", 0, 1),
    ],
)  # fmt: skip
def test_reward_and_format(answers: list[str], prefix: str, sampled: str, reward: float, well_formed: float) -> None:
    verdict = verify(answers, Completion(prefix, sampled))
    assert (verdict.reward, verdict.metrics["format"]) == (reward, well_formed)


@pytest.mark.parametrize(
    "text",
    [
        "a" * MEGABYTE,
        "<answer>" * (MEGABYTE // 8),
        "</answer>" * (MEGABYTE // 9),
        "<answer>x</answer>" * (MEGABYTE // 18),
        "<answer>" + "Paris " * (MEGABYTE // 6) + "</answer>",
        "<answer>" + "\u0301" * MEGABYTE + "</answer>",
        "<" * MEGABYTE,
    ],
    ids=["letters", "openings", "closings", "pairs", "long-span", "accents", "brackets"],
)
def test_a_megabyte_is_judged_in_bounded_time(text: str) -> None:
    started = time.process_time()
    assert verify(PARIS, Completion("", text)).reward == 0
    assert verify(PARIS, Completion(text, "<answer>Paris</answer>")).reward == 1
    assert time.process_time() - started < 5


@given(prefix=st.text(), sampled=st.text() | st.from_regex(r"(</?answer>|Paris|[^<])*", fullmatch=True))
def test_the_verifier_is_total_and_deterministic(prefix: str, sampled: str) -> None:
    completion = Completion(prefix, sampled)
    verdict = verify(PARIS, completion)
    assert verdict == verify(PARIS, completion)
    assert verdict.reward in (0.0, 1.0)
    assert verdict.reward <= verdict.metrics["contained"] <= verdict.metrics["format"] <= 1


@given(prefix=st.text(alphabet="<>/answerPis ") | st.just("<answer>Paris</answer>"))
def test_what_the_model_did_not_sample_never_passes(prefix: str) -> None:
    assert verify(PARIS, Completion(prefix, "")).reward == 0
    assert verify(PARIS, Completion(prefix, "ok")).reward == 0


@given(st.text())
def test_normal_form_is_stable(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


def test_the_span_is_what_stands_between_the_tags() -> None:
    assert answer_span(Completion("<answer>", " a b </answer>")) == " a b "
    assert answer_span(Completion("", "nothing")) is None


@pytest.mark.parametrize(
    ("answers", "text", "expected"),
    [
        (PARIS, "He lives in paris.", True),
        (PARIS, "Parisians live there.", False),
        (["Niger"], "Nigeria is large", False),
        (["Niger"], "It lies in (Niger).", True),
        ([".in"], "It lies in India", False),
        ([".in"], "the domain is .in.", True),
        ([".in"], "file.info", False),
        (["Ni"], "Chemists write Ni.", True),
        (["Ni"], "ni", False),
        (["Ni"], "Nickel", False),
        (["32"], "1,832 people", False),
        (["32"], "number 32.", True),
        (["Sao Tome"], "São Tomé", True),
        (PARIS, "", False),
    ],
)
def test_containment_is_at_word_borders(answers: list[str], text: str, expected: bool) -> None:
    assert contains(answers, text) is expected


def test_a_wrong_longer_answer_counts_as_contained_but_not_as_right() -> None:
    verdict = verify(PARIS, Completion("", "<answer>the city of Paris in France</answer>"))
    assert (verdict.reward, verdict.metrics) == (0.0, {"format": 1.0, "contained": 1.0})
