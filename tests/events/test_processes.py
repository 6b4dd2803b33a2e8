"""The log between real processes: writers that compete, readers that follow, a writer that is killed."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from whale.events import NewEvent, SqliteLog
from whale.events.types import ExtendRequested, PauseRequested

WRITER = """
    import sys
    from whale.events import NewEvent, SqliteLog, VersionConflict
    from whale.events.types import ExtendRequested
    path, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.stdin.readline()  # all start at once
    with SqliteLog(path) as log:
        for n in range(batches):
            batch = [NewEvent(ExtendRequested(cycles=n), f"{name}/{n}/{i}") for i in range(2)]
            while True:  # read, decide, append: another writer of the stream may be first
                try:
                    log.append("run", batch, log.version("run"))
                    break
                except VersionConflict:
                    pass
"""

TAIL = """
    import sys
    from whale.events import SqliteLog
    path, wanted = sys.argv[1], int(sys.argv[2])
    seen = []
    with SqliteLog(path, readonly=True) as log:
        for event in log.tail(0, stop=lambda: len(seen) >= wanted, poll=0.01):
            seen.append(event.position)
    print(*seen)
"""

ENDLESS = """
    import sys
    from whale.events import NewEvent, SqliteLog
    from whale.events.types import PauseRequested
    with SqliteLog(sys.argv[1]) as log:
        n = log.head().position
        while True:
            batch = [NewEvent(PauseRequested(by="x" * 2000), f"k/{n + i}") for i in range(5)]
            n = log.append("run", batch, n)[-1].version
            print(n, flush=True)  # acknowledged
"""


DIES_INSIDE = """
    import os, signal, sys
    from whale.events import NewEvent, SqliteLog
    from whale.events.types import PauseRequested
    from whale.events.sqlite_file import borrowed
    path, kills = sys.argv[1], int(sys.argv[2])
    batch = [NewEvent(PauseRequested(by="x" * 9000), f"k/{i}") for i in range(40)]
    for kill in range(kills):
        steps = 30 + kill * 3000 // kills  # of SQLite's machine; the whole append takes more
        child = os.fork()
        if child == 0:
            with SqliteLog(path) as log:
                with borrowed(log._writer) as raw:  # the pool's only connection: append uses it too
                    raw.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), steps)
                log.append("run", batch, 2)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (status, steps)
        with SqliteLog(path) as log:
            assert log.verify().position == 2, steps
        print(steps, flush=True)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_competing_writers_and_followers_lose_double_and_skip_nothing(path: Path) -> None:
    batches, writers, readers = 25, 4, 2
    total = writers * batches * 2
    SqliteLog(path).close()
    tails = [start(TAIL, path, total) for _ in range(readers)]
    working = [start(WRITER, path, f"w{i}", batches) for i in range(writers)]
    for process in working:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in working:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    for process in tails:
        seen, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        assert [int(n) for n in seen.split()] == list(range(1, total + 1))
    with SqliteLog(path, readonly=True) as log:
        events = list(log.read())
        assert log.verify().position == total == log.version("run")
        wanted = {f"w{w}/{n}/{i}" for w in range(writers) for n in range(batches) for i in range(2)}
        assert {e.key for e in events} == wanted
        for first, second in zip(events[::2], events[1::2], strict=True):  # batches are whole
            assert second.key == first.key[:-1] + "1"


def test_processes_that_make_the_same_log_at_once_agree_on_one(path: Path) -> None:
    working = [start(WRITER, path, f"w{i}", 2) for i in range(3)]
    for process in working:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in working:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    with SqliteLog(path, readonly=True) as log:
        assert log.verify().position == 12
    assert [p.name for p in path.parent.iterdir() if p.name.endswith(".new")] == []


def check_after_kill(path: Path, acknowledged: int) -> int:
    """All that was acknowledged is there, batches are whole, and the last can be repeated as by a resumed runner."""
    with SqliteLog(path) as log:
        position = log.verify().position
        assert position >= acknowledged
        assert position % 5 == 0
        assert [e.key for e in log.read()] == [f"k/{n}" for n in range(position)]
        if position:
            last = [NewEvent(PauseRequested(by="x" * 2000), f"k/{position - 5 + i}") for i in range(5)]
            assert [e.position for e in log.append("run", last, position - 5)][-1] == position
        assert log.head().position == position
        return position


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_writer_killed_at_any_moment_loses_nothing_acknowledged(path: Path, kills: int) -> None:
    chance = random.Random(7)
    SqliteLog(path).close()
    position = 0
    for _ in range(kills):
        process = start(ENDLESS, path)
        assert process.stdout is not None
        told = position
        for _ in range(chance.randrange(1, 6)):
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)  # between two appends, or inside one
        rest, _ = process.communicate()
        position = check_after_kill(path, max([told, *(int(n) for n in rest.split("\n")[:-1])]))
    assert position >= 5 * kills


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_writer_killed_at_any_step_of_an_append_leaves_the_log_as_before(path: Path, kills: int) -> None:
    with SqliteLog(path) as log:
        first = log.append("run", [NewEvent(ExtendRequested(cycles=n), f"e/{n}") for n in range(2)], 0)
    # The program runs on itself; each fork dies inside an append, a little later than the one before.
    process = start(DIES_INSIDE, path, kills)
    output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    died = [int(line) for line in output.split()]
    assert len(died) == kills
    with SqliteLog(path) as log:
        assert list(log.read()) == first
        assert log.append("run", [NewEvent(ExtendRequested(cycles=2), "e/2")], 2)[0].position == 3
        log.verify()


def test_a_reader_that_is_killed_leaves_the_writer_alone(path: Path) -> None:
    with SqliteLog(path, busy_timeout=1.0) as log:
        log.append("run", [NewEvent(ExtendRequested(cycles=0), "k/0")], 0)
        reader = start(TAIL, path, 10**9)
        for n in range(1, 40):
            if n == 20:
                reader.kill()
            log.append("run", [NewEvent(ExtendRequested(cycles=n), f"k/{n}")], n)
        reader.communicate()
        assert log.verify().position == 40
