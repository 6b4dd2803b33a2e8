"""`benchmarks/domains.py`, as a user calls it."""

import sys
from pathlib import Path

import pytest

from benchmarks.domains import main
from tests.runs import WhaleProcess, toy_model, whale_here  # noqa: F401 - fixtures
from tests.stored_logs import RUN_V1


def test_a_run_without_its_weights_is_one_clear_line(
    whale_here: WhaleProcess,  # noqa: F811
    toy_model: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = whale_here("events", "import", str(RUN_V1), "--name", "copy") and "copy"
    options = ["math", "--set", "weight=8", "--model", str(toy_model), "--device", "cpu", "--run"]
    for run, reason in ((name, "an imported run has none"), ("nope", "no run 'nope'")):
        monkeypatch.setattr(sys, "argv", ["domains.py", *options, run])
        with pytest.raises(SystemExit) as caught:
            main()
        assert reason in str(caught.value) and "\n" not in str(caught.value)
