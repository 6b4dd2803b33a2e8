"""The lineage graph as a table of pictures, and what holds for every lineage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.tui.graph import Node, draw, visible_parents

PICTURES = {
    "a chain": ([("c", "b"), ("b", "a"), ("a", "")], "c", ["*", "*", "*"]),
    "siblings branch off their parent's lane in their own row": (
        [("c", "a"), ("b", "a"), ("a", "")], "a", ["├─*", "├─*", "*"],
    ),
    "without a tip the first sibling keeps the lane": (
        [("c", "a"), ("b", "a"), ("a", "")], None, ["*", "├─*", "*"],
    ),
    "the accepted line stays at the left": (
        [("d", "b"), ("c", "a"), ("b", "a"), ("a", "")], "b", ["├─*", "│ *", "*─┤", "  *"],
    ),
    "a crossover reaches both parents": (
        [("d", "b c"), ("c", "a"), ("b", "a"), ("a", "")], "b", ["├─*", "│ *", "*─┤", "  *"],
    ),
    "two roots": ([("b", ""), ("a", "")], None, ["*", "*"]),
}  # fmt: skip


def nodes(rows: list[tuple[str, str]]) -> list[Node]:
    return [Node(name, tuple(parents.split())) for name, parents in rows]


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_of(name: str) -> None:
    rows, tip, expected = PICTURES[name]
    assert [row.cells.rstrip() for row in draw(nodes(rows), tip)] == expected


@st.composite
def lineages(make: st.DrawFn) -> list[Node]:
    count = make(st.integers(1, 40))
    made = []
    for i in range(count):
        parents = make(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        made.append(Node(str(i), tuple(map(str, parents))))
    return made[::-1]


@given(lineages(), st.data())
def test_every_candidate_has_one_row_with_one_sign_and_lanes_join_only_their_neighbours(
    lineage: list[Node], data: st.DataObject
) -> None:
    tip = data.draw(st.sampled_from([node.id for node in lineage] + [""])) or None
    rows = list(draw(lineage, tip))
    assert [row.id for row in rows] == [node.id for node in lineage]
    for row in rows:
        assert row.cells.count("*") == 1
        for left, right in zip(row.cells[1::2], row.cells[2::2], strict=False):
            reaches_left = right in "─┼┴┬╯╮┤*╴…"  # "…": further lanes share a column
            assert left in " ─", row.cells
            assert left == " " or reaches_left, f"a line ends in the air: {row.cells!r}"
    assert rows[-1].below.strip() == "", "after the last row no lane is left open"


def test_a_thousand_rejected_siblings_take_no_lane_each() -> None:
    lineage = [Node(f"x{i}", ("a",)) for i in range(1000)] + [Node("a", ())]
    assert max(len(row.cells) for row in draw(lineage, "a")) <= 4


def test_what_a_filter_hides_is_passed_through_to_the_nearest_ancestor() -> None:
    parents = {"d": ("c",), "c": ("b", "x"), "b": ("a",), "x": (), "a": ()}
    assert visible_parents("d", parents, {"d", "a", "x"}) == ("a", "x")
