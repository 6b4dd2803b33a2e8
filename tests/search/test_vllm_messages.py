"""The transport against vLLM's own `/v1/messages`, with the embedded model."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.search.test_agentic_session import ARCHIVE, Bench
from tests.vllm_process import vllm_server
from whale.search.registry import proposer

pytestmark = [
    pytest.mark.long,
    pytest.mark.vllm,
    pytest.mark.model,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Iterator[str]:
    log = tmp_path_factory.mktemp("vllm") / "log"
    tools = ["--served-model-name", "small", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    with vllm_server(smollm2, log, *tools, "--max-model-len", "8192") as (url, _):
        yield url


def test_a_small_model_behind_vllms_messages_protocol_is_heard_and_counted(server: str) -> None:
    bench = Bench()
    made = proposer("anthropic", {"model": "small", "base_url": server, "max_tokens": 64, "budget": {"tokens": 20_000}})
    result = made.session(ARCHIVE, bench, count=1, seed=1, cycle=1, iteration=1)  # type: ignore[union-attr]
    assert bench.paid == result.turns >= 1
    assert result.usage.output > 0
    assert result.outcome.split(":")[0] in {"gave up", "cut", "empty", "budget", "submitted"}
