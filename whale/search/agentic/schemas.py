"""The tools as a model sees them, read from a file beside this one, and what is wrong with a call by them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMAS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "tools.json").read_text(encoding="utf-8"))

_BY_NAME = {schema["name"]: schema["input_schema"] for schema in SCHEMAS}
_KINDS = {"string": "a text", "integer": "a whole number", "array": "a list of texts"}


def problem_with(tool: str, arguments: Any) -> str:
    """What a model has to mend in a call's arguments, each by its name; "" if nothing is wrong."""
    if not isinstance(arguments, Mapping):
        return f"{tool}: give the arguments as an object"
    schema = _BY_NAME[tool]
    known, required = schema["properties"], schema["required"]
    missing = [name for name in required if arguments.get(name) is None]
    unknown = [str(name)[:60] for name in arguments if name not in known]
    wrong = [
        f"{name} must be {_KINDS[known[name]['type']]}, not {json.dumps(value, default=str)[:60]}"
        for name, value in arguments.items()
        if name in known and value is not None and not _is(known[name]["type"], value)
    ]
    problems = [f"missing {', '.join(missing)}"] if missing else []
    problems += [f"unknown {', '.join(unknown)}"] if unknown else []
    problems += wrong
    if not problems:
        return ""
    takes = ", ".join(name if name in required else f"{name} (may be left out)" for name in known) or "no arguments"
    return f"{tool}: {'; '.join(problems)}. It takes: {takes}."


def _is(kind: str, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "integer":
        # Models write 2.0 and "2" too, which leave no doubt.
        number = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return (number and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
