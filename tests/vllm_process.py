"""A real vLLM server in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START_SECONDS = 540


@contextmanager
def vllm_server(model: Path, log: Path, *arguments: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Serve `model` on a free port; gives the address and the process, and ends it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port),
        "--host", "127.0.0.1", "--generation-config", "vllm", "--enforce-eager", *arguments,
    ]  # fmt: skip
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}
    # Of vLLM in this process, and not for its server.
    own = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**own, **settings}, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):  # its engine is a process of its own, and may outlive it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"vLLM ended: {log.read_text(errors='replace')[-2000:]}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise AssertionError(f"vLLM did not start: {log.read_text(errors='replace')[-2000:]}")
