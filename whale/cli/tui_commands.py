"""`whale tui` and `whale web`."""

import os
import sys
from pathlib import Path

from whale.cli.output import printable
from whale.errors import UsageError, WhaleError


def tui(
    run: str | None,
    git: str | None,
    view: str | None,
    at: int | None,
    theme: str | None,
    screenshot: Path | None,
    size: str,
    press: str,
) -> None:
    """Open the app, or take one picture of it."""
    from whale.tui.actions import key_file, load_keys
    from whale.tui.themes import theme_named
    from whale.tui.views import VIEWS

    if view is not None and view not in VIEWS:
        raise UsageError(f"--view {view}: one of {', '.join(VIEWS)}")
    if at is not None and at < 1:
        raise UsageError(f"--at {at}: events are numbered from 1")
    keys, look = load_keys(key_file()), theme_named(theme)
    width, height = _size(size)
    from whale.tui.source import find_source

    source = find_source(run, git=git) if run is not None else None
    on_terminal = screenshot is not None or "TEXTUAL_DRIVER" in os.environ
    if not on_terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the app needs a terminal; `whale status` and `--screenshot FILE` need none")
    if not on_terminal and os.environ.get("TERM") == "dumb":
        raise UsageError("TERM=dumb: this terminal cannot place its cursor; use `whale status`")
    from whale.tui.app import WhaleApp

    app = WhaleApp(source, view=view, at=at, keys=keys, theme=look)
    if screenshot is not None:
        import asyncio

        from whale.tui.screenshot import take

        asyncio.run(take(app, screenshot, (width, height), [key for key in press.split(",") if key]))
        print(printable(str(screenshot)))
        return
    app.run()
    if app.return_code:
        raise WhaleError("the app ended with an error, see above")


def _size(text: str) -> tuple[int, int]:
    width, separator, height = text.partition("x")
    if not (separator and width.isdecimal() and height.isdecimal()):
        raise UsageError(f"--size {text}: give it as 80x24")
    if not (20 <= int(width) <= 500 and 5 <= int(height) <= 200):
        raise UsageError(f"--size {text}: from 20x5 to 500x200")
    return int(width), int(height)


def web(run: str | None, host: str, port: int) -> None:
    """Serve the app to browsers."""
    from whale.tui.web import check_address, serve

    token = os.environ.get("WHALE_WEB_TOKEN") or None
    check_address(host, token)
    if run is not None:
        from whale.tui.source import find_source

        find_source(run)
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{port}/{'?token=…' if token else ''} (Ctrl-C ends it)", file=sys.stderr)
    serve([run] if run is not None else [], host, port, token)
