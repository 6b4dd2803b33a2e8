"""How a proposer reaches the model that its options name: the key, the address, a look before anything is paid."""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from whale.errors import WhaleError
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


def key_of(options: ModelOptions, key_env: str) -> str:
    """The key from the environment. Raises ValueError where the service's own address needs one and none is set."""
    variable = options.api_key_env or key_env
    key = os.environ.get(variable, "")
    if not key and not options.base_url:
        raise ValueError(f"the environment variable {variable} holds no key")
    return key or "none"  # a local server asks for none


def connect(options: ModelOptions, make: Callable[..., ServiceModel], key_env: str) -> ServiceModel:
    """The model, not yet asked anything."""
    return make(
        options.model,
        base_url=options.base_url,
        api_key=key_of(options, key_env),
        max_tokens=options.max_tokens,
        extra=options.extra,
        retry=Retry(options.patience),
        read_timeout=options.read_timeout,
    )


def look_for(base_url: str) -> None:
    """Connect to an address that the config gives; a service's own is left to the SDK and its proxies.

    Raises WhaleError if nothing answers there.
    """
    address = urlsplit(base_url)
    if not address.hostname or os.environ.get(f"{address.scheme}_proxy".upper()):
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname, port), timeout=10).close()
    except OSError as error:
        raise WhaleError(
            f"{base_url}: nothing answers there ({error.strerror or error}); "
            "start the service, or mend [search.options] base_url"
        ) from error
