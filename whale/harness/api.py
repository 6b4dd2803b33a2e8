"""The contract of a harness program: one file `harness.py` with one subclass of `Harness`.

Only the standard library is imported here: the sandbox loads this very file as `whale.harness`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol


class Reply:
    """What the model sampled in one call. May stand in `messages`: the host then splices its very tokens."""

    __slots__ = ("finish_reason", "id", "n_tokens", "prefix", "text")

    def __init__(self, id: int, text: str, prefix: str, finish_reason: str, n_tokens: int) -> None:
        self.id = id
        self.text = text
        self.prefix = prefix
        self.finish_reason = finish_reason
        self.n_tokens = n_tokens

    def __str__(self) -> str:
        """The assistant's whole turn, as the next prompt shows it."""
        return self.prefix + self.text


class ToolError(Exception):
    """A tool refused its arguments; the text says why."""


Message = Mapping[str, str] | Reply
"""{"role": "system" | "user" | "assistant", "content": text}, or a Reply of this episode. Plain assistant
text counts as made up by the harness and is never trained on."""


class Model(Protocol):
    """The model, as a harness sees it."""

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        prefix: str = "",
        stop: Sequence[str] = (),
        max_tokens: int = 64,
        temperature: float | None = None,
    ) -> Reply:
        """Sample one assistant turn that begins with `prefix`. A stop string ends it and stays in the text.

        `temperature=None` is the run's own sampling temperature.
        """
        ...


class Tools(Protocol):
    """The domain's tools: `await tools.search(query=..., k=1)`.

    An argument may be a Reply, as a move in a game: the tool then gets what the model sampled, not your text.
    """

    def __getattr__(self, name: str) -> Any:
        """Return an async function that takes the tool's keyword arguments; it may raise ToolError."""
        ...


class Harness:
    """Base class. The sandbox makes one instance per episode and sets `files` before `run`."""

    max_turns: ClassVar[int] = 2
    """Model calls that an episode may make; one more ends it as "turn_limit"."""
    tools: ClassVar[list[dict[str, Any]]] = []
    """Tool schemas as this harness shows them to the model, if it does."""
    files: Mapping[str, str] = {}
    """The harness's own tree: path -> text."""

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        """Solve one task; return the reply that is the final answer."""
        raise NotImplementedError
