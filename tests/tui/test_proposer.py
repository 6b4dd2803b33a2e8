"""What a proposer did can be read: its rounds, its session word by word, and what it cost."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tui.conftest import story, watching
from tests.tui.synthetic import Shape, made_up, write_run
from whale.alternation.run_folder import RunFolder
from whale.events import NewEvent, SqliteLog
from whale.events import types as ev
from whale.search.agentic.types import ModelReply, Usage
from whale.tui.sessions import transcript_lines
from whale.tui.text import plain

THOUGHT = "The answers fail for want of a form."
CALL: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "trajectories/h0.jsonl"}}
WRITE: dict[str, Any] = {
    "type": "tool_use", "id": "t2", "name": "write_file",
    "input": {"draft": "one", "path": "prompts/system.md", "content": "Answer in one word.\nNo more."},
}  # fmt: skip
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "task-3 failed\x1b[2J", "is_error": False}
REPLIES: tuple[list[dict[str, Any]], ...] = ([{"type": "text", "text": THOUGHT}, CALL], [WRITE])


def write_session(tmp_path: Path, *, ended: bool) -> Path:
    """A run in the middle of its first cycle's first iteration, with a proposer's session in it."""
    run = write_run(tmp_path / "played", Shape(cycles=1), limit=0)
    store = RunFolder(run).artifacts
    events: list[NewEvent] = []
    for new in made_up(Shape(cycles=1)):
        if isinstance(new.event, ev.HarnessProposed) and new.event.candidate == "c001-i01-m1":
            break
        events.append(new)
    for turn, content in enumerate(REPLIES, 1):
        reply = ModelReply(content=content, stop_reason="tool_use", model="played-1", usage=Usage(input=900, output=40))
        event = ev.ProposerReplied(
            cycle=1, iteration=1, turn=turn, model="played-1", artifact=store.put(msgspec.json.encode(reply)),
            stop_reason="tool_use", tool_calls=1, input_tokens=900, cache_read_tokens=100, cache_write_tokens=0,
            output_tokens=40, dollars=0.125,
        )  # fmt: skip
        events.append(NewEvent(event, f"turn/{turn}", {"seconds": 12.0}))
        outcome = ev.Outcome("task-1", 0, 1.0, "ok", 1, 20, 200, False, False)
        tried = ev.RolloutsRecorded(
            batch=f"try/{turn}", purpose="try", candidate="draft-one", weights="w", artifact="0" * 64,
            outcomes=[outcome],
        )  # fmt: skip
        events.append(NewEvent(tried, f"rollouts/try/{turn}", {"seconds": 1.0}))
    if ended:
        lines: list[dict[str, Any]] = [
            {"system": "You improve harnesses."},
            {"role": "user", "content": [{"type": "text", "text": "Begin."}]},
            {"role": "assistant", "content": REPLIES[0], "stop_reason": "tool_use"},
            {"role": "user", "content": [RESULT]},
            {"role": "assistant", "content": REPLIES[1], "stop_reason": "max_tokens"},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        over = ev.ProposerSessionEnded(
            cycle=1, iteration=1, outcome="submitted", proposed=1, turns=2, tool_calls=2, input_tokens=2000,
            output_tokens=80, dollars=0.25, artifact=store.put(text.encode()),
        )  # fmt: skip
        events.append(NewEvent(over, "session/1"))
    with SqliteLog(run / "events.db") as log:
        log.append("run", events, expected_version=0)
    return run


@story
async def test_a_session_is_read_turn_by_turn_with_its_tools_and_its_price(tmp_path: Path) -> None:
    async with watching(write_session(tmp_path, ended=True), (120, 60)) as user:
        await user.press("9")
        user.sees("proposer · 1 round · $0.25", "✓ submitted: 1 candidate", "played-1", "2 turns, 2 tool calls, 24 s")
        user.sees("2,000 read (200 cached), 80 written", "$0.25", "You improve harnesses.", "── turn 1 ", THOUGHT)
        user.sees(
            "read_file(path=trajectories/h0.jsonl)", "task-3 failed", "── turn 2: max_tokens", "Answer in one word."
        )
        assert "\x1b" not in user.screen
        await user.press("2")
        user.sees("proposer   $0.25, 2,080 tokens", "trials")
        await user.press("6", "u", "u", "u", "u", "u")
        user.sees("rollouts · try", "draft-one")


@story
async def test_a_session_that_goes_on_shows_what_the_model_said_so_far(tmp_path: Path) -> None:
    async with watching(write_session(tmp_path, ended=False), (120, 60)) as user:
        await user.press("9")
        user.sees("no candidate yet", "… it goes on, turn 2", THOUGHT, "write_file(draft=one", "No more.")
        user.sees("the tools' results are shown when the session has ended")


@story
async def test_a_session_whose_artifact_is_lost_says_so_and_keeps_its_cost(tmp_path: Path) -> None:
    run = write_session(tmp_path, ended=True)
    for file in (run / "artifacts").rglob("*"):
        if file.is_file():
            file.unlink()
    async with watching(run, (120, 60)) as user:
        await user.press("9")
        user.sees("✓ submitted", "an artifact that the log names is missing", "$0.25")


@story
async def test_a_proposer_without_sessions_has_its_rounds_and_what_came_of_them(made_up_run: Path) -> None:
    async with watching(made_up_run, (120, 40)) as user:
        await user.press("9")
        user.sees("proposer · 6 rounds", "No model worked in a session here", "3 candidates", "mutation")
        user.sees("Failures are often failures of form.")
        await user.press("G", "v")
        assert user.app.chosen is not None and user.app.chosen.startswith("c001-i01")
        user.sees("4 Diff")


@pytest.mark.parametrize(
    "text", ["", "no json", '{"step": 1, "verdict": "kept"}', '{"role": "tool", "name": "x", "content": "y"}']
)
def test_any_line_of_a_transcript_is_shown(text: str) -> None:
    shown = "\n".join(plain(part) for part in transcript_lines(text.encode(), 60))
    assert all(
        word in shown for word in text.replace('"', " ").replace("{", "").replace("}", "").replace(":", "").split()[-1:]
    )
