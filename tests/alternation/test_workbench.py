"""What a proposer's session may learn from the checks of its drafts."""

from types import SimpleNamespace
from typing import Any

from tests.runs import TOY
from whale.alternation.workbench import HIDDEN_LIMIT, RunWorkbench

H0 = {
    str(path.relative_to(TOY.parent / "h0")): path.read_bytes()
    for path in (TOY.parent / "h0").rglob("*")
    if path.is_file()
}


def bench() -> RunWorkbench:
    domain = SimpleNamespace(
        h0=lambda: H0, leak=lambda text: "it holds an answer of the test split" if "amber" in text else None
    )
    runner: Any = SimpleNamespace(domain=domain, config=SimpleNamespace(search=SimpleNamespace(space="full")))
    return RunWorkbench(runner, 1, 1)


def with_text(text: str) -> dict[str, bytes]:
    return {**H0, "notes.md": text.encode()}


def test_a_proposer_learns_neither_which_task_a_draft_names_nor_of_which_split() -> None:
    reason = bench().check(with_text("the answer is amber"))
    assert reason == "notes.md: it holds text that no harness may hold"


def test_a_proposer_cannot_guess_on_at_hidden_tasks() -> None:
    session = bench()
    for guess in range(HIDDEN_LIMIT):
        assert session.check(with_text(f"{guess} amber")) is not None
        assert session.check(with_text("a harmless line")) is None or guess == HIDDEN_LIMIT - 1
    told = session.check(with_text("a harmless line"))
    assert told is not None
    assert told == session.check(with_text("amber"))
    assert bench().check(with_text("a harmless line")) is None
