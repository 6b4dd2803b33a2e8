"""The verifier of a domain of one's own in a process apart, so that one that never ends cannot hold a run.

A verdict that takes too long, and a verifier that raises or dies, is a `VerifierFault`: nothing of that micro-batch
counts, and the run stops with a line that names the task. Run as a program, this module is that process: a JSON
line with the domain's name and options, then one a verdict.
"""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from whale.domains.base import VERIFY_SECONDS, Domain, Task, Verdict
from whale.domains.registry import BUILT_IN, load_domain
from whale.domains.simple import SimpleDomain
from whale.domains.source import blame, traceback_of
from whale.domains.watched import die_with_parent, end_group, print_to_stderr
from whale.errors import UsageError, WhaleError
from whale.rollout.errors import VerifierFault
from whale.rollout.types import Action, Completion

START_SECONDS = 600.0
"""What the process may take to load the domain."""
_SHOWN = 60
"""Characters of an answer in a line."""


def judged_apart(domain: Domain, name: str, options: Mapping[str, Any]) -> Domain:
    """The domain, whose verdicts come from a process of their own if the user's own code gives them.

    `name` and `options` are what `load_domain` made it from. Built-in verifiers end in bounded time, and one that is
    called from several threads waits for a service, under limits of its own: these stay in this process.
    """
    bounded = name in BUILT_IN or (isinstance(domain, SimpleDomain) and domain.verify_row is None)
    if bounded or getattr(domain, "verify_threads", 1) > 1:
        return domain
    return cast(Domain, JudgedApart(domain, name, options))


class JudgedApart:
    """A domain; `verify` asks a process, which starts with the first verdict and ends with this object."""

    def __init__(self, domain: Domain, name: str, options: Mapping[str, Any]) -> None:
        self._domain = domain
        self._origin = {"name": name, "options": dict(options)}
        self._seconds = verify_seconds(domain)
        self._own = frozenset(task.id for split in domain.splits().values() for task in split)
        self._folder = Path.cwd()
        self._process: subprocess.Popen[bytes] | None = None
        self._kill: Callable[[], object] = lambda: None
        self._rest = b""

    def __getattr__(self, name: str) -> Any:
        """All but the verdicts is the domain's own."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._domain, name)

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The domain's verdict. Raises VerifierFault, in one line, where there is none."""
        process = self._running()
        # A task that was made during the run is in none of the splits that the process knows.
        told: Any = task.id if task.id in self._own else dataclasses.asdict(task)
        question = {"task": told, "completion": dataclasses.asdict(completion)}
        try:
            answer = self._ask(process, question, self._seconds)
        except BaseException:
            self._end()  # an interrupted question's answer must not be taken for the next one's
            raise
        if answer is None:
            how = self._end()
            shown = completion.sampled[-_SHOWN:]
            raise VerifierFault(
                f"{self._domain.name}: the verifier {how or f'did not end within {self._seconds:g} s'} on the task "
                f"{task.id}, answer {shown!r}; nothing of this micro-batch counts, `whale resume` samples it again"
            )
        _raise_fault(answer)
        return Verdict(answer["reward"], answer["metrics"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # as here, and no more
                cwd=self._folder,  # from which the domain names its files, too
                start_new_session=True,  # Ctrl-C is the run's to handle
            )
            self._kill = weakref.finalize(self, _kill, self._process)
            ready = self._ask(self._process, self._origin, START_SECONDS)
            if ready is None:
                how = self._end()
                raise VerifierFault(
                    f"{self._domain.name}: loading it for its verifier {how or f'took more than {START_SECONDS:g} s'}"
                )
            if "fault" in ready:
                self._end()
                _raise_fault(ready)
            if ready["fingerprint"] != self._domain.fingerprint():
                self._end()
                raise VerifierFault(
                    f"{self._domain.name}: its data or code changed while the run went on; bring the old ones back"
                )
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], question: Any, seconds: float) -> dict[str, Any] | None:
        """The process's next line, None if it does not come in time."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return cast(dict[str, Any], json.loads(line))

    def _end(self) -> str:
        """End the process; says how it had ended by itself, or nothing."""
        process, self._process, self._rest = self._process, None, b""
        assert process is not None
        # One that closed its pipe is about to end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        code = process.returncode
        self._kill()
        if code is None:
            return ""
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended its process with code {code}"


def verify_seconds(domain: Domain) -> float:
    """What one of its verdicts may take. Raises UsageError for what is no number above 0."""
    seconds = getattr(domain, "verify_seconds", VERIFY_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise UsageError(f"{domain.name}: verify_seconds must be a number above 0, not {seconds!r}")
    return float(seconds)


def _raise_fault(answer: Mapping[str, Any]) -> None:
    if "fault" in answer:
        raise VerifierFault(answer["fault"]).with_details(answer["details"])


def _kill(process: subprocess.Popen[bytes]) -> None:
    end_group(process.pid)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # what it was told last and never read
                stream.close()


def judge(domain: Domain, task: Task, completion: Completion) -> dict[str, Any]:
    """A verdict as JSON, or {"fault", "details"} where the verifier is broken."""
    try:
        verdict = domain.verify(task, completion)
        reward = float(verdict.reward)
        metrics = {str(name): float(value) for name, value in verdict.metrics.items()}
    except WhaleError as error:
        return {"fault": str(error), "details": error.details}
    except BaseException as error:
        fault = f"{domain.name}: the verifier raised on the task {task.id}, {blame(error)}"
        return {"fault": fault, "details": traceback_of(error)}
    if not 0 <= reward <= 1:
        return {"fault": f"{domain.name}: the reward of the task {task.id} is {reward!r}: give 0 to 1", "details": ""}
    return {"reward": reward, "metrics": metrics}


def completion_from(record: Mapping[str, Any]) -> Completion:
    """A completion from its fields."""
    actions = tuple(Action(action["tool"], completion_from(action["reply"])) for action in record["actions"])
    return Completion(record["prefix"], record["sampled"], record["turn"], actions)


def main() -> None:
    """Answer questions until the input ends."""
    die_with_parent(int(sys.argv[1]))
    questions, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    print_to_stderr()  # what the user's code prints is no answer
    origin = json.loads(questions.readline())
    try:
        domain = load_domain(origin["name"], origin["options"])
        tasks = {task.id: task for split in domain.splits().values() for task in split}
        ready: dict[str, Any] = {"fingerprint": domain.fingerprint()}
    except WhaleError as error:
        ready = {"fault": str(error), "details": error.details}
    except BaseException as error:
        ready = {"fault": f"domain {origin['name']!r}: {blame(error)}", "details": traceback_of(error)}
    print(json.dumps(ready), file=answers, flush=True)
    if "fault" in ready:
        return
    for line in questions:
        question = json.loads(line)
        told = question["task"]
        task = tasks[told] if isinstance(told, str) else Task(**told)
        found = judge(domain, task, completion_from(question["completion"]))
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
