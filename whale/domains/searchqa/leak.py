"""The check for answers smuggled into a harness, to tasks that it will be scored or tested on."""

import re
from collections.abc import Sequence

from whale.domains.base import Split
from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.questions import Question
from whale.domains.searchqa.verifier import contains

NEAR_CHARACTERS = 300
"""An entity and its answer this close are taken for a stated fact."""
MAX_FAR_PAIRS = 3
"""So many entities together with their answers in one file are a table, however far apart they stand."""
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")


class LeakCheck:
    """Looks for the questions of hidden splits, or their subject together with the answer.

    It finds what is written in clear, not what is encoded; the sandbox and fresh test entities are the
    wall, this is the net before it. The check sees one text; pass a tree's files one by one or joined.
    """

    def __init__(self, hidden: Sequence[tuple[Split, Question]]) -> None:
        self._hidden = [
            (split, question, f" {normalise(question.text)} ", f" {normalise(question.subject)} ")
            for split, question in hidden
        ]

    def __call__(self, text: str) -> str | None:
        """The reason, naming the split and the question's id but not the answer; None if it is clean."""
        text = _ESCAPE.sub(lambda m: chr(int(m.group(1), 16)) if m.group(1) else " ", text)
        plain = f" {normalise(text)} "
        far: list[str] = []
        for split, question, asked, subject in self._hidden:
            if asked in plain:
                return f"it contains a question of the {split} split ({question.id})"
            if subject not in plain or not contains(question.answers, text):
                continue
            if self._near(plain, subject, question, text):
                return f"it states a fact that the {split} split asks for ({question.id})"
            far.append(question.id)
        if len(far) >= MAX_FAR_PAIRS:
            return f"it holds {len(far)} facts that hidden splits ask for ({', '.join(far[:3])})"
        return None

    @staticmethod
    def _near(plain: str, subject: str, question: Question, text: str) -> bool:
        exact = [answer for answer in question.answers if answer.startswith(".") or len(answer) <= 2]
        if exact:
            # Case and dots are gone from the normal form, so look around the subject in the text itself.
            words = r"[\W_]+".join(map(re.escape, question.subject.split()))
            places = re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)
            around = ((m.start(), m.end(), text) for m in places)
        else:
            places = re.finditer(re.escape(subject.strip()), plain)
            around = ((m.start(), m.end(), plain) for m in places)
        return any(
            contains(question.answers, source[max(0, start - NEAR_CHARACTERS) : end + NEAR_CHARACTERS])
            for start, end, source in around
        )
