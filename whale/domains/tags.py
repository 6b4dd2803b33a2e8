"""Reads an answer from a tag, where the model sampled all of it."""

import re
from functools import cache

from whale.rollout.types import Completion


@cache
def _pattern(tag: str) -> "re.Pattern[str]":
    return re.compile(f"</?{re.escape(tag)}>")


def last_span(completion: Completion, tag: str) -> str | None:
    """The content of the last `<tag>...</tag>` if the model sampled all of it, else None.

    The opening tag may stand in the harness's prefix; of the content only blanks may. A closing tag pairs
    with the nearest opening tag before it, unless another closing tag lies between. One pass, linear.
    """
    text = completion.prefix + completion.sampled
    opened: int | None = None
    last: tuple[int, int] | None = None
    for found in _pattern(tag).finditer(text):
        if found.group()[1] != "/":
            opened = found.end()
        elif opened is not None:
            last, opened = (opened, found.start()), None
    if last is None:
        return None
    start, end = last
    own = len(completion.prefix)
    if end < own or text[start:own].strip():
        return None
    return text[start:end]
