"""Splits that share no entity: questions joined by a common string stay together."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from whale.domains.base import SPLITS, Split
from whale.domains.searchqa.questions import Question

SHARES: Mapping[Split, float] = {"weight": 0.45, "harness": 0.15, "validation": 0.15, "test": 0.25}
"""Share of the entities, and closely of the questions, that each split gets."""


def draw(*key: object) -> bytes:
    """A pseudo-random order key that depends on nothing but its arguments."""
    return hashlib.sha256("\x1f".join(map(str, key)).encode("utf-8")).digest()


def components(questions: Sequence[Question]) -> list[list[Question]]:
    """Group questions that share a subject, an answer in any of its forms, or an entity (transitively).

    "na" joins Namibia's domain with sodium's symbol: strings count, not what they mean.
    """
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for question in questions:
        first, *rest = sorted(question.keys)
        for key in rest:
            parent[root(key)] = root(first)
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[root(min(question.keys))].append(question)
    return list(groups.values())


def assign(questions: Sequence[Question]) -> dict[Split, list[Question]]:
    """Spread whole components over the splits so that each relation has about its share in every split.

    Greedy, large components first; fixed, so that all runs of the domain speak of the same splits.
    """
    groups = sorted(components(questions), key=lambda group: (-len(group), draw("component", group[0].id)))
    totals = Counter(question.relation for question in questions)
    filled: dict[Split, Counter[str]] = {split: Counter() for split in SPLITS}
    result: dict[Split, list[Question]] = {split: [] for split in SPLITS}
    for group in groups:
        relations = Counter(question.relation for question in group)

        def shortfall(split: Split, relations: Counter[str] = relations) -> float:
            """How far the split is behind its share of just these relations, relative to the share."""
            return sum(
                count * (1 - filled[split][relation] / (SHARES[split] * totals[relation]))
                for relation, count in relations.items()
            )

        split = max(SPLITS, key=shortfall)
        filled[split].update(relations)
        result[split] += group
    return result


def cap(
    questions: Sequence[Question], size: int | None, two_hop_share: float | None, seed: int, split: Split
) -> list[Question]:
    """A seeded subset of a split, shuffled; `two_hop_share` of it two-hop as far as the questions last.

    Without a size, a given share drops what the larger group has too much of.
    """
    mixed = sorted(questions, key=lambda question: draw(seed, split, question.id))
    if two_hop_share is None:
        return mixed if size is None else mixed[:size]
    hops = {group: [q for q in mixed if q.group == group] for group in ("1-hop", "2-hop")}
    one, two = len(hops["1-hop"]), len(hops["2-hop"])
    if size is None:
        limits = [n / share for n, share in ((one, 1 - two_hop_share), (two, two_hop_share)) if share > 0]
        size = int(min(limits))
    size = min(size, one + two)
    wanted = min(two, max(round(size * two_hop_share), size - one))
    kept = {q.id for q in hops["2-hop"][:wanted] + hops["1-hop"][: size - wanted]}
    return [question for question in mixed if question.id in kept]
