"""Diff: what changed between two harnesses."""

from typing import ClassVar, Literal

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import get_current_worker

from whale.errors import WhaleError
from whale.tui.actions import bindings
from whale.tui.difflines import Diff as DiffText
from whale.tui.difflines import SideBySideLines, UnifiedLines, parse
from whale.tui.highlight import Painter
from whale.tui.lines import LineView
from whale.tui.opened import Moment
from whale.tui.text import FixedLines, line, wrap
from whale.tui.views.base import View, pane

Against = Literal["parent", "h0", "accepted", "pair"]
_ORDER: tuple[Against, ...] = ("parent", "h0", "accepted")


class Diff(View):
    """Two harnesses, unified or side by side."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("diff")

    def __init__(self) -> None:
        super().__init__(id="diff")
        self.side: bool | None = None
        """None: what the width suggests."""
        self.against: Against = "parent"
        self.pair = ("", "")
        self._last = ("", "")
        self._moment: Moment | None = None
        self._shown: tuple[object, ...] = ()
        self._diff: DiffText | None = None
        self._painters: dict[tuple[str, str], Painter] = {}
        self._sources: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def compose(self) -> ComposeResult:
        """One pane."""
        yield pane(LineView(id="df-lines", cursor=False, empty="reading …"), "diff")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        if moment is None:
            return
        names = self._names(moment)
        if names is None:
            self._say("choose a harness under 3 Lineage; what it changed is shown here")
            return
        (a, tree_a), (b, tree_b) = names
        wanted = (moment.run, tree_a, tree_b, a, b, self.against)
        if wanted != self._shown:
            self._shown = wanted
            self.query_one(LineView).set_title(f"diff {a} → {b} …")
            self._load(moment, tree_a, tree_b, a, b)

    def _names(self, moment: Moment) -> tuple[tuple[str, str], tuple[str, str]] | None:
        state = moment.state

        def named(name: str) -> tuple[str, str]:
            candidate = state.candidates.get(name)
            return name, candidate.tree if candidate else name

        if self.against == "pair":
            return named(self.pair[0]), named(self.pair[1])
        chosen = self.whale.chosen_candidate(state)
        if chosen is None:
            return None
        if self.against == "h0":
            return named("h0"), named(chosen.id)
        if self.against == "accepted":
            if chosen.id == state.accepted and state.accepted:
                return named("h0"), named(chosen.id)
            return named(state.accepted or "h0"), named(chosen.id)
        if not chosen.parents:
            return named(chosen.id), named(chosen.id)
        return named(chosen.parents[0]), named(chosen.id)

    @work(thread=True, exclusive=True, group="diff")
    def _load(self, moment: Moment, tree_a: str, tree_b: str, a: str, b: str) -> None:
        worker = get_current_worker()
        try:
            diff = parse(moment.run.diff(tree_a, tree_b))
            sources = moment.run.files(tree_a), moment.run.files(tree_b)
        except WhaleError as error:
            if not worker.is_cancelled:
                self.whale.from_thread(self._say, str(error))
            return
        if not worker.is_cancelled:
            self.whale.from_thread(self._loaded, diff, sources, a, b)

    def _loaded(self, diff: DiffText, sources: tuple[dict[str, str], dict[str, str]], a: str, b: str) -> None:
        self._diff, self._sources = diff, sources
        self._painters.clear()
        view = self.query_one(LineView)
        view.set_title(f"{a} → {b}")
        against = {
            "parent": "against its parent", "h0": "against h0", "accepted": "against accepted",
            "pair": "the last accepted change" if (a, b) == self._last else "as picked",
        }  # fmt: skip
        files = f"{len(diff.files)} file{'s' if len(diff.files) != 1 else ''}"
        view.set_subtitle(f"+{diff.added} -{diff.removed} in {files} · {against[self.against]}")
        if not diff.lines:
            words = f"{a} and {b} are the same harness"
            if self.against == "parent" and a == b:
                words = f"{a} has no parent: press b to compare it with another harness"
            self._say(words, title=False)
            return
        self._lay_out(top=True)

    def try_again(self) -> None:
        """See `View.try_again`."""
        if self._diff is None:
            self._shown = ()

    def _say(self, text: str, *, title: bool = True) -> None:
        view = self.query_one(LineView)
        self._diff = None
        if title:
            view.set_title("diff")
            view.set_subtitle("")
        view.set_lines(
            lambda width: FixedLines([line((part, "muted")) for part in wrap(text, width)], width=0), top=True
        )

    def _painter(self, path: str, side: str) -> Painter:
        painter = self._painters.get((path, side))
        if painter is None:
            source = self._sources[0 if side == "old" else 1].get(path)
            painter = self._painters[path, side] = Painter(path, source)
        return painter

    @property
    def _side_by_side(self) -> bool:
        return self.app.size.width >= 120 if self.side is None else self.side

    def _lay_out(self, *, top: bool = False) -> None:
        view = self.query_one(LineView)
        if self._diff is None:
            return
        at = view.lines.key(view.scroll_offset.y) if len(view.lines) and not top else None
        kind = SideBySideLines if self._side_by_side else UnifiedLines
        view.set_lines(kind(self._diff, self._painter), keep=False, top=top)
        if at is not None and (found := view.lines.find(at)) is not None:
            view.move_to(found)

    def on_resize(self) -> None:
        """A wide screen shows both sides, unless the user said otherwise."""
        if self._diff is not None and self._diff.lines and self.side is None:
            wanted = SideBySideLines if self._side_by_side else UnifiedLines
            if not isinstance(self.query_one(LineView).lines, wanted):
                self._lay_out()

    # --- actions ---

    def action_side(self) -> None:
        """Change the layout."""
        self.side = not self._side_by_side
        self._lay_out()

    def action_against(self) -> None:
        """Compare with the next of parent, h0 and accepted."""
        at = _ORDER.index(self.against) if self.against in _ORDER else -1
        self.against = _ORDER[(at + 1) % len(_ORDER)]
        self.show(self._moment)

    def action_last(self) -> None:
        """The last accepted change."""
        if self._moment is None:
            return
        taken = [c for p, _, c, _ in self._moment.run.history.facts.acceptances if p <= self._moment.position]
        if len(taken) < 2:
            self.whale.tell(f"nothing was accepted after {taken[0] if taken else 'the start'}", "warning")
            return
        self.against, self.pair = "pair", (taken[-2], taken[-1])
        self._last = self.pair
        self.show(self._moment)

    def action_pick(self) -> None:
        """Ask for two names."""
        self.whale.ask("two harnesses: ids, accepted~1, c003 or commits, such as h0 accepted", self._picked, "")

    def _picked(self, text: str) -> None:
        words = text.split()
        if len(words) != 2:
            self.whale.tell("give two names, such as: h0 accepted", "warning")
            return
        self.against, self.pair = "pair", (words[0], words[1])
        self.show(self._moment)

    def action_hunk(self, step: int) -> None:
        """Go to the next hunk, or the one before."""
        if self._diff is not None:
            self._jump(self._diff.hunks, step)

    def action_file(self, step: int) -> None:
        """Go to the next file, or the one before."""
        if self._diff is not None:
            self._jump(self._diff.files, step)

    def _jump(self, places: tuple[int, ...], step: int) -> None:
        view = self.query_one(LineView)
        here = view.scroll_offset.y
        rows = [row for place in places if (row := view.lines.find(place)) is not None]
        ahead = [row for row in rows if (row > here if step > 0 else row < here)]
        if ahead and (step < 0 or here < view.max_scroll_y):
            view.move_to(ahead[0] if step > 0 else ahead[-1])
        else:
            self.app.bell()
