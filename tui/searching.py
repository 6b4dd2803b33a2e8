"""Searching in the list or text that has the focus, and copying from it."""

from textual import work

from whale.errors import WhaleError
from whale.events import LogError
from whale.tui.lines import LineView
from whale.tui.shell import Shell


class Searching(Shell):
    """Finds words in what may be long, and takes lines to the clipboard."""

    def action_search(self) -> None:
        """Ask what to search for."""
        focused = self.focused
        self._searched = focused if isinstance(focused, LineView) else self.front.main() if self.front else None
        if self._searched is not None:
            self.ask("search", self._search, "")

    def _search(self, text: str) -> None:
        view = self._searched
        if view is None:
            return
        view.search(text)
        if text:
            self._find(view, view.index if view.with_cursor else int(view.scroll_offset.y), 1)

    def action_search_next(self, step: int) -> None:
        """The next match, or the one before."""
        view = self.focused
        if isinstance(view, LineView) and view.needle and len(view.lines):
            here = view.index if view.with_cursor else int(view.scroll_offset.y)
            self._find(view, (here + step) % len(view.lines), step)

    @work(thread=True, exclusive=True, group="search")
    def _find(self, view: LineView, start: int, step: int) -> None:
        from textual.worker import get_current_worker

        worker = get_current_worker()
        try:
            found = view.found_from(start, step, stop=lambda: worker.is_cancelled)
        except (LogError, WhaleError, IndexError) as error:
            self.from_thread(self.tell, str(error), "error")
            return
        if worker.is_cancelled:
            return
        if found is None:
            self.from_thread(self.tell, f"not found: {view.needle}", "warning")
        else:
            self.from_thread(lambda: view.move_to(found, centre=True))

    def action_copy(self) -> None:
        """Copy the line, or the text, to the clipboard."""
        view = self.focused if isinstance(self.focused, LineView) else self.front.main() if self.front else None
        text = view.copied() if view is not None else ""
        if text:
            self.copy_to_clipboard(text)
            lines = text.count("\n") + 1
            self.tell(f"copied {lines} line{'s' if lines != 1 else ''}")
