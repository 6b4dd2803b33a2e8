r"""Find the answer that the model put into `\\boxed{}`."""

from whale.rollout.types import Completion

OPEN = "\\boxed{"
WINDOW = 100
"""Characters at the end of the text that are looked at, as in DAPO's strict check (verl's math_dapo)."""


def boxed_answer(completion: Completion, window: int = WINDOW) -> str | None:
    r"""The content of the last `\\boxed{...}` in the last `window` characters, if the model sampled it; else None.

    As in DAPO's strict check it is the last opening that counts, even where it is never closed, and braces
    nest. The opening may stand in the harness's prefix; of the content, only blanks may. One pass, linear.
    """
    text = completion.prefix + completion.sampled
    start = text.rfind(OPEN, max(0, len(text) - window))
    if start < 0:
        return None
    begin = start + len(OPEN)
    end = _closing(text, begin)
    own = len(completion.prefix)
    if end is None or end < own or text[begin:own].strip():
        return None
    return text[begin:end]


def _closing(text: str, begin: int) -> int | None:
    """Where the brace that is open at `begin` closes."""
    depth = 1
    for position in range(begin, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return None
