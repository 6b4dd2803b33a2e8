"""How a proposer reaches the model that its options name: the key, the address, the limits."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from whale.search.agentic.budget import Budget, Prices
from whale.search.agentic.retrying import Retry
from whale.search.agentic.service import ServiceModel


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search.options] that every proposer with a model takes."""

    model: str
    base_url: str = ""
    """Empty: the service's own."""
    api_key_env: str = ""
    """The environment variable with the key; the key itself is never in a config."""
    max_tokens: int = 16_000
    """Of one reply."""
    system: str = ""
    """Path of a text that takes the place of the instructions themselves."""
    budget: Budget = Budget()
    prices: Prices = Prices()
    patience: float = 900.0
    """Seconds of waiting for a service that is overloaded or not there, before the run stops."""
    read_timeout: float = 300.0
    extra: dict[str, Any] = {}
    """More fields of the request, such as thinking."""


O = TypeVar("O", bound=ModelOptions)  # noqa: E741 - options


def parse(options: Mapping[str, Any], kind: type[O]) -> O:
    """The options as a record. Raises ValueError for a wrong or contradictory one."""
    try:
        chosen = msgspec.convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if chosen.budget.dollars and not (chosen.prices.input and chosen.prices.output):
        raise ValueError("a budget in dollars needs [search.options.prices] with input and output")
    return chosen


def key_of(options: ModelOptions, variable: str) -> str:
    """The key from the environment. Raises ValueError where the service's own address needs one and none is set."""
    key = os.environ.get(variable, "")
    if not key and not options.base_url:
        raise ValueError(f"the environment variable {variable} holds no key")
    return key or "none"  # a local server asks for none


def connect(options: ModelOptions, make: Callable[..., ServiceModel], key_env: str) -> ServiceModel:
    """The model, not yet asked anything."""
    variable = options.api_key_env or key_env
    return make(
        options.model,
        base_url=options.base_url,
        api_key=key_of(options, variable),
        key_env=variable,
        max_tokens=options.max_tokens,
        extra=options.extra,
        retry=Retry(options.patience),
        read_timeout=options.read_timeout,
    )
