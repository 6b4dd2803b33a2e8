"""A real terminal for tests: tmux on a socket of its own. What stands in it is read as text, or kept as a picture."""

import io
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme

GROUND = TerminalTheme(
    (16, 23, 31),
    (213, 221, 229),
    [(21, 30, 40), (224, 112, 124), (131, 200, 148), (227, 181, 102), (76, 159, 216), (176, 140, 214), (120, 182, 196),
     (213, 221, 229)],
)  # fmt: skip
"""The colours of the pictures where the app leaves them to the terminal."""


class Terminal:
    """One tmux window in which a shell command runs. `close` ends the server and all in it."""

    def __init__(self, command: str, *, size: tuple[int, int], folder: Path, environment: Mapping[str, str]) -> None:
        self._socket = folder / "tmux"
        self._environment = {**os.environ, **environment, "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self._environment.pop("TMUX", None)
        self.size = size
        width, height = size
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), command)
        for option in ("status off", "default-terminal tmux-256color", "remain-on-exit on", "escape-time 10"):
            self._tmux("set", "-g", *option.split())

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            env=self._environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def close(self) -> None:
        """End the server."""
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return self._tmux("capture-pane", "-p")

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self._tmux("list-panes", "-F", "#{pane_dead}").strip() == "1"

    def start(self, command: str) -> None:
        """Run another command in the window, in place of the one that was there."""
        self._tmux("respawn-pane", "-k", command)

    def press(self, *keys: str) -> None:
        """Press keys, as tmux names them; what is no name is typed."""
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(0.15)

    def types(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-l", text)
        time.sleep(0.2)

    def resize(self, size: tuple[int, int]) -> None:
        """Give the window another size."""
        self.size = size
        self._tmux("resize-window", "-x", str(size[0]), "-y", str(size[1]))
        self.settle()

    def settle(self, seconds: float = 20) -> None:
        """Wait until the screen stands still: a busy machine takes its time to draw."""
        end, before = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            time.sleep(1.2)
            now = self.text
            if now == before:
                return
            before = now

    def waits_for(self, what: Callable[[str], bool], seconds: float, doing: str) -> str:
        """The screen's text as soon as `what` holds of it."""
        end = time.monotonic() + seconds
        while True:
            text = self.text
            if what(text):
                return text
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:g} s: {doing}; the screen:\n{text}")
            time.sleep(0.3)

    def waits_to_see(self, word: str, seconds: float = 60) -> str:
        """The screen's text as soon as a word stands in it."""
        return self.waits_for(lambda text: word in text, seconds, f"to see {word!r}")

    def picture(self, path: Path) -> None:
        """What stands on the screen, as SVG."""
        console = Console(width=self.size[0], record=True, file=io.StringIO(), color_system="truecolor")
        # One decoder for all lines: a colour that goes on is said once.
        for line in AnsiDecoder().decode(self._tmux("capture-pane", "-p", "-e", "-N")):
            console.print(line, no_wrap=True, overflow="crop")
        svg = console.export_svg(title="whale tui", theme=GROUND)
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # no picture of ours fetches a font
        path.write_text("\n".join(filter(None, map(str.rstrip, svg.splitlines()))) + "\n", encoding="utf-8")


def tmux_here() -> bool:
    """Whether there is a tmux."""
    return shutil.which("tmux") is not None
