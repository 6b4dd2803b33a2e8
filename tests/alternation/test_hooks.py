"""Hooks: real commands and a real local server are told, and nothing that they do touches the run."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.runs import WhaleProcess
from whale.alternation import hooks
from whale.alternation.hooks import Hooks
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.config import HooksConfig
from whale.events import NewEvent
from whale.events import types as ev


class Listener(ThreadingHTTPServer):
    """A webhook's other end."""

    def __init__(self, status: int = 200) -> None:
        heard: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        self.heard = heard
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/services/a-secret"


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    yield server
    server.shutdown()
    server.server_close()


def request(folder: RunFolder, *events: ev.Event) -> None:
    with folder.open_log() as log:
        for number, event in enumerate(events):
            log.append("control", [NewEvent(event, key=f"test/{number}")], expected_version=None)


def set_hooks(folder: RunFolder, **lines: str) -> None:
    text = folder.config_file.read_text()
    for name, value in lines.items():
        text = text.replace(f'{name} = ""', f"{name} = {json.dumps(value)}")
    folder.config_file.write_text(text)


def test_a_run_tells_its_pause_stop_end_and_failure(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, listener: Listener
) -> None:
    end = tmp_path / "end.json"
    whale_here(
        "run", str(toy_config), "--name", "toy", "--quiet", "--set", "schedule.cycles=1",
        "--set", f'hooks.on_end="cat > {end}; echo $WHALE_RUN $WHALE_EVENT >> {end}.env"',
    )  # fmt: skip
    told = json.loads(end.read_text())
    assert (told["event"], told["run"], told["status"], told["cycle"]) == ("end", "toy", "completed", 1)
    assert told["rollouts"] > 0 and told["best"]["n"] == 4
    assert (tmp_path / "end.json.env").read_text() == "toy end\n"

    folder = RunFolder(tmp_path / "runs" / "toy")
    assert "on_end" not in json.dumps(folder.state().config), "hooks are no part of the experiment"
    set_hooks(folder, on_pause=listener.url, on_stop=listener.url, on_failure=listener.url)
    whale_here("extend", "toy", "--cycles", "1")
    # In this order, and the resume that `whale resume` appends comes last.
    request(folder, ev.PauseRequested(), ev.StopRequested())
    whale_here("resume", "toy", "--quiet")
    assert [one["event"] for one in listener.heard] == ["pause", "stop"]
    assert folder.state().status == "completed"

    whale_here("extend", "toy", "--cycles", "1")
    shutil.move(folder.checkpoints, tmp_path / "elsewhere")
    done = whale_here("resume", "toy", "--quiet", check=False)
    assert done.returncode == 1
    assert [one["event"] for one in listener.heard] == ["pause", "stop", "failure"], "told once"
    assert "checkpoint" in listener.heard[-1]["detail"]
    log = (folder.path / "hooks.log").read_text()
    assert log.count("ok") == 5, log
    assert "a-secret" not in log, "of a URL the host only"


def test_a_hook_that_fails_hangs_or_is_not_there_changes_nothing_of_a_run(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ["--quiet", "--set", "schedule.cycles=1"]
    whale_here("run", str(toy_config), "--name", "plain", *short)
    marker = tmp_path / "survivor"
    for name, target in {
        "fails": "echo broken >&2; exit 3",
        "hangs": f"(sleep 2; touch {marker}) & sleep 600",
        "nobody": "http://127.0.0.1:9/a-secret",
        "nonsense": "http://",
    }.items():
        monkeypatch.setattr(hooks, "COMMAND_SECONDS", 0.3 if name == "hangs" else 30.0)
        whale_here("run", str(toy_config), "--name", name, *short, "--set", f"hooks.on_end={json.dumps(target)}")
        folder = RunFolder(tmp_path / "runs" / name)
        assert folder.state().weights == RunFolder(tmp_path / "runs" / "plain").state().weights
        line = (folder.path / "hooks.log").read_text()
        assert line.count("\n") == 1 and not line.endswith(": ok\n") and "a-secret" not in line
        if name == "fails":
            assert "exit code 3: broken" in line
    assert not marker.exists()


def test_what_a_run_says_never_becomes_part_of_a_command(tmp_path: Path) -> None:
    notes: list[str] = []
    told = Hooks(HooksConfig(on_failure='cat >/dev/null; echo "$WHALE_DETAIL" > said'), tmp_path, notes.append)
    told.fire("failure", "$(touch injected); `touch injected`\0", State(name="r"))
    assert (tmp_path / "said").read_text() == "$(touch injected); `touch injected`\n"
    assert not (tmp_path / "injected").exists()
    assert notes == []


def test_a_server_that_refuses_is_logged_and_a_reviewer_is_called(tmp_path: Path) -> None:
    server = Listener(status=500)
    notes: list[str] = []
    try:
        told = Hooks(HooksConfig(on_pause=server.url), tmp_path, notes.append)
        verdict = ev.AcceptanceJudged(cycle=1, rule="r", candidate="c1", accepted=True, reason="")
        told.recorded(verdict, State(name="r", verdict=verdict, config={"search": {"approve": "human"}}))
        told.recorded(verdict, State(name="r", verdict=verdict, config={"search": {"approve": "auto"}}))
    finally:
        server.shutdown()
        server.server_close()
    assert [one["detail"] for one in server.heard] == ["c1 waits for a reviewer"]
    assert "HTTP 500" in notes[0] and "a-secret" not in notes[0]


def test_a_hook_in_a_folder_that_cannot_be_written_raises_nothing(tmp_path: Path) -> None:
    told = Hooks(HooksConfig(on_end="true"), tmp_path / "gone", lambda _: None)
    told.fire("end", "budget", State(name="r"))
