"""Candidates by mutation and crossover, a pure function of the archive and the seed."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from whale.search.mutation.catalogue import CROSSOVERS, OPERATORS
from whale.search.mutation.evidence import evidence_of
from whale.search.mutation.operator import Change, Crossover, Material, Operator
from whale.search.mutation.program import NotAHarness, Program
from whale.search.tree import check_tree, digest
from whale.search.types import Archive, ArchiveEntry, Proposal
from whale.search.worked_examples import MAX_EXAMPLE_CHARS

SEPARATOR = "+"
"""Between the operators in a proposal's `axis`, from which later calls read what was tried."""
TRIES = 6
"""Draws of one operator on one parent before another is asked."""
Outside = Callable[[Mapping[str, bytes]], str | None]
"""Why a tree may not be proposed, or None (`Archive.outside`)."""


@dataclass(frozen=True, slots=True)
class _Draw:
    """What one candidate is drawn from."""

    parents: Sequence[ArchiveEntry]
    """Best first."""
    material: Material
    order: Sequence[str]
    """Operators as they are asked."""
    uses: Mapping[str, int]
    """How often each was used, in the archive and in this call."""
    known: set[str]
    """Digests of the trees that are there already."""
    rng: Random
    outside: Outside


class MutationProposer:
    """Applies one or two operators to a parent, or one crossover to two.

    Which operator comes next: the one that the archive's axis labels name least often, families in turn, in
    an order that the seed shuffles. So every operator that applies is tried before any is tried again, and
    none is preferred. Parents are drawn by score rank: the best twice as often as the second, and so on.
    What the search space does not allow is not proposed: there an operator applies only as far as it stays inside.
    """

    name = "mutation"

    def __init__(
        self,
        *,
        pair_probability: float = 0.5,
        max_example_chars: int = MAX_EXAMPLE_CHARS,
        max_examples: int = 8,
        without: Sequence[str] = (),
        operators: Sequence[Operator] = OPERATORS,
        crossovers: Sequence[Crossover] = CROSSOVERS,
    ) -> None:
        """`pair_probability` = how often a second operator is applied; `without` = families or operators left out.

        Raises ValueError for a value that cannot be: outside 0..1, an unknown name, or nothing left.
        """
        if not 0 <= pair_probability <= 1 or max_example_chars < 1 or max_examples < 1:
            raise ValueError("pair_probability lies in 0..1, and the limits on examples are at least 1")
        self._pair_probability = pair_probability
        self._limits = (max_example_chars, max_examples)
        every: list[Operator | Crossover] = [*operators, *crossovers]
        left_out = {without} if isinstance(without, str) else set(without)
        known = {operator.family for operator in every} | {operator.name for operator in every}
        if left_out - known:
            families = ", ".join(sorted({operator.family for operator in every}))
            raise ValueError(f"without: {sorted(left_out - known)[0]!r} is no operator and no family; {families}")
        self._operators = {o.name: o for o in every if not left_out & {o.name, o.family}}
        if not self._operators:
            raise ValueError("without: no operator is left")

    def propose(self, archive: Archive, *, count: int, seed: int, cycle: int, iteration: int) -> Sequence[Proposal]:
        """At most `count` candidates, none of which is in the archive; fewer if no more were found."""
        parents = ranked(archive.entries)
        material = material_of(archive, *self._limits)
        known = {digest(entry.files) for entry in archive.entries}
        uses = Counter(name for entry in archive.entries for name in entry.axis.split(SEPARATOR))
        proposals: list[Proposal] = []
        for index in range(count if parents else 0):
            rng = _rng(seed, cycle, iteration, index)
            proposal = self._one(_Draw(parents, material, self.order(uses, seed), uses, known, rng, archive.outside))
            if proposal is None:
                break
            proposals.append(proposal)
            known.add(digest(proposal.files))
            uses.update(proposal.axis.split(SEPARATOR))
        return proposals

    def order(self, uses: Mapping[str, int], seed: int) -> list[str]:
        """Operator names, least used first; among equals one of each family in turn, shuffled."""
        shuffled = sorted(self._operators)
        Random(seed).shuffle(shuffled)
        families: dict[str, list[str]] = {}
        for name in shuffled:
            families.setdefault(self._operators[name].family, []).append(name)
        # Among equals the family that was tried less goes first: early candidates differ in kind.
        tried = {family: sum(uses.get(name, 0) for name in names) for family, names in families.items()}
        rounds = {name: r for names in families.values() for r, name in enumerate(names)}
        return sorted(
            shuffled,
            key=lambda name: (uses.get(name, 0), tried[self._operators[name].family], rounds[name]),
        )

    def _one(self, draw: _Draw) -> Proposal | None:
        for name in draw.order:
            for entry in draws(draw.parents, draw.rng):
                made = self._apply(draw, name, entry)
                if made is not None:
                    return self._pair(draw, made)
        return None

    def _apply(self, draw: _Draw, name: str, entry: ArchiveEntry) -> Proposal | None:
        operator = self._operators[name]
        if isinstance(operator, Operator):
            change = mutate(operator, entry.files, draw.material, draw.known, draw.rng, draw.outside)
            return None if change is None else _proposal(operator, change, (entry.candidate,))
        for other in draws([p for p in draw.parents if p.candidate != entry.candidate], draw.rng):
            change = combine(operator, entry.files, other.files, draw.known, draw.rng, draw.outside)
            if change is not None:
                return _proposal(operator, change, (entry.candidate, other.candidate))
        return None

    def _pair(self, draw: _Draw, made: Proposal) -> Proposal:
        """The proposal with a second operator on top, if one is drawn and applies."""
        if len(made.parents) > 1 or draw.rng.random() >= self._pair_probability:
            return made
        family = self._operators[made.axis].family
        # What the parent's rollouts show is the best there is to know of its child.
        parent = next((digest(entry.files) for entry in draw.parents if entry.candidate == made.parents[0]), "")
        seen = draw.material
        if parent in seen.evidence:
            seen = replace(seen, evidence={digest(made.files): seen.evidence[parent]})
        for name in draw.order:
            operator = self._operators[name]
            # No operator has a second go while another waits for its first.
            if draw.uses.get(name, 0) > draw.uses.get(made.axis, 0):
                break
            # Two changes of one kind would blur which of them did it.
            if isinstance(operator, Crossover) or operator.family == family:
                continue
            change = mutate(operator, made.files, seen, draw.known, draw.rng, draw.outside)
            if change is not None:
                return Proposal(
                    title=f"{made.title}; {change.summary}"[:200],
                    hypothesis=f"{made.hypothesis} {operator.expects}",
                    axis=f"{made.axis}{SEPARATOR}{operator.name}",
                    changes=f"{made.changes}\n{operator.name}: {change.summary}",
                    parents=made.parents,
                    files=change.files,
                )
        return made


def _proposal(operator: Operator | Crossover, change: Change, parents: tuple[str, ...]) -> Proposal:
    return Proposal(
        title=change.summary[:200],
        hypothesis=operator.expects,
        axis=operator.name,
        changes=f"{operator.name}: {change.summary}",
        parents=parents,
        files=change.files,
    )


def mutate(
    operator: Operator,
    files: Mapping[str, bytes],
    material: Material,
    known: Iterable[str],
    rng: Random,
    outside: Outside = lambda _: None,
) -> Change | None:
    """A change that gives a readable harness not `known` (tree digests) nor `outside`, or None after a few tries."""
    try:
        program = Program.read(files)
    except NotAHarness:
        return None
    sites = list(operator.sites(program, material))
    rng.shuffle(sites)
    sites.sort(key=lambda site: -site.bears)
    seen = {digest(files), *known}
    for attempt in range(max(TRIES, len(sites)) if sites else 0):
        change = sites[attempt % len(sites)].apply(rng)
        if change is not None and is_new_harness(change.files, seen) and outside(change.files) is None:
            return change
    return None


def combine(
    operator: Crossover,
    first: Mapping[str, bytes],
    second: Mapping[str, bytes],
    known: Iterable[str],
    rng: Random,
    outside: Outside = lambda _: None,
) -> Change | None:
    """A recombination of two trees that is neither of them nor `known` nor `outside`, or None after a few tries."""
    try:
        one, other = Program.read(first), Program.read(second)
    except NotAHarness:
        return None
    seen = {digest(first), digest(second), *known}
    for _ in range(TRIES):
        change = operator.combine(one, other, rng)
        if change is not None and is_new_harness(change.files, seen) and outside(change.files) is None:
            return change
    return None


def is_new_harness(files: Mapping[str, bytes], seen: Iterable[str]) -> bool:
    """Whether a tree is within the limits, still a harness program, and not one of `seen`."""
    if digest(files) in set(seen) or check_tree(files) is not None:
        return False
    try:
        program = Program.read(files)
        # ast.parse lets through what only the compiler refuses, such as `return` outside a function.
        compile(program.source.text, "harness.py", "exec", dont_inherit=True)
    except (NotAHarness, SyntaxError, ValueError):
        return False
    return bool(program.chats)


def ranked(entries: Iterable[ArchiveEntry]) -> list[ArchiveEntry]:
    """Entries that can be parents, best first: valid, and scored under the current weights."""
    usable = [e for e in entries if e.current and e.valid is not False and e.score is not None]
    return sorted(usable, key=lambda e: (-(e.score or 0.0), e.mean_turns, e.candidate))


def draws(parents: Sequence[ArchiveEntry], rng: Random) -> list[ArchiveEntry]:
    """The parents in a random order in which rank r comes first with weight 2^-r."""
    left, order = list(parents), []
    while left:
        index = 0
        while index < len(left) - 1 and rng.random() < 0.5:
            index += 1
        order.append(left.pop(index))
    return order


def material_of(archive: Archive, max_example_chars: int, max_examples: int) -> Material:
    """What the archive offers to operators."""
    publics = list(archive.task_text.values())
    fields = [key for key in (publics[0] if publics else {}) if all(isinstance(p.get(key), str) for p in publics)]
    evidence = {
        digest(entry.files): evidence_of(archive.trajectories[entry.candidate], archive.task_text)
        for entry in archive.entries
        if entry.candidate in archive.trajectories
    }
    return Material(archive.passed, tuple(fields), max_example_chars, max_examples, evidence)


def _rng(*parts: int) -> Random:
    # Not Random(hash(...)): a tuple's hash may change between Python versions.
    key = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return Random(int.from_bytes(key[:8], "big"))
