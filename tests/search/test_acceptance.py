import pytest

from tests.search.sample_trees import LOOKUP_TREE, entry
from whale.errors import UsageError
from whale.search.acceptance import acceptance_rule
from whale.search.types import ArchiveEntry

RULE = acceptance_rule("archive-best")


def e(name: str, score: float | None, **more: object) -> ArchiveEntry:
    return entry(name, LOOKUP_TREE, score, **more)  # type: ignore[arg-type]  # a test's shorthand


TABLE = [
    ("the highest score wins", [e("in", 0.5), e("a", 0.75), e("b", 0.6)], "a", True),
    ("nothing better keeps the incoming", [e("in", 0.5), e("a", 0.25)], "in", False),
    ("a tie goes to the incoming", [e("a", 0.5), e("in", 0.5)], "in", False),
    ("a tie goes to fewer turns first", [e("in", 0.5, turns=2.0), e("a", 0.5, turns=1.5)], "a", True),
    ("a tie among others goes to the earlier", [e("in", 0.1), e("a", 0.5), e("b", 0.5)], "a", True),
    ("a score under other weights is not ranked", [e("in", 0.5), e("a", 0.9, current=False)], "in", False),
    ("an invalid candidate is not ranked", [e("in", 0.5), e("a", 0.9, valid=False)], "in", False),
    ("no rank before full coverage", [e("in", 0.5), e("a", 0.9, n=3)], "in", False),
    ("a candidate without a score is not a 0", [e("in", 0.0), e("a", None)], "in", False),
    ("a barred tree is not accepted", [e("in", 0.5), e("a", 0.9, tree="barred")], "in", False),
    ("nothing scored keeps the incoming", [], "in", False),
    ("an incoming that is barred gives way", [e("in", 0.9, tree="barred"), e("a", 0.1)], "a", True),
]


@pytest.mark.parametrize(("entries", "candidate", "accepted"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_archive_best(entries: list[ArchiveEntry], candidate: str, accepted: bool) -> None:
    decision = RULE.decide(entries, incoming="in", coverage=4, barred=frozenset({"barred"}))
    assert (decision.candidate, decision.accepted) == (candidate, accepted)
    assert decision.reason


def test_an_unknown_rule_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="archive-best"):
        acceptance_rule("best")
