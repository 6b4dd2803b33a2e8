"""Lineage: every candidate, newest first, drawn like a Git log; what was said and measured of the one in front."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType

from whale.alternation.state import Candidate, State
from whale.tui import charts, graph
from whale.tui.actions import bindings
from whale.tui.lines import LineView
from whale.tui.opened import Moment, OpenRun
from whale.tui.text import NOTHING, FixedLines, Line, Span, counted, cut, facts_table, fit, line, plain, share, wrap
from whale.tui.views.base import SIGNS, View, ever_accepted, fate, fate_words, pane


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list: a candidate's, or a cycle's heading."""

    cells: str
    candidate: str | None
    cycle: int


class Lineage(View):
    """The graph, and the candidate's facts beside or below it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("lineage")

    def __init__(self) -> None:
        super().__init__(id="lineage", classes="split")
        self.folded: set[int] = set()
        self.filter = ""
        self._moment: Moment | None = None
        self._drawn_for: tuple[object, ...] = ()
        self._drawing = False
        self._placed: str | None = None
        """Where the cursor was put while the log was still being read, and follows the accepted harness until moved."""
        self._children: dict[str, list[str]] = {}
        self._walk: tuple[str, int] | None = None
        """The parent whose children are being walked, and which child is next."""

    def compose(self) -> ComposeResult:
        """The list, and the detail pane."""
        yield pane(LineView(id="ln-list", empty="no candidate yet", classes="list"), "lineage")
        yield pane(LineView(id="ln-detail", cursor=False, classes="detail spare"), "candidate")

    def show(self, moment: Moment | None) -> None:
        """See `View.show`."""
        self._moment = moment
        if moment is None:
            self._drawn_for = ()
            self.query_one("#ln-list", LineView).set_lines(NOTHING)
            self.query_one("#ln-detail", LineView).set_lines(NOTHING)
            return
        taken = len(ever_accepted(moment))
        facts = (moment.state.candidates, moment.state.accepted, moment.run, taken, tuple(self.folded), self.filter)
        if not self._drawn_for or facts[0] is not self._drawn_for[0] or facts[1:] != self._drawn_for[1:]:
            self._drawn_for = facts
            # One picture at a time, and each is shown: were the newer request to replace the one under way, a log
            # that is still being read, or a busy machine, would never show any.
            if not self._drawing:
                self._drawing = True
                self._draw(facts, moment, frozenset(self.folded), self.filter)
        self._detail()

    @work(thread=True, group="lineage")
    def _draw(self, wanted: tuple[object, ...], moment: Moment, folded: frozenset[int], needle: str) -> None:
        lines = LineageLines(moment, folded, needle)
        children: dict[str, list[str]] = {}
        for candidate in moment.state.candidates.values():
            for parent in candidate.parents:
                children.setdefault(parent, []).append(candidate.id)
        self.whale.from_thread(self._drawn, wanted, moment.run, lines, children)

    def _drawn(
        self, wanted: tuple[object, ...], run: OpenRun, lines: "LineageLines", children: dict[str, list[str]]
    ) -> None:
        self._drawing = False
        if self._moment is not None and self._moment.run is run:
            self._put(lines, children)
        if wanted is not self._drawn_for:  # more has been asked for meanwhile
            self._drawn_for = ()
            self.show(self._moment)
        else:
            self._detail()

    def _put(self, lines: "LineageLines", children: dict[str, list[str]]) -> None:
        self._children = children
        view = self.query_one("#ln-list", LineView)
        first = not len(view.lines)
        follows = self._placed is not None and self.candidate == self._placed
        view.empty = "no candidate matches" if self.filter else "no candidate yet"
        view.set_lines(lines)
        count = len(lines.state.candidates)
        title = f"lineage · {counted(count, 'candidate')}"
        view.set_title(f"{title} · filter: {self.filter} (esc ends it)" if self.filter else title)
        view.set_subtitle("◆ accepted ◇ was ● scored ✗ invalid = duplicate ○ open")
        chosen = lines.state.accepted if follows else (self.whale.chosen or lines.state.accepted) if first else None
        if (first and self.whale.chosen is None) or follows:
            run = self._moment.run if self._moment is not None else None
            self._placed = chosen if run is not None and not run.caught_up.is_set() else None
        elif not first:
            self._placed = None
        if chosen is not None and (found := lines.find(chosen)) is not None:
            view.move_to(found, centre=True)

    # --- the candidate in front ---

    @property
    def candidate(self) -> str | None:
        """The candidate under the cursor."""
        key = self.query_one("#ln-list", LineView).current
        return key if isinstance(key, str) else None

    @on(LineView.Moved, "#ln-list")
    def _moved(self, event: LineView.Moved) -> None:
        if self.candidate is not None:
            self.whale.choose(self.candidate)
        self._detail(top=True)

    @on(LineView.Chosen, "#ln-list")
    def _open(self) -> None:
        if self.candidate is not None:
            self.whale.choose(self.candidate)
            self.whale.go("harness")
        else:
            self.action_fold()

    def _detail(self, *, top: bool = False) -> None:
        view, moment = self.query_one("#ln-detail", LineView), self._moment
        name = self.candidate
        key = self.query_one("#ln-list", LineView).current
        if moment is not None and isinstance(key, tuple):
            view.set_title(f"cycle {key[1]}" if key[1] else "start")
            view.set_lines(lambda width: FixedLines(cycle_lines(moment.state, key[1], width), width=0), top=top)
            return
        if moment is None or name is None or name not in moment.state.candidates:
            view.set_title("candidate")
            view.set_lines(NOTHING)
            return
        view.set_title(name)
        candidate = moment.state.candidates[name]
        ever = ever_accepted(moment)
        view.set_lines(
            lambda width: FixedLines(candidate_lines(moment.state, candidate, ever, width), width=0), top=top
        )

    # --- actions ---

    def _go(self, name: str) -> None:
        view = self.query_one("#ln-list", LineView)
        found = view.lines.find(name)
        if found is None and self._moment is not None and name in self._moment.state.candidates:
            cycle = self._moment.state.candidates[name].cycle
            if cycle in self.folded:
                self.folded.discard(cycle)
                view.set_lines(LineageLines(self._moment, frozenset(self.folded), self.filter))
                found = view.lines.find(name)
        if found is None:
            self.app.bell()
            return
        view.move_to(found, centre=True)

    def action_parent(self) -> None:
        """Jump to the first parent."""
        here = self._moment.state.candidates.get(self.candidate or "") if self._moment is not None else None
        if here is None:  # nothing under the cursor, or a row of another moment whose picture is still to come
            return
        parents = here.parents
        if parents:
            self._walk = (parents[0], 0)
            self._go(parents[0])
        else:
            self.app.bell()

    def action_child(self) -> None:
        """Jump to the first child; again from there, to its next sibling."""
        here = self.candidate
        if here is None:
            return
        walking = self._walk
        if walking is not None and here in self._children.get(walking[0], ()):
            siblings = self._children[walking[0]]
            at = siblings.index(here)
            if not self._children.get(here) and at + 1 < len(siblings):
                self._go(siblings[at + 1])
                return
        born = self._children.get(here)
        if not born:
            self.app.bell()
            return
        self._walk = (here, 0)
        self._go(born[0])

    def action_fold(self) -> None:
        """Fold or open the cycle under the cursor."""
        view = self.query_one("#ln-list", LineView)
        if not isinstance(view.lines, LineageLines) or not len(view.lines):
            return
        cycle = view.lines.entries[view.index].cycle
        self.folded ^= {cycle}
        self._redraw(("cycle", cycle))

    def action_fold_all(self) -> None:
        """Fold all cycles, or open them where all are folded."""
        if self._moment is None:
            return
        cycles = {candidate.cycle for candidate in self._moment.state.candidates.values()}
        self.folded = set() if self.folded >= cycles else cycles
        self._redraw(None)

    def _redraw(self, key: object) -> None:
        if self._moment is None:
            return
        view = self.query_one("#ln-list", LineView)
        view.set_lines(LineageLines(self._moment, frozenset(self.folded), self.filter))
        if key is not None and (found := view.lines.find(key)) is not None:
            view.move_to(found)
        self.show(self._moment)

    def action_filter(self) -> None:
        """Ask for the words to filter by."""
        self.whale.ask("filter: id, title, hypothesis, proposer, fate", self.ask_filter, self.filter)

    def ask_filter(self, text: str) -> None:
        """See `View.ask_filter`."""
        self.filter = text.strip()
        self.show(self._moment)

    def action_diff(self) -> None:
        """Its diff against its parent."""
        self.whale.go("diff")

    def action_rollouts(self) -> None:
        """Its rollouts."""
        self.whale.show_rollouts(candidate=self.candidate)


class LineageLines:
    """The list as `Lines`: rows are drawn by graph.py once, texts when they are looked at."""

    def __init__(self, moment: Moment, folded: Collection[int], needle: str) -> None:
        self.state = state = moment.state
        self.ever = ever_accepted(moment)
        self.folded = folded
        newest = list(reversed(list(state.candidates.values())))
        if needle:
            words = needle.lower().split()
            newest = [c for c in newest if all(w in self._words(c) for w in words)]
        shown = {c.id for c in newest} if needle else state.candidates
        parents = {c.id: c.parents for c in state.candidates.values()} if needle else {}
        nodes = [graph.Node(c.id, graph.visible_parents(c.id, parents, shown) if needle else c.parents) for c in newest]
        by_cycle: dict[int, list[Candidate]] = {}
        for c in newest:
            by_cycle.setdefault(c.cycle, []).append(c)
        self._of_cycle = by_cycle
        self.entries: list[Entry] = []
        cycle, below = -1, ""
        for row, c in zip(graph.draw(nodes, state.accepted), newest, strict=True):
            if c.cycle != cycle:
                cycle = c.cycle
                self.entries.append(Entry(below, None, cycle))
            below = row.below
            if cycle not in folded:
                self.entries.append(Entry(row.cells, c.id, cycle))
        self._at: dict[object, int] = {
            e.candidate if e.candidate is not None else ("cycle", e.cycle): i for i, e in enumerate(self.entries)
        }
        self._lanes = max((len(e.cells) for e in self.entries), default=0)

    def _words(self, c: Candidate) -> str:
        return " ".join(
            (c.id, c.title, c.hypothesis, c.proposer, c.axis, plain(fate_words(self.state, c, self.ever)))
        ).lower()

    def __len__(self) -> int:
        return len(self.entries)

    def line(self, index: int, width: int) -> Line:
        """See `Lines.line`."""
        entry = self.entries[index]
        lanes = min(self._lanes, max(8, width // 3))
        if entry.candidate is None:
            return self._heading(entry, lanes, width)
        c = self.state.candidates[entry.candidate]
        sign, role = SIGNS[fate(self.state, c, self.ever)]
        before, _, after = entry.cells[:lanes].ljust(lanes).partition("*")
        score = c.scores[-1] if c.scores else None
        figures = f"{100 * score.score:5.1f} % ±{50 * (score.high - score.low):4.1f}" if score else f"{'':<14}"
        if not score:
            figures = {"invalid": "invalid", "duplicate": "duplicate"}.get(fate(self.state, c, self.ever), "").ljust(14)
        main = c.id == self.state.accepted
        id_width = 12
        room = width - lanes - id_width - len(figures) - 3
        return (
            Span(before, "graph"),
            Span(sign, role),
            Span(after + " ", "graph"),
            Span(fit(c.id, id_width) + " ", "strong" if main else role if c.id in self.ever else ""),
            Span(figures + " ", "good" if main else "" if score else "muted"),
            Span(cut(("✎ " if c.id in self.state.notes else "") + c.title, max(0, room)), "muted" if not main else ""),
        )

    def _heading(self, entry: Entry, lanes: int, width: int) -> Line:
        candidates = self._of_cycle[entry.cycle]
        best = max((s.score for c in candidates for s in c.scores if s.cycle == entry.cycle), default=None)
        arrow = "▸" if entry.cycle in self.folded else "▾"
        words = f"{arrow} " + (f"cycle {entry.cycle}" if entry.cycle else "start")
        facts = f" · {counted(len(candidates), 'candidate')}"
        if best is not None and entry.cycle:
            facts += f" · best {share(best)}"
        taken = [c.id for c in reversed(candidates) if c.id in self.ever]
        if taken and entry.cycle:
            facts += f" · accepted {', '.join(taken)}"
        head = entry.cells[:lanes].ljust(lanes)
        return (
            Span(head, "graph"),
            Span(words, "title"),
            Span(cut(facts, max(0, width - lanes - len(words))), "muted"),
        )

    def text(self, index: int) -> str:
        """See `Lines.text`."""
        entry = self.entries[index]
        if entry.candidate is None:
            return f"cycle {entry.cycle}"
        c = self.state.candidates[entry.candidate]
        return f"{c.id} {c.title} {c.hypothesis} {c.proposer}"

    def key(self, index: int) -> object:
        """See `Lines.key`."""
        entry = self.entries[index]
        return entry.candidate if entry.candidate is not None else ("cycle", entry.cycle)

    def find(self, key: object) -> int | None:
        """See `Lines.find`."""
        found = self._at.get(key)
        if found is None and isinstance(key, str) and key in self.state.candidates:
            return self._at.get(("cycle", self.state.candidates[key].cycle)) if self._folded(key) else None
        return found

    def _folded(self, candidate: str) -> bool:
        return self.state.candidates[candidate].cycle in self.folded

    @property
    def width(self) -> int:
        """Cut to the view."""
        return 0


def cycle_lines(state: State, cycle: int, width: int) -> list[Line]:
    """What a cycle tried and reached: its candidates by score."""
    mine = [c for c in state.candidates.values() if c.cycle == cycle]
    scored = sorted(
        ((s, c) for c in state.candidates.values() for s in c.scores if s.cycle == cycle),
        key=lambda pair: (-pair[0].score, pair[0].iteration),
    )
    invalid, again = sum(c.valid is False for c in mine), sum(bool(c.duplicate_of) for c in mine)
    lines = [line((counted(len(mine), "candidate"), "strong"), f", {invalid} invalid, {counted(again, 'duplicate')}")]
    rows = [
        charts.Interval(c.id + (" in" if s.iteration == 0 else ""), s.score, s.low, s.high, c.title, n == 0)
        for n, (s, c) in enumerate(scored[:100])
    ]
    return [*lines, *charts.intervals(rows, width)]


def candidate_lines(state: State, c: Candidate, ever: set[str], width: int) -> list[Line]:
    """The facts of a candidate."""
    lines: list[Line] = [fate_words(state, c, ever)]
    if c.title:
        lines += [line((part, "strong")) for part in wrap(c.title, width)]
    if c.hypothesis:
        lines += [line(part) for part in wrap(c.hypothesis, width)]
    rows: list[tuple[str, Line]] = []
    for score in reversed(c.scores):
        rows.append(
            (
                "score",
                line(
                    (f"{share(score.score)} ", "strong"),
                    f"[{100 * score.low:.1f}, {100 * score.high:.1f}] n={score.n}",
                    (f" cycle {score.cycle}, θ {score.weights[:8]}", "muted"),
                ),
            )
        )
        rows.append(
            (
                "",
                line(
                    (f"{score.mean_turns:.2f} turns, {score.mean_tokens:.0f} tokens", "muted"),
                    (f", {100 * score.fabricated:.0f} % fabricated" if score.fabricated else "", "warn"),
                    (", " + ", ".join(f"{n} {k}" for k, n in score.failures.items()) if score.failures else "", "warn"),
                ),
            )
        )
    rows += [
        ("parents", line(", ".join(c.parents) or "none")),
        ("by", line(f"{c.proposer}, cycle {c.cycle}, iteration {c.iteration}")),
    ]
    if c.axis:
        rows.append(("axis", line(cut(c.axis, width - 10))))
    lines += facts_table(rows, label=9)
    if c.changes:
        lines += [line(("changes", "muted"))] + [line(part) for part in wrap(c.changes, width)]
    for note in state.notes.get(c.id, ()):
        lines += [line((part, "warn")) for part in wrap(f"✎ {note.text}" + (f" ({note.by})" if note.by else ""), width)]
    lines.append(line((f"tree {c.tree}", "muted")))
    return lines
