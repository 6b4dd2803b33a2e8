"""Both engines on one tiny model, loaded once."""

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vllm_process import vllm_server
from whale.rollout.engines import ChatEngine
from whale.rollout.models import write_tiny_model
from whale.rollout.transformers_engine import TransformersEngine

if TYPE_CHECKING:
    from whale.rollout.vllm_engine import VllmEngine
    from whale.rollout.vllm_server import VllmServerEngine

VLLM = [pytest.mark.vllm, pytest.mark.vllm_sample]
NO_VLLM = "vllm is not installed here; `make test-vllm` makes an environment that has it"


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with heads that vLLM's attention takes on a CPU."""
    return write_tiny_model(tmp_path_factory.mktemp("wide-model"), head_dim=64)


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights for the same model."""
    return write_tiny_model(tmp_path_factory.mktemp("other-model"), seed=5, head_dim=64)


@pytest.fixture(scope="session")
def transformers_engine(wide_model: Path) -> TransformersEngine:
    return TransformersEngine(wide_model, device="cpu", dtype="float32", threads=1)


@pytest.fixture(scope="session")
def vllm_engine(wide_model: Path) -> "Iterator[VllmEngine]":
    if importlib.util.find_spec("vllm") is None:
        pytest.skip(NO_VLLM)
    from whale.rollout.vllm_engine import VllmEngine

    engine = VllmEngine(wide_model, dtype="float32", threads=1, kv_bytes=128 << 20, at_once=300)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def vllm_server_engine(
    wide_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[tuple[VllmServerEngine, subprocess.Popen[bytes]]]":
    """The engine on a server of its own, and the server's process."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip(NO_VLLM)
    from whale.rollout.vllm_server import VllmServerEngine

    log = tmp_path_factory.mktemp("server") / "log"
    with vllm_server(wide_model, log, "--dtype", "float32") as (url, process):
        engine = VllmServerEngine(wide_model, url, dtype="float32")
        yield engine, process
        engine.close()


@pytest.fixture(scope="session", params=["transformers", pytest.param("vllm", marks=VLLM)])
def any_engine(request: pytest.FixtureRequest) -> ChatEngine:
    engine: ChatEngine = request.getfixturevalue(f"{request.param}_engine")
    return engine
