# ruff: noqa: E501 - an attack reads best on one line
"""Whatever a harness does, its rollout fails with its reason, and the other episodes do not notice."""

import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.rollout.scripted import LIMITS, rollouts, tree
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import probe_tiers
from whale.rollout.types import Trajectory

FRAME = "def frame(v):\n    b = json.dumps(v).encode(); return len(b).to_bytes(4, 'big') + b\n"
CHAT = '{"kind": "chat", "messages": [{"role": "user", "content": "x"}], "prefix": "", "stop": [], "max_tokens": 4, "temperature": None}'
ASK = f'{{"type": "ask", "max_turns": 4, "requests": [{CHAT}]}}'

ATTACKS: dict[str, tuple[str, str, str]] = {
    # what it does: (code, status, part of the reason)
    "endless loop": ("while True: pass", "cpu_limit", "1 s of CPU"),
    "endless awaits": ("while True: await asyncio.sleep(0)", "cpu_limit", "1 s of CPU"),
    "endless virtual sleeps": ("while True: await asyncio.sleep(1)", "cpu_limit", "1 s of CPU"),
    "loop that ignores SIGXCPU": (
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "cpu_limit",
        "1 s of CPU",
    ),
    "fork": ("os.fork()", "raised", "PermissionError"),
    "fork bomb": ("while True:\n    try: os.fork()\n    except OSError: pass", "cpu_limit", "1 s of CPU"),
    "thread": ("import threading; threading.Thread(target=print).start()", "raised", "RuntimeError"),
    "thread by asyncio": ("await asyncio.to_thread(print)", "raised", "RuntimeError"),
    "exec": ("os.execv('/bin/sh', ['sh'])", "raised", "Error"),
    "exec of python": ("os.execv(sys.executable, ['python'])", "raised", "PermissionError"),
    "subprocess": ("import subprocess; subprocess.run([sys.executable])", "raised", "PermissionError"),
    "posix_spawn": ("os.posix_spawn(sys.executable, ['p'], {})", "raised", "PermissionError"),
    "50 GB at once": ("bytearray(50 << 30)", "memory_limit", "memory"),
    "50 GB by and by": ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory_limit", "memory"),
    "prints 1 GB": ("for i in range(1 << 20): print('flood' * 200)", "output_limit", "flood"),
    "prints 1 GB of errors": ("while True: print('flood' * 200, file=sys.stderr)", "output_limit", "flood"),
    "opens a socket": ("import socket; socket.socket()", "raised", "PermissionError"),
    "makes a socket pair": ("import socket; socket.socketpair()", "raised", "PermissionError"),
    "opens a connection": ("import socket; socket.create_connection(('127.0.0.1', 1))", "raised", "Error"),
    "own event loop": ("asyncio.new_event_loop()", "raised", "PermissionError"),
    "reads the home folder's files": ("open(task['home'] + '/.profile').read()", "raised", "Error"),
    "reads the canary": ("open(task['canary']).read()", "raised", "Error"),
    "reads /etc/passwd": ("open('/etc/passwd').read()", "raised", "Error"),
    "reads the host's environment": ("open('/proc/1/environ').read()", "raised", "Error"),
    "reads its environment": ("os.environ['HOME']", "raised", "KeyError"),
    "reads installed packages": ("open(task['installed']).read()", "raised", "Error"),
    "reads the project": ("open(task['project']).read()", "raised", "Error"),
    "writes to its tree": ("open(self.__module__ and __file__, 'a')", "raised", "Error"),
    "writes to /tmp": ("open('/tmp/x', 'w')", "raised", "Error"),
    "anonymous memory file": ("os.memfd_create('x')", "raised", "PermissionError"),
    "file lock": ("import fcntl; fcntl.lockf(os.open(__file__, os.O_RDONLY), fcntl.LOCK_SH)", "raised", "Error"),
    "raises its limits": ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (9, 9))", "raised", "Error"),
    "returns a string": ("return 'Paris'", "bad_reply", "str"),
    "returns a number": ("return 42", "bad_reply", "int"),
    "returns nothing": ("await model.chat([{'role': 'user', 'content': 'x'}])", "no_answer", "None"),
    "returns a forged reply": ("return Reply(9, 'Paris', '', 'stop', 1)", "bad_reply", "no reply"),
    "returns a reply forged as true": ("return Reply(True, 'Paris', '', 'stop', 1)", "bad_reply", "no reply"),
    "asks with a forged reply": ("await model.chat([Reply(0, 'x', '', 'stop', 1)])", "bad_call", "no reply"),
    "is too hot": ("await model.chat([{'role': 'user', 'content': 'x'}], temperature=2.1)", "bad_call", "between 0 and 2"),
    "exits": ("os._exit(3)", "no_answer", "code 3"),
    "exits politely": ("sys.exit(3)", "raised", "SystemExit"),
    "kills itself": ("os.kill(os.getpid(), 9)", "raised", "PermissionError"),
    "kills its parent": ("os.kill(os.getppid(), 9)", "raised", "PermissionError"),
    "kills everyone": ("os.kill(-1, 9)", "raised", "PermissionError"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "killed", "SIGSEGV"),
    "aborts": ("os.abort()", "killed", "SIG"),
    "recursion": ("f = lambda: f()\nf()", "raised", "RecursionError"),
    "raises": ("raise ValueError('on purpose')", "raised", "ValueError: on purpose (harness.py, line "),
    "raises terminal escapes": (r"raise ValueError('\x1b[2J hidden')", "raised", "\N{REPLACEMENT CHARACTER}[2J"),
    "raises an address": ("raise ValueError(object())", "raised", "object at 0x...>"),
    "raises without text": (
        "class E(Exception):\n    def __str__(self): raise E\nraise E",
        "raised",
        "cannot be shown",
    ),
    "raises a surrogate": (r"raise ValueError('\ud800')", "raised", "ValueError"),
    "asks a surrogate": (
        r"await model.chat([{'role': 'user', 'content': '\ud800'}])",
        "bad_call",
        "malformed",
    ),
    "waits for ever": ("await asyncio.Event().wait()", "raised", "never happen"),
    "sleeps for ever": ("await asyncio.sleep(float('inf'))", "raised", "never happen"),
    "closes its channel": ("os.close(3)\nwhile True: pass", "killed", "channel"),
    "huge message": ("await model.chat([{'role': 'user', 'content': 'x' * (2 << 20)}])", "output_limit", "message"),
    "announces a huge message": ("os.write(3, b'\\xff' * 4)\nwhile True: pass", "output_limit", "message"),
    "garbage for JSON": ("os.write(3, b'\\0\\0\\0\\x05hello')\nwhile True: pass", "bad_call", "malformed"),
    "deep JSON": ("os.write(3, b'\\0\\0\\xff\\0' + b'[' * 0xff00)\nwhile True: pass", "bad_call", "malformed"),
    "infinite number": (
        "b = b'{\"type\": 1e999}'\nos.write(3, len(b).to_bytes(4, 'big') + b)",
        "bad_call",
        "malformed",
    ),
    "floods messages": (
        FRAME + f"f = 2 * frame({ASK})\nwhile True: os.write(3, f)",  # two at once: one alone may be answered in time
        "bad_call",
        "should have waited",
    ),
    "imitates the host": (FRAME + "os.write(3, frame({'answers': []}))", "bad_call", "neither"),
    "imitates the worker": (
        FRAME + "os.write(3, frame({'type': 'exit', 'id': 0, 'code': 0}))",
        "bad_call",
        "neither",
    ),
    "claims an answer it never had": (
        FRAME + "os.write(3, frame({'type': 'end', 'status': 'ok', 'answer': 0}))",
        "bad_reply",
        "no reply",
    ),
    "claims a fault of ours": (
        FRAME + "os.write(3, frame({'type': 'end', 'status': 'fault', 'reason': 'x'}))",
        "bad_call",
        "last word",
    ),
    "says locked again": (FRAME + "os.write(3, frame({'type': 'locked'}))", "bad_call", "neither"),
    "calls a tool that is not there": ("await tools.answers()", "raised", "no tool 'answers'"),
    "calls such a tool by hand": (
        FRAME
        + "os.write(3, frame({'type': 'ask', 'max_turns': 1, 'requests': [{'kind': 'tool', 'name': 'verify', 'arguments': {}}]}))",
        "bad_call",
        "no tool",
    ),
    "negative max_tokens": (
        "await model.chat([{'role': 'user', 'content': 'x'}], max_tokens=-1)",
        "bad_call",
        "max_tokens",
    ),
    "max_tokens of True": (
        "await model.chat([{'role': 'user', 'content': 'x'}], max_tokens=True)",
        "bad_call",
        "max_tokens",
    ),
    "not a temperature": (
        "await model.chat([{'role': 'user', 'content': 'x'}], temperature=float('nan'))",
        "bad_call",
        "NaN",
    ),
    "negative temperature": (
        "await model.chat([{'role': 'user', 'content': 'x'}], temperature=-1)",
        "bad_call",
        "temperature",
    ),
    "unknown role": ("await model.chat([{'role': 'root', 'content': 'x'}])", "bad_call", "role"),
    "content that is no text": ("await model.chat([{'role': 'user', 'content': 7}])", "bad_call", "content"),
    "no messages": ("await model.chat([])", "bad_call", "messages"),
    "prefix that is no text": (
        "await model.chat([{'role': 'user', 'content': 'x'}], prefix=7)",
        "bad_call",
        "prefix",
    ),
    "message the template refuses": ("await model.chat([{'role': 'tool', 'content': 'x'}])", "bad_call", "template"),
    "message that is no JSON": ("await model.chat([{'role': 'user', 'content': {1}}])", "raised", "TypeError"),
    "too many turns": (
        "for _ in range(9): await model.chat([{'role': 'user', 'content': 'x'}])",
        "turn_limit",
        "4 model calls",
    ),
    "too many turns at once": (
        "await asyncio.gather(*(model.chat([{'role': 'user', 'content': 'x'}]) for _ in range(9)))",
        "turn_limit",
        "4 model calls",
    ),
    "no turns": ("self.max_turns", "no_answer", "None"),
    "prompt longer than the context": (
        "await model.chat([{'role': 'user', 'content': 'x' * 30_000}])",
        "overlong",
        "20000",
    ),
    "endless tool calls": ("while True: await tools.lookup(key='france')", "turn_limit", "tool calls"),
}  # fmt: skip

BODY = "\n".join(
    [
        "if task['attack'] is None:",
        "    first = await model.chat([{'role': 'user', 'content': task['question']}])",
        "    found = await tools.lookup(key='france')",
        "    return await model.chat([first, {'role': 'user', 'content': found[0]['text']}])",
        "code = 'async def attack(self, task, model, tools):\\n' + ''.join(",
        "    '    ' + line + '\\n' for line in task['attack'].splitlines())",
        "scope = dict(globals())",
        "exec(code, scope)",
        "return await scope['attack'](self, task, model, tools)",
    ]
)
INSTALLED = next((Path(sysconfig.get_path("stdlib")) / "site-packages").rglob("*.*"))
"""A file among the base interpreter's packages: WHALE and its answers may be installed there."""
GOOD = {"attack": None, "question": "What is the capital of France?"}


@pytest.fixture(scope="module", params=[tier for tier in probe_tiers() if tier != "none"])
def worker(request: pytest.FixtureRequest) -> Iterator[HarnessWorker]:
    with HarnessWorker(tree(BODY), request.param, LIMITS) as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(worker: HarnessWorker) -> list[Trajectory]:
    return rollouts(worker, [GOOD] * 3)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_a_failed_rollout_with_its_reason_and_its_siblings_do_not_notice(
    name: str, worker: HarnessWorker, undisturbed: list[Trajectory], tmp_path: Path
) -> None:
    code, status, reason = ATTACKS[name]
    canary = tmp_path / "canary"
    canary.write_text("unseen")
    attack: dict[str, Any] = {
        "attack": code,
        "canary": str(canary),
        "home": str(Path.home()),
        "project": str(Path(__file__)),
        "installed": str(INSTALLED),
    }

    *siblings, failed = rollouts(worker, [GOOD] * 3 + [attack])

    assert (failed.status, failed.reward, failed.answer_turn) == (status, 0.0, None), failed.reason
    assert reason in failed.reason
    assert len(failed.reason) <= 2000
    assert siblings == undisturbed
    assert [trajectory.status for trajectory in siblings] == ["ok"] * 3
    assert children_of(worker) == []


def test_a_blocked_episode_is_ended_by_the_wall_guard() -> None:
    code = "import select; select.select([], [], [])"
    limits = replace(LIMITS, wall_seconds=0.5)
    with HarnessWorker(tree(BODY), probe_tiers()[0], limits) as worker:
        good, blocked = rollouts(worker, [GOOD, {"attack": code}])

    assert good.status == "ok"
    assert (blocked.status, blocked.reason) == ("wall_limit", "no answer for 0.5 s")


def test_the_wall_guard_looks_in_time_at_an_episode_that_blocks_after_an_answer_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience = HarnessWorker._patience
    late: list[int] = []

    def watched(worker: HarnessWorker) -> float:
        held = [p for p in worker._alive.values() if p.holds_control and not p.verdict and not p.closed]
        late.extend(p.number for p in held if worker._look_at > p.deadline())
        return patience(worker)

    monkeypatch.setattr(HarnessWorker, "_patience", watched)
    code = "import select; await model.chat([{'role': 'user', 'content': 'x'}]); select.select([], [], [])"
    limits = replace(LIMITS, wall_seconds=0.5)
    with HarnessWorker(tree(BODY), probe_tiers()[0], limits) as worker:
        good, *blocked = rollouts(worker, [GOOD, {"attack": code}, {"attack": code}])

    assert good.status == "ok"
    assert [(t.status, len(t.turns)) for t in blocked] == [("wall_limit", 1)] * 2
    assert late == []


def test_a_harness_that_computes_is_left_to_its_cpu_limit_however_busy_the_machine() -> None:
    limits = replace(LIMITS, wall_seconds=0.2)
    with HarnessWorker(tree(BODY), probe_tiers()[0], limits) as worker:
        computed = rollouts(worker, [{"attack": "while True: pass"}] * 4)

    assert [trajectory.status for trajectory in computed] == ["cpu_limit"] * 4


@pytest.mark.parametrize("forkers", [1, 3])
def test_closing_a_worker_leaves_no_process_and_no_file(forkers: int) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with HarnessWorker(tree(BODY), probe_tiers()[0], LIMITS, forkers=forkers) as worker:
        rollouts(worker, [GOOD, {"attack": "while True: pass"}])
        for _ in range(3):
            worker.open_episode({"attack": "while True: pass"}, seed=0)
        folder = worker._folder.path  # the guarantee is about it

    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert not folder.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def children_of(worker: HarnessWorker) -> list[int]:
    """Processes below the worker that are no twins of it, zombies too: after a micro-batch there must be none."""
    below = [process.pid for process in psutil.Process(worker.pid).children(recursive=True)]
    return [pid for pid in below if pid not in worker.pids]
