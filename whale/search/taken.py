"""Which options a built-in proposer or rule takes."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def check_taken(make: Callable[..., Any], options: Iterable[str], *, but: Iterable[str] = ()) -> None:
    """Raise ValueError for an option that `make` has no parameter for, or that is one of `but`."""
    parameters = inspect.signature(make).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return  # it checks them itself
    taken = sorted({parameter.name for parameter in parameters} - {*but})
    for option in options:
        if option not in taken:
            raise ValueError(f"unknown option {option!r}; known: {', '.join(taken) or 'none'}")
