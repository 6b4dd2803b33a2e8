"""A terminal that changes its size: every screen then looks as if it had been opened at that size."""

import difflib
from pathlib import Path

from tests.tui.conftest import story, watching


@story
async def test_after_a_resize_every_screen_looks_as_if_it_had_been_opened_at_that_size(made_up_run: Path) -> None:
    sizes = ((120, 40), (80, 24), (200, 60))
    opened: dict[tuple[tuple[int, int], str], str] = {}
    for size in set(sizes):
        async with watching(made_up_run, size) as user:
            for key in "239":
                await user.press(key)
                opened[size, key] = user.screen
    differences: list[str] = []
    async with watching(made_up_run, sizes[0]) as user:
        for key in "239":
            await user.press(key)
            for size in (*sizes[1:], sizes[0]):
                await user.pilot.resize_terminal(*size)
                await user.press()
                differences += difflib.unified_diff(
                    opened[size, key].splitlines(), user.screen.splitlines(), "opened", f"{key} {size}", lineterm=""
                )
    assert not differences, "\n".join(differences)
