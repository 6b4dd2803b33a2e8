"""`python -m tests.events.samples.types N`: write `types_vN.jsonl` and `.json`, one event of every type.

Run it when a type is new or has changed, and commit both files: they are kept for ever.
"""

import json
import sys
from typing import Any

import msgspec
from msgspec import inspect

from tests.stored_logs import SAMPLES
from whale.events import EVENT_TYPES, Event, MemoryLog, NewEvent
from whale.events.transfer import write_jsonl


def example(kind: inspect.Type) -> Any:
    """A value of the type, the same each time."""
    match kind:
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 3
        case inspect.FloatType():
            return 0.25
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.ListType() | inspect.CollectionType():
            return [example(kind.item_type)]
        case inspect.TupleType():
            return [example(item) for item in kind.item_types]
        case inspect.DictType():
            return {"key": example(kind.value_type)}
        case inspect.UnionType():
            return example(next(t for t in kind.types if not isinstance(t, inspect.NoneType)))
        case inspect.StructType():
            values = [(field.encode_name, example(field.type)) for field in kind.fields]
            return [value for _, value in values] if kind.array_like else dict(values)
        case inspect.AnyType():
            return {"any": [1, "two"]}
    raise TypeError(f"no example of {kind}")


def make(version: str) -> None:
    target = SAMPLES / f"types_v{version}.jsonl"
    assert not target.exists(), "a stored log is never written anew"
    log = MemoryLog()
    expected = {}
    for name, cls in EVENT_TYPES.items():
        event: Event = msgspec.convert(example(inspect.type_info(cls)), cls)
        log.append("run", [NewEvent(event, key=name)], None)
        expected[name] = msgspec.to_builtins(event)
    with target.open("wb") as file:
        write_jsonl(log.rows(), file)
    text = json.dumps(expected, indent=1, sort_keys=True)
    target.with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    make(sys.argv[1])
