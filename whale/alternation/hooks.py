"""Hooks: a command or a URL of the user's that is told when a run pauses, stops, ends or fails.

A hook can do nothing to a run. Whatever it does wrong is a line in the run's hooks.log.
"""

import datetime
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from whale.alternation.state import State, waits_for_review
from whale.config import HooksConfig
from whale.events import types as ev

Moment = Literal["pause", "stop", "end", "failure"]
COMMAND_SECONDS = 30.0
URL_SECONDS = 10.0
LOG = "hooks.log"
_TAIL = 500
"""Characters of a command's output that the log keeps."""


class Hooks:
    """The hooks of one run, told by its runner."""

    def __init__(self, config: HooksConfig, folder: Path, note: Callable[[str], None]) -> None:
        self.config = config
        self.folder = folder
        self.note = note
        self.told: str = ""
        """The last moment, so that a failure on the way out of one is not told as another."""

    def recorded(self, event: ev.Event, state: State) -> None:
        """Look at a fact that the runner has just recorded."""
        match event:
            case ev.ControlHandled(outcome="paused", detail=detail):
                self.fire("pause", detail or "as requested", state)
            case ev.ControlHandled(outcome="stopped", detail=detail):
                self.fire("stop", detail or "as requested", state)
            case ev.AcceptanceJudged() if waiting := waits_for_review(state):
                self.fire("pause", f"{waiting} waits for a reviewer", state)
            case ev.RunCompleted(reason=reason):
                self.fire("end", reason, state)
            case ev.RunInterrupted(reason=reason):
                self.fire("failure", reason, state)

    def fire(self, moment: Moment, detail: str, state: State) -> None:
        """Tell the moment's hook, if there is one, and wait for it within its limit. Never raises."""
        target: str = getattr(self.config, f"on_{moment}")
        self.told = moment
        if not target:
            return
        try:
            payload = message(moment, detail, state, self.folder)
            is_url = target.startswith(("http://", "https://"))
            problem = post(target, payload) if is_url else run_command(target, payload, self.folder)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        told = f"on_{moment} ({shown(target)}): {problem or 'ok'}"
        try:
            self._log(told)
            if problem:
                self.note(f"the hook failed, the run does not care: {told}")
        except Exception:
            return  # a full disk or a closed terminal: the hook was told, or not

    def _log(self, line: str) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{now}  {' '.join(line.split())}\n")


def message(moment: Moment, detail: str, state: State, folder: Path) -> dict[str, Any]:
    """What a hook is told, as JSON values."""
    best = max(
        (e for e in state.evaluations if e.split == "validation"), key=lambda e: (e.score, -e.cycle), default=None
    )
    return {
        "run": state.name,
        "folder": str(folder.resolve()),
        "event": moment,
        "detail": detail,
        "status": state.status,
        "cycle": state.cycle,
        "phase": state.phase,
        "accepted": state.accepted,
        "weights": state.weights,
        "rollouts": sum(totals.rollouts for totals in state.totals.values()),
        "best": best
        and {
            "cycle": best.cycle, "candidate": best.candidate, "success": best.score, "low": best.low,
            "high": best.high, "n": best.n,
        },
    }  # fmt: skip


def run_command(command: str, payload: dict[str, Any], folder: Path) -> str:
    """Run it in a shell, the message on its stdin; returns what went wrong, or nothing.

    The user's own words are the command; what the run says is in the environment and on stdin, never in the shell's
    text. It has a process group of its own, which is killed at the limit.
    """
    told = ("run", "folder", "event", "detail", "status")
    words = {f"WHALE_{key.upper()}": str(payload[key]).replace("\0", "") for key in told}
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=folder, env={**os.environ, **words},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(json.dumps(payload).encode(), timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it was killed after {COMMAND_SECONDS:g} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode == 0:
        return ""
    tail = output.decode("utf-8", "replace").strip()[-_TAIL:]
    return f"exit code {process.returncode}{': ' if tail else ''}{tail}"


def post(url: str, payload: dict[str, Any]) -> str:
    """POST the message as JSON; returns what went wrong, or nothing. One more try where nothing answers."""
    import httpx2

    for again in (True, False):
        try:
            answer = httpx2.post(url, json=payload, timeout=URL_SECONDS, follow_redirects=False)
        except httpx2.TransportError as error:
            if again:
                continue
            return f"{type(error).__name__}: {error}".replace(url, shown(url))
        return "" if answer.is_success else f"HTTP {answer.status_code}"
    return ""


def shown(target: str) -> str:
    """A hook for a log: of a URL the host only, since the rest often is a secret."""
    if not target.startswith(("http://", "https://")):
        return target[:_TAIL]
    address = urlsplit(target)
    port = f":{address.port}" if address.port else ""
    return f"{address.scheme}://{address.hostname}{port}/…"
