"""The tools of a session. They read the archive and write drafts, both in memory: no path leaves either."""

import re
from collections.abc import Mapping
from typing import Any

from whale.search.agentic import folder
from whale.search.agentic.schemas import SCHEMAS, problem_with
from whale.search.agentic.types import Workbench
from whale.search.gate import shown
from whale.search.tree import MAX_FILE_BYTES, MAX_FILES, check_tree
from whale.search.types import Archive, Proposal

MAX_DRAFTS = 16
MAX_LINES = 400
MAX_WIDTH = 2000
MAX_RESULT = 24_000
"""Characters of one result; a longer one is cut, and says so."""
TRIAL_TASKS = 4

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class ToolProblem(Exception):
    """What was wrong with a call; the model reads it and may try again."""


class Toolbox:
    """One session's archive, drafts and handed-over candidates."""

    schemas = SCHEMAS

    def __init__(self, archive: Archive, bench: Workbench, *, count: int, key: str, fence: str, trials: int) -> None:
        self.files = folder.archive_files(archive)
        self.known = {entry.candidate: entry for entry in archive.entries}
        self.bench = bench
        self.count = count
        self.key = key
        self.fence = fence
        self.trials = trials
        self.drafts: dict[str, dict[str, bytes]] = {}
        self.parents: dict[str, str] = {}
        self.handed: dict[str, Proposal] = {}
        self.invalid: dict[str, Proposal] = {}
        self.finished = False
        self.calls = 0

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """(what the model reads, whether it is an error). Never raises for anything that the model wrote."""
        self.calls += 1
        method = getattr(self, f"_tool_{name}", None)
        if name not in {schema["name"] for schema in SCHEMAS} or method is None:
            return f"there is no tool {name[:60]!r}", True
        problem = problem_with(name, arguments)
        if problem:
            return self._cut(problem), True
        try:
            given = {key: value for key, value in arguments.items() if value is not None}
            return self._cut(str(method(**given))), False
        except ToolProblem as error:
            return self._cut(str(error)), True
        except UnicodeEncodeError:
            return f"{name}: a text holds half a surrogate pair, which is no character", True
        except (TypeError, ValueError, AttributeError) as error:
            return self._cut(f"{name} could not be carried out: {error}"), True

    def proposals(self) -> tuple[Proposal, ...]:
        """What was handed over: valid ones first; of a draft that stayed invalid, the last try."""
        left = [proposal for name, proposal in self.invalid.items() if name not in self.handed]
        return (*self.handed.values(), *left)[: self.count]

    def _cut(self, text: str) -> str:
        return text if len(text) <= MAX_RESULT else text[:MAX_RESULT] + "\n(cut: ask for less)"

    def _data(self, text: str) -> str:
        """Mark untrusted text: nothing inside can write the closing mark, which holds this session's own word."""
        body = self._cut(shown(text.replace(self.fence, "")))
        return f"<data {self.fence}>\n{body}\n</data {self.fence}>"

    def _all(self) -> dict[str, str]:
        drafts = {
            f"drafts/{name}/{path}": content.decode("utf-8", "replace")
            for name, files in self.drafts.items()
            for path, content in files.items()
        }
        return self.files | drafts

    def _tool_list_files(self, folder_path: str = "") -> str:
        return self._data(folder.listing(self._all(), folder_path))

    def _tool_read_file(self, path: str, start: int = 1, lines: int = 200) -> str:
        files = self._all()
        if path not in files:
            raise ToolProblem(f"no file {path[:200]!r}; list_files shows what there is")
        return self._data(folder.lines_of(files[path], int(start), min(int(lines), MAX_LINES), MAX_WIDTH))

    def _tool_search_files(self, text: str, path_glob: str = "") -> str:
        return self._data(folder.grep(self._all(), text, path_glob, 80, 400))

    def _tool_diff_harnesses(self, a: str, b: str) -> str:
        return self._data(folder.diff(self._all(), self._place(a), self._place(b)))

    def _place(self, name: str) -> str:
        return f"drafts/{name}" if name in self.drafts else f"harnesses/{name}"

    def _tool_show_history(self) -> str:
        """The lineage as a log: candidate, parents, score, title."""
        lines = []
        for entry in self.known.values():
            score = "not scored" if entry.score is None else f"{entry.score:.4f} (n = {entry.n})"
            where = "" if entry.current or entry.score is None else f", under other weights {str(entry.weights)[:8]}"
            valid = "" if entry.valid is not False else ", invalid"
            lines.append(
                f"{entry.candidate} <- {', '.join(entry.parents) or '-'}: {score}{where}{valid}; {entry.title}"
            )
        return self._data("\n".join(lines))

    def _tool_new_draft(self, draft: str, parent: str) -> str:
        if not _NAME.fullmatch(draft):
            raise ToolProblem("name a draft by 1 to 40 of a-z, 0-9, _ and -")
        if parent not in self.known:
            raise ToolProblem(f"no harness {parent[:60]!r}")
        if len(self.drafts) >= MAX_DRAFTS and draft not in self.drafts:
            raise ToolProblem(f"{MAX_DRAFTS} drafts are enough: use one that is there")
        self.drafts[draft] = dict(self.known[parent].files)
        self.parents[draft] = parent
        return f"drafts/{draft} holds {len(self.drafts[draft])} files of {parent}"

    def _draft(self, draft: str) -> dict[str, bytes]:
        if draft not in self.drafts:
            raise ToolProblem(f"no draft {draft[:60]!r}: new_draft makes one")
        return self.drafts[draft]

    def _put(self, draft: str, path: str, content: bytes) -> None:
        files = {**self._draft(draft), path: content}
        if len(content) > MAX_FILE_BYTES or len(files) > MAX_FILES:
            raise ToolProblem("the draft is too large")
        reason = check_tree(files)
        if reason:
            raise ToolProblem(reason)
        self.drafts[draft] = files

    def _tool_write_file(self, draft: str, path: str, content: str) -> str:
        self._put(draft, path, content.encode("utf-8"))
        return f"drafts/{draft}/{path}: {len(content)} characters"

    def _tool_edit_file(self, draft: str, path: str, old: str, new: str) -> str:
        files = self._draft(draft)
        if path not in files:
            raise ToolProblem(f"drafts/{draft} has no {path[:200]!r}")
        text = files[path].decode("utf-8", "replace")
        found = text.count(old) if old else 0
        if found != 1:
            raise ToolProblem(f"the text to replace is there {found} times; it must be there once")
        self._put(draft, path, text.replace(old, new).encode("utf-8"))
        return f"drafts/{draft}/{path}: changed"

    def _tool_delete_file(self, draft: str, path: str) -> str:
        if path not in self._draft(draft):
            raise ToolProblem(f"drafts/{draft} has no {path[:200]!r}")
        self.drafts[draft] = {name: content for name, content in self.drafts[draft].items() if name != path}
        return "deleted"

    def _tool_check_draft(self, draft: str) -> str:
        reason = self.bench.check(self._draft(draft))
        return self._data(f"invalid: {reason}") if reason else "valid"

    def _tool_try_draft(self, draft: str, tasks: int = 2) -> str:
        files = self._draft(draft)
        tasks = max(1, min(int(tasks), TRIAL_TASKS))
        if tasks > self.trials:
            raise ToolProblem("no more trials in this session")
        reason = self.bench.check(files)
        if reason:
            raise ToolProblem(f"invalid: {reason}")
        self.trials -= tasks
        return self._data(self.bench.trial(f"{self.key}/try/{self.calls:04d}", files, tasks))

    def _tool_submit_draft(
        self,
        draft: str,
        title: str,
        hypothesis: str,
        axis: str,
        changes: str,
        critique: str,
        parents: list[str] | None = None,
    ) -> str:
        files = self._draft(draft)
        texts = (title, hypothesis, axis, changes, critique)
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise ToolProblem("title, hypothesis, axis, changes and critique each need words")
        named = tuple(parent for parent in (parents or []) if parent in self.known)[:2] or (self.parents[draft],)
        told = f"{changes.strip()}\n\nSelf-critique: {critique.strip()}"
        proposal = Proposal(title, hypothesis, axis, told, named, dict(files))
        if any(files == dict(entry.files) for entry in self.known.values()):
            raise ToolProblem("this is a harness of the archive, unchanged")
        if any(name != draft and files == dict(other.files) for name, other in self.handed.items()):
            raise ToolProblem("another draft that was handed over is the same harness")
        reason = self.bench.check(files)
        if reason:
            self.invalid[draft] = proposal
            raise ToolProblem(f"not handed over, it is invalid: {reason}")
        self.handed[draft] = proposal
        self.finished = len(self.handed) >= self.count
        return "handed over" + ("; that was the last one" if self.finished else "")

    def _tool_finish(self) -> str:
        self.finished = True
        return "the session ends"
