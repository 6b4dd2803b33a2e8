"""Dense retrieval with real FAISS over a tiny random encoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.domains.test_paper_searchqa import PASSAGES
from tests.domains.test_rows import write
from whale.domains.searchqa.paper.corpus import Corpus
from whale.domains.searchqa.paper.dense import DenseRetriever, E5Encoder, build_index
from whale.errors import UsageError


def tiny_encoder(folder: Path, width: int = 16) -> Path:
    import transformers
    from transformers import BertConfig

    alphabet = "abcdefghijklmnopqrstuvwxyz"
    letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet, ":", ".", *(f"##{c}" for c in alphabet)]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(letters))
    tokenizer: Any = transformers.BertTokenizerFast  # type: ignore[attr-defined]  # there, but not in its stubs
    tokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(letters), hidden_size=width, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model: Any = transformers.BertModel
    model(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dense")
    tiny_encoder(path / "e5")
    write(path / "wiki.jsonl", PASSAGES)
    assert build_index(Corpus(path / "wiki.jsonl"), path / "wiki.index", E5Encoder(str(path / "e5"))) == 3
    return path


def test_vectors_have_length_1_and_do_not_depend_on_the_batch(folder: Path) -> None:
    encoder = E5Encoder(str(folder / "e5"))
    together = encoder.encode(["query: a", "query: a much longer text"])
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.allclose(encoder.encode(["query: a"])[0], together[0], atol=1e-5)


def test_the_passage_with_the_largest_inner_product_comes_first(folder: Path) -> None:
    corpus = Corpus(folder / "wiki.jsonl")
    retriever = DenseRetriever(corpus, folder / "wiki.index", str(folder / "e5"))
    encoder = E5Encoder(str(folder / "e5"))
    passages = [corpus[n] for n in range(3)]
    vectors = encoder.encode([f"passage: {p.title}\n{p.text}" for p in passages])
    order = np.argsort(-(vectors @ encoder.encode(["query: tiber"])[0]))
    assert [p.title for p in retriever.search("tiber", 3)] == [passages[n].title for n in order]
    assert len(retriever.search("tiber", 5)) == 3
    retriever.preflight()


def test_what_does_not_fit_together_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(folder / "wiki.jsonl")
    with pytest.raises(UsageError, match=r"this builds it: python -m whale.domains.searchqa.paper.dense"):
        DenseRetriever(corpus, tmp_path / "none.index")
    (tmp_path / "junk.index").write_text("junk")
    with pytest.raises(UsageError, match="not a FAISS index"):
        DenseRetriever(corpus, tmp_path / "junk.index")
    other = Corpus(write(tmp_path / "other.jsonl", PASSAGES[:2]))
    with pytest.raises(UsageError, match=r"3 vectors, but .* has 2 passages"):
        DenseRetriever(other, folder / "wiki.index")
    with pytest.raises(UsageError, match="hf download intfloat/e5-base-v2"):
        DenseRetriever(corpus, folder / "wiki.index", str(tmp_path)).search("x", 1)
    wider = tiny_encoder(tmp_path / "wider", width=32)
    with pytest.raises(UsageError, match="another width"):
        DenseRetriever(corpus, folder / "wiki.index", str(wider)).preflight()


def test_missing_faiss_is_named_with_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(UsageError, match=r"pip install 'whale-evolve\[retrieval\]'"):
        DenseRetriever(Corpus(folder / "wiki.jsonl"), folder / "wiki.index")
