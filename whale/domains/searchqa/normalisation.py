"""How answers and texts are compared: one normal form, used by verifier, retrieval and leak check alike."""

import re
import unicodedata

_LETTERS = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe",
     "Œ": "Oe", "ı": "i", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ʻ": "'", "‘": "'", "’": "'", "`": "'"}
)  # fmt: skip
"""Letters that NFKD does not take apart."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d)")
_DELETED = re.compile(r"(?<=[^\W\d_])\.(?=[^\W\d_])|(?<=\w)'")
_OTHER = re.compile(r"[\W_]+")
_ARTICLES = frozenset(("a", "an", "the"))


def ascii_text(text: str) -> str:
    """Fold accents and drop what is left outside ASCII; case and punctuation stay."""
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return decomposed.encode("ascii", "ignore").decode("ascii")


def normalise(text: str) -> str:
    """Normal form of an answer: lowercase words, single spaces, no accents, punctuation or articles.

    Apostrophes, dots between letters ("D.C.") and commas inside a number vanish; any other
    punctuation separates words ("Porto-Novo"). Letters of other scripts stay as they are. Linear in `text`.
    """
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS)).casefold()
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    plain = _DELETED.sub("", _THOUSANDS.sub("", plain))
    words = _OTHER.sub(" ", plain).split()
    kept = [word for word in words if word not in _ARTICLES]
    return " ".join(kept or words)
