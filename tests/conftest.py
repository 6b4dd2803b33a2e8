"""Models that tests of every part share."""

from pathlib import Path

import pytest

from tests.runs import toy_config, toy_model, whale, whale_here

__all__ = ["toy_config", "toy_model", "whale", "whale_here"]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random two-layer Llama: milliseconds a token, and no download."""
    from whale.rollout.models import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The embedded model's folder, fetched once if it is not there. For tests marked `model`."""
    from whale.rollout.models import fetch_embedded

    return fetch_embedded()
