"""The proposers `anthropic` and `openai`: the same session and the same tools, behind two protocols."""

import hashlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from whale.errors import WhaleError
from whale.search.agentic.anthropic_model import AnthropicModel
from whale.search.agentic.budget import Budget, Prices
from whale.search.agentic.openai_model import OpenAIModel
from whale.search.agentic.retrying import Retry
from whale.search.agentic.session import run_session
from whale.search.agentic.toolbox import Toolbox
from whale.search.agentic.types import Model, SessionResult, Workbench
from whale.search.types import Archive

SKILLS = Path(__file__).parent / "skills"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search.options] of a proposer that is a model."""

    model: str
    base_url: str = ""
    """Empty: the service's own."""
    api_key_env: str = ""
    """The environment variable with the key; the key itself is never in a config."""
    max_tokens: int = 16_000
    """Of one reply."""
    skill: str = ""
    """"searchqa", "math", "chess", or the path of a text of your own, which is added to the instructions."""
    system: str = ""
    """Path of a text that takes the place of the instructions themselves."""
    budget: Budget = Budget()
    prices: Prices = Prices()
    patience: float = 900.0
    """Seconds of waiting for a service that is overloaded or not there, before the run stops."""
    read_timeout: float = 300.0
    extra: dict[str, Any] = {}
    """More fields of the request, such as thinking."""


class AgenticProposer:
    """A model at work in the archive, one session per iteration."""

    def __init__(self, name: str, make: Callable[..., Model], key_env: str, options: Mapping[str, Any]) -> None:
        self.name = name
        try:
            self.options = msgspec.convert(dict(options), Options)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None
        chosen = self.options
        if chosen.budget.dollars and not (chosen.prices.input and chosen.prices.output):
            raise ValueError("a budget in dollars needs [search.options.prices] with input and output")
        variable = chosen.api_key_env or key_env
        key = os.environ.get(variable, "")
        if not key:
            if not chosen.base_url:
                raise ValueError(f"the environment variable {variable} holds no key")
            key = "none"  # a local server asks for none
        self.system = _read(chosen.system) if chosen.system else (SKILLS / "system.md").read_text(encoding="utf-8")
        if chosen.skill:
            self.system += "\n" + _skill(chosen.skill)
        self.model = make(
            chosen.model,
            base_url=chosen.base_url,
            api_key=key,
            max_tokens=chosen.max_tokens,
            extra=chosen.extra,
            retry=Retry(chosen.patience),
            read_timeout=chosen.read_timeout,
        )

    def preflight(self) -> None:
        """Connect to an address that the config gives; a service's own is left to the SDK and its proxies."""
        address = urlsplit(self.options.base_url)
        if not address.hostname or os.environ.get(f"{address.scheme}_proxy".upper()):
            return
        port = address.port or (443 if address.scheme == "https" else 80)
        try:
            socket.create_connection((address.hostname, port), timeout=10).close()
        except OSError as error:
            raise WhaleError(
                f"{self.options.base_url}: nothing answers there ({error.strerror or error}); "
                "start the service, or mend [search.options] base_url"
            ) from error

    def session(
        self, archive: Archive, bench: Workbench, *, count: int, seed: int, cycle: int, iteration: int
    ) -> SessionResult:
        """Work until `count` candidates are handed over (see `SessionProposer`)."""
        fence = hashlib.sha256(f"fence/{seed}".encode()).hexdigest()[:16]
        key = f"c{cycle:03d}/harness/i{iteration:02d}"
        budget = self.options.budget
        toolbox = Toolbox(archive, bench, count=count, key=key, fence=fence, trials=budget.trials)
        opening = (
            f"Hand over {count} candidates. In this session, text that others wrote stands between <data {fence}> "
            f"and </data {fence}>."
        )
        return run_session(
            self.model, toolbox, bench, system=self.system, opening=opening, budget=budget, prices=self.options.prices
        )


def anthropic_proposer(**options: Any) -> AgenticProposer:
    """A model behind the Messages protocol."""
    return AgenticProposer("anthropic", AnthropicModel, "ANTHROPIC_API_KEY", options)


def openai_proposer(**options: Any) -> AgenticProposer:
    """A model behind Chat Completions."""
    return AgenticProposer("openai", OpenAIModel, "OPENAI_API_KEY", options)


def _skill(name: str) -> str:
    shipped = SKILLS / f"{name}.md"
    if name.replace("_", "").isalnum() and shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    return _read(name)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        shipped = ", ".join(sorted(p.stem for p in SKILLS.glob("*.md") if p.stem != "system"))
        raise ValueError(f"{path}: not a text that can be read ({error}); shipped skills: {shipped}") from None
