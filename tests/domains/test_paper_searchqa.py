"""Paper-size SearchQA: seven test sets by name, retrieval behind one interface, the judge in the verifier."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.domains.servers import Served, fair_judge, serve
from tests.domains.test_rows import write
from whale.domains.base import Task
from whale.domains.registry import load_domain
from whale.domains.searchqa.paper.corpus import Corpus
from whale.domains.searchqa.paper.data import TEST_SETS
from whale.domains.searchqa.paper.domain import PaperOptions, PaperSearchQA
from whale.domains.searchqa.paper.retrievers import Bm25Retriever, RemoteRetriever
from whale.errors import UsageError
from whale.harness.validation import check_source
from whale.rollout.errors import RolloutFault, ToolFault, VerifierFault
from whale.rollout.types import Completion

PASSAGES = [
    {"id": "0", "contents": '"Paris"\nParis is the capital of France.'},
    {"id": "1", "contents": '"Rome"\nRome is the capital of Italy.\nIt lies on the Tiber.'},
    {"id": "2", "contents": '"Łódź"\nŁódź is a city in Poland.'},
]


def row(question: str, answers: list[str], source: str) -> dict[str, Any]:
    return {
        "id": question,
        "question": question,
        "golden_answers": answers,
        "data_source": source,
        "prompt": [{"role": "user", "content": f"Answer: {question}"}],
        "reward_model": {"ground_truth": {"target": answers}, "style": "rule"},
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nq_hotpotqa_train")
    train = [row(f"Who wrote book {n}?", [f"Author {n}"], "nq" if n % 2 else "hotpotqa") for n in range(40)]
    tests = [row(f"{name} question {n}?", ["Paris", "Paname"], name) for name in TEST_SETS for n in range(4)]
    train += [train[0], row("NQ question 1", ["x"], "nq")]  # a repeat, and one that a test set asks
    write(folder / "train.parquet", train)
    write(folder / "test.parquet", tests)
    write(folder / "wiki.jsonl", PASSAGES)
    return folder


@pytest.fixture
def options(data: Path) -> dict[str, Any]:
    return {
        "size": "paper", "source": str(data), "harness": 5, "validation": 6, "retrieval": "bm25",
        "corpus": str(data / "wiki.jsonl"),
    }  # fmt: skip


def test_the_seven_test_sets_are_groups_and_training_holds_no_test_question(options: dict[str, Any]) -> None:
    splits = load_domain("searchqa", options).splits()
    assert {split: len(tasks) for split, tasks in splits.items()} == {
        "weight": 29, "harness": 5, "validation": 6, "test": 28,
    }  # fmt: skip
    assert [task.group for task in splits["test"]] == [name for name in TEST_SETS for _ in range(4)]
    assert {task.group for task in splits["weight"]} == {"nq", "hotpotqa"}
    ids = [task.id for tasks in splits.values() for task in tasks]
    assert len(set(ids)) == len(ids)


def test_caps_and_chosen_test_sets(options: dict[str, Any]) -> None:
    splits = load_domain("searchqa", {**options, "test_sets": ["bamboogle", "nq"], "test": 3, "weight": 7}).splits()
    assert [task.group for task in splits["test"]] == ["bamboogle"] * 3 + ["nq"] * 3
    assert len(splits["weight"]) == 7


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": "huge"}, "size must be embedded or paper"),
        ({"control": True}, "unknown option 'control' with size = 'paper'"),
        ({"test_sets": ["nq", "squad"]}, "test_sets must be some of"),
        ({"test_sets": "nq"}, "test_sets must be a list"),
        ({"test_sets": [["nq"]]}, "test_sets must be some of"),
        ({"test_sets": ["nq", "nq"]}, "test_sets names one twice"),
        ({"source": ["x"]}, "source must be a text"),
        ({"source": " "}, "source is empty"),
        ({"encoder": ""}, "encoder is empty"),
        ({"timeout": "30"}, "timeout must be a number of seconds above 0"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"seed": True}, "seed must be a whole number"),
        ({"corpus": "x" * 5000}, "corpus: .* cannot be read: File name too long"),
        ({"corpus": " "}, "needs corpus"),
        ({"retrieval": "magic"}, "retrieval must be"),
        ({"corpus": ""}, "needs corpus"),
        ({"retrieval": "remote"}, "needs url"),
        ({"retrieval": "dense"}, "needs index"),
        ({"corpus": "gone.jsonl"}, "no such corpus"),
        ({"harness": 0}, "harness must be a whole number"),
        ({"harness": 60}, "leaves no question for validation"),
        ({"judge": {"modle": "x"}}, "unknown option 'modle'"),
        ({"source": "gone/folder/x"}, "no such file or folder"),
    ],
)
def test_a_wrong_option_is_one_clear_line(options: dict[str, Any], change: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        load_domain("searchqa", {**options, **change})
    assert "\n" not in str(caught.value)


def test_the_tool_searches_and_h0_is_valid(options: dict[str, Any]) -> None:
    domain = load_domain("searchqa", options)
    search = domain.tools(domain.splits()["test"][0])["search"]
    assert search(query="capital of Italy") == [
        {"title": "Rome", "text": "Rome is the capital of Italy.\nIt lies on the Tiber."}
    ]
    with pytest.raises(ValueError, match="non-empty"):
        search(query="")
    assert check_source(domain.h0()) is None
    assert domain.leak(domain.splits()["test"][0].public["question"]) is not None
    assert domain.leak(domain.splits()["weight"][0].public["question"]) is None


def test_a_corpus_is_read_by_line_and_its_lines_are_found_once(tmp_path: Path) -> None:
    path = write(tmp_path / "wiki.jsonl", PASSAGES)
    corpus = Corpus(path)
    assert [corpus[n].title for n in (2, 0, 1)] == ["Łódź", "Paris", "Rome"]
    assert len(Corpus(path)) == 3 and (tmp_path / "wiki.jsonl.lines.npy").exists()
    path.write_text(path.read_text().rstrip("\n") + "\n" + json.dumps({"title": "T", "text": "x"}))
    assert (len(Corpus(path)), Corpus(path)[3].text) == (4, "x")
    path.write_text("{}\n")
    with pytest.raises(UsageError, match="line 1 is no passage"):
        Corpus(path)[0]
    path.write_text("")
    with pytest.raises(UsageError, match="empty"):
        Corpus(path)


# --- the service ---


@pytest.fixture
def service() -> Iterator[Served]:
    def answer(request: dict[str, Any]) -> Any:
        found = [{"document": passage, "score": 1.0} for passage in PASSAGES]
        return {"result": [found[: request["topk"]] for _ in request["queries"]]}

    with serve(answer) as served:
        yield served


def test_a_retrieval_service_is_asked_by_its_protocol(service: Served) -> None:
    found = RemoteRetriever(f"{service.url}/retrieve").search("capital", 2)
    assert [passage.title for passage in found] == ["Paris", "Rome"]
    (request,) = service.requests
    assert (request["path"], request["queries"], request["topk"]) == ("/retrieve", ["capital"], 2)


def test_a_busy_service_is_asked_again_and_a_broken_one_is_a_fault(service: Served) -> None:
    retriever = RemoteRetriever(service.url, retries=2, pause=0.01)
    service.failing += [(503, "busy"), (429, "busy")]
    assert len(retriever.search("capital", 1)) == 1
    service.failing += [(503, "busy")] * 3
    with pytest.raises(ToolFault, match="status 503"):
        retriever.search("capital", 1)
    service.failing += [(404, "not here")]
    with pytest.raises(ToolFault, match="status 404"):
        retriever.search("capital", 1)
    assert len(service.requests) == 7, "what will not get better is not asked again"
    for text in ("{}", "[]", "no json", '{"result": []}', '{"result": [[{"score": 1}]]}'):
        service.failing += [(200, text)]
        with pytest.raises(ToolFault, match="another protocol"):
            retriever.search("capital", 1)


def test_a_service_that_is_not_there_is_found_before_a_run(options: dict[str, Any]) -> None:
    gone = {"retrieval": "remote", "url": "http://127.0.0.1:9/retrieve", "retries": 0}
    domain = load_domain("searchqa", {**options, **gone})
    with pytest.raises(RolloutFault, match=r"http://127.0.0.1:9/retrieve does not answer"):
        domain.preflight()  # type: ignore[attr-defined]  # an optional member


# --- the judge ---


@pytest.fixture
def judged(options: dict[str, Any], tmp_path: Path) -> Iterator[tuple[PaperSearchQA, Served]]:
    with serve(fair_judge) as served:
        judge = {"model": "tester", "provider": "openai", "base_url": f"{served.url}/v1", "retries": 0,
                 "cache": str(tmp_path / "verdicts")}  # fmt: skip
        given = {key: value for key, value in options.items() if key != "size"}
        yield PaperSearchQA(PaperOptions.parse({**given, "judge": judge})), served


def task_of(domain: PaperSearchQA) -> Task:
    return domain.splits()["test"][0]


def test_the_judge_is_asked_only_for_what_is_not_exact(judged: tuple[PaperSearchQA, Served]) -> None:
    domain, server = judged
    exact = domain.verify(task_of(domain), Completion("", "<answer>paris.</answer>"))
    assert (exact.reward, exact.metrics, server.requests) == (1.0, {"format": 1.0, "exact": 1.0}, [])
    none = domain.verify(task_of(domain), Completion("", "Paris"))
    assert (none.reward, none.metrics["format"], server.requests) == (0.0, 0.0, [])
    same = domain.verify(task_of(domain), Completion("", "<answer>the same town</answer>"))
    assert same.reward == 1.0
    assert same.metrics == {
        "format": 1.0, "exact": 0.0, "judge_input_tokens": 100.0, "judge_output_tokens": 2.0, "judge_unclear": 0.0,
    }  # fmt: skip
    assert domain.verify(task_of(domain), Completion("", "<answer>Lyon</answer>")).reward == 0.0
    assert domain.verify(task_of(domain), Completion("", "<answer>the same town</answer>")) == same
    assert len(server.requests) == 2


def test_a_judge_that_fails_is_never_a_reward_of_0(judged: tuple[PaperSearchQA, Served]) -> None:
    domain, server = judged
    server.failing += [(500, "{}")]
    with pytest.raises(VerifierFault):
        domain.verify(task_of(domain), Completion("", "<answer>Lyon</answer>"))
    assert domain.verify(task_of(domain), Completion("", "<answer>Lyon</answer>")).reward == 0.0


def test_rubric_and_model_are_in_the_fingerprint(judged: tuple[PaperSearchQA, Served], options: Any) -> None:
    domain, _ = judged
    assert domain.fingerprint() != load_domain("searchqa", options).fingerprint()
    domain.preflight()
    assert domain.verify_threads == 8


@pytest.mark.parametrize(
    "text",
    ["<answer>" + "a" * 10**6 + "</answer>", "a" * 10**6, "<answer>" * 10**5, "<answer>\ud800</answer>", ""],
)
def test_the_verifier_is_total_with_a_judge(judged: tuple[PaperSearchQA, Served], text: str) -> None:
    domain, server = judged
    assert domain.verify(task_of(domain), Completion("", text)).reward == 0.0
    assert len(server.requests) <= 1


def test_bm25_refuses_a_corpus_that_does_not_fit(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    monkeypatch.setattr("whale.domains.searchqa.paper.retrievers.MAX_BM25", 2)
    with pytest.raises(UsageError, match="too many for BM25"):
        Bm25Retriever(Corpus(data / "wiki.jsonl"))
