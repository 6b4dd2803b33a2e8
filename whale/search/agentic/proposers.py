"""The proposers `anthropic` and `openai`: the same session and the same tools, behind two protocols."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whale.domains.places import place
from whale.search.agentic.anthropic_model import AnthropicModel
from whale.search.agentic.connection import ModelOptions, connect, parse
from whale.search.agentic.openai_model import OpenAIModel
from whale.search.agentic.service import ServiceModel
from whale.search.agentic.session import run_session
from whale.search.agentic.toolbox import Toolbox
from whale.search.agentic.types import SessionResult, Workbench
from whale.search.types import Archive

SKILLS = Path(__file__).parent / "skills"


class Options(ModelOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search.options] of a proposer that works with the tools."""

    skill: str = ""
    """"searchqa", "math", "chess", or the path of a text of your own, which is added to the instructions."""


class AgenticProposer:
    """A model at work in the archive, one session per iteration."""

    def __init__(self, name: str, make: Callable[..., ServiceModel], key_env: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.options = parse(options, Options)
        self.model = connect(self.options, make, key_env)
        self.system = instructions(self.options)

    def preflight(self) -> None:
        """Look whether the service answers and takes the key."""
        self.model.preflight()

    def session(
        self, archive: Archive, bench: Workbench, *, count: int, seed: int, cycle: int, iteration: int
    ) -> SessionResult:
        """Work until `count` candidates are handed over (see `SessionProposer`)."""
        budget, key = self.options.budget, session_key(cycle, iteration)
        box = toolbox(archive, bench, budget.trials, count, key)
        return run_session(
            self.model,
            box,
            bench,
            system=self.system,
            opening=opening(count, box.fence),
            budget=budget,
            prices=self.options.prices,
        )


def anthropic_proposer(**options: Any) -> AgenticProposer:
    """A model behind the Messages protocol."""
    return AgenticProposer("anthropic", AnthropicModel, "ANTHROPIC_API_KEY", options)


def openai_proposer(**options: Any) -> AgenticProposer:
    """A model behind Chat Completions."""
    return AgenticProposer("openai", OpenAIModel, "OPENAI_API_KEY", options)


def instructions(options: Options) -> str:
    """The system prompt: the rules, and what to look for in the domain. Raises ValueError for a missing text."""
    text = read_text(options.system) if options.system else (SKILLS / "system.md").read_text(encoding="utf-8")
    return f"{text}\n{_skill(options.skill)}" if options.skill else text


def opening(count: int, fence: str) -> str:
    """The first message of a session."""
    return (
        f"Hand over {count} candidates. In this session, text that others wrote stands between <data {fence}> "
        f"and </data {fence}>."
    )


def toolbox(archive: Archive, bench: Workbench, trials: int, count: int, key: str) -> Toolbox:
    """The tools of one session; their mark of data holds the session's own word."""
    return Toolbox(archive, bench, count=count, key=key, fence=bench.fence(), trials=trials)


def session_key(cycle: int, iteration: int) -> str:
    """What the keys of a session's trials begin with."""
    return f"c{cycle:03d}/harness/i{iteration:02d}"


def shipped_skill(name: str) -> Path | None:
    """The file of a skill that is shipped under this name, or None: then it is a path."""
    shipped = SKILLS / f"{name}.md"
    return shipped if name.replace("_", "").isalnum() and shipped.is_file() else None


def _skill(name: str) -> str:
    shipped = shipped_skill(name)
    return shipped.read_text(encoding="utf-8") if shipped else read_text(name)


def read_text(path: str) -> str:
    """A text that an option names. Raises ValueError if it cannot be read."""
    try:
        return place(path, "[search.options]").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        shipped = ", ".join(sorted(p.stem for p in SKILLS.glob("*.md") if p.stem != "system"))
        raise ValueError(f"{path}: not a text that can be read ({error}); shipped skills: {shipped}") from None
