"""The single writer's lease: one at a time, named to the others, never outliving its process."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests.events.postgres_server import LocalServer, TestServer
from whale.events import LeaseHeld, LogError, LogUnavailable, PostgresLease

HOLDER = """
    import sys
    from whale.events import PostgresLease
    with PostgresLease(sys.argv[1], sys.argv[2]):
        print("held", flush=True)
        sys.stdin.readline()
"""

FORKER = """
    import os, sys, time
    from whale.events import PostgresLease
    with PostgresLease(sys.argv[1], sys.argv[2]) as lease:
        child = os.fork()
        if child == 0:
            assert not lease.alive()
            os.close(1)
            sys.stdin.readline()  # outlives its parent
            os._exit(0)
        assert lease.alive()
        print("held", child, flush=True)
        time.sleep(600)
"""


@pytest.fixture
def url(shared_url: str) -> str:
    return shared_url


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def children() -> "Iterator[list[subprocess.Popen[str]]]":
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def hold(children: "list[subprocess.Popen[str]]", program: str, url: str, run: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), url, run],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children.append(process)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("held"), process.communicate()[1]
    return process


def test_a_run_has_one_writer_and_the_second_is_told_who_it_is(url: str, run: str) -> None:
    with PostgresLease(url, run) as lease:
        assert lease.alive()
        with pytest.raises(LeaseHeld, match=f"process {os.getpid()} on {socket.gethostname()[:20]}") as caught:
            PostgresLease(url, run).__enter__()
        assert caught.value.run == run
        assert "\n" not in str(caught.value)
        with PostgresLease(url, f"{run} too"):  # another run is not held
            pass
    with PostgresLease(url, run) as lease:
        assert lease.alive()
    assert not lease.alive()


def test_a_reader_is_told_who_holds_the_lease_and_that_nobody_does(url: str, run: str) -> None:
    reader = PostgresLease(url, run)
    assert reader.holder() is None
    with PostgresLease(url, run):
        holder = reader.holder()
        assert holder is not None
        assert holder.pid == os.getpid()
        assert socket.gethostname().startswith(holder.host)
        assert holder.since.endswith("Z")
        assert not reader.alive()
    assert reader.holder() is None


def test_the_lease_of_a_killed_process_is_free_at_once(
    url: str, run: str, children: "list[subprocess.Popen[str]]"
) -> None:
    for _ in range(2):
        process = hold(children, HOLDER, url, run)
        with pytest.raises(LeaseHeld, match=f"process {process.pid} on"):
            PostgresLease(url, run).__enter__()
        process.send_signal(signal.SIGKILL)
        process.wait()
        with PostgresLease(url, run) as lease:
            assert lease.alive()


def test_a_stopped_process_keeps_its_lease(url: str, run: str, children: "list[subprocess.Popen[str]]") -> None:
    process = hold(children, HOLDER, url, run)
    process.send_signal(signal.SIGSTOP)  # it is not dead, and may go on
    with pytest.raises(LeaseHeld):
        PostgresLease(url, run).__enter__()
    process.send_signal(signal.SIGCONT)


def test_a_forked_child_does_not_keep_its_dead_parents_lease(
    url: str, run: str, children: "list[subprocess.Popen[str]]"
) -> None:
    process = hold(children, FORKER, url, run)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with PostgresLease(url, run) as lease:  # the child is still there, waiting for a line
        assert lease.alive()


def test_a_lease_that_the_server_lost_is_known_to_be_lost(server: TestServer, url: str, run: str) -> None:
    with PostgresLease(url, run) as lease:
        holder = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'whale runner %'"
        with server.connect() as connection:
            connection.execute(holder.encode())
        assert not lease.alive()
        with PostgresLease(url, run) as other:
            assert other.alive()
            assert not lease.alive()
    with PostgresLease(url, run) as lease:  # the end of the lost one took nothing from anybody
        assert lease.alive()


def test_a_restart_of_the_server_ends_a_lease(local_server: LocalServer, url: str, run: str) -> None:
    with PostgresLease(url, run) as lease:
        local_server.stop("fast")
        try:
            assert not lease.alive()
            with pytest.raises(LogUnavailable):
                PostgresLease(url, run).__enter__()
        finally:
            local_server.start()
        assert not lease.alive()
        with PostgresLease(url, run) as other:
            assert other.alive()


def test_a_lease_is_not_taken_twice_by_one_object(url: str, run: str) -> None:
    with PostgresLease(url, run) as lease, pytest.raises(LogError, match="taken already"):
        lease.__enter__()
