"""What passed replies have in common: how they begin and how they end."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from whale.search.mutation.calls import Call
from whale.search.mutation.evidence import heard_at
from whale.search.mutation.operator import Material
from whale.search.mutation.program import Program
from whale.search.worked_examples import example_files

SHARE = 0.6
"""A beginning or an ending is common if this share of the replies has it."""
LONGEST = 24
"""Characters of a mined string, at most."""
FEWEST = 3
"""Different replies from which a form can be told: what one or two have in common may be their content."""


def replies_at(program: Program, material: Material, call: Call) -> list[str]:
    """Different texts that the model gave at this call in passed rollouts, or that the tree's own examples give.

    A rollout tells its calls apart only if it holds one assistant message per model call of the program; if
    not, its last message is taken as the reply of a call that is the answer.
    """
    conversations = [
        [message["content"] for message in rollout.messages if message["role"] == "assistant"]
        for rollout in material.passed
    ]
    conversations += [
        [text for role, text in example if role == "assistant"]
        for examples in example_files(program.files).values()
        for example in examples
    ]
    answers = call.returned and call.function.name == "run"
    last = answers or call.position == len(program.chats) - 1
    texts = []
    for replies in conversations:
        if len(replies) == len(program.chats):
            texts.append(replies[call.position])
        elif replies and last:
            texts.append(replies[-1])
    texts += [reply.text for reply in heard_at(program, material, call) if reply.passed]
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def common_beginning(texts: Sequence[str]) -> str | None:
    """The longest beginning that most texts share, cut after a mark such as '>' or ':', or None."""
    parts = (text[:length] for text in texts for length in range(2, LONGEST + 1) if len(text) > length)
    return _longest(parts, len(texts), lambda part: _is_mark(part[-1]))


def common_ending(texts: Sequence[str]) -> str | None:
    """The longest ending that most texts share, from a mark such as '<' on, or None.

    An ending that stands earlier in most of those texts too would cut them, and is not taken.
    """

    def cuts_few(part: str) -> bool:
        ended = [text for text in texts if text.endswith(part)]
        return 2 * sum(text.find(part) < len(text) - len(part) for text in ended) < len(ended)

    parts = (text[-length:] for text in texts for length in range(2, LONGEST + 1) if len(text) > length)
    return _longest(parts, len(texts), lambda part: _is_mark(part[0]) and cuts_few(part))


def _is_mark(character: str) -> bool:
    return not character.isalnum() and not character.isspace()


def _longest(parts: Iterable[str], total: int, allowed: Callable[[str], bool]) -> str | None:
    if total < FEWEST:
        return None
    counts = Counter(parts)
    common = [part for part, count in counts.items() if count >= SHARE * total and allowed(part)]
    return max(common, key=lambda part: (len(part), part), default=None)
