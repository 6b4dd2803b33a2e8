"""The map behind the fold's candidates behaves as a dict that is copied for each change."""

from hypothesis import given
from hypothesis import strategies as st

from whale.alternation.frozen_map import FrozenMap


@given(st.lists(st.tuples(st.integers(0, 60), st.integers()), max_size=300))
def test_each_version_equals_a_dict_with_the_same_changes_and_order(changes: list[tuple[int, int]]) -> None:
    frozen: FrozenMap[int, int] = FrozenMap()
    plain: dict[int, int] = {}
    versions = []
    for key, value in changes:
        frozen = frozen.set(key, value)
        plain = {**plain, key: value}
        versions.append((frozen, plain))
    for one, other in versions:
        assert one == other
        assert list(one.items()) == list(other.items())
        assert len(one) == len(other)
        assert 61 not in one
        assert one.get(61) is None


def test_a_change_leaves_the_map_that_it_was_made_from() -> None:
    before = FrozenMap({1: "a", 2: "b"})
    after = before.set(1, "c").set(3, "d")
    assert dict(before) == {1: "a", 2: "b"}
    assert list(after.items()) == [(1, "c"), (2, "b"), (3, "d")]
