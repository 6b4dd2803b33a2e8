"""Passage retrieval: BM25 (bm25s, Lucene's variant) over the whole encyclopedia, all splits together."""

import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from whale.domains.searchqa.facts import load_facts
from whale.domains.searchqa.normalisation import ascii_text
from whale.domains.searchqa.passages import Passage, write_passages

MAX_PASSAGES = 5
MAX_QUERY_CHARACTERS = 500
_TERM = re.compile(r"(?<![a-z0-9])\.[a-z]{2,3}(?![a-z0-9])|[a-z0-9]+")
"""A word, a number, or an internet domain with its dot (so that ".in" is not the word "in")."""
_JOINED = re.compile(r"(?<=\d),(?=\d)|(?<=[a-z])'(?=[a-z])")
_TIES = 4
"""Decimals of a score that count; closer scores are ties, ended by the passage's place in the corpus."""


def terms(text: str) -> list[str]:
    """Index terms: lowercase, accents folded, "1,832" and "N'Djamena" one term each."""
    return _TERM.findall(_JOINED.sub("", ascii_text(text).lower()))


class Index:
    """A BM25 index over titles and texts; immutable after construction, ranks deterministically."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        # bm25s tries JAX on import, where it is installed; JAX would take three quarters of the GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import bm25s  # half a second, and needed by runs only

        self.passages = tuple(passages)
        corpus = [terms(f"{passage.title}. {passage.text}") for passage in self.passages]
        self._known = {term for document in corpus for term in document}
        self._bm25: Any = bm25s.BM25(method="lucene", backend="numpy")
        self._bm25.index(corpus, show_progress=False)

    def search(self, query: str, k: int) -> list[Passage]:
        """The k best passages, best first; fewer if fewer share a term with the query."""
        import numpy as np

        known = [term for term in terms(query[:MAX_QUERY_CHARACTERS]) if term in self._known]
        if not known:
            return []
        scores = np.round(np.asarray(self._bm25.get_scores(known), dtype=np.float64), _TIES)
        order = np.argsort(-scores, kind="stable")[:k]
        return [self.passages[i] for i in order if scores[i] > 0]


@cache
def encyclopedia() -> tuple[Passage, ...]:
    """The passages of the shipped facts, written once per process."""
    return write_passages(load_facts())


@cache
def encyclopedia_index() -> Index:
    """The index over the shipped passages, built on the first search of a process."""
    return Index(encyclopedia())


def check_arguments(query: object, k: object) -> tuple[str, int]:
    """Validate what a harness passed to `search`; raises ValueError with a text that it may see."""
    if not isinstance(query, str) or not query.strip():
        raise ValueError("search: query must be a non-empty string")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise ValueError(f"search: query must have at most {MAX_QUERY_CHARACTERS} characters")
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_PASSAGES:
        raise ValueError(f"search: k must be a whole number from 1 to {MAX_PASSAGES}")
    return query, k
