"""What a session may cost. No figure of it is ever shown to the model."""

from typing import Annotated

import msgspec

from whale.search.agentic.types import Usage

Dollars = Annotated[float, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens; a service's own list has them. 0 = unknown, nothing is counted."""

    input: Dollars = 0.0
    output: Dollars = 0.0
    cache_read: Dollars | None = None
    """Not given: as `input`, since tokens from a cache are cheaper than others and never free."""
    cache_write: Dollars | None = None
    """Not given: as `input`."""

    @property
    def dearest(self) -> float:
        """Of the dearest kind of token."""
        return max(self.input, self.output, self.cache_read or 0.0, self.cache_write or 0.0)

    def of(self, usage: Usage) -> float:
        """Dollars of one reply."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return (
            usage.input * self.input + usage.output * self.output + usage.cache_read * read + usage.cache_write * write
        ) / 1e6


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one session; 0 = no limit. The one that is over ends the session, with what it handed over."""

    dollars: float = 0.0
    tokens: int = 0
    tool_calls: int = 300
    seconds: float = 2400.0
    """As in the paper. Waiting for a service that is overloaded does not count."""
    trials: int = 64
    """Rollouts that `try_draft` may use."""

    def over(self, dollars: float, tokens: int, tool_calls: int, seconds: float) -> str | None:
        """The first budget that is used up, or None."""
        spent = {"dollars": dollars, "tokens": tokens, "tool_calls": tool_calls, "seconds": seconds}
        for name, value in spent.items():
            limit = getattr(self, name)
            if limit and value >= limit:
                return name
        return None
