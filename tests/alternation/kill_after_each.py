"""`python kill_after_each.py CONFIG NAME`: carry a run through, with a SIGKILL after each of its events.

Each process appends once and dies; the next one goes on from there. They are forks of this process, which
has imported what takes long to import and has computed nothing. Prints how many were killed.
"""

import os
import signal
import sys

import torch
import transformers  # noqa: F401

import whale.alternation.session  # noqa: F401
from tests.alternation.kill_at import deadly
from whale.cli.__main__ import main
from whale.events import SqliteLog
from whale.rollout import transformers_engine  # noqa: F401

torch.set_num_threads(1)


def child(arguments: list[str]) -> None:
    SqliteLog.append = deadly(SqliteLog.append, 1, "after")  # type: ignore[method-assign]
    main(arguments)


if __name__ == "__main__":
    config, name = sys.argv[1:]
    arguments, kills = ["run", config, "--name", name, "--quiet"], 0
    while True:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            child(arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != -signal.SIGKILL:
            break
        kills += 1
        arguments = ["resume", name, "--quiet"]
    print(kills)
    sys.exit(code)
