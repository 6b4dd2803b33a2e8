"""The `mutation` proposer: typed mutation and crossover of harness programs, without a language model."""

from whale.search.mutation.catalogue import CROSSOVERS, OPERATORS
from whale.search.mutation.operator import Change, Crossover, Material, Operator, Site
from whale.search.mutation.program import NotAHarness, Program
from whale.search.mutation.proposer import MutationProposer

__all__ = [
    "CROSSOVERS",
    "OPERATORS",
    "Change",
    "Crossover",
    "Material",
    "MutationProposer",
    "NotAHarness",
    "Operator",
    "Program",
    "Site",
]
