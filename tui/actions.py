"""Everything that a key can do: one table, from which bindings, the footer, the help and the key file are made."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from textual.binding import Binding, BindingType
from textual.keys import _character_to_key

from whale.errors import UsageError


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does."""

    id: str
    """scope.name: stable, what a key file names."""
    keys: str
    """Default keys, comma-separated, as Textual names them."""
    call: str
    """Textual's name of the action."""
    label: str
    """Two words for the footer."""
    help: str
    """One sentence for the help."""
    footer: bool = False

    @property
    def scope(self) -> str:
        """The part of the app in which it works."""
        return self.id.partition(".")[0]


SCOPES = {
    "app": "Everywhere",
    "go": "Screens",
    "time": "Time travel",
    "steer": "Steer the run",
    "list": "Lists and texts",
    "runs": "Runs",
    "lineage": "Lineage",
    "diff": "Diff",
    "harness": "Harness",
    "rollouts": "Rollouts",
    "events": "Events",
    "compare": "Compare",
    "proposer": "Proposer",
    "dialog": "Dialogs",
}
"""The scopes in the order of the help."""

ACTIONS = (
    Action("app.help", "question_mark,f1", "app.keys", "help", "Show all keys of this screen.", True),
    Action("app.palette", "colon,ctrl+p", "app.command_palette", "commands", "Find a command by its name."),
    Action("app.search", "slash", "app.search", "search", "Search in the list or text that has the focus.", True),
    Action("app.next", "n", "app.search_next(1)", "next", "Go to the next match."),
    Action("app.previous", "N", "app.search_next(-1)", "previous", "Go to the match before."),
    Action("app.copy", "y", "app.copy", "copy", "Copy the line, or the whole text, to the clipboard."),
    Action("app.focus", "tab", "app.focus_next", "other pane", "Go to the next pane."),
    Action("app.back", "shift+tab", "app.focus_previous", "pane before", "Go to the pane before."),
    Action("app.theme", "f2", "app.change_theme", "theme", "Choose a theme."),
    Action("app.escape", "escape", "app.escape", "close", "Close the search, the filter, or leave the past."),
    Action("app.quit", "q,ctrl+q", "app.quit", "quit", "Leave. The run goes on."),
    Action("go.runs", "1", "app.go('runs')", "runs", "All runs."),
    Action("go.overview", "2", "app.go('overview')", "overview", "Where the run is and what it reached."),
    Action("go.lineage", "3", "app.go('lineage')", "lineage", "Every candidate, drawn like a Git log."),
    Action("go.diff", "4", "app.go('diff')", "diff", "What changed between two harnesses."),
    Action(
        "go.harness", "5", "app.go('harness')", "harness", "One harness: source, hypothesis, tasks gained and lost."
    ),
    Action("go.rollouts", "6", "app.go('rollouts')", "rollouts", "Trajectories, turn by turn."),
    Action("go.events", "7", "app.go('events')", "events", "The log, live, and time travel."),
    Action("go.compare", "8", "app.go('compare')", "compare", "Two runs side by side."),
    Action(
        "go.proposer", "9", "app.go('proposer')", "proposer", "Every round of proposals, and the sessions of models."
    ),
    Action("time.back", "left_square_bracket", "app.travel(-1)", "event back", "Show the moment one event earlier."),
    Action("time.forward", "right_square_bracket", "app.travel(1)", "event on", "Show the moment one event later."),
    Action("time.back_far", "left_curly_bracket", "app.travel_phase(-1)", "phase back", "Show the start of a phase."),
    Action(
        "time.forward_far", "right_curly_bracket", "app.travel_phase(1)", "phase on", "Show the next phase's start."
    ),
    Action("time.goto", "at", "app.goto", "go to event", "Show the moment after event N."),
    Action("time.live", "0", "app.live", "live", "Come back to now."),
    Action("steer.pause", "p", "app.steer('pause')", "pause/resume", "Pause at the next safe point, or go on.", True),
    Action("steer.stop", "S", "app.steer('stop')", "stop", "End the runner: after this phase, or at the safe point."),
    Action("steer.revert", "R", "app.steer('revert')", "revert", "Go on from the chosen harness, from the next phase."),
    Action("steer.accept", "A", "app.steer('accept')", "accept", "Accept the chosen candidate by hand."),
    Action("steer.review", "Y", "app.steer('review')", "answer", "Answer the acceptance that waits for a reviewer."),
    Action("steer.fork", "F", "app.steer('fork')", "fork", "Start a new run from the moment that is shown."),
    Action("steer.note", "m", "app.steer('note')", "note", "Write a note on the chosen candidate."),
    Action("steer.outcomes", "o", "app.outcomes", "outcomes", "What became of the requests."),
    Action("list.down", "j,down", "down", "down", "One line down."),
    Action("list.up", "k,up", "up", "up", "One line up."),
    Action("list.page_down", "ctrl+f,pagedown,space", "page_down", "page down", "One page down."),
    Action("list.page_up", "ctrl+b,pageup", "page_up", "page up", "One page up."),
    Action("list.half_down", "ctrl+d", "half_down", "half down", "Half a page down."),
    Action("list.half_up", "ctrl+u", "half_up", "half up", "Half a page up."),
    Action("list.first", "g,home", "first", "first", "The first line."),
    Action("list.last", "G,end", "last", "last", "The last line."),
    Action("list.left", "h,left", "left", "left", "Scroll left."),
    Action("list.right", "l,right", "right", "right", "Scroll right."),
    Action("list.choose", "enter", "choose", "open", "Open what the cursor is on.", True),
    Action("runs.compare", "c", "compare", "compare", "Compare this run with the open one.", True),
    Action("lineage.parent", "u", "parent", "parent", "Jump to the parent.", True),
    Action("lineage.child", "d", "child", "child", "Jump to the first child, then to the next one.", True),
    Action("lineage.fold", "z", "fold", "fold", "Fold or open the cycle.", True),
    Action("lineage.fold_all", "Z", "fold_all", "fold all", "Fold or open all cycles."),
    Action("lineage.filter", "f", "filter", "filter", "Show only candidates whose words match.", True),
    Action("lineage.diff", "v", "diff", "diff", "Show its diff against its parent.", True),
    Action("lineage.rollouts", "r", "rollouts", "rollouts", "Show its rollouts."),
    Action("diff.side", "s", "side", "side by side", "Unified or side by side.", True),
    Action("diff.against", "b", "against", "against", "Against the parent, h0 or the accepted harness.", True),
    Action("diff.last", "a", "last", "last accepted", "accepted against accepted~1."),
    Action("diff.pick", "e", "pick", "pick two", "Name the two harnesses."),
    Action("diff.next_hunk", "J,full_stop", "hunk(1)", "hunk", "The next hunk.", True),
    Action("diff.previous_hunk", "K,comma", "hunk(-1)", "hunk before", "The hunk before."),
    Action("diff.next_file", "right_curly_bracket", "file(1)", "next file", "The next file."),
    Action("diff.previous_file", "left_curly_bracket", "file(-1)", "file before", "The file before."),
    Action("harness.diff", "v", "diff", "diff", "Show its diff against its parent.", True),
    Action("harness.rollouts", "r", "rollouts", "rollouts", "Show its rollouts.", True),
    Action("harness.parent", "u", "parent", "parent", "Go to its parent.", True),
    Action("rollouts.verdict", "f", "verdict", "passed/failed", "All, passed, failed, truncated, broken.", True),
    Action("rollouts.task", "t", "task", "task", "Only this task, or all tasks.", True),
    Action("rollouts.purpose", "u", "purpose", "purpose", "All, training, scoring, evaluation, smoke.", True),
    Action("rollouts.candidate", "c", "candidate", "harness", "Only this harness, or all of them."),
    Action("events.filter", "f", "filter", "type", "Only events of one type.", True),
    Action("events.tail", "t", "tail", "tail", "Stay on the newest event.", True),
    Action("compare.pick", "e", "pick", "other run", "Choose the other run.", True),
    Action("proposer.harness", "e", "harness", "harness", "Show the round's best candidate.", True),
    Action("proposer.diff", "v", "diff", "diff", "Show what the round's best candidate changed.", True),
    Action("dialog.yes", "y", "yes", "yes", "Do it.", True),
    Action("dialog.decline", "n", "decline", "decline", "Decline, where that can be answered.", True),
    Action("dialog.no", "escape", "no", "no", "Leave it.", True),
)

_BY_ID = {action.id: action for action in ACTIONS}


def bindings(*scopes: str) -> list[BindingType]:
    """Textual's bindings of some scopes; each has its action's id, so that a key file can move it."""
    return [
        Binding(action.keys, action.call, action.label, show=action.footer, id=action.id)
        for action in ACTIONS
        if action.scope in scopes
    ]


def key_file() -> Path:
    """Where the user's keys are: $WHALE_KEYS, else keys.toml in the config folder."""
    given = os.environ.get("WHALE_KEYS")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "whale" / "keys.toml"


def load_keys(path: Path) -> dict[str, str]:
    """The user's keys by action id; a file that is not there changes nothing.

    Raises:
        UsageError: it is no TOML, or names an action or a key that there is not, or one key twice in a scope.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as TOML: {error}") from None
    keys: dict[str, str] = {}
    for scope, table in raw.items():
        if not isinstance(table, dict):
            raise UsageError(f'{path}: {scope}: give a table such as [app] with lines such as quit = "q"')
        for name, value in table.items():
            action = f"{scope}.{name}"
            if action not in _BY_ID:
                raise UsageError(f"{path}: there is no action {action}; `?` in the app shows them all")
            if not isinstance(value, str) or not value.strip():
                raise UsageError(f'{path}: {action}: give keys as text, such as "ctrl+d,space"')
            keys[action] = value
    _refuse_clashes(path, keys)
    return keys


_TOGETHER = {scope: {"app", "go", "time", "steer", "list"} | {scope} for scope in SCOPES if scope != "dialog"}
"""The scopes that hear a key at the same time."""
_TOGETHER["diff"] -= {"time"}  # the diff has its own use for { and }
_TOGETHER["dialog"] = {"dialog"}


def _refuse_clashes(path: Path, keys: dict[str, str]) -> None:
    for scope, heard in _TOGETHER.items():
        taken: dict[str, str] = {}
        for action in ACTIONS:
            if action.scope not in heard:
                continue
            for key in keys.get(action.id, action.keys).split(","):
                name = key.strip()
                name = _character_to_key(name) if len(name) == 1 else name
                other = taken.setdefault(name, action.id)
                if other != action.id and (action.id in keys or other in keys):
                    raise UsageError(f"{path}: the key {key.strip()} is {other} and {action.id} ({SCOPES[scope]})")


def shown_key(key: str) -> str:
    """A key as people write it."""
    names = {
        "question_mark": "?", "slash": "/", "colon": ":", "at": "@", "left_square_bracket": "[",
        "right_square_bracket": "]", "left_curly_bracket": "{", "right_curly_bracket": "}", "full_stop": ".",
        "comma": ",", "escape": "esc", "pagedown": "pgdn", "pageup": "pgup", "down": "↓", "up": "↑", "left": "←",
        "right": "→", "enter": "⏎", "shift+tab": "⇧tab",
    }  # fmt: skip
    return names.get(key, key.replace("ctrl+", "^"))


def help_rows(keymap: dict[str, str], scopes: set[str]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(scope's title, [(keys, sentence, action id)]) for the scopes, in the table's order."""
    result = []
    for scope, title in SCOPES.items():
        if scope in scopes:
            rows = [
                (" ".join(shown_key(k.strip()) for k in keymap.get(a.id, a.keys).split(",")), a.help, a.id)
                for a in ACTIONS
                if a.scope == scope
            ]
            result.append((title, rows))
    return result


def first_key(keymap: dict[str, str], action: str) -> str:
    """The first key of an action, as people write it."""
    return shown_key(keymap.get(action, _BY_ID[action].keys).split(",")[0].strip())
