"""math-verify in a process of its own, so that no expression can hold or kill the run.

sympy may compute 9^{9^{9}} in one uninterruptible call, so time and memory are bounded from outside. Run as
a program, this module is that process: JSON lines {"reference", "given"} in, {"same"} out.
"""

import importlib.util
import json
import select
import subprocess
import sys
import weakref
from contextlib import suppress

from whale.errors import UsageError
from whale.rollout.errors import VerifierFault

SECONDS = 10.0
"""What one comparison may take; the answer is wrong then."""
MEMORY_BYTES = 2 << 30
_START_SECONDS = 120.0


class MathVerify:
    """Compares expressions. The process starts with the first one and ends with this object."""

    def __init__(self, seconds: float = SECONDS) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise UsageError("math: the verifier math-verify needs its package: pip install 'whale-evolve[math]'")
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def same(self, reference: str, given: str) -> bool:
        """Whether both mean the same; see `Equivalence.same`. Raises VerifierFault if the process cannot run."""
        process = self._running()
        question = json.dumps({"reference": reference, "given": given}).encode()
        line = _exchange(process, question, self._seconds)
        if line is None:
            # It took too long, or died of its limits: the expression's own fault.
            _end(process)
            self._process = None
            return False
        return bool(json.loads(line)["same"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            weakref.finalize(self, _end, process)
            if _exchange(process, b'{"reference": "1", "given": "1"}', _START_SECONDS) != b'{"same": true}':
                _end(process)
                raise VerifierFault("math-verify's process does not start: try `python -c 'import math_verify'`")
            self._process = process
        return self._process


def _exchange(process: subprocess.Popen[bytes], question: bytes, seconds: float) -> bytes | None:
    """The answer's line, None if there is none in time."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(question + b"\n")
        process.stdin.flush()
    except OSError:
        return None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    line: bytes = process.stdout.readline() if ready else b""
    return line.strip() or None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what it was told last and never read
                stream.close()


def _equal(reference: str, given: str) -> bool:
    from math_verify import parse, verify

    sides = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (reference, given)]
    return bool(sides[0] and sides[1] and verify(sides[0], sides[1], timeout_seconds=None))


def main() -> None:
    """Answer questions until the input ends."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin:
        question = json.loads(line)
        try:
            same = _equal(question["reference"], question["given"])
        except Exception:
            same = False  # what cannot be parsed is no answer
        print(json.dumps({"same": same}), flush=True)


if __name__ == "__main__":
    main()
