"""What models behind a service share: one address, one key, and which failures are worth asking again."""

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


class ServiceModel(ABC):
    """One model at one address. A subclass speaks the protocol, through an SDK whose own retries are off."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str,
        max_tokens: int = 16_000,
        extra: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        read_timeout: float = 300.0,
    ) -> None:
        self.model = model
        self.base_url = base_url
        self.api_key = api_key
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

    def client_options(self) -> dict[str, Any]:
        """How both SDKs' clients are made; their own retries would outlast a stop."""
        return {
            "api_key": self.api_key,
            "base_url": self.base_url or None,
            "max_retries": 0,
            "timeout": self.read_timeout,
        }

    def classified(self, sdk: ModuleType, request: Callable[[], T]) -> T:
        """The request's result; its failure as Transient or WhaleError. Both SDKs name their errors alike."""
        try:
            return request()
        except sdk.APIStatusError as error:
            raise failure(self.model, error.status_code, str(error.message), error.response.headers) from error
        except sdk.APIConnectionError as error:
            raise Transient(f"no connection: {error.__cause__ or error}") from error
        except Exception as error:
            # An answer that breaks off raises whatever its reader was doing: a transport or a JSON error.
            raise Transient(f"the answer broke off: {type(error).__name__}: {str(error)[:200]}") from error


def failure(service: str, status: int, message: str, headers: Mapping[str, str]) -> Exception:
    """An HTTP status as what it means: Transient with the wait that the service asks for, or WhaleError."""
    told = f"{status}: {message[:300]}"
    if status in _AGAIN or status >= 500:
        return Transient(told, _retry_after(headers))
    return WhaleError(f"{service}: the service refuses the request, {told}")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None
