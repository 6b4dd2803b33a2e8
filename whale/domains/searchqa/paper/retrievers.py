"""Retrieval behind one interface: BM25 in memory, a dense index, or a service by URL."""

import time
from typing import Any, Protocol

from whale.domains.searchqa.paper.corpus import Corpus, passage_of
from whale.domains.searchqa.passages import Passage
from whale.domains.searchqa.retrieval import Index
from whale.errors import UsageError
from whale.rollout.errors import ToolFault

MAX_BM25 = 2_000_000
"""Passages that the in-memory index takes; more belong into a dense index or a service."""
_PAUSE = 0.5
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class Retriever(Protocol):
    """Finds passages."""

    def search(self, query: str, k: int) -> list[Passage]:
        """The k best, best first. Raises ToolFault where the search itself fails."""
        ...

    def fingerprint(self) -> str:
        """What decides its results, as far as that can be known from here."""
        ...

    def preflight(self) -> None:
        """Raise ToolFault or UsageError where it cannot work, before anything is paid."""
        ...


class Bm25Retriever:
    """BM25 over a corpus in memory, built with the first search."""

    def __init__(self, corpus: Corpus) -> None:
        if len(corpus) > MAX_BM25:
            raise UsageError(
                f"{corpus.path}: {len(corpus):,} passages are too many for BM25 in memory; "
                "use retrieval = 'dense' with an index, or 'remote'"
            )
        self._corpus = corpus
        self._index: Index | None = None

    def search(self, query: str, k: int) -> list[Passage]:
        """See `Retriever.search`."""
        if self._index is None:
            self._index = Index([self._corpus[number] for number in range(len(self._corpus))])
        return self._index.search(query, k)

    def fingerprint(self) -> str:
        """See `Retriever.fingerprint`."""
        return f"bm25/{self._corpus.fingerprint()}"

    def preflight(self) -> None:
        """Read every passage: a line that is none must not first be met in a rollout that was paid for."""
        self.search("capital of France", 1)


class RemoteRetriever:
    """A service that answers POST {"queries", "topk", "return_scores"} with {"result": [[{"document"}]]}.

    That is the protocol of the retrieval server that is usual with wiki-18 and E5. A busy or unreachable
    service is asked again with growing pauses, at most `retries` times.
    """

    def __init__(self, url: str, *, timeout: float = 30.0, retries: int = 5, pause: float = _PAUSE) -> None:
        import httpx2

        self.url = url
        self._retries = retries
        self._pause = pause
        self._http = httpx2
        self._client = httpx2.Client(timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0)))

    def search(self, query: str, k: int) -> list[Passage]:
        """See `Retriever.search`."""
        body = {"queries": [query], "topk": k, "return_scores": True}
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._pause * 2 ** (attempt - 1))
            try:
                response = self._client.post(self.url, json=body)
            except self._http.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if response.status_code in _BUSY:
                reason = f"status {response.status_code}"
                continue
            if response.status_code != 200:
                reason = f"status {response.status_code}: {response.text[:100]!r}"
                break
            return self._passages(response)[:k]
        raise ToolFault(f"the retrieval service {self.url} does not answer: {' '.join(reason.split())[:200]}")

    def fingerprint(self) -> str:
        """The address: what lies behind it cannot be known."""
        return f"remote/{self.url}"

    def preflight(self) -> None:
        """Search once."""
        self.search("capital of France", 1)

    def _passages(self, response: Any) -> list[Passage]:
        try:
            found = response.json()["result"][0]
            return [passage_of(item.get("document", item)) for item in found]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ToolFault(f"the retrieval service {self.url} speaks another protocol: {error!r}") from None
