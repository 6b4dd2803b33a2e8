"""Models that tests of every part share."""

from pathlib import Path

import hypothesis
import pytest

from tests.runs import toy_config, toy_model, whale, whale_here

# No test asserts a time, of Hypothesis' examples neither: a busy machine draws and runs them slowly.
hypothesis.settings.register_profile("whale", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("whale")

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
