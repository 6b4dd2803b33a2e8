"""PostgreSQL under faults: a server that restarts or crashes, an answer that is lost, processes that are killed."""

import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.events.postgres_server import LocalServer, TestServer
from whale.events import LogError, LogUnavailable, NewEvent, PostgresLog, Recorded
from whale.events.types import ExtendRequested, PauseRequested


def extend(n: int) -> NewEvent:
    return NewEvent(ExtendRequested(cycles=n), f"extend/{n}")


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


# --- the server goes away ---


def test_an_open_log_goes_on_after_a_restart_of_the_server(local_server: LocalServer, url: str) -> None:
    with PostgresLog(url, "demo") as log, PostgresLog(url, "demo", readonly=True) as reader:
        log.append("run", [extend(1)], 0)
        reading = reader.read()
        local_server.stop("fast")
        back = threading.Timer(0.5, local_server.start)  # the append waits for it
        back.start()
        try:
            assert log.append("run", [extend(2)], 1)[0].position == 2
        finally:
            back.join()
        assert [r.position for r in reading] == [1, 2]
        assert reader.verify().position == 2


def test_a_tail_survives_a_restart_of_the_server_and_skips_and_repeats_nothing(
    local_server: LocalServer, url: str
) -> None:
    seen: list[Recorded] = []
    with PostgresLog(url, "demo") as log, PostgresLog(url, "demo", readonly=True) as reader:
        tail = reader.tail(0, stop=lambda: False, poll=0.01)
        for n in range(30):
            log.append("run", [extend(n)], n)
            if n % 10 == 5:
                local_server.stop("fast" if n == 5 else "immediate")
                local_server.start()
            if n % 2:
                seen += [next(tail), next(tail)]
    assert [r.position for r in seen] == list(range(1, 31))


def test_a_tail_that_was_killed_on_the_server_is_connected_anew(server: TestServer, url: str) -> None:
    with PostgresLog(url, "demo") as log, PostgresLog(url, "demo", readonly=True) as reader:
        tail = reader.tail(0, stop=lambda: False, poll=0.01)
        for n in range(6):
            log.append("run", [extend(n)], n)
            assert next(tail).position == n + 1
            with server.connect(url) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )


def test_a_tail_is_woken_by_an_append_long_before_it_would_look_again(url: str) -> None:
    with PostgresLog(url, "demo") as log, PostgresLog(url, "demo", readonly=True) as reader:
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            if asked == 1:  # it is about to look once, and then to wait for 300 s
                threading.Timer(0.3, log.append, ("run", [extend(2)], 1)).start()
            return asked > 1

        log.append("run", [extend(1)], 0)
        assert [r.position for r in reader.tail(0, stop=stop, poll=300)] == [1, 2]


def test_a_server_that_stays_away_is_said_and_the_same_append_works_later(local_server: LocalServer, url: str) -> None:
    with PostgresLog(url, "demo", busy_timeout=0.1) as log:
        log.append("run", [extend(1)], 0)
        local_server.stop("fast")
        try:
            for look in (lambda: log.append("run", [extend(2)], 1), log.head, lambda: list(log.read())):
                with pytest.raises(LogUnavailable, match="what was recorded is not recorded twice") as caught:
                    look()
                assert "\n" not in str(caught.value)
        finally:
            local_server.start()
        assert log.append("run", [extend(2)], 1)[0].position == 2
        assert log.verify().position == 2


class Proxy:
    """Stands between client and server, passes the next COMMIT on, and cuts the line before its answer comes."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self.cuts = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for source, sink, watch in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, watch), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, watch: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if watch and self.cut and b"COMMIT" in data:
                    self.cut, self.cuts = False, self.cuts + 1
                    source.shutdown(socket.SHUT_RDWR)  # the client hears nothing more …
                    sink.sendall(data)  # … and the server commits
                    break
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_WR if watch else socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def proxied(server: TestServer, url: str) -> Iterator[tuple[Proxy, str]]:
    address = make_url(url)
    if address.host not in ("127.0.0.1", "localhost"):
        pytest.skip("the proxy stands before a server on this machine's TCP port")
    proxy = Proxy(address.port or 5432)
    try:
        yield proxy, address.set(port=proxy.port).render_as_string(False)
    finally:
        proxy.close()


def test_a_commit_whose_answer_was_lost_is_recorded_once(server: TestServer, url: str) -> None:
    with proxied(server, url) as (proxy, theirs), PostgresLog(theirs, "demo") as log:
        for n in range(5):
            proxy.cut = True
            assert [r.position for r in log.append("run", [extend(n)], n)] == [n + 1]
        assert proxy.cuts == 5
        assert [r.key for r in log.read()] == [f"extend/{n}" for n in range(5)]
        log.verify()


def test_a_restore_whose_answer_was_lost_says_so_and_is_whole(server: TestServer, url: str) -> None:
    with proxied(server, url) as (proxy, theirs), PostgresLog(url, "origin") as origin:
        origin.append("run", [extend(n) for n in range(20)], 0)
        with PostgresLog(theirs, "copy") as copy:
            proxy.cut = True
            with pytest.raises(LogUnavailable):
                copy.restore(origin.rows())
        with PostgresLog(url, "copy") as copy:
            copy.version("run")
            assert copy.verify().position in (0, 20)


# --- processes are killed ---

ENDLESS = """
    import sys
    from whale.events import NewEvent, PostgresLog
    from whale.events.types import PauseRequested
    with PostgresLog(sys.argv[1], "demo") as log:
        n = log.head().position
        while True:
            batch = [NewEvent(PauseRequested(by="x" * 2000), f"k/{n + i}") for i in range(5)]
            n = log.append("run", batch, n)[-1].version
            print(n, flush=True)  # acknowledged
"""


def acknowledged_by(process: "subprocess.Popen[str]", before: int, kill: Callable[[], None], lines: int) -> int:
    """Let it append for some lines, kill, and give the last position that it was told."""
    assert process.stdout is not None
    told = before
    for _ in range(lines):
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        told = int(line)
    kill()
    rest, _ = process.communicate()
    return max([told, *(int(n) for n in rest.split("\n")[:-1])])


def check_after_kill(url: str, acknowledged: int) -> int:
    with PostgresLog(url, "demo") as log:
        position = log.verify().position
        assert position >= acknowledged
        assert position % 5 == 0  # a batch is whole or absent
        assert [e.key for e in log.read()] == [f"k/{n}" for n in range(position)]
        if position:  # the batch whose acknowledgement was lost is repeated as a resumed runner would
            last = [NewEvent(PauseRequested(by="x" * 2000), f"k/{position - 5 + i}") for i in range(5)]
            assert [e.position for e in log.append("run", last, position - 5)][-1] == position
        return position


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_writer_killed_in_the_middle_of_an_append_loses_nothing_acknowledged(url: str, kills: int) -> None:
    chance = random.Random(7)
    position = 0
    for _ in range(kills):
        process = start(ENDLESS, url)
        acknowledged = acknowledged_by(process, position, process.kill, chance.randrange(1, 6))
        position = check_after_kill(url, acknowledged)
    assert position >= kills * 5


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_server_that_crashes_under_load_loses_nothing_acknowledged(
    local_server: LocalServer, url: str, kills: int
) -> None:
    chance = random.Random(11)
    position = 0
    for _ in range(kills):
        process = start(ENDLESS, url)

        def crash(process: "subprocess.Popen[str]" = process) -> None:
            local_server.kill()  # SIGKILL to all of its processes, in the middle of an append
            process.kill()

        acknowledged = acknowledged_by(process, position, crash, chance.randrange(2, 8))
        local_server.start()
        position = check_after_kill(url, acknowledged)


def test_a_writer_lives_through_crashes_of_the_server(local_server: LocalServer, url: str) -> None:
    # Its appends wait for the recovery, and those whose answer was lost are recorded once.
    process = start(ENDLESS, url)
    assert process.stdout is not None
    try:
        for _ in range(2):
            for _ in range(3):
                assert process.stdout.readline()
            local_server.stop("immediate")
            local_server.start()
        for _ in range(3):
            assert process.stdout.readline()
    finally:
        process.kill()
        process.communicate()
    assert check_after_kill(url, 0) >= 45


WRITER = """
    import sys
    from whale.events import NewEvent, PostgresLog, VersionConflict
    from whale.events.types import ExtendRequested
    url, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.stdin.readline()  # all start at once
    with PostgresLog(url, "demo") as log:
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
    from whale.events import PostgresLog
    url, wanted = sys.argv[1], int(sys.argv[2])
    seen = []
    with PostgresLog(url, "demo", readonly=True) as log:
        for event in log.tail(0, stop=lambda: len(seen) >= wanted, poll=0.05):
            seen.append(event.position)
    print(*seen)
"""


def test_four_writers_and_two_followers_lose_double_and_skip_nothing(url: str) -> None:
    batches, writers, readers = 25, 4, 2
    total = writers * batches * 2
    PostgresLog(url, "demo").close()
    tails = [start(TAIL, url, total) for _ in range(readers)]
    working = [start(WRITER, url, f"w{i}", batches) for i in range(writers)]
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
    with PostgresLog(url, "demo", readonly=True) as log:
        events = list(log.read())
        assert log.verify().position == total == log.version("run")
        wanted = {f"w{w}/{n}/{i}" for w in range(writers) for n in range(batches) for i in range(2)}
        assert {e.key for e in events} == wanted
        for first, second in zip(events[::2], events[1::2], strict=True):  # batches are whole
            assert second.key == first.key[:-1] + "1"


def test_processes_that_make_the_tables_at_once_agree_on_one_log(url: str) -> None:
    working = [start(WRITER, url, f"w{i}", 2) for i in range(3)]
    for process in working:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in working:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    with PostgresLog(url, "demo", readonly=True) as log:
        assert log.verify().position == 12


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, also where the tests were started in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_the_middle_of_an_append_leaves_the_log_usable(
    server: TestServer, url: str, interruptible: None
) -> None:
    with PostgresLog(url, "demo") as log, server.connect(url) as blocker:
        log.append("run", [extend(1)], 0)
        with blocker.transaction():
            blocker.execute("SELECT FROM whale_runs FOR UPDATE")
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                log.append("run", [extend(2)], 1)
            timer.join()
        assert log.append("run", [extend(2)], 1)[0].position == 2
        log.verify()


def test_a_closed_log_ends_its_tail(url: str) -> None:
    with PostgresLog(url, "demo") as log:
        log.append("run", [extend(1)], 0)
        tail = log.tail(0, stop=lambda: False)
        assert next(tail).position == 1
        log.close()
        with pytest.raises(LogError, match="closed"):
            next(tail)


def test_a_log_leaves_no_connection_behind(server: TestServer, url: str) -> None:
    def others(connection: psycopg.Connection) -> int:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND application_name LIKE 'whale %'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    with server.connect(url) as connection:
        with PostgresLog(url, "demo") as log:
            log.append("run", [extend(1)], 0)
            tail = log.tail(0, stop=lambda: False)
            next(tail)
            assert others(connection) >= 2
            tail.close()  # type: ignore[attr-defined]  # a generator
        for _ in range(200):  # the server notices the end a moment later
            if others(connection) == 0:
                break
        assert others(connection) == 0
