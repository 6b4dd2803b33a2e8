"""The lineage as text: what each shape looks like."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.harness_repo import LineageEntry, render_lineage
from whale.harness_repo.lineage import in_order

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def entry(candidate: str, *parents: str, **more: Any) -> LineageEntry:
    return LineageEntry(candidate=candidate, sha="1" * 40, tree="2" * 40, parents=parents, time=WHEN, **more)


SCORE = {"score": 0.125, "low": 0.05, "high": 0.28, "n": 24, "weights": "1a2b3c4d"}

TABLE = {
    "nothing": ([], ""),
    "one": ([entry("h0")], "· h0"),
    "a score, an acceptance and a title": (
        [entry("h0", note=SCORE, serials=(0, 3), title="Forward")],
        "◆ h0  0.125 [0.05, 0.28] n=24  accepted #0, #3  Forward",
    ),
    "no score": ([entry("h0", note={"reason": "no class"})], "· h0  no score: no class"),
    "branches and a chain": (
        [entry("h0"), entry("a", "h0"), entry("b", "h0"), entry("a1", "a", note=SCORE), entry("b1", "b")],
        """\
· h0
├─· a
│ └─○ a1  0.125 [0.05, 0.28] n=24
└─· b
  └─· b1""",
    ),
    "a crossover": (
        [entry("h0"), entry("a", "h0"), entry("b", "h0"), entry("ab", "a", "b", title="Both")],
        """\
· h0
├─· a
│ └─· ab  + b  Both
└─· b""",
    ),
    "two roots and a parent that is not on the page": (
        [entry("h0"), entry("other"), entry("c", "elsewhere")],
        "· h0\n· other\n· c",
    ),
    "its own parent": ([entry("x", "x")], "· x"),
    "an escape in a title": ([entry("h0", title="\x1b[2Jgone\u202e")], "· h0  \ufffd[2Jgone\ufffd"),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_shape_looks_like_this(name: str) -> None:
    entries, text = TABLE[name]
    assert render_lineage(entries) == text


def test_a_narrow_terminal_without_unicode() -> None:
    entries = [entry("h0", serials=(0,)), entry("a", "h0", title="ä" * 50), entry("b", "a", note=SCORE)]
    assert render_lineage(entries, ascii_only=True, width=20).splitlines() == [
        "* h0     accepted #0",
        "`-. a    ??????????>",
        "  `-o b  0.125 [0.0>",
    ]


def test_thousands_of_generations_stay_narrow() -> None:
    entries = [entry("g0"), *(entry(f"g{at}", f"g{at - 1}") for at in range(1, 5_000))]
    lines = render_lineage(entries).splitlines()
    assert len(lines) == 5_000
    assert max(map(len, lines)) < 80
    assert lines[-1].strip() == "(4999) · g4999"


@given(st.lists(st.lists(st.integers(0, 30), max_size=2), max_size=30), st.randoms(use_true_random=False))
def test_every_candidate_has_one_line_and_parents_come_first(links: list[list[int]], random: Any) -> None:
    entries = [
        entry(f"c{at}", *dict.fromkeys(f"c{p}" for p in parents if p < at), cycle=at % 3)
        for at, parents in enumerate(links)
    ]
    shuffled = list(entries)
    random.shuffle(shuffled)
    ordered = in_order(shuffled)
    assert ordered == in_order(entries)
    at = {e.candidate: n for n, e in enumerate(ordered)}
    assert all(at[p] < at[e.candidate] for e in ordered for p in e.parents)
    lines = render_lineage(ordered).splitlines()
    assert sorted(line.split("· ")[1].split()[0] for line in lines) == sorted(e.candidate for e in entries)
