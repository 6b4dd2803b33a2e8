"""What passes without any skill: how much of a success on word problems a fixed or blind rule would have."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

from whale.domains.base import Task


def majority_answer(training: Sequence[Task], tasks: Sequence[Task]) -> float:
    """Success of always giving the most frequent answer of the training tasks."""
    answer: str = Counter(task.private["answer"] for task in training).most_common(1)[0][0]
    right = sum(bool(task.private["answer"] == answer) for task in tasks)
    return right / len(tasks)


def random_operation(tasks: Sequence[Task]) -> float:
    """Expected success of one random operation (+, -, *, /) on two random numbers of the text, exactly.

    Only whole results above 0 are drawn from, as every answer is one.
    """
    return sum(_share(task.private["numbers"], int(task.private["answer"])) for task in tasks) / len(tasks)


def random_chain(tasks: Sequence[Task]) -> float:
    """The same for all numbers of the text: in their slots' order, a random operation between each two."""
    return sum(_chain_share(task.private["numbers"], int(task.private["answer"])) for task in tasks) / len(tasks)


def _share(numbers: Sequence[int], answer: int) -> float:
    results = [value for a, b in itertools.permutations(numbers, 2) for value in _results(a, b)]
    return results.count(answer) / len(results) if results else 0.0


def _chain_share(numbers: Sequence[int], answer: int) -> float:
    weights = {numbers[0]: 1.0}
    for number in numbers[1:]:
        after: dict[int, float] = defaultdict(float)
        for value, weight in weights.items():
            results = list(_results(value, number))
            for result in results:
                after[result] += weight / len(results)
        weights = after
    return weights.get(answer, 0.0) if len(numbers) > 1 else 0.0


def _results(a: int, b: int) -> list[int]:
    values = [a + b, a * b]
    if a > b:
        values.append(a - b)
    if b and a % b == 0:
        values.append(a // b)
    return values
