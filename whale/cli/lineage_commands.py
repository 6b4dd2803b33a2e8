"""What was proposed and what it changed: `whale lineage`, `whale diff`, `whale blame`."""

import gc
import json as json_module
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from whale.alternation.run_folder import RunFolder
from whale.cli.harness_facts import candidate_json, git_json
from whale.cli.output import print_json, print_text, printable
from whale.cli.pager import coloured, print_paged
from whale.errors import UsageError, WhaleError

if TYPE_CHECKING:
    from whale.harness_repo import HarnessRepo, LineageEntry

FORMATS = ("tree", "dot", "html", "json")

PAGE = 200
"""Candidates of a tree that is not asked to be longer."""

PAGE_PATCHES = 2_000
"""Newest candidates whose diffs go into the HTML page."""


def lineage(
    run: str,
    form: str,
    *,
    accepted: bool,
    cycle: int | None,
    limit: int | None,
    before: str | None,
    whole: bool,
    all_runs: bool,
    output: Path | None,
) -> None:
    """Every proposal. The JSON is from the log; the other forms are from Git alone, by one call."""
    if form not in FORMATS:
        raise UsageError(f"unknown format {form}; there are {', '.join(FORMATS)}")
    if limit is not None and whole:
        raise UsageError("--limit N or --all, not both")
    if (limit is not None or before is not None) and all_runs:
        raise UsageError("--limit and --before page through this run's own candidates: leave --all-runs out")
    if limit is None and (before is not None or not (whole or all_runs or accepted or cycle is not None)):
        limit = PAGE if form == "tree" or before is not None else None
    from whale.harness_repo import HarnessRepo

    gc.disable()  # ten thousand records, none of them garbage: a fifth of the time
    folder = RunFolder.find(run)
    with HarnessRepo.open(folder.harnesses) as repo:
        entries, older = (repo.lineage(runs=all_runs), "") if limit is None else _page(repo, limit, before)
        chosen = [e for e in entries if (cycle is None or e.cycle == cycle) and (not accepted or e.accepted)]
        text = _rendered(folder, repo, form, chosen)
    if not chosen:
        print(_none_of(folder.name, accepted=accepted, cycle=cycle, before=before), file=sys.stderr)
    if output is not None:
        _write(output, text)
        print(f"{output}: {len(chosen)} candidates", file=sys.stderr)
    elif form == "tree":
        if chosen:
            print_paged(printable(text))
    else:
        # Where the terminal is not UTF-8; HTML has a name for every character.
        plain = text if _unicode() else text.encode("ascii", "xmlcharrefreplace").decode()
        print_text(plain)
    if older and form == "tree":
        print(f"older ones: --limit {limit} --before {older}, or --all", file=sys.stderr)


def _page(repo: "HarnessRepo", limit: int, before: str | None) -> "tuple[list[LineageEntry], str]":
    """The newest entries, and the oldest of them if there are older ones."""
    from whale.harness_repo import RepoError
    from whale.harness_repo.lineage import birth

    try:
        found = repo.page(limit + 1, before=before)
    except RepoError as error:
        raise UsageError(str(error)) from error
    if len(found) <= limit:
        return found, ""
    first, second = sorted(found, key=lambda entry: birth(entry.candidate))[:2]
    return [entry for entry in found if entry is not first], second.candidate


def _none_of(run: str, *, accepted: bool, cycle: int | None, before: str | None) -> str:
    kind = "accepted harness" if accepted else "candidate"
    of = f" of cycle {cycle}" if cycle is not None else ""
    return f"{run} has no {kind}{of}{f' before {before}' if before else ''}"


def _rendered(folder: RunFolder, repo: "HarnessRepo", form: str, entries: "Sequence[LineageEntry]") -> str:
    if form == "tree":
        from whale.harness_repo import render_lineage

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return render_lineage(entries, width=width, ascii_only=not _unicode())
    if form == "dot":
        from whale.harness_repo.dot import render_dot

        return render_dot(entries)
    if form == "html":
        from whale.harness_repo import RepoError
        from whale.harness_repo.page import render_page

        try:
            now = repo.candidate_of("accepted")
        except RepoError:
            now = None
        patches = repo.patches(entries[-PAGE_PATCHES:])
        return render_page(entries, patches, run=folder.name, accepted=now)
    state = folder.state()
    documents = []
    for entry in entries:
        if entry.candidate in state.candidates:
            documents.append(candidate_json(state, state.candidates[entry.candidate], entry))
        else:
            documents.append(git_json(entry))
    return json_module.dumps(documents, indent=2, ensure_ascii=not _unicode())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WhaleError(f"{path}: cannot be written: {error.strerror or error}") from error


def _unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def diff(run: str, a: str, b: str, json: bool, side_by_side: bool) -> None:
    """The change from one harness to another."""
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    with HarnessRepo.open(folder.harnesses) as repo:
        try:
            text = repo.diff(a, b)
        except RepoError as error:
            raise UsageError(f"{folder.name}: {error}") from error
        if not text and not json:
            only = ""
            if (a, b) == ("accepted~1", "accepted"):
                only = f"; nothing was accepted after {repo.candidate_of('accepted')}"
            print(f"{a} and {b} are the same harness{only}", file=sys.stderr)
            return
    if json:
        print_json({"a": a, "b": b, "diff": text})
    elif side_by_side:
        print_paged("\n".join(_columns(text)))
    else:
        print_paged("\n".join(_painted(printable(text).splitlines())))


def _painted(lines: Sequence[str]) -> Iterator[str]:
    """Lines of a unified diff, in git's colours where there are any."""
    if not coloured():
        yield from lines
        return
    styles: dict[str, dict[str, Any]] = {"+": {"fg": "green"}, "-": {"fg": "red"}, "@": {"fg": "cyan"}}
    for line in lines:
        bold = line.startswith(("diff ", "--- ", "+++ ", "index "))
        style = {"bold": True} if bold else styles.get(line[:1])
        yield typer.style(line, **style) if style else line


def _columns(text: str) -> Iterator[str]:
    from whale.harness_repo.side_by_side import side_by_side

    width = shutil.get_terminal_size((160, 24)).columns
    colour = coloured()
    for row in side_by_side(text, width):
        if not colour or row.mark == " ":
            yield row.text
        elif row.mark == "#":
            yield typer.style(row.text, fg="cyan")
        else:
            yield f"{typer.style(row.left, fg='red')} {row.mark} {typer.style(row.right, fg='green')}"


def blame(run: str, file: str, at: str, json: bool) -> None:
    """Each line of a harness's file, with the proposal that brought it and what that did to the score."""
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    with HarnessRepo.open(folder.harnesses) as repo:
        try:
            lines = repo.blame(file, at)
        except RepoError as error:
            raise UsageError(f"{folder.name}: {error}") from error
    if json:
        print_json([msgspec.to_builtins(line) for line in lines])
        return
    labels = [
        (line.candidate if len(line.candidate) < 40 else line.candidate[:10],
         f"{line.change.gain:+z.3f}" if line.change else "" if line.score is None else f"({line.score:.3f})")
        for line in lines
    ]  # fmt: skip
    name, gain = (max((len(label[at]) for label in labels), default=0) for at in (0, 1))
    print_paged(
        "\n".join(
            f"{label[0]:<{name}}  {label[1]:>{gain}}  {line.number:>4}  {printable(line.text)}".rstrip()
            for label, line in zip(labels, lines, strict=True)
        )
    )
