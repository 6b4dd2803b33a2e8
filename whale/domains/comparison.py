"""How the answers and questions of a domain of one's own are compared.

Different numbers and symbols stay different: "-8" is not "8", "C" not "C++", "2 + 2" not "2 - 2". What a keyboard,
a typesetter or a model's habit changes is set aside: case, white space, typographic quotes, the minus sign, full-width
letters, quotes around an answer and the full stop behind it. SearchQA's comparison, words alone, is there by name.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.verifier import contains as contains_words

_SAME = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "\N{MINUS SIGN}": "-", "\N{HYPHEN}": "-", "\N{NON-BREAKING HYPHEN}": "-"}
)
_FOLDED = ("<wide>", "<narrow>", "<compat>", "<noBreak>")
"""Kinds of look-alikes that mean the same; not <super>, <sub>, <fraction>: 10² is not 102."""
_QUOTES = "\"'"
_JOINING = frozenset("+-#%&@^\\")
_PARTING = frozenset("=<>|~`")
_INSIDE_NUMBERS = frozenset(".,:/")
_DROPPED = re.compile(r"[!?;\"()\[\]{}`*_…]|(?<![^\W_])[.,:']|[.,:'](?![^\W_])")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/bfnrt]))")


@dataclass(frozen=True, slots=True)
class Comparison:
    """When two answers are the same, and when a text holds one."""

    form: Callable[[str], str]
    """Answers with an equal form are the same; one with an empty form is none."""
    contains: Callable[[Sequence[str], str], bool]
    """Whether one of the answers stands in the text, as a term of its own."""


def folded(text: str) -> str:
    """The text without case, doubled white space and typography."""
    if not text.isascii():
        same = (unicodedata.normalize("NFKC", c) if _is_look_alike(c) else c for c in text.translate(_SAME))
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", "".join(same)).casefold())
    return " ".join(text.casefold().split())


def plain(text: str) -> str:
    """The form of an answer: `folded`, without quotes around it and the one full stop behind it.

    "..." stays, and so does what would be empty: a domain may ask for punctuation.
    """
    text = folded(text)
    while True:
        if len(text) > 1 and text[-1] == "." and text[-2] != ".":
            shorter = text[:-1].rstrip()
        elif len(text) > 2 and text[0] == text[-1] and text[0] in _QUOTES:
            shorter = text[1:-1].strip()
        else:
            return text
        if not shorter:
            return text
        text = shorter


def contains_plain(answers: Sequence[str], text: str) -> bool:
    """Whether one of the answers stands in the text, no part of a longer word, number or term.

    "8" stands in "x = 8." and "(8)", not in "-8", "18", "8.5", "8%" or "1/8"; "C" not in "C++". Linear in `text`.
    """
    whole = folded(text)
    return any(_stands(plain(answer), whole) for answer in answers)


def question_form(text: str) -> str:
    """The form of a question in which a leak is looked for: `folded`, without the punctuation of sentences.

    Signs stay, so that "2 + 2" and "2 - 2" are two questions.
    """
    return " ".join(_DROPPED.sub(" ", folded(text)).split())


def unescaped(text: str) -> str:
    """The text with JSON's escapes resolved, as if all of it were a JSON string."""
    plain_of = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else plain_of.get(m[2], m[2]), text)


def _is_look_alike(character: str) -> bool:
    return unicodedata.decomposition(character).startswith(_FOLDED)


def _stands(answer: str, text: str) -> bool:
    start = text.find(answer) if answer else -1
    while start >= 0:
        end = start + len(answer)
        if not _joined(text, start) and not _joined(text, end):
            return True
        start = text.find(answer, start + 1)
    return False


def _joined(text: str, border: int) -> bool:
    """Whether the characters on both sides of a border belong to one term."""
    if not 0 < border < len(text):
        return False
    left, right = text[border - 1], text[border]
    if left.isspace() or right.isspace():
        return False
    if left in _INSIDE_NUMBERS:
        before = text[border - 2] if border > 1 else " "
        return right.isdigit() and (before.isdigit() or (left == "." and before.isspace()))
    if right in _INSIDE_NUMBERS:
        return left.isdigit() and border + 1 < len(text) and text[border + 1].isdigit()
    return _binds(left) and _binds(right)


def _binds(character: str) -> bool:
    if character in _PARTING:
        return False
    return character.isalnum() or character in _JOINING or unicodedata.category(character)[0] in "MS"


COMPARISONS: Mapping[str, Comparison] = {
    "plain": Comparison(plain, contains_plain),
    "squad": Comparison(normalise, contains_words),
}
"""By the name that `qa_domain(compare=...)` takes; "squad": words alone, no accents, articles, signs, punctuation."""
