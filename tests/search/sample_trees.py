"""Two harness trees of different domains, a run of them without a model, and archives made of them."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from whale.events.types import Outcome
from whale.harness.api import Harness, Reply
from whale.search.mutation import Material
from whale.search.types import Archive, ArchiveEntry, PassedRollout

LOOKUP = '''"""Ask for a query, look it up, answer."""

import json

from whale.harness import Harness


class LookupHarness(Harness):
    max_turns = 2
    passages = 1  # how many are shown
    words = 200
    answer_tokens = 32

    async def run(self, task, model, tools):
        messages = self.opening(task["question"])
        asked = await model.chat(messages, stop=["</search>"], max_tokens=24)
        found = await tools.search(query=self.query_of(asked.text), k=self.passages)
        messages += [asked, {"role": "user", "content": self.show(found)}]
        return await model.chat(messages, max_tokens=self.answer_tokens)

    def opening(self, question):
        """The system prompt, the worked examples and the question."""
        messages = [{"role": "system", "content": self.files["prompts/system.md"].strip()}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        return [*messages, {"role": "user", "content": question}]

    def query_of(self, text):
        return text.split("<search>")[-1].split("</search>")[0].strip()

    def show(self, found):
        return "\\n".join(" ".join(item["text"].split()[: self.words]) for item in found)
'''

SUMS = '''import json

from whale.harness import Harness


class Calculator(Harness):
    """Rechnet – in zwei Schritten."""

    rounds: int = 2
    max_turns: int = 4
    spread = 0.5

    async def run(self, problem, llm, env):
        text = problem["text"].strip()
        plan = await self.think(llm, text)
        note = ""
        for _ in range(self.rounds):
            shown = str(await env.compute(plan.text))  # Größe: one line
            note = f"Ergebnis: {shown}"
        messages = [
            {"role": "system", "content": self.files["prompts/system.md"]},
            *[m for e in json.loads(self.files["data/shots.json"]) for m in e],
            {"role": "user", "content": text + "\\n" + note},
        ]
        note = note.strip()
        # The answer proper.
        return await llm.chat(
            messages,
            stop=("]",),
            temperature=self.spread,  # keep it calm
        )

    async def think(self, llm, text: str):
        return await llm.chat(
            [{"role": "user", "content": "Write an expression.\\n" + text}], max_tokens=(16 * 2)
        )
'''


def example(question: str, answer: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"<search>{question}</search>"},
        {"role": "user", "content": f"A passage on {question}."},
        {"role": "assistant", "content": f"<answer>{answer}</answer>"},
    ]


LOOKUP_TREE: dict[str, bytes] = {
    "harness.py": LOOKUP.encode(),
    "prompts/system.md": b"Answer the question. First write a query.\nThen answer briefly.\n",
    "examples.json": json.dumps([example("Which river?", "Elbe")]).encode(),
}
SUMS_TREE: dict[str, bytes] = {
    "harness.py": SUMS.encode(),
    "prompts/system.md": b"- Read the problem.\n- Compute.\n- Write [number].\n",
    "data/shots.json": json.dumps(
        [
            [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "It is [2]"}],
            [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is [4]"}],
        ]
    ).encode(),
}
TREES = {"lookup": LOOKUP_TREE, "sums": SUMS_TREE}

LOOKUP_PASSED = tuple(
    PassedRollout(f"w{i}", "c000", tuple(example(f"Question {i} on topic {i * 7}?", f"Thing {i}"))) for i in range(12)
)
SUMS_PASSED = tuple(
    PassedRollout(
        f"s{i}",
        "c000",
        (
            {"role": "user", "content": f"{i} + {i}?"},
            {"role": "assistant", "content": f"It is [{2 * i}]"},
        ),
    )
    for i in range(12)
)
MATERIAL = {
    "lookup": Material(LOOKUP_PASSED, ("question",)),
    "sums": Material(SUMS_PASSED, ("text",)),
}
TASKS: dict[str, dict[str, Any]] = {
    "lookup": {"question": "Which city lies there?"},
    "sums": {"text": "3 + 4?"},
}


class Episode:
    """A stand-in for the host: counts calls, answers with canned texts, keeps the replies."""

    def __init__(self, replies: Sequence[str] = ("<search>it</search>", "<answer>it</answer>")) -> None:
        self.texts = replies
        self.replies: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def chat(self, messages: Any, **options: Any) -> Reply:
        assert set(options) <= {"prefix", "stop", "max_tokens", "temperature"}
        for message in messages:
            assert isinstance(message, Reply) or set(message) == {"role", "content"}
        text = self.texts[len(self.replies) % len(self.texts)]
        reply = Reply(len(self.replies), text, options.get("prefix", ""), "stop", 3)
        self.replies.append(reply)
        self.requests.append({"messages": list(messages), **options})
        return reply

    def __getattr__(self, name: str) -> Any:
        async def tool(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            count = len(self.calls)
            return [{"title": f"T{count}", "text": f"Passage number {count} says {options or arguments}."}]

        return tool


def run_tree(files: Mapping[str, bytes], task: Mapping[str, Any], episode: Episode | None = None) -> Episode:
    """Run one of our own trees, or an operator's child of one, in this process."""
    episode = episode or Episode()
    space: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(files["harness.py"].decode(), "harness.py", "exec"), space)
    cls = next(v for v in space.values() if isinstance(v, type) and issubclass(v, Harness) and v is not Harness)
    harness = cls()
    harness.files = {path: content.decode() for path, content in files.items()}
    answer = asyncio.run(harness.run(task, episode, episode))
    assert any(answer is reply for reply in episode.replies), "the answer is one of the episode's replies"
    assert len(episode.replies) <= cls.max_turns, "the calls fit into max_turns"
    return episode


def outcomes(rewards: Sequence[float], prefix: str = "h", turns: int = 2) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(f"{prefix}{i}", 0, reward, "ok", turns, 10, 100, False, False) for i, reward in enumerate(rewards)
    )


def entry(
    candidate: str,
    files: Mapping[str, bytes],
    score: float | None = 0.5,
    *,
    axis: str = "",
    current: bool = True,
    valid: bool | None = True,
    turns: float = 2.0,
    n: int = 4,
    tree: str = "",
) -> ArchiveEntry:
    return ArchiveEntry(
        candidate=candidate,
        tree=tree or candidate,
        parents=(),
        files=files,
        valid=valid,
        weights="w",
        score=score,
        n=n,
        outcomes=(),
        current=current,
        cycle=1,
        axis=axis,
        mean_turns=turns,
    )


def archive(name: str, *more: ArchiveEntry) -> Archive:
    passed = LOOKUP_PASSED if name == "lookup" else SUMS_PASSED
    return Archive((entry("c000", TREES[name]), *more), passed, {"w0": TASKS[name]})
