"""Every screen as it looks, narrow and wide, with a frozen clock, against a stored picture in text.

After a change that is meant: WHALE_UPDATE_SNAPSHOTS=1 python -m pytest tests/tui/test_snapshots.py, then look at
the difference with git.
"""

import difflib
import os
import re
from pathlib import Path

import pytest

from tests.tui.conftest import story, watching

STORED = Path(__file__).parent / "snapshots"
SIZES = {"narrow": (80, 24), "wide": (120, 40)}
STEPS = {
    "overview": [],
    "lineage": ["3"],
    "help": ["question_mark"],
    "folded": ["escape", "Z"],
    "diff-without-store": ["Z", "4"],
    "harness": ["5"],
    "rollouts": ["6"],
    "events": ["7"],
    "compare": ["8"],
    "past": ["left_curly_bracket", "left_curly_bracket", "left_curly_bracket", "2"],
}
"""One walk through the app: a picture's name, and the keys that lead to it from the one before."""


@pytest.mark.parametrize("size", SIZES)
@story
async def test_the_screens_look_as_stored(size: str, made_up_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences: list[str] = []
    monkeypatch.chdir(made_up_run.parent)  # a path that is the same everywhere
    async with watching(Path(made_up_run.name), SIZES[size]) as user:
        for name, keys in STEPS.items():
            await user.press(*keys)
            # Event ids are random, so the chain's hashes differ from log to log.
            shown = re.sub(r"\b[0-9a-f]{16}\b", "#" * 16, user.screen)
            path = STORED / f"{name}-{size}.txt"
            if os.environ.get("WHALE_UPDATE_SNAPSHOTS"):
                path.write_text(shown, encoding="utf-8")
            stored = path.read_text(encoding="utf-8") if path.exists() else ""
            differences += difflib.unified_diff(
                stored.splitlines(), shown.splitlines(), path.name, "shown", lineterm=""
            )
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("theme", ["whale", "whale-light", "ansi-dark"])
@story
async def test_in_every_theme_the_cursor_the_current_tab_and_changed_lines_stand_out(
    theme: str, made_up_run: Path
) -> None:
    async with watching(made_up_run, theme=theme) as user:
        await user.press("3")
        view = user.app.views["lineage"].main()
        here, other = view.render_line(view.index), view.render_line(view.index + 1)
        marks = [{(s.style.bgcolor, s.style.reverse) for s in strip if s.style} for strip in (here, other)]
        assert marks[0].isdisjoint(marks[1]), "the cursor's line has another ground, or is reversed"
        assert here.text.startswith("▌") and not other.text.startswith("▌")
        for role in ("muted", "accent", "good", "bad", "added", "match", "tab-current"):
            style = view._style(role)
            assert style.color is not None or style.bgcolor is not None or style.bold, role
