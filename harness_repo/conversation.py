"""A git process that stays and answers one request after the other: starting one costs more than most answers."""

import contextlib
import subprocess
import threading
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from git.cmd import Git

T = TypeVar("T")


class Ended(Exception):
    """The process ended, or said what it never says, in place of an answer. `said`: its last words."""

    def __init__(self, status: int, said: bytes) -> None:
        super().__init__(status, said)
        self.status, self.said = status, said


class Conversation:
    """One git process, started at the first request and again after it has ended. Safe to use from several threads."""

    def __init__(self, start: Callable[[], "Git.AutoInterrupt"]) -> None:
        """`start` gives a process with all three pipes."""
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, request: bytes, answer: Callable[[IO[bytes]], T]) -> T:
        """Send a request and read its answer.

        Args:
            request: all of it, with its line ends.
            answer: reads exactly the answer from the process's output; an OSError of its own means that what is
                there is none.

        Raises:
            Ended: there was no answer. The next request starts a new process.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None  # both are pipes
            try:
                process.stdin.write(request)
                process.stdin.flush()
                return answer(process.stdout)
            except OSError as error:
                status, said = self._stop()
                raise Ended(status, said or str(error).encode()) from error
            except BaseException:
                self._stop()  # half an answer may be left in the pipe
                raise

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            running = self._start()
            self._process = process_of(running)
            running.proc = None  # AutoInterrupt would end it as soon as it goes out of scope
        return self._process

    def _stop(self) -> tuple[int, bytes]:
        """End the process and return its exit status and what it said on its standard error."""
        process, self._process = self._process, None
        if process is None:
            return 0, b""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with contextlib.suppress(OSError):  # it may have ended already
            process.stdin.close()  # git then ends by itself, and drops what it was not told to finish
        process.stdin = None
        _, said = process.communicate()
        return process.returncode, said

    def close(self) -> None:
        """End the process. The object may be used again after that."""
        with self._lock:
            self._stop()


def process_of(running: "Git.AutoInterrupt") -> "subprocess.Popen[bytes]":
    """The process that was started just now."""
    process = running.proc
    assert process is not None
    return process


def exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes. Raises OSError if the stream ends before."""
    data = stream.read(size)
    if len(data) != size:
        raise BrokenPipeError("git ended in the middle of an object")
    return data
