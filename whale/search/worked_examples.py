"""Worked examples: mined from rollouts that passed on D_weight, and found again in a harness's own tree.

An example is a list of {"role", "content"} messages that ends with the assistant's answer. A tree keeps its
examples in a JSON file (`examples.json`), as a list of examples.
"""

import json
from collections.abc import Mapping, Sequence
from random import Random

from whale.rollout.types import Trajectory
from whale.search.types import PassedRollout

Example = tuple[tuple[str, str], ...]
"""(role, content) pairs: hashable, so that examples can be compared and counted."""

MAX_EXAMPLE_CHARS = 2400
"""A longer rollout is no example: every prompt would carry it. About 600 tokens."""


def parse_examples(content: bytes) -> list[Example] | None:
    """The examples in a JSON file of a harness tree, or None if it holds something else."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, list):
        return None
    examples: list[Example] = []
    for item in data:
        if not isinstance(item, list) or not item:
            return None
        pairs = []
        for message in item:
            if not isinstance(message, dict) or message.keys() != {"role", "content"}:
                return None
            role, text = message["role"], message["content"]
            if not isinstance(role, str) or not isinstance(text, str):
                return None
            pairs.append((role, text))
        examples.append(tuple(pairs))
    return examples


def render_examples(examples: Sequence[Example]) -> bytes:
    """The file's bytes: one message per line, so that a diff shows which example came or went."""
    blocks = []
    for example in examples:
        lines = [json.dumps({"role": r, "content": c}, ensure_ascii=False) for r, c in example]
        blocks.append("  [\n    " + ",\n    ".join(lines) + "\n  ]")
    text = "[\n" + ",\n".join(blocks) + "\n]\n" if blocks else "[]\n"
    return text.encode()


def example_files(files: Mapping[str, bytes]) -> dict[str, list[Example]]:
    """The tree's JSON files that hold worked examples, by path in sorted order."""
    found = {}
    for path in sorted(files):
        if path.endswith(".json"):
            examples = parse_examples(files[path])
            if examples is not None:
                found[path] = examples
    return found


def passed_rollout(
    trajectory: Trajectory, harness_files: Mapping[str, bytes], candidate: str = ""
) -> PassedRollout | None:
    """The rollout as a would-be example: the answer turn's messages and the answer itself.

    The system message and the examples that the harness carried are taken off, or mined examples would nest.
    None if the rollout did not pass, has no answer, or asked the user nothing.
    """
    if trajectory.reward <= 0 or trajectory.status != "ok" or trajectory.answer_turn is None:
        return None
    turn = trajectory.turns[trajectory.answer_turn]
    messages = [(str(message["role"]), str(message["content"])) for message in turn.messages]
    own = [e for examples in example_files(harness_files).values() for e in examples]
    rest = _strip(messages, own)
    rest.append(("assistant", turn.prefix + turn.text))
    if not any(role == "user" for role, _ in rest):
        return None
    return PassedRollout(
        task_id=trajectory.task_id,
        candidate=candidate,
        messages=tuple({"role": role, "content": text} for role, text in rest),
    )


def _strip(messages: list[tuple[str, str]], own: Sequence[Example]) -> list[tuple[str, str]]:
    position = 0
    while position < len(messages) and messages[position][0] == "system":
        position += 1
    moved = True
    while moved:
        moved = False
        for example in own:
            end = position + len(example)
            # An example never eats the last message: that is the question itself.
            if end < len(messages) and _same(messages[position:end], example):
                position, moved = end, True
                break
    return messages[position:]


def _same(messages: Sequence[tuple[str, str]], example: Example) -> bool:
    # Harnesses strip the texts that they load from files.
    return all(a == c and b.strip() == d.strip() for (a, b), (c, d) in zip(messages, example, strict=True))


def mine(
    passed: Sequence[PassedRollout],
    rng: Random,
    k: int,
    *,
    groups: Mapping[str, str] | None = None,
    exclude: Sequence[Example] = (),
    max_chars: int = MAX_EXAMPLE_CHARS,
) -> list[Example]:
    """At most k examples of different tasks: short ones first, then as unlike one another as they come.

    `groups` (task id -> group) spreads the choice over groups. `exclude` = examples that the harness has.
    Deterministic in its arguments.
    """
    seen_questions = {_question(example) for example in exclude}
    shortest: dict[str, Example] = {}
    for rollout in passed:
        example = tuple((m["role"], m["content"]) for m in rollout.messages)
        if not is_example(example, max_chars) or _question(example) in seen_questions:
            continue
        best = shortest.get(rollout.task_id)
        if best is None or (_length(example), example) < (_length(best), best):
            shortest[rollout.task_id] = example
    pool = sorted(shortest.items(), key=lambda item: (_length(item[1]), item[0]))
    # A short example costs every later prompt less; half of the pool still leaves a choice.
    pool = pool[: max(2 * k, len(pool) // 2)]
    chosen: list[Example] = []
    used: set[str] = set()
    while pool and len(chosen) < k:
        rng.shuffle(pool)
        group_of = groups or {}
        pick = max(
            range(len(pool)),
            key=lambda i: (
                group_of.get(pool[i][0], pool[i][0]) not in used,
                min((_distance(pool[i][1], other) for other in chosen), default=1.0),
            ),
        )
        task, example = pool.pop(pick)
        used.add(group_of.get(task, task))
        if _question(example) not in {_question(other) for other in chosen}:
            chosen.append(example)
    return chosen


def is_example(example: Example, max_chars: int = MAX_EXAMPLE_CHARS) -> bool:
    """Whether these messages can stand in a prompt: a question first, an answer last, not too long."""
    return (
        len(example) >= 2
        and example[0][0] == "user"
        and example[-1][0] == "assistant"
        and all(role in ("user", "assistant") and text.strip() for role, text in example)
        and _length(example) <= max_chars
    )


def _length(example: Example) -> int:
    return sum(len(text) for _, text in example)


def _question(example: Example) -> str:
    return next((text.strip() for role, text in example if role == "user"), "")


def _distance(one: Example, other: Example) -> float:
    """1 - Jaccard similarity of the questions' word sets."""
    a, b = set(_question(one).lower().split()), set(_question(other).lower().split())
    return 1.0 - len(a & b) / max(1, len(a | b))
