"""The `scripted` proposer: plays proposals that were written beforehand, for tests and demonstrations."""

from collections.abc import Mapping, Sequence

from whale.search.types import Archive, Proposal


class ScriptedProposer:
    """Plays `script[(cycle, iteration)]`; an iteration that is not in the script gets no proposal."""

    name = "scripted"

    def __init__(self, script: Mapping[tuple[int, int], Sequence[Proposal]]) -> None:
        self._script = {key: tuple(proposals) for key, proposals in script.items()}

    def propose(self, archive: Archive, *, count: int, seed: int, cycle: int, iteration: int) -> Sequence[Proposal]:
        """The first `count` proposals of this iteration, whatever the archive holds."""
        return self._script.get((cycle, iteration), ())[:count]
