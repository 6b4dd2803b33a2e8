"""What models behind a service share: one address, one key, and which failures are worth asking again."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from whale.errors import WhaleError
from whale.search.agentic.retrying import Retry, Transient
from whale.search.agentic.types import Block, ModelReply, Workbench

T = TypeVar("T")

_AGAIN = frozenset({200, 408, 409, 429})
"""Besides 5xx; 200 is an error event inside a stream that had begun well."""

LOOK_TIMEOUT = 20.0
"""Seconds that a service has to answer the look before anything is paid."""


class ServiceModel(ABC):
    """One model at one address. A subclass speaks the protocol, through an SDK whose own retries are off."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str,
        key_env: str = "",
        max_tokens: int = 16_000,
        extra: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        read_timeout: float = 300.0,
    ) -> None:
        self.model = model
        self.base_url = base_url
        self.api_key = api_key
        self.key_env = key_env
        self.max_tokens = max_tokens
        self.extra = dict(extra or {})
        self.retry = retry or Retry()
        self.read_timeout = read_timeout

    def reply(self, system: str, messages: Sequence[Block], tools: Sequence[Block], bench: Workbench) -> ModelReply:
        """The next reply (see `Model`)."""
        return self.retry.call(lambda: self.ask(system, messages, tools), bench, self.model)

    @abstractmethod
    def ask(self, system: str, messages: Sequence[Block], tools: Sequence[Block]) -> ModelReply:
        """One request. Raises Transient where asking again can help, WhaleError where it cannot."""

    @property
    @abstractmethod
    def client(self) -> Any:
        """The SDK's client."""

    @property
    @abstractmethod
    def sdk(self) -> ModuleType:
        """The SDK itself, whose errors are classified."""

    def preflight(self) -> None:
        """Ask for the list of models, which costs nothing: something answers there, and the key is taken.

        A server without such a list, a busy one and a key that may not read it are left to the first real request.

        Raises WhaleError if nothing answers, or the key is refused.
        """
        client, sdk = self.client, self.sdk
        try:
            client.with_options(timeout=LOOK_TIMEOUT).models.with_raw_response.list()
        except sdk.APIConnectionError as error:
            raise WhaleError(
                f"{client.base_url}: nothing answers there ({error.__cause__ or error}); start the service, or name "
                "another address with `whale resume RUN --set search.options.base_url=URL`"
            ) from error
        except sdk.APIStatusError as error:
            # A key of OpenAI's that is restricted to requests is refused the list, as one that is wrong is.
            if error.status_code == 401 and "missing scopes" not in told(error).lower():
                raise self.refused(error.status_code, told(error)) from error

    def refused(self, status: int, message: str) -> WhaleError:
        """The service refuses the request; where it is for the key, the variable that holds it is named."""
        if status not in (401, 403):
            return WhaleError(f"{self.model}: the service refuses the request, {status}: {message}")
        key = f"the key in {self.key_env}" if self.key_env else "the key"
        return WhaleError(
            f"{self.model}: the service refuses {key}, {status}: {message}; set the variable right, then `whale resume`"
        )

    def client_options(self) -> dict[str, Any]:
        """How both SDKs' clients are made; their own retries would outlast a stop."""
        return {
            "api_key": self.api_key,
            "base_url": self.base_url or None,
            "max_retries": 0,
            "timeout": self.read_timeout,
        }

    def classified(self, request: Callable[[], T]) -> T:
        """The request's result; its failure as Transient or WhaleError. Both SDKs name their errors alike."""
        sdk = self.sdk
        try:
            return request()
        except sdk.APIStatusError as error:
            status = error.status_code
            if status in _AGAIN or status >= 500:
                raise Transient(f"{status}: {told(error)}", _retry_after(error.response.headers)) from error
            raise self.refused(status, told(error)) from error
        except sdk.APIConnectionError as error:
            raise Transient(f"no connection: {error.__cause__ or error}") from error
        except Exception as error:
            # An answer that breaks off raises whatever its reader was doing: a transport or a JSON error.
            raise Transient(f"the answer broke off: {type(error).__name__}: {str(error)[:200]}") from error


def told(error: Any) -> str:
    """What the service itself says of a failure, in one line: an SDK's own message repeats status and body."""
    body = error.body
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        said = inner.get("message") if isinstance(inner, Mapping) else inner
        body = said or json.dumps(body, ensure_ascii=False)
    return " ".join(str(body or "it says no more").split())[:300]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None
