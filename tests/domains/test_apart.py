"""Verdicts of own domains: asked in a process apart, under a time limit, and never a reward of 0 by accident."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runs import WhaleProcess, toy_model, whale, whale_here  # noqa: F401 - fixtures
from whale.domains.apart import JudgedApart, judged_apart
from whale.domains.base import Domain, Task
from whale.domains.registry import load_domain
from whale.domains.simple import SimpleDomain
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Action, Completion

OWN = """
import os, pathlib, sys, time
from whale.domains.simple import qa_domain

HERE = pathlib.Path(__file__).parent

def check(row, text):
    print("a verifier may print what it likes", text)
    (HERE / "verifier.pid").write_text(str(os.getpid()))
    if (HERE / "hang").exists() or text == "hang":
        while True:
            pass
    if text == "swallow":
        while True:
            try:
                time.sleep(9)
            except BaseException:
                pass
    if text == "leave":
        sys.exit(3)
    if text == "die":
        os.kill(os.getpid(), 9)
    if (HERE / "raise").exists() or text == "raise":
        return 1 / 0
    return {"nan": float("nan"), "large": 2, "text": "x"}.get(text, text == row["answer"])

def create(options):
    rows = [{"question": f"q {n}", "answer": str(n)} for n in range(40)]
    return qa_domain("own", rows, options, verify=check, verify_seconds=float(os.environ.get("SECONDS", "2")))
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[[], Domain]]:
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path / 'own.py'}:create"

    def make() -> Domain:
        return judged_apart(load_domain(name, {"weight": 8}), name, {"weight": 8})

    yield make


def box(text: str) -> Completion:
    return Completion("", f"<answer>{text}</answer>")


def first_task(domain: Domain) -> Task:
    return domain.splits()["weight"][0]


def test_a_verdict_from_apart_is_the_one_from_here(own: Callable[[], Domain]) -> None:
    apart = own()
    assert isinstance(apart, JudgedApart)
    here = apart._domain
    task = first_task(here)
    texts = (task.private["answer"], "wrong", "", "\x00\u202e", "<answer>" * 9, "x" * 10**6)
    for completion in (*map(box, texts), Completion("<answer>1", "</answer>"), Completion("", "no tag")):
        assert apart.verify(task, completion) == here.verify(task, completion)
    assert apart.name == "own" and apart.fingerprint() == here.fingerprint()
    assert apart.splits() is here.splits()
    assert int((Path(here.verify_row.__globals__["HERE"]) / "verifier.pid").read_text()) == os.getpid()  # type: ignore[attr-defined]


def test_a_task_that_was_made_during_the_run_is_judged_too(own: Callable[[], Domain]) -> None:
    domain = own()
    first = domain.splits()["weight"][0]
    made = Task("weight-0+17", first.public, {**first.private, "answer": "a harder one"}, first.group)
    assert [domain.verify(made, box(text)).reward for text in ("a harder one", first.private["answer"])] == [1, 0]
    assert domain.verify(first, box(first.private["answer"])).reward == 1


def test_what_a_verifier_prints_is_no_verdict_and_no_data(own: Callable[[], Domain], capfd: Any) -> None:
    domain = own()
    domain.verify(first_task(domain), box("loud \ud800"))
    printed = capfd.readouterr()
    assert (printed.out, "loud" in printed.err) == ("", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hang", "did not end within 2 s"), ("swallow", "did not end within 2 s"), ("leave", "SystemExit"),
        ("die", "was ended by SIGKILL"), ("raise", "own.py line 24: ZeroDivisionError"), ("nan", "give 0 to 1"),
        ("large", "give 0 to 1"), ("text", "ValueError"),
    ],
)  # fmt: skip
def test_a_verifier_that_hangs_raises_or_dies_is_a_fault_in_one_line_and_the_next_verdict_comes(
    own: Callable[[], Domain], text: str, reason: str
) -> None:
    domain = own()
    task = first_task(domain)
    with pytest.raises(VerifierFault) as caught:
        domain.verify(task, box(text))
    assert reason in str(caught.value) and task.id in str(caught.value) and "\n" not in str(caught.value)
    assert domain.verify(task, box(task.private["answer"])).reward == 1


def test_what_was_done_before_an_answer_reaches_the_verifier(tmp_path: Path) -> None:
    (tmp_path / "played.py").write_text(
        "from tests.toy.domain import ToyDomain\n"
        "from whale.domains.base import Verdict\n"
        "class Played(ToyDomain):\n"
        "    def verify(self, task, completion):\n"
        "        played = [(a.tool, a.reply.prefix, a.reply.sampled, a.reply.turn) for a in completion.actions]\n"
        "        return Verdict(float(played == [('play', 'p', 's', 0)] and completion.turn == 1))\n"
        "create = Played\n"
    )
    name = f"{tmp_path / 'played.py'}:create"
    domain = judged_apart(load_domain(name), name, {})
    done = Completion("", "x", 1, (Action("play", Completion("p", "s", 0)),))
    assert domain.verify(first_task(domain), done).reward == 1
    assert domain.verify(first_task(domain), Completion("", "x", 1)).reward == 0


def test_bounded_verifiers_and_those_that_wait_for_a_service_stay_here(own: Callable[[], Domain]) -> None:
    math = load_domain("math", {"weight": 8, "harness": 8, "validation": 8, "test": 8})
    assert judged_apart(math, "math", {}) is math
    weekdays = load_domain("examples/own/weekdays.py:create")
    assert judged_apart(weekdays, "examples/own/weekdays.py:create", {}) is weekdays
    waiting = load_domain("examples/own/weekdays.py:create")
    assert isinstance(waiting, SimpleDomain)
    waiting.verify_row, waiting.verify_threads = (lambda row, text: 1.0), 8  # type: ignore[attr-defined]
    assert judged_apart(waiting, "waits.py:create", {}) is waiting


def test_a_file_that_changed_since_the_domain_was_made_is_said(own: Callable[[], Domain], tmp_path: Path) -> None:
    domain = own()
    (tmp_path / "own.py").write_text(OWN + "\nOTHER = 1\n")
    with pytest.raises(VerifierFault, match="changed while"):
        domain.verify(first_task(domain), box("1"))


HARNESS = """
from whale.harness import Harness

class Tagged(Harness):
    async def run(self, task, model, tools):
        asked = [{"role": "user", "content": task["question"]}]
        return await model.chat(asked, max_tokens=4)
"""
RUN = """
seed = 1
domain = "own.py:create"
model = "MODEL"
domain_options = {weight = 4, harness = 2, validation = 2, test = 2}
engine = {threads = 1, micro_batch = 2, device = "cpu"}
weights = {batch = 2, rollouts_per_prompt = 2, minibatch = 2, filters = "paper"}
search = {candidates = 1}
schedule = {cycles = 1, epochs = "0.5", iterations = 1}
evaluate = {samples = 1}
"""
RUN_DOMAIN = OWN.replace(
    "def create",
    f"HARNESS = {HARNESS!r}\n\n"
    "class Closing:\n"
    '    """The random model never writes the tag: its words are the answer."""\n'
    "    def __init__(self, real):\n"
    "        self.real = real\n"
    "    def __getattr__(self, name):\n"
    "        return getattr(self.real, name)\n"
    "    def verify(self, task, completion):\n"
    "        from whale.rollout.types import Completion\n"
    "        return self.real.verify(task, Completion('', f'<answer>{completion.sampled}</answer>'))\n\n"
    "def make",
).replace("SECONDS", "VERDICT_SECONDS") + (
    "\ndef create(options):\n"
    "    real = make(options)\n"
    "    real.harness = {'harness.py': HARNESS.encode(), 'prompts/system.md': b''}\n"
    "    return Closing(real)\n"
)


@pytest.mark.parametrize(("fault", "reason"), [("hang", "did not end within 2 s"), ("raise", "ZeroDivisionError")])
def test_a_run_whose_verifier_fails_stops_in_one_line_and_goes_on_from_any_folder(
    whale_here: WhaleProcess,  # noqa: F811
    toy_model: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    reason: str,
) -> None:
    monkeypatch.setenv("VERDICT_SECONDS", "2")
    monkeypatch.setenv("WHALE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "own.py").write_text(RUN_DOMAIN)
    (tmp_path / "own.toml").write_text(RUN.replace("MODEL", os.path.relpath(toy_model, tmp_path)))
    (tmp_path / fault).touch()
    stopped = whale_here("run", "own.toml", "--quiet", check=False)
    assert stopped.returncode == 1, stopped.stderr
    (line,) = [line for line in stopped.stderr.splitlines() if line.startswith("whale: ")]
    assert reason in line and "task" in line
    (tmp_path / fault).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    whale_here("resume", "own", "--quiet")
    assert '"completed"' in whale_here("status", "own", "--json").stdout
    assert "95 % interval" in whale_here("metrics", "own").stdout
    pid = int((tmp_path / "verifier.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def test_a_run_says_where_its_files_were_when_they_have_moved(
    whale_here: WhaleProcess,  # noqa: F811
    toy_model: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("WHALE_RUNS", str(tmp_path / "runs"))
    (home / "own.py").write_text(RUN_DOMAIN)
    (home / "own.toml").write_text(RUN.replace("MODEL", str(toy_model)))
    monkeypatch.chdir(home)
    (home / "raise").touch()
    assert whale_here("run", "own.toml", "--quiet", check=False).returncode == 1
    (home / "raise").unlink()
    monkeypatch.chdir(tmp_path)
    home.rename(tmp_path / "moved")
    lost = whale_here("resume", "own", "--quiet", check=False)
    assert lost.returncode == 2 and "Traceback" not in lost.stderr
    for word in ("there is no file", str(home), "is not there", "started_in", "whale.toml"):
        assert word in lost.stderr, lost.stderr
    config = tmp_path / "runs" / "own" / "whale.toml"
    config.write_text(config.read_text().replace(str(home), str(tmp_path / "moved")))
    whale_here("resume", "own", "--quiet")
    assert '"completed"' in whale_here("status", "own", "--json").stdout
