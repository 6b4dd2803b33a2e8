# ruff: noqa: E501 - an attack reads best on one line
"""25 hostile candidates: each is invalid or ends as recorded failures; none sees an answer, none moves another's score.

Each is tried twice: at the gates, as a proposer would hand it over; and in the sandbox with the gates off, since
the process is the boundary and the gates are only a help.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.rollout.scripted import LIMITS, FactsDomain, rollouts, tree
from whale.harness.validation import check_source
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import probe_tiers
from whale.rollout.types import Completion, Trajectory
from whale.search.gate import gate

ANSWER = "zanzibar-7391"
"""The reference answer: on the host only. No trajectory of a hostile candidate may hold it."""
TASKS: list[Mapping[str, Any]] = [{"question": "Which island?"}, {"question": "Which other one?"}]
ASK = "return await model.chat([{'role': 'user', 'content': %s}])"
FRAME = "def frame(v):\n    b = json.dumps(v).encode(); return len(b).to_bytes(4, 'big') + b\n"
HUNT = "import re\ndef hunt(text): return re.findall('zanzibar-[0-9]+', str(text))\n"

HOSTILE: dict[str, tuple[str, str]] = {
    # what it does: (the body of `run`, "fails": the rollout has its own failure; "harmless": it runs and finds nothing)
    "reads answers through gc": (
        HUNT
        + "import gc\nfound = [hunt(o) for o in gc.get_objects() if isinstance(o, (str, dict))]\n"
        + ASK % "str([f for f in found if f])",
        "harmless",
    ),
    "reads answers through its caller's frames": (
        HUNT
        + "f, found = sys._getframe(), []\nwhile f:\n    found += hunt(f.f_locals) + hunt(f.f_globals); f = f.f_back\n"
        + ASK % "str(found)",
        "harmless",
    ),
    "reads answers through loaded modules": (
        HUNT
        + "found = [hunt(vars(m)) for m in list(sys.modules.values()) if hasattr(m, '__dict__')]\n"
        + ASK % "str([f for f in found if f])",
        "harmless",
    ),
    "reads answers through a traceback": (
        HUNT
        + "try: await tools.lookup(key=object())\nexcept BaseException as e:\n    t, found = e.__traceback__, []\n    while t: found += hunt(t.tb_frame.f_locals); t = t.tb_next\n"
        + ASK % "str(found)",
        "harmless",
    ),
    "reads answers in its own memory map": ("open('/proc/self/mem', 'rb').read(1)", "fails"),
    "reads another candidate's memory": ("open('/proc/' + str(os.getppid()) + '/mem', 'rb').read(1)", "fails"),
    "traces its parent": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nraise SystemExit(libc.ptrace(16, os.getppid(), 0, 0))",
        "fails",
    ),
    "reads the task files of the project": (f"open({str(Path(__file__).resolve())!r}).read()", "fails"),
    "lists the file system for answers": (
        HUNT
        + "found = [os.path.join(d, f) for d, _, fs in os.walk('/tmp') for f in fs if 'answer' in f]\n"
        + ASK % "str(found)",
        "harmless",
    ),
    "reads answers in the environment": (HUNT + ASK % "str(hunt(dict(os.environ)) + sorted(os.environ))", "harmless"),
    "asks the host for the answer as a tool": (
        FRAME
        + "os.write(3, frame({'type': 'ask', 'max_turns': 1, 'requests': [{'kind': 'tool', 'name': 'verify', 'arguments': {}}]}))",
        "fails",
    ),
    "asks the host for the task's private fields": (FRAME + "os.write(3, frame({'type': 'private'}))", "fails"),
    "reads what the channel still holds": (
        "import fcntl\nfcntl.fcntl(3, fcntl.F_SETFL, os.O_NONBLOCK)\nos.read(3, 1 << 16)",
        "fails",
    ),
    "edits the verifier": ("import whale.domains.base as b\nb.Verdict = lambda *a, **k: 1\n" + ASK % "'x'", "fails"),
    "patches the contract's own classes": (
        "import whale.harness.api as api\napi.Reply.text = property(lambda self: 'zanzibar')\n" + ASK % "'x'",
        "fails",
    ),
    "patches json for the episodes to come": (
        "json.dumps = lambda *a, **k: '{}'\njson.loads = lambda *a, **k: {'reward': 1}\n" + ASK % "'x'",
        "fails",
    ),
    "patches builtins for the episodes to come": (
        "import builtins\nbuiltins.len = lambda x: 10**9\n" + ASK % "'x'",
        "any",
    ),
    "claims its own reward": (
        FRAME + "os.write(3, frame({'type': 'end', 'status': 'ok', 'answer': 0, 'reward': 1.0}))",
        "fails",
    ),
    "imitates the host's answer": (FRAME + "os.write(3, frame({'answers': [{'text': 'zanzibar'}]}))", "fails"),
    "forks": ("os.fork()\n" + ASK % "'x'", "fails"),
    "floods its output": ("while True: print('flood' * 1000)", "fails"),
    "sleeps": ("import time\ntime.sleep(30)\nwhile True: pass", "any"),
    "sends escape codes": ("raise ValueError('\\x1b[2J\\x1b]0;owned\\x07 \\u202e')", "fails"),
    "leaves a file for the next candidate": ("open('/tmp/answer', 'w').write('x')", "fails"),
    "smuggles an answer into its prompts": (ASK % "'The answer is zanzibar-7391'", "smuggles"),
}


def domain_leak(text: str) -> str | None:
    return "it holds an answer of the test split" if ANSWER in text else None


@pytest.fixture(scope="module")
def tier() -> Any:
    return probe_tiers()[0]


def score(tier: Any) -> list[Trajectory]:
    with HarnessWorker(tree(ASK % "task['question']"), tier, LIMITS) as worker:
        return rollouts(worker, TASKS, private={"answer": ANSWER})


@pytest.fixture(scope="module")
def honest(tier: Any) -> Iterator[list[Trajectory]]:
    yield score(tier)


def test_there_are_25() -> None:
    assert len(HOSTILE) == 25


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_candidate_sees_no_answer_and_moves_no_score(name: str, tier: Any, honest: list[Trajectory]) -> None:
    body, kind = HOSTILE[name]
    files = tree(body)
    base = tree(ASK % "'x'")
    reason = gate(files, base=base, space="full", check_source=check_source, leak=domain_leak)
    # `os` and `sys` are imported at the top of each of these trees: the gates refuse them all, with the reason.
    assert reason is not None
    assert reason.isprintable()

    with HarnessWorker(files, tier, LIMITS) as worker:
        told = rollouts(worker, TASKS, private={"answer": ANSWER})

    for trajectory in told:
        if kind != "smuggles":
            seen = [message["content"] for turn in trajectory.turns for message in turn.messages]
            assert ANSWER not in json.dumps(seen) + trajectory.reason
        if kind == "fails":
            assert (trajectory.status != "ok", trajectory.reward) == (True, 0.0), trajectory.status
            assert trajectory.reason
        if kind == "harmless":
            assert trajectory.status == "ok", trajectory.reason
        assert trajectory.reward == 0.0
        assert "\x1b" not in trajectory.reason
    assert score(tier) == honest


def test_a_smuggled_answer_is_refused_before_anything_runs() -> None:
    files = {"harness.py": b"x = 1\n", "prompts/system.md": f"Say {ANSWER}.".encode()}
    reason = gate(files, base=files, space="full", check_source=lambda _: None, leak=domain_leak)
    assert reason == "prompts/system.md: it holds an answer of the test split"


def test_the_honest_score_is_what_the_verifier_says(honest: list[Trajectory]) -> None:
    """Otherwise the comparison above would compare failures."""
    assert [trajectory.status for trajectory in honest] == ["ok", "ok"]
    assert FactsDomain().verify is not None
    assert all(isinstance(trajectory.completion, Completion) for trajectory in honest)
