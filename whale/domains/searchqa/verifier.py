"""The verifier: reads the `<answer>` span that the model sampled and compares it in normal form."""

import re
from collections.abc import Sequence

from whale.domains.base import Verdict
from whale.domains.searchqa.normalisation import ascii_text, normalise
from whale.domains.tags import last_span
from whale.rollout.types import Completion

MAX_ANSWER_CHARACTERS = 200
"""A longer span is no answer; it also bounds the work of comparing."""
_EDGE = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"


def answer_span(completion: Completion) -> str | None:
    """The content of the last `<answer>...</answer>` if the model sampled all of it, else None; see `last_span`."""
    return last_span(completion, "answer")


def verify(answers: Sequence[str], completion: Completion) -> Verdict:
    """Reward 1 if the answer span equals one of the answers in normal form. Total on any text.

    Metrics: "format" (there is a well-formed, non-empty span), "contained" (an answer stands in the span,
    so the span holds it and more, or just it).
    """
    span = answer_span(completion)
    if span is None or not span.strip() or len(span) > MAX_ANSWER_CHARACTERS:
        return Verdict(0.0, {"format": 0.0, "contained": 0.0})
    given = normalise(span)
    exact = bool(given) and any(given == normalise(answer) for answer in answers)
    contained = exact or contains(answers, span)
    return Verdict(float(exact), {"format": 1.0, "contained": float(contained)})


def contains(answers: Sequence[str], text: str) -> bool:
    """Whether one of the answers stands in the text at word borders.

    Names are compared in normal form. Internet domains keep their dot and chemical symbols (one or two
    letters) their case, since ".in" and "In" are not the word "in".
    """
    plain: str | None = None
    folded: str | None = None
    for answer in answers:
        if answer.startswith(".") or len(answer) <= 2:
            folded = ascii_text(text) if folded is None else folded
            pattern = _EDGE.format(re.escape(answer))
            if re.search(pattern, folded):
                return True
        else:
            plain = f" {normalise(text)} " if plain is None else plain
            if f" {normalise(answer)} " in plain:
                return True
    return False
