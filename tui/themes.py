"""The app's own look, dark and light; Textual's themes and the terminal's sixteen colours can be chosen too."""

from textual.theme import BUILTIN_THEMES, Theme

from whale.errors import UsageError

WHALE = Theme(
    name="whale",
    primary="#4c9fd8",
    secondary="#78b6c4",
    accent="#e3b566",
    warning="#e0995e",
    error="#e0707c",
    success="#83c894",
    foreground="#d5dde5",
    background="#10171f",
    surface="#151e28",
    panel="#1c2733",
    boost="#223040",
    dark=True,
    variables={"border": "#4c9fd8", "footer-key-foreground": "#e3b566"},
)

WHALE_LIGHT = Theme(
    name="whale-light",
    primary="#1f6fa8",
    secondary="#2d7a8a",
    accent="#9a6a12",
    warning="#a85a1c",
    error="#b53a48",
    success="#2c7a44",
    foreground="#1d2733",
    background="#f7f9fb",
    surface="#eef2f6",
    panel="#e2e9f0",
    boost="#d6e0ea",
    dark=False,
    variables={"border": "#1f6fa8"},
)

DEFAULT = WHALE.name
ANSI = "ansi-dark"
"""What NO_COLOR and `--theme ansi` use: no colour of ours, only the terminal's."""


def theme_named(name: str | None) -> str | None:
    """A theme's full name.

    Raises:
        UsageError: there is none of this name.
    """
    if name is None:
        return None
    wanted = {"ansi": ANSI, "light": WHALE_LIGHT.name, "dark": DEFAULT}.get(name, name)
    known = [WHALE.name, WHALE_LIGHT.name, *BUILTIN_THEMES]
    if wanted not in known:
        raise UsageError(f"--theme {name}: one of ansi, light, dark, {', '.join(sorted(known))}")
    return wanted
