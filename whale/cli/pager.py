"""Long text at a terminal goes through the user's pager; anywhere else it is printed."""

import os
import shlex
import shutil
import subprocess
import sys


def coloured() -> bool:
    """May text for stdout have colours? Nothing may ever be told by them alone."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_paged(text: str) -> None:
    """Print text, which is clean of foreign control characters, by $PAGER (or less) if stdout is a terminal."""
    text = text.rstrip("\n") + "\n"
    command = _pager()
    if command is None:
        sys.stdout.write(text)
        return
    # As git does: leave if it fits on the screen, show colours, keep the text there.
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    sys.stdout.flush()
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except OSError:
        sys.stdout.write(text)
        return
    try:
        process.communicate(text.encode("utf-8", "replace"))
    except KeyboardInterrupt:
        # It is the pager's: less goes on after Ctrl+C, and gives the terminal back when it ends.
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                continue


def _pager() -> list[str] | None:
    """The pager's command, or None to print."""
    if not sys.stdout.isatty() or not sys.stdin.isatty() or os.environ.get("TERM") == "dumb":
        return None
    wanted = os.environ.get("PAGER")
    try:
        command = shlex.split(wanted if wanted is not None else "less")
    except ValueError:
        return None
    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        return None
    return command
