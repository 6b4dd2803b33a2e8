"""The story of `drive_live`, with a demo that is small enough for a test."""

from pathlib import Path

import pytest

from tests.tui.drive_live import main
from tests.tui.terminal import tmux_here
from whale.alternation.run_folder import RunFolder

SMALL = (
    "domain_options.harness=16", "domain_options.validation=24", "domain_options.weight=40", "weights.batch=8",
    "search.candidates=2",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.model
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not tmux_here(), reason="tmux is not here")
def test_a_live_demo_is_watched_paused_reverted_and_seen_to_its_end_in_a_real_terminal(tmp_path: Path) -> None:
    main(["--out", str(tmp_path), *(part for setting in SMALL for part in ("--set", setting))])
    state = RunFolder(tmp_path / "runs" / "demo").state()
    assert state.status == "completed" and any("reverted" in words for words in state.interventions)
    assert len(list(tmp_path.glob("*-80x24.txt"))) == len(list(tmp_path.glob("*-200x60.svg"))) >= 14
