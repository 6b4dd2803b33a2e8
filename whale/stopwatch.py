"""Where wall time goes, by named parts. A clock's readings, so never part of what two equal runs must agree on."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Counts each second once: for the innermost part that is open, else as "other". For one thread."""

    def __init__(self) -> None:
        self._open = ["other"]
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._since = time.monotonic()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What the block takes is this part's, but for the parts inside it."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def share(self, parts: Mapping[str, float]) -> None:
        """Seconds of the open part belong to these: other processes measured them while it waited."""
        self._charge()
        for name, seconds in parts.items():
            self._seconds[name] += seconds
            self._seconds[self._open[-1]] -= seconds

    def lap(self) -> dict[str, float]:
        """The seconds of each part since the last lap, which sum to all that passed."""
        self._charge()
        seconds, self._seconds = self._seconds, defaultdict(float)
        return dict(seconds)

    def _charge(self) -> None:
        now = time.monotonic()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now
