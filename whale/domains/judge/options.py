"""What a config may say about a judge."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from whale.errors import UsageError

Provider = Literal["anthropic", "openai"]
PROVIDERS: tuple[Provider, ...] = ("anthropic", "openai")
KEYS: Mapping[str, str] = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The table [domain_options.judge]."""

    model: str
    provider: Provider = "anthropic"
    """The protocol: Anthropic's Messages, or OpenAI's chat completions, which most servers speak."""
    base_url: str = ""
    """Another server than the provider's own."""
    api_key_env: str = ""
    """The environment variable that holds the key; the provider's usual one by default."""
    max_tokens: int = MAX_TOKENS
    timeout: float = 60.0
    """Seconds for one attempt."""
    retries: int = 6
    """Further attempts, with growing pauses, where the server is busy or cannot be reached."""
    threads: int = 8
    """Verdicts that are asked for at the same time."""
    cache: str = ""
    """The folder of the verdicts; by default `judge` in WHALE's cache folder."""
    price_input: float = 0.0
    """Dollars for a million tokens, to count the cost."""
    price_output: float = 0.0

    def __post_init__(self) -> None:
        """Reject what cannot work; raises UsageError."""
        if not isinstance(self.model, str) or not self.model:
            raise UsageError("judge: model must be named, such as a model of the provider's")
        if self.provider not in PROVIDERS:
            raise UsageError(f"judge: provider must be {' or '.join(PROVIDERS)}, not {self.provider!r}")
        if not _whole(self.max_tokens) or not 1 <= self.max_tokens <= MAX_TOKENS:
            raise UsageError(f"judge: max_tokens must be 1 to {MAX_TOKENS}, not {self.max_tokens!r}")
        if not _whole(self.retries) or self.retries < 0 or not _whole(self.threads) or self.threads < 1:
            raise UsageError("judge: retries must be a whole number of at least 0, threads of at least 1")
        for name in ("timeout", "price_input", "price_output"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise UsageError(f"judge: {name} must be a number of at least 0, not {value!r}")
        for name in ("base_url", "api_key_env", "cache"):
            if not isinstance(getattr(self, name), str):
                raise UsageError(f"judge: {name} must be a text, not {getattr(self, name)!r}")

    @classmethod
    def parse(cls, options: Any) -> "JudgeOptions":
        """From a config table; raises UsageError that names an unknown key and the known ones."""
        if not isinstance(options, Mapping):
            raise UsageError(f"judge: must be a table with at least model, not {options!r}")
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"judge: unknown option {unknown[0]!r}; known: {', '.join(known)}")
        if "model" not in options:
            raise UsageError("judge: model must be named, such as a model of the provider's")
        return cls(**options)

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the key."""
        return self.api_key_env or KEYS[self.provider]


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
