"""The engine on a vLLM server by URL, against a real server."""

import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.rollout.test_token_truth import play
from tests.rollout.test_vllm_engine import TOLERANCE, ask, greedy, ids, plain
from whale.config import EngineConfig
from whale.errors import UsageError, WhaleError
from whale.rollout.decoding import ContextError
from whale.rollout.engines import require_engine
from whale.rollout.types import ContinuousSession
from whale.weights.samples import samples_from

if TYPE_CHECKING:
    from whale.rollout.vllm_server import VllmServerEngine

Server = tuple["VllmServerEngine", "subprocess.Popen[bytes]"]


def test_a_dead_address_is_found_before_anything_is_paid() -> None:
    with pytest.raises(WhaleError, match=r"does not answer.*start it with"):
        require_engine(EngineConfig(name="vllm-server", url="http://127.0.0.1:9"))
    with pytest.raises(UsageError, match=r"engine\.url"):
        require_engine(EngineConfig(name="vllm-server"))
    with pytest.raises(UsageError, match="vllm-server"):
        require_engine(EngineConfig(url="http://127.0.0.1:9"))


def test_a_resumed_run_may_find_its_server_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHALE_ENGINE_URL", "http://127.0.0.1:10")
    with pytest.raises(WhaleError, match=r"http://127\.0\.0\.1:10: the vLLM server does not answer"):
        require_engine(EngineConfig(name="vllm-server", url="http://127.0.0.1:9"))


@pytest.mark.vllm
def test_a_server_takes_new_weights_and_says_what_the_transformers_engine_says(
    vllm_server_engine: Server, wide_model: Path, other_model: Path
) -> None:
    engine, _ = vllm_server_engine
    assert engine.weights_version == "", "what a server holds at first is unknown"
    assert isinstance(engine.session(), ContinuousSession)
    for number, folder in enumerate((other_model, wide_model)):
        fresh = plain(folder)
        engine.session().generate(greedy())  # fills the prefix cache under the weights before
        engine.update_weights(fresh.model.state_dict(), f"version {number}")
        assert engine.weights_version == f"version {number}"
        for a, b in zip(engine.session().generate(greedy()), fresh.session().generate(greedy()), strict=True):
            assert (a.output_ids, a.finish_reason) == (b.output_ids, b.finish_reason)
            assert np.allclose(a.logprobs, b.logprobs, atol=TOLERANCE)
        assert np.allclose(engine.logprobs([ids(0, 300)])[0], fresh.logprobs([ids(0, 300)])[0], atol=TOLERANCE)
    assert len(list(engine._folder.iterdir())) == 1, "weights of the past are removed"


@pytest.mark.vllm
def test_a_servers_tokens_are_recorded_as_sampled_and_trained_once(vllm_server_engine: Server) -> None:
    engine, _ = vllm_server_engine
    rounds = [
        {"kind": "continue", "text": text, "prefix": "<answer>", "stop": ["e"], "max_tokens": 9, "temperature": 1.0}
        for text in ("12 + 34?", "Zürich — naïve", "<|im_end|> forged")
    ]
    trajectory, session = play(engine, rounds)
    seen = [(request.prompt_ids, done.output_ids, done.logprobs) for request, done in session.log]
    assert [(t.prompt_ids, t.output_ids, t.logprobs) for t in trajectory.turns] == seen
    for turn in trajectory.turns:
        texts = [engine.chat.decode(turn.output_ids[:n]) for n in range(1, len(turn.output_ids) + 1)]
        assert not any("e" in text for text in texts[:-1])
    (sample,) = samples_from(trajectory)
    assert sample.trained == trajectory.generated


@pytest.mark.vllm
def test_a_request_beyond_the_context_is_never_sent(vllm_server_engine: Server) -> None:
    with pytest.raises(ContextError, match="1020 prompt tokens"):
        vllm_server_engine[0].session().submit(ask(ids(0, 1020), 8))


@pytest.mark.vllm
def test_a_killed_server_is_one_clear_error(vllm_server_engine: Server) -> None:
    engine, process = vllm_server_engine  # the last test of this server
    session = engine.session()
    session.submit(ask(ids(0, 20), 900, 1.0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(WhaleError, match="the vLLM server does not answer"):
        while True:
            session.advance()
    session.close()
