"""An immutable map that keeps its order and whose next version costs little: the fold of a long run."""

from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_ABSENT = object()


class FrozenMap(Mapping[K, V]):
    """A mapping in order of first insertion; `set` gives a new one and leaves this one as it is.

    Copying a dict of n entries for each change makes a fold over n changes quadratic. Here versions share
    one big dict, with a small one of newer values over it, which is merged down when it has grown to the
    square root of the size: O(√n) for a change, amortised, and two look-ups for a read.
    """

    __slots__ = ("_base", "_recent", "_size")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries or {})
        self._recent: dict[K, V] = {}
        self._size = len(self._base)

    def set(self, key: K, value: V) -> "FrozenMap[K, V]":
        """Give the map with `key` at `value`; a key that is there keeps its place."""
        new: FrozenMap[K, V] = FrozenMap.__new__(FrozenMap)
        new._size = self._size + (key not in self)
        recent = {**self._recent, key: value}
        if len(recent) ** 2 > len(self._base) + 16:
            new._base, new._recent = {**self._base, **recent}, {}
        else:
            new._base, new._recent = self._base, recent
        return new

    def __getitem__(self, key: K) -> V:
        value = self._recent.get(key, _ABSENT)
        return self._base[key] if value is _ABSENT else cast(V, value)

    def __contains__(self, key: object) -> bool:
        return key in self._recent or key in self._base

    def __iter__(self) -> Iterator[K]:
        yield from self._base
        for key in self._recent:
            if key not in self._base:
                yield key

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"FrozenMap({dict(self)!r})"
