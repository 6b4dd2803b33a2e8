"""The lineage drawn like a Git log: newest first, one line a candidate, lanes for lines of descent.

A pure function of candidates. A child stands above its parents. A candidate without drawn children branches off
its parent's lane in its own row, so that hundreds of rejected siblings take no lane each; lane 0 is the accepted
harness's line of descent, from the top.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

WIDEST = 12
"""Lanes that are drawn; those further right share the last column."""


@dataclass(frozen=True, slots=True)
class Node:
    """A candidate to draw: its id and its parents' ids, those that are drawn at all."""

    id: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate's lanes: two characters each; the sign stands at `lane`."""

    id: str
    cells: str
    """With "*" in the sign's place."""
    lane: int
    below: str
    """The lanes that go on under it: what a line in between shows."""


def draw(nodes: Sequence[Node], tip: str | None = None) -> Iterator[Row]:
    """Rows for `nodes`, which come newest first, each before its parents. `tip` gets lane 0 from the top."""
    lanes: list[str | None] = [tip] if tip is not None and any(n.id == tip for n in nodes) else []
    for node in nodes:
        mine = [i for i, wanted in enumerate(lanes) if wanted == node.id]
        parents = list(dict.fromkeys(node.parents))
        before = [wanted is not None for wanted in lanes]
        if mine:
            lane = mine[0]
        else:
            lane = next((i for i, wanted in enumerate(lanes) if wanted is None), len(lanes))
            # A leaf's branch goes to its parent's lane, so it stands right of it.
            above = [i for i, wanted in enumerate(lanes) if wanted in parents]
            if above and lane < above[0]:
                lane = next((i for i in range(above[0] + 1, len(lanes)) if lanes[i] is None), len(lanes))
            if lane == len(lanes):
                lanes.append(None)
                before.append(False)
        for i in mine:
            lanes[i] = None
        joins = [i for i in mine if i != lane]
        branches: list[int] = []
        for n, parent in enumerate(parents):
            there = next((i for i, wanted in enumerate(lanes) if wanted == parent), None)
            if there is not None:
                branches.append(there)
            elif n == 0 or lanes[lane] is not None or branches:
                if lanes[lane] is None:
                    lanes[lane] = parent
                else:
                    free = next((i for i, wanted in enumerate(lanes) if wanted is None and i > lane), len(lanes))
                    if free == len(lanes):
                        lanes.append(None)
                        before.append(False)
                    lanes[free] = parent
                    branches.append(free)
            else:
                lanes[lane] = parent
        after = [wanted is not None for wanted in lanes]
        cells = _cells(lane, joins, branches, before, after)
        while lanes and lanes[-1] is None:
            lanes.pop()
        below = "".join("│ " if wanted is not None else "  " for wanted in lanes[:WIDEST])
        yield Row(node.id, cells, lane, below)


def _cells(lane: int, joins: Collection[int], branches: Collection[int], before: list[bool], after: list[bool]) -> str:
    """The characters of one row."""
    ends = {*joins, *branches}
    left, right = min({lane, *ends}), max({lane, *ends})
    parts: list[str] = []
    for i in range(min(max(len(before), len(after)), WIDEST)):
        up, down = i < len(before) and before[i], i < len(after) and after[i]
        inside = left <= i <= right and left != right
        if i == lane:
            mark = "*"
        elif i in ends:
            mark = _CORNERS[(up, down, i < right, i > left)]
        elif inside and left < i < right:
            mark = "┼" if up or down else "─"
        else:
            mark = "│" if up or down else " "
        parts.append(mark + ("─" if left <= i < right else " "))
    if lane >= WIDEST:
        parts[-1] = "…*"
    return "".join(parts)


_CORNERS = {
    (True, True, True, False): "├", (True, True, False, True): "┤", (True, True, True, True): "┼",
    (True, False, True, False): "╰", (True, False, False, True): "╯", (True, False, True, True): "┴",
    (False, True, True, False): "╭", (False, True, False, True): "╮", (False, True, True, True): "┬",
    (False, False, True, False): "╶", (False, False, False, True): "╴", (False, False, True, True): "─",
    (True, True, False, False): "│", (True, False, False, False): "│", (False, True, False, False): "│",
    (False, False, False, False): " ",
}  # fmt: skip
"""(line above, line below, line to the right, line to the left) -> character."""


def visible_parents(id_: str, parents: Mapping[str, Sequence[str]], shown: Collection[str]) -> tuple[str, ...]:
    """The nearest ancestors that are drawn, through those that are not (a filter hides them)."""
    result: dict[str, None] = {}
    waiting = list(reversed(parents.get(id_, ())))
    seen: set[str] = set()
    while waiting:
        parent = waiting.pop()
        if parent in shown:
            result[parent] = None
        elif parent not in seen:
            seen.add(parent)
            waiting.extend(reversed(parents.get(parent, ())))
    return tuple(result)
