"""The archive as a folder that exists in memory alone: a path that leaves it has nothing to lead to."""

import difflib
import fnmatch
import json
import re

from whale.search.archive import ArchiveLimits, per_task_views, score_view, trajectory_view
from whale.search.tree import check_tree
from whale.search.types import Archive

MAX_PATTERN = 200
_LIMITS = ArchiveLimits()


def archive_files(archive: Archive, limits: ArchiveLimits = _LIMITS) -> dict[str, str]:
    """Path -> text, laid out as `whale.search.archive.write_archive` lays it out on disk."""
    files: dict[str, str] = {}
    for entry in archive.entries:
        if check_tree(entry.files) is None:
            for path, content in entry.files.items():
                files[f"harnesses/{entry.candidate}/{path}"] = content.decode("utf-8", "replace")
        shown = archive.trajectories.get(entry.candidate, ())[: limits.trajectories]
        if shown:
            lines = (json.dumps(trajectory_view(t, limits.text_chars), ensure_ascii=False) for t in shown)
            files[f"trajectories/{entry.candidate}.jsonl"] = "\n".join(lines) + "\n"
    files["scores.jsonl"] = _jsonl([score_view(entry) for entry in archive.entries])
    files["per_task.jsonl"] = _jsonl(list(per_task_views(archive)))
    lineage = {entry.candidate: list(entry.parents) for entry in archive.entries}
    files["lineage.json"] = json.dumps(lineage, indent=1, sort_keys=True) + "\n"
    return files


def _jsonl(lines: list[dict[str, object]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines)


def listing(files: dict[str, str], folder: str) -> str:
    """Files below a folder with their sizes."""
    prefix = folder.strip("/.")
    found = [path for path in sorted(files) if not prefix or path == prefix or path.startswith(prefix + "/")]
    return "\n".join(f"{len(files[path]):8d}  {path}" for path in found) or f"nothing below {folder!r}"


def lines_of(text: str, start: int, count: int, width: int) -> str:
    """A range of lines, numbered from 1, each cut to `width` characters."""
    lines = text.splitlines()
    start = max(1, start)
    shown = [f"{n:5d}  {line[:width]}" for n, line in enumerate(lines[start - 1 : start - 1 + count], start)]
    left = len(lines) - (start - 1 + len(shown))
    if left > 0:
        shown.append(f"({left} more lines)")
    return "\n".join(shown)


def grep(files: dict[str, str], pattern: str, glob: str, most: int, width: int) -> str:
    """Lines that hold a text. It is searched for as it is: a pattern of the model's cannot stall the run."""
    if not pattern or len(pattern) > MAX_PATTERN:
        return f"give a text of 1 to {MAX_PATTERN} characters"
    needle = re.compile(re.escape(pattern), re.IGNORECASE)
    found = []
    for path in sorted(files):
        if glob and not fnmatch.fnmatchcase(path, glob):
            continue
        for number, line in enumerate(files[path].splitlines(), 1):
            match = needle.search(line)
            if match:
                start = max(0, match.start() - width // 2)
                found.append(f"{path}:{number}: {line[start : start + width]}")
                if len(found) == most:
                    return "\n".join([*found, "(more lines hold it: narrow the search)"])
    return "\n".join(found) or "no line holds it"


def diff(files: dict[str, str], a: str, b: str) -> str:
    """A unified diff of two harness folders."""
    parts: list[str] = []
    left = {path.removeprefix(a + "/"): text for path, text in files.items() if path.startswith(a + "/")}
    right = {path.removeprefix(b + "/"): text for path, text in files.items() if path.startswith(b + "/")}
    if not left or not right:
        return f"no harness at {a if not left else b}"
    for path in sorted(left.keys() | right.keys()):
        before, after = left.get(path, "").splitlines(), right.get(path, "").splitlines()
        parts += difflib.unified_diff(before, after, f"{a}/{path}", f"{b}/{path}", lineterm="")
    return "\n".join(parts) or "the two are equal"
