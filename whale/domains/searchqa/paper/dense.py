"""Dense retrieval: a FAISS index over E5 embeddings.

    python -m whale.domains.searchqa.paper.dense corpus.jsonl index.faiss --encoder path/to/e5-base-v2

builds one for a corpus of moderate size. For wiki-18, 21 million passages, take the index that is published
with it: the row of a vector is the line of its passage.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whale.domains.searchqa.paper.corpus import Corpus
from whale.domains.searchqa.passages import Passage
from whale.errors import UsageError

ENCODER = "intfloat/e5-base-v2"
_TOKENS = 256
_BATCH = 64


class E5Encoder:
    """Mean-pooled, normalised embeddings; E5 wants "query: " and "passage: " before a text."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name)
            self._model: Any = AutoModel.from_pretrained(name).to(device).eval()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"encoder {name}: cannot be loaded: {' '.join(str(error).split())[:200]}; fetch it by "
                f"`hf download {ENCODER} --local-dir models/e5-base-v2` and name that folder"
            ) from None
        self._torch = torch
        self._device = device

    def encode(self, texts: Sequence[str]) -> Any:
        """A float32 array [len(texts), width], each row of length 1."""
        torch = self._torch
        parts = []
        for start in range(0, len(texts), _BATCH):
            batch = self._tokenizer(
                list(texts[start : start + _BATCH]),
                padding=True,
                truncation=True,
                max_length=_TOKENS,
                return_tensors="pt",
            ).to(self._device)
            with torch.inference_mode():
                hidden = self._model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            parts.append(torch.nn.functional.normalize(mean, dim=-1).float().cpu())
        return torch.cat(parts).numpy()


class DenseRetriever:
    """Inner products over a FAISS index whose row i is the corpus's line i. The encoder loads at the first search."""

    def __init__(self, corpus: Corpus, index: Path, encoder: str = ENCODER, device: str = "cpu") -> None:
        faiss = _faiss()
        if not index.is_file():
            raise UsageError(
                f"{index}: no such index; this builds it: "
                f"python -m whale.domains.searchqa.paper.dense {corpus.path} {index}"
            )
        try:
            self._index = faiss.read_index(str(index), faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise UsageError(f"{index}: not a FAISS index: {str(error).splitlines()[-1][:100]}") from None
        if self._index.ntotal != len(corpus):
            raise UsageError(
                f"{index}: it has {self._index.ntotal:,} vectors, but {corpus.path} has {len(corpus):,} passages"
            )
        self._corpus = corpus
        self._name, self._device = encoder, device
        self._encoder: E5Encoder | None = None
        self._id = f"dense/{corpus.fingerprint()}/{index.name}:{index.stat().st_size}/{encoder}"

    def search(self, query: str, k: int) -> list[Passage]:
        """See `Retriever.search`."""
        if self._encoder is None:
            self._encoder = E5Encoder(self._name, self._device)
        _, rows = self._index.search(self._encoder.encode([f"query: {query}"]), k)
        return [self._corpus[int(row)] for row in rows[0] if row >= 0]

    def fingerprint(self) -> str:
        """See `Retriever.fingerprint`."""
        return self._id

    def preflight(self) -> None:
        """Search once: a wrong encoder shows by its width."""
        try:
            self.search("capital of France", 1)
        except AssertionError:
            raise UsageError(f"encoder {self._name}: its vectors have another width than the index's") from None


def build_index(corpus: Corpus, index: Path, encoder: E5Encoder) -> int:
    """Write an exact inner-product index over the corpus; returns the number of vectors."""
    faiss = _faiss()
    flat: Any = None
    for start in range(0, len(corpus), 1024):
        passages = [corpus[number] for number in range(start, min(start + 1024, len(corpus)))]
        vectors = encoder.encode([f"passage: {passage.title}\n{passage.text}" for passage in passages])
        flat = flat if flat is not None else faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
    faiss.write_index(flat, str(index))
    return int(flat.ntotal)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise UsageError("dense retrieval needs FAISS: pip install 'whale-evolve[retrieval]'") from None
    return faiss


def main() -> None:
    """Build an index."""
    parser = argparse.ArgumentParser(description="Build a dense index over a corpus.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("index", type=Path)
    parser.add_argument("--encoder", default=ENCODER)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    try:
        count = build_index(Corpus(options.corpus), options.index, E5Encoder(options.encoder, options.device))
    except UsageError as error:
        raise SystemExit(str(error)) from None
    print(f"wrote {options.index}: {count:,} vectors")


if __name__ == "__main__":
    main()
