"""The search tool, the control, the leak check and h0."""

import json
import random
import time

import pytest

from whale.domains.base import Split, Task
from whale.domains.searchqa.domain import SearchQADomain, SearchQAOptions
from whale.domains.searchqa.retrieval import MAX_QUERY_CHARACTERS, Index, encyclopedia
from whale.harness.validation import check_source
from whale.search.worked_examples import example_files, render_examples

HIDDEN: tuple[Split, ...] = ("harness", "validation", "test")


@pytest.fixture(scope="module")
def domain() -> SearchQADomain:
    return SearchQADomain()


def task_of(domain: SearchQADomain, relation: str, split: Split = "validation") -> Task:
    return next(task for task in domain.splits()[split] if task.private["relation"] == relation)


def test_search_gives_one_passage_unless_asked_for_more(domain: SearchQADomain) -> None:
    search = domain.tools(task_of(domain, "capital"))["search"]
    one = search(query="Nickel element symbol")
    five = search(query="Nickel element symbol", k=5)
    assert [set(passage) for passage in one] == [{"title", "text"}]
    assert one[0]["title"] == "Nickel"
    assert five[:1] == one
    assert len({passage["text"] for passage in five}) == 5
    json.dumps(five)


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "x", "k": 6},
        {"query": "x", "k": 0},
        {"query": "x", "k": -1},
        {"query": "x", "k": True},
        {"query": "x", "k": 1.0},
        {"query": "x", "k": "1"},
        {"query": ""},
        {"query": " \n"},
        {"query": None},
        {"query": ["Paris"]},
        {"query": "x" * (MAX_QUERY_CHARACTERS + 1)},
    ],
)
def test_search_refuses_what_is_out_of_its_limits_with_a_reason(
    domain: SearchQADomain, arguments: dict[str, object]
) -> None:
    control = SearchQADomain(SearchQAOptions(control=True))
    for each in (domain, control):
        task = task_of(each, "capital")
        with pytest.raises(ValueError, match="search: "):
            each.tools(task)["search"](**arguments)


def test_search_finds_nothing_for_words_that_no_passage_has(domain: SearchQADomain) -> None:
    assert domain.tools(task_of(domain, "capital"))["search"](query="zzzz qqqq \u4e2d\u6587 <answer>") == []


def test_search_ranks_the_same_whatever_was_searched_before_and_breaks_ties_by_corpus_order() -> None:
    queries = ["capital", "country .fr", "Paris", "symbol Ni", "element", "the"]
    passages = encyclopedia()
    index, other = Index(passages), Index(passages)
    first = {query: index.search(query, 5) for query in queries}
    random.Random(0).shuffle(queries)
    assert {query: other.search(query, 5) for query in queries} == first
    twin = Index([passages[0], passages[1], passages[0], passages[2]])
    assert twin.search(passages[0].title, 2) == [passages[0], passages[0]]


def test_the_corpus_holds_the_passages_of_every_split(domain: SearchQADomain) -> None:
    for split in ("weight", *HIDDEN):
        task = task_of(domain, "country_of_city", split)
        found = domain.tools(task)["search"](query=task.public["question"])
        assert domain.answer_in(task, found[0]["text"])


def test_single_hop_answers_are_mostly_found_first_and_two_hop_answers_are_not(
    domain: SearchQADomain,
) -> None:
    hits: dict[str, list[bool]] = {"1-hop": [], "2-hop": []}
    for task in domain.splits()["harness"]:
        found = domain.tools(task)["search"](query=task.public["question"])
        hits[task.group].append(any(domain.answer_in(task, p["text"]) for p in found))
    assert sum(hits["1-hop"]) / len(hits["1-hop"]) > 0.8
    assert sum(hits["2-hop"]) / len(hits["2-hop"]) < 0.1


def test_the_control_never_shows_the_answer_and_keeps_everything_else(domain: SearchQADomain) -> None:
    control = SearchQADomain(SearchQAOptions(control=True))
    assert control.splits() == domain.splits()
    found_any = 0
    for task in control.splits()["validation"][:150]:
        search = control.tools(task)["search"]
        found = search(query=task.public["question"], k=3)
        assert found == search(query=task.public["question"], k=3)
        assert not any(control.answer_in(task, f"{p['title']}. {p['text']}") for p in found)
        found_any += bool(found)
    assert found_any > 140


@pytest.mark.parametrize("split", HIDDEN)
@pytest.mark.parametrize(
    "relation", ["capital", "country_of_city", "symbol", "number", "domain", "discoverer", "capital_of_city"]
)
def test_a_hidden_question_or_a_stated_hidden_fact_is_found(
    domain: SearchQADomain, split: Split, relation: str
) -> None:
    task = task_of(domain, relation, split)
    subject, answer = task.private["subject"], task.private["answers"][0]
    question = task.public["question"]
    for text in (
        question,
        question.upper().replace(" ", "\n  "),
        f'HINTS = {{"{subject}": "{answer}"}}',
        json.dumps({"note": f"{subject} \u2013 {answer}"}),
        "filler " * 3000 + f"({answer}) belongs to {subject}" + " filler" * 3000,
    ):
        reason = domain.leak(text)
        assert reason is not None
        assert "split" in reason


def test_a_table_of_hidden_facts_is_found_however_far_apart_its_halves_are(domain: SearchQADomain) -> None:
    tasks = [t for t in domain.splits()["test"] if t.private["relation"] == "capital"][:10]
    subjects = "\n".join(t.private["subject"] for t in tasks)
    answers = "\n".join(t.private["answers"][0] for t in tasks)
    reason = domain.leak(subjects + "\n" + "filler words " * 500 + answers)
    assert reason is not None
    assert "facts" in reason


def test_the_reason_names_no_answer(domain: SearchQADomain) -> None:
    task = task_of(domain, "capital", "test")
    reason = domain.leak(f"{task.private['subject']}: {task.private['answers'][0]}")
    assert reason is not None
    assert task.private["answers"][0] not in reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "You answer questions. Write <answer>...</answer>. No lead, no tin: He is in, as I am at it.",
        "\x00\ud800 \\u12",
        "capital " * 1000,
        json.dumps(list(range(200))),
    ],
)
def test_honest_text_is_no_leak(domain: SearchQADomain, text: str) -> None:
    assert domain.leak(text) is None


def test_worked_examples_of_d_weight_are_no_leak(domain: SearchQADomain) -> None:
    clean = 0
    tasks = domain.splits()["weight"][:200]
    for task in tasks:
        found = domain.tools(task)["search"](query=task.public["question"])
        text = f"{task.public['question']}\n{found[0]['text']}\n{task.private['answers'][0]}"
        clean += domain.leak(text) is None
    # The rest quote a passage of a hidden entity that BM25 put first by mistake.
    assert clean / len(tasks) > 0.95


def test_the_leak_check_of_a_large_file_takes_bounded_time(domain: SearchQADomain) -> None:
    domain.leak("warm up")
    started = time.process_time()
    domain.leak("some words of a long file, " * 10_000)
    domain.leak("a'.,b" * 50_000)
    assert time.process_time() - started < 10


def test_h0_is_a_valid_harness_without_leaks(domain: SearchQADomain) -> None:
    files = dict(domain.h0())
    assert {"harness.py", "prompts/system.md", "prompts/user.md", "examples.json"} <= set(files)
    assert check_source(files) is None
    for content in files.values():
        assert domain.leak(content.decode("utf-8")) is None


def test_h0_has_one_worked_example_from_d_weight_in_the_shape_that_search_edits(
    domain: SearchQADomain,
) -> None:
    (examples,) = example_files(domain.h0()).values()
    assert len(examples) == 1
    assert [role for role, _ in examples[0]] == ["user", "assistant", "user", "assistant"]
    assert render_examples(examples) == domain.h0()["examples.json"]
    questions = {task.public["question"]: task for task in domain.splits()["weight"]}
    task = questions[examples[0][0][1].splitlines()[0]]
    assert task.private["answers"][0] in examples[0][3][1]
    passages = {passage.text for passage in encyclopedia()}
    assert any(text in examples[0][2][1] for text in passages)
