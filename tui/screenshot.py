"""`whale tui --screenshot`: one screen as SVG or text, without a terminal, the same every time."""

import asyncio
from pathlib import Path

from whale.errors import UsageError
from whale.tui.app import WhaleApp


def screen_text(app: WhaleApp) -> str:
    """What stands on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


async def settle(app: WhaleApp) -> None:
    """Wait until the log was read and nothing is being worked out."""
    if app.opened is not None:
        while not app.opened.caught_up.is_set():
            await asyncio.sleep(0.01)
    app.tick()
    for _ in range(3):  # what one worker brings may start the next one
        await asyncio.sleep(0.05)
        await app.workers.wait_for_complete()
        app.tick()


async def take(app: WhaleApp, path: Path | None, size: tuple[int, int], press: list[str]) -> str:
    """Press the keys and take the picture: SVG into a file of that name, else text, which is returned."""
    if path is not None and path.suffix not in (".svg", ".txt"):
        raise UsageError(f"--screenshot {path}: name a .svg or a .txt file")
    async with app.run_test(size=size) as pilot:
        await settle(app)
        if app.opened is not None and app.opened.problem and not app.opened.history.position:
            raise UsageError(app.opened.problem)
        await pilot.pause()
        for key in press:
            await pilot.press(key)
            await settle(app)
        await pilot.pause()
        text = app.export_screenshot(title="whale") if path is not None and path.suffix == ".svg" else screen_text(app)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    return text
