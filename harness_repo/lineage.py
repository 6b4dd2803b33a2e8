"""What the store knows of each candidate, read with one `git log`."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from whale.harness_repo.cleanroom import CleanGit
from whale.harness_repo.message import natural, title_of, trailers
from whale.harness_repo.notes import parse

CANDIDATES = "refs/whale/candidates/"
ACCEPTED = "refs/heads/accepted"

LOG_FORMAT = "%x00".join(("%H", "%T", "%P", "%ct", "%D", "%B", "%N"))
LOG_ARGUMENTS = (
    "log", "-z", "--notes=whale", "--decorate=full", f"--decorate-refs={CANDIDATES}*",
    "--no-color", "--no-mailmap", "--encoding=UTF-8", f"--format={LOG_FORMAT}",
)  # fmt: skip
_FIELDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """One candidate. `title` and `proposer` are clean of control characters."""

    candidate: str
    sha: str
    tree: str
    parents: tuple[str, ...] = ()
    """Candidate ids: none for h0, two for a crossover."""
    title: str = ""
    proposer: str = ""
    cycle: int = 0
    iteration: int = 0
    note: dict[str, Any] | None = None
    """The latest score (`score`, `low`, `high`, `n`, `weights`, ...), older ones under `earlier`."""
    serials: tuple[int, ...] = ()
    """Numbers of its acceptances, from 0 for h0."""
    time: datetime

    @property
    def accepted(self) -> bool:
        """It is, or once was, the accepted harness."""
        return bool(self.serials)

    @property
    def subject(self) -> str:
        """Id and title, as in the commit's subject."""
        return f"{self.candidate}: {self.title}" if self.title else self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One commit of the accepted history."""

    serial: int
    candidate: str
    tree: str
    cycle: int
    sha: str
    time: datetime


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit as `git log` with LOG_ARGUMENTS prints it."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    time: datetime
    candidates: tuple[str, ...]
    """Candidate refs that point at it."""
    message: str
    facts: dict[str, str]
    note: dict[str, Any] | None

    def acceptance(self) -> Acceptance | None:
        """The acceptance that this commit is, if it is one."""
        if not self.facts.get("Serial", "").isdecimal():
            return None
        return Acceptance(
            serial=int(self.facts["Serial"]),
            candidate=self.facts.get("Candidate", ""),
            tree=self.tree,
            cycle=_number(self.facts.get("Cycle")),
            sha=self.sha,
            time=self.time,
        )


def read_log(output: bytes) -> Iterator[LoggedCommit]:
    """The commits in the output of `git log` with LOG_ARGUMENTS."""
    fields = output.decode("utf-8", "replace").split("\0")
    for at in range(0, len(fields) - _FIELDS + 1, _FIELDS):
        sha, tree, parents, seconds, refs, message, note = fields[at : at + _FIELDS]
        yield LoggedCommit(
            sha=sha,
            tree=tree,
            parents=tuple(parents.split()),
            time=datetime.fromtimestamp(int(seconds), UTC),
            candidates=tuple(ref.removeprefix(CANDIDATES) for ref in refs.split(", ") if ref.startswith(CANDIDATES)),
            message=message,
            facts=trailers(message),
            note=parse(note),
        )


def accepted_history(git: CleanGit) -> list[Acceptance]:
    """The commits of the accepted history, h0 first."""
    if git.get(ACCEPTED) is None:
        return []
    out = git.run(*LOG_ARGUMENTS, "--no-notes", "--first-parent", ACCEPTED)
    found = (commit.acceptance() for commit in read_log(out))
    return [acceptance for acceptance in found if acceptance is not None][::-1]


def entries_of(commits: Sequence[LoggedCommit]) -> list[LineageEntry]:
    """The candidates among `commits`, parents first, then by cycle, iteration and id.

    A commit is a candidate by its ref, never by what its message says.
    """
    names = {commit.sha: commit.candidates[0] for commit in commits if commit.candidates}
    serials: dict[str, list[int]] = {}
    for commit in commits:
        acceptance = None if commit.candidates else commit.acceptance()
        if acceptance:
            serials.setdefault(acceptance.candidate, []).append(acceptance.serial)
    return in_order(
        [
            LineageEntry(
                candidate=name,
                sha=commit.sha,
                tree=commit.tree,
                parents=tuple(names[parent] for parent in commit.parents if parent in names),
                title=title_of(commit.message),
                proposer=commit.facts.get("Proposer", ""),
                cycle=_number(commit.facts.get("Cycle")),
                iteration=_number(commit.facts.get("Iteration")),
                note=commit.note,
                serials=tuple(sorted(serials.get(name, ()))),
                time=commit.time,
            )
            for commit in commits
            for name in commit.candidates
        ]
    )


def in_order(entries: Sequence[LineageEntry]) -> list[LineageEntry]:
    """Entries with parents before children, and otherwise by (cycle, iteration, id)."""
    by_id = {entry.candidate: entry for entry in entries}
    waiting = {e.candidate: sum(p in by_id for p in set(e.parents)) for e in entries}
    children: dict[str, list[str]] = {}
    for entry in entries:
        for parent in set(entry.parents):
            children.setdefault(parent, []).append(entry.candidate)

    def key(name: str) -> tuple[object, ...]:
        return (by_id[name].cycle, by_id[name].iteration, natural(name), name)

    ready = [key(name) for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    ordered: list[LineageEntry] = []
    while ready:
        name = str(heapq.heappop(ready)[-1])
        ordered.append(by_id[name])
        for child in children.get(name, ()):
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, key(child))
    return ordered


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
