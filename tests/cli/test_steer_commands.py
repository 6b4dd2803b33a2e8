"""What a runner's answer looks like to the one who asked."""

from pathlib import Path

import pytest

from tests.runs import WhaleProcess
from whale.alternation.movable import MOVABLE
from whale.alternation.requests import answer_key
from whale.alternation.run_folder import RunFolder
from whale.cli.steer_commands import wait_for_answer
from whale.errors import WhaleError
from whale.events import NewEvent
from whale.events import types as ev


def answered(tmp_path: Path, outcome: str) -> RunFolder:
    folder = RunFolder(tmp_path / "r")
    folder.path.mkdir()
    with folder.open_log() as log:
        handled = ev.ControlHandled(
            request="k", kind="approval", outcome=outcome, detail="nothing waits for a reviewer"
        )
        log.append("run", [NewEvent(event=handled, key=answer_key("k"))], expected_version=None)
    return folder


def test_a_refusal_is_told_once_and_as_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WhaleError, match=r"^r: refused: nothing waits for a reviewer$"):
        wait_for_answer(answered(tmp_path, "refused"), "k", 1.0)
    assert capsys.readouterr().out == ""


def test_the_help_of_resume_names_a_setting_that_it_takes(whale_here: WhaleProcess) -> None:
    text = " ".join(whale_here("resume", "--help").stdout.replace("│", " ").split())
    assert "engine.threads=8" in text and "engine.threads" in MOVABLE
    assert "schedule.cycles" not in text


def test_any_other_answer_is_told_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wait_for_answer(answered(tmp_path, "nothing to do"), "k", 1.0) is not None
    assert capsys.readouterr().out == "nothing to do: nothing waits for a reviewer\n"
