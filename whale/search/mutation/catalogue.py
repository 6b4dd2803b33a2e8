"""All operators, in the order of their families. docs/mutation.md lists them."""

from whale.search.mutation import crossover, examples, numbers, prompts, sampling, tools, turns
from whale.search.mutation.operator import Crossover, Operator

OPERATORS: tuple[Operator, ...] = (
    *numbers.OPERATORS,
    *sampling.OPERATORS,
    *examples.OPERATORS,
    *prompts.OPERATORS,
    *tools.OPERATORS,
    *turns.OPERATORS,
)
CROSSOVERS: tuple[Crossover, ...] = crossover.CROSSOVERS
