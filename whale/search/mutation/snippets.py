"""Functions that operators append to a harness program, by their own source.

None knows a domain or imports anything.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any


def _text_of(value: Any) -> str:
    """All text in a tool's result, in reading order."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return " ".join(text for text in map(_text_of, value) if text)
    return ""


def _merged(first: Any, second: Any) -> Any:
    """Two results of the same tool as one, what came twice only once."""
    if isinstance(first, list) and isinstance(second, list):
        return first + [item for item in second if item not in first]
    if isinstance(first, str) and isinstance(second, str):
        return first if second in first else first + "\n" + second
    if isinstance(first, dict) and isinstance(second, dict):
        return {**second, **{key: _merged(value, second.get(key)) for key, value in first.items()}}
    return first


def _open_words(asked: str, found: str) -> str:
    """The words that were asked for and not found, then those that were found and not asked for."""
    first = {"".join(filter(str.isalnum, word)).lower(): word for word in asked.split()}
    second = {"".join(filter(str.isalnum, word)).lower(): word for word in found.split()}
    missed = [word for key, word in first.items() if key not in second]
    return " ".join(missed + [word for key, word in second.items() if key not in first])


def _trimmed(value: Any, words: int) -> Any:
    """A tool's result with each text cut to a number of words."""
    if isinstance(value, str):
        return " ".join(value.split()[:words])
    if isinstance(value, list):
        return [_trimmed(item, words) for item in value]
    if isinstance(value, dict):
        return {key: _trimmed(item, words) for key, item in value.items()}
    return value


def _labelled(value: Any, label: str) -> Any:
    """A tool's list of results with a label before the text of each, numbers filled in."""
    if not isinstance(value, list):
        return value
    labelled: list[Any] = []
    for number, item in enumerate(value, 1):
        mark = label.format(number)
        if isinstance(item, str):
            labelled.append(mark + item)
        elif isinstance(item, dict):
            # The longest text is the one that is read; the others are titles and ids.
            key = max((k for k in item if isinstance(item[k], str)), key=lambda k: len(item[k]), default=None)
            labelled.append(item if key is None else {**item, key: mark + item[key]})
        else:
            labelled.append(item)
    return labelled


def _repeating(messages: Any, text: str) -> Any:
    """The messages with a text repeated at the end of the last user message."""
    messages = list(messages)
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], dict) and messages[index]["role"] == "user":
            messages[index] = {"role": "user", "content": messages[index]["content"] + "\n" + text}
            break
    return messages


def _without_system(messages: Any) -> Any:
    """The messages with the system text moved into the last user message."""
    messages = list(messages)
    system = [m["content"] for m in messages if isinstance(m, dict) and m["role"] == "system"]
    messages = [m for m in messages if not (isinstance(m, dict) and m["role"] == "system")]
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], dict) and messages[index]["role"] == "user":
            content = "\n".join([*system, messages[index]["content"]])
            messages[index] = {"role": "user", "content": content}
            break
    return messages


def _majority(replies: Any) -> Any:
    """The first reply whose text, read without case and spacing, came most often."""
    texts = [" ".join(reply.text.lower().split()) for reply in replies]
    return replies[texts.index(max(texts, key=texts.count))]


SNIPPETS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        _text_of,
        _merged,
        _open_words,
        _trimmed,
        _labelled,
        _repeating,
        _without_system,
        _majority,
    )
}


def snippet(name: str) -> str:
    """The function's source as it is appended to a program: types left out, since they need imports."""
    source = inspect.getsource(SNIPPETS[name])
    return re.sub(r": (Any|list\[Any\])(?=[,) ])| -> Any(?=:)", "", source)


def missing(source: str, *names: str) -> list[str] | None:
    """The snippets that `source` lacks; None if it has a function of that name with another body."""
    needed = []
    for name in names:
        text = snippet(name).strip()
        if text in source:
            continue
        if f"def {name}(" in source:
            return None
        needed.append(text)
    return needed
