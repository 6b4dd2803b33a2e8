r"""The verifiers: DAPO's strict `\\boxed{}` match, or mathematical equivalence by math-verify."""

import re
from typing import Literal, Protocol

from whale.domains.base import Verdict
from whale.domains.math.boxed import boxed_answer
from whale.rollout.types import Completion

VerifierName = Literal["strict", "math-verify"]
VERIFIERS: tuple[VerifierName, ...] = ("strict", "math-verify")
MAX_EXPRESSION = 200
"""Characters of an answer that math-verify is asked about; a longer one is wrong."""
MATH_VERIFY_WINDOW = 1000
"""Characters at the end of the text in which math-verify's answer is looked for."""
_NUMBER = re.compile(r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w|[.,]\d)", re.ASCII)


class Equivalence(Protocol):
    """Decides whether two LaTeX expressions mean the same."""

    def same(self, reference: str, given: str) -> bool:
        """Whether they do. False for what cannot be parsed or takes too long."""
        ...


def verify_strict(answer: str, completion: Completion) -> Verdict:
    r"""Reward 1 if the content of the last `\\boxed{}` is exactly the reference, character by character.

    Metrics: "format" (there is a closed box that is not blank, sampled by the model).
    """
    given = boxed_answer(completion)
    if given is None or not given.strip():
        return Verdict(0.0, {"format": 0.0})
    return Verdict(float(given == answer), {"format": 1.0})


def verify_equivalent(answer: str, completion: Completion, equivalence: Equivalence) -> Verdict:
    r"""Reward 1 if the boxed expression equals the reference mathematically: `\\frac{1}{2}` is 0.5.

    Metrics: "format", and "strict" (whether the strict check passes it too).
    """
    given = boxed_answer(completion, MATH_VERIFY_WINDOW)
    if given is None or not given.strip():
        return Verdict(0.0, {"format": 0.0, "strict": 0.0})
    strict = verify_strict(answer, completion).reward
    right = given == answer or (len(given) <= MAX_EXPRESSION and equivalence.same(answer, given))
    return Verdict(float(right), {"format": 1.0, "strict": strict})


def contains_answer(answer: str, text: str) -> bool:
    """Whether the answer stands in a text: as a number of its own ("1,024" is 1024, "12" is not in 112 or 1.12).

    An answer that is no number is looked for as it is written.
    """
    if not _NUMBER.fullmatch(answer):
        return answer in text
    wanted = _plain(answer)
    return any(_plain(match.group()) == wanted for match in _NUMBER.finditer(text))


def _plain(number: str) -> str:
    number = number.replace(",", "").removeprefix("+")
    return number.rstrip("0").rstrip(".") if "." in number else number
