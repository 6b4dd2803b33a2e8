"""What an operator is: a name, the places of a program where it applies, the change that it makes there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from whale.search.mutation.evidence import Evidence
from whale.search.mutation.program import Program
from whale.search.types import PassedRollout
from whale.search.worked_examples import MAX_EXAMPLE_CHARS


@dataclass(frozen=True, slots=True)
class Material:
    """What a run has found out, from which operators take texts; training tasks only."""

    passed: tuple[PassedRollout, ...] = ()
    task_fields: tuple[str, ...] = ()
    """Public fields of the tasks that hold text in every task."""
    max_example_chars: int = MAX_EXAMPLE_CHARS
    max_examples: int = 8
    """No operator lets a tree carry more worked examples."""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """Digest of a tree -> what its rollouts in this phase show."""


@dataclass(frozen=True, slots=True)
class Change:
    """A new tree and one line that says what is new."""

    files: Mapping[str, bytes]
    summary: str


@dataclass(frozen=True, slots=True)
class Site:
    """One place where an operator applies. `apply` draws the details; None if nothing came of it."""

    apply: Callable[[Random], Change | None]
    bears: float = 0.0
    """The share of failed rollouts that show what this change addresses; such sites are tried first."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A typed mutation of harness programs, independent of the domain."""

    name: str
    family: str
    summary: str
    """What it does, for the documentation."""
    expects: str
    """The hypothesis that its proposals state."""
    sites: Callable[[Program, Material], Sequence[Site]]


@dataclass(frozen=True, slots=True)
class Crossover:
    """A recombination of two programs."""

    name: str
    family: str
    summary: str
    expects: str
    combine: Callable[[Program, Program, Random], Change | None]
    """Called with the two parents, the first of which gives the frame."""
