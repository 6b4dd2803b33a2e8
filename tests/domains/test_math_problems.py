"""Generated word problems: right, disjoint by content, the same everywhere."""

import re
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whale.domains.base import SPLITS
from whale.domains.math.domain import create
from whale.domains.math.problems import NotEnoughProblems, Problem, draw_problems, split_of
from whale.domains.math.templates import load_templates
from whale.errors import UsageError

SIZES = {"weight": 200, "harness": 80, "validation": 80, "test": 160}
TEMPLATES = {template.id: template for template in load_templates()[0]}


@cache
def drawn(seed: int = 0) -> dict[str, tuple[Problem, ...]]:
    return {split: draw_problems(split, SIZES[split], (1, 2, 3, 4), seed) for split in SPLITS}


def test_every_equation_holds_and_the_last_one_gives_the_answer() -> None:
    for problem in (p for problems in drawn().values() for p in problems):
        for equation in problem.solution:
            left, right = equation.split(" = ")
            assert eval(left) == int(right), equation
        assert int(problem.solution[-1].rpartition(" ")[2]) == problem.answer
        assert len(problem.solution) == problem.level


def test_the_text_holds_exactly_the_problems_numbers_and_never_its_answer() -> None:
    for problem in (p for problems in drawn().values() for p in problems):
        stated = [int(number) for number in re.findall(r"\d+", problem.text)]
        assert sorted(stated) == sorted(problem.numbers), problem.text
        assert problem.answer not in stated
        assert "{" not in problem.text


def test_splits_share_no_problem_whatever_seed_drew_them() -> None:
    owners: dict[tuple[str, tuple[int, ...]], str] = {}
    for seed in (0, 1):
        for split, problems in drawn(seed).items():
            for problem in problems:
                assert owners.setdefault((problem.template, problem.numbers), split) == split
    assert set(owners.values()) == set(SPLITS)


def test_new_kinds_are_in_the_test_split_alone_and_make_up_half_of_it() -> None:
    new = {template.id for template in TEMPLATES.values() if template.new}
    for split, problems in drawn().items():
        share = sum(problem.template in new for problem in problems) / len(problems)
        assert share == (0.5 if split == "test" else 0.0)


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_template_of_a_level_is_used_about_equally(level: int) -> None:
    counts = Counter(problem.template for problem in draw_problems("weight", 300, (level,), 0))
    known = {t.id for t in TEMPLATES.values() if t.level == level and not t.new}
    assert set(counts) == known
    assert min(counts.values()) > 300 / len(known) / 2


def test_levels_come_in_equal_shares() -> None:
    counts = Counter(problem.group for problem in draw_problems("test", 80, (1, 3), 0))
    assert counts == {"level 1": 20, "level 3": 20, "level 1, new kind": 20, "level 3, new kind": 20}


def test_templates_are_well_formed() -> None:
    templates, words = load_templates()
    assert len(TEMPLATES) == len(templates), "an id is used twice"
    for template in templates:
        for text in template.texts:
            slots = set(re.findall(r"\{(\w+)\}", text))
            assert set(template.ranges) <= slots
            for slot in slots - set(template.ranges) - {"other"}:
                assert slot in words.choices or slot.removesuffix("s") in words.choices, (template.id, slot)
    for level in (1, 2, 3, 4):
        assert {t.new for t in templates if t.level == level} == {False, True}


@settings(max_examples=10, deadline=None)
@given(st.integers(min_value=0, max_value=10**6), st.sampled_from(SPLITS))
def test_a_drawn_problem_belongs_to_the_split_that_it_was_drawn_for(seed: int, split: str) -> None:
    for problem in draw_problems(split, 8, (1, 2), seed):  # type: ignore[arg-type]  # one of SPLITS
        template = TEMPLATES[problem.template]
        assert split_of(template, dict(zip(template.ranges, problem.numbers, strict=True))) == split


def test_the_same_seed_draws_the_same_problems_on_every_python() -> None:
    problems = draw_problems("validation", 3, (1, 2), 7)
    assert [(p.template, p.numbers, p.answer) for p in problems] == EXPECTED
    assert problems == draw_problems("validation", 5, (1, 2), 7)[:3]


def test_asking_for_more_problems_than_there_are_is_refused_in_one_line() -> None:
    with pytest.raises(NotEnoughProblems):
        draw_problems("harness", 100_000, (1,), 0)
    with pytest.raises(UsageError, match="harness split has only"):
        create({"harness": 100_000})


EXPECTED = [("price", (9, 4), 36), ("more-together", (19, 5), 43), ("get-more", (8, 10), 18)]


def test_a_harder_problem_has_one_step_more_and_belongs_to_d_weight_alone() -> None:
    domain = create({"weight": 20, "harness": 20, "validation": 40, "test": 40, "levels": [1, 2, 3, 4]})
    templates = {template.id: template for template in load_templates()[0]}
    hidden = {task.public["question"] for split in SPLITS if split != "weight" for task in domain.splits()[split]}
    for old in domain.splits()["weight"]:
        made = [domain.harder(old, seed) for seed in range(3)]
        if len(old.private["solution"]) == 4:
            assert made == [None] * 3
            continue
        for seed, new in enumerate(made):
            assert new is not None
            assert len(new.private["solution"]) == len(old.private["solution"]) + 1
            template = templates[new.private["template"]]
            assert split_of(template, dict(zip(template.ranges, new.private["numbers"], strict=True))) == "weight"
            assert new.public["question"] not in hidden
            assert domain.leak(new.public["question"]) is None
            assert domain.harder(old, seed) == new
        assert len({new.id for new in made if new is not None}) > 1
