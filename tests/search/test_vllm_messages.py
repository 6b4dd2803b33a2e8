"""The transport against vLLM's own `/v1/messages`, with the embedded model."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.search.test_agentic_session import ARCHIVE, Bench
from whale.rollout.models import resolve_model
from whale.search.registry import proposer

pytestmark = [
    pytest.mark.long,
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]

START_SECONDS = 540


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log"
    model = str(resolve_model("smollm2-135m-instruct"))
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model,
        "--served-model-name", "small", "--port", str(port), "--host", "127.0.0.1", "--enable-auto-tool-choice",
        "--tool-call-parser", "hermes", "--max-model-len", "8192", "--enforce-eager",
    ]  # fmt: skip
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


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
    raise AssertionError("vLLM did not start")


def test_a_small_model_behind_vllms_messages_protocol_is_heard_and_counted(server: str) -> None:
    bench = Bench()
    made = proposer("anthropic", {"model": "small", "base_url": server, "max_tokens": 64, "budget": {"tokens": 20_000}})
    result = made.session(ARCHIVE, bench, count=1, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    assert bench.paid == result.turns >= 1
    assert result.usage.output > 0
    assert result.outcome.split(":")[0] in {"gave up", "cut", "empty", "budget", "submitted"}
