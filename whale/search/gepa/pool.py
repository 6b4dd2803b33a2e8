"""The archive as GEPA's pool: which harnesses share one program, and how each did on each task of D_harness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whale.search.scoring import task_means
from whale.search.types import Archive, ArchiveEntry

if TYPE_CHECKING:
    from gepa.core.state import GEPAState

Texts = dict[str, str]
"""Path of a prompt -> its text: a candidate, in GEPA's terms."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Harnesses of this phase that differ in their prompts alone, oldest first."""

    entries: tuple[ArchiveEntry, ...]
    base: Mapping[str, bytes]
    """The files of each that are no prompts."""

    def texts(self, index: int) -> Texts:
        """One harness's prompts."""
        return prompts(self.entries[index].files)

    def files(self, texts: Mapping[str, str]) -> dict[str, bytes]:
        """A whole harness with these prompts."""
        return {**self.base, **{path: text.encode("utf-8") for path, text in texts.items()}}


def prompts(files: Mapping[str, bytes]) -> Texts:
    """The texts that GEPA may rewrite: what the search space `prompts` lets change."""
    return {
        path: content.decode("utf-8", "replace")
        for path, content in sorted(files.items())
        if path.startswith("prompts/") and not path.endswith(".py")
    }


def pool(archive: Archive) -> Pool | None:
    """The pool around the best harness that is scored under the current weights; None if none has a prompt."""
    scored = [e for e in archive.entries if e.current and e.valid and e.score is not None and prompts(e.files)]
    if not scored:
        return None
    best = max(scored, key=lambda e: e.score or 0.0)
    base = _rest(best.files)
    names = prompts(best.files).keys()
    kin = [e for e in scored if _rest(e.files) == base and prompts(e.files).keys() == names]
    return Pool(tuple(kin), base)


def _rest(files: Mapping[str, bytes]) -> dict[str, bytes]:
    texts = prompts(files)
    return {path: content for path, content in files.items() if path not in texts}


def gepa_state(pool: Pool) -> "GEPAState[None, str]":
    """GEPA's own state with this pool: its Pareto front over tasks, and whose turn each text of a harness is."""
    from gepa.core.state import GEPAState, ValsetEvaluation

    def evaluation(entry: ArchiveEntry) -> "ValsetEvaluation[None, str]":
        return ValsetEvaluation({}, dict(task_means(entry.outcomes)))

    state: GEPAState[None, str] = GEPAState(pool.texts(0), evaluation(pool.entries[0]))
    state.num_full_ds_evals, state.total_num_evals = len(pool.entries), 0  # counters that GEPA's engine sets
    index = {entry.candidate: number for number, entry in enumerate(pool.entries)}
    for number, entry in enumerate(pool.entries[1:], 1):
        parents = [index[p] for p in entry.parents if p in index and index[p] < number] or [0]
        state.update_state_with_new_program(parents, pool.texts(number), evaluation(entry), None, 0)
    names = len(state.list_of_named_predictors)
    for number, entry in enumerate(pool.entries):
        # A text is rewritten after another, round robin: a harness with k children is at its k-th text.
        state.named_predictor_id_to_update_next_for_program_candidate[number] = children(pool.entries, entry) % names
    return state


def children(entries: Sequence[ArchiveEntry], parent: ArchiveEntry) -> int:
    """How many of the entries have this parent."""
    return sum(parent.candidate in entry.parents for entry in entries)
