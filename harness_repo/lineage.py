"""What the store knows of each candidate, read with one `git log`."""

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from whale.harness_repo.cleanroom import CleanGit
from whale.harness_repo.message import natural, text_of, title_of, trailers
from whale.harness_repo.notes import parse_all, union

CANDIDATES = "refs/whale/candidates/"
ACCEPTED = "refs/heads/accepted"
RUNS = "refs/whale/runs/"
"""What was pulled from other runs: RUN/candidates/ID, RUN/tags/c003 and RUN/accepted."""
SHARED_NOTES = "refs/notes/whale-runs"
"""Their notes. Ours are in a ref of their own, which nothing that is pulled can change."""

LOG_FORMAT = "%x00".join(("%H", "%T", "%P", "%ct", "%D", "%B", "%N"))
LOG_ARGUMENTS = (
    "log", "-z", "--notes=whale", "--decorate=full", f"--decorate-refs={CANDIDATES}*",
    f"--decorate-refs={ACCEPTED}", f"--decorate-refs={RUNS}*",
    "--no-color", "--no-mailmap", "--encoding=UTF-8", f"--format={LOG_FORMAT}",
)  # fmt: skip
ALL_RUNS_ARGUMENTS = (*LOG_ARGUMENTS, f"--notes={SHARED_NOTES}")
_FIELDS = 7
_LATEST = 253_402_300_799
"""The end of the year 9999, for commits that somebody else made."""
_HEAD = re.compile(RUNS + r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}/accepted")
_PROPOSAL = re.compile(r"c(\d{1,9})-i(\d{1,9})-m(\d{1,9})")
FOREIGN = re.compile(RUNS + r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})/candidates/([A-Za-z0-9][A-Za-z0-9._-]{0,99})")
"""Another run's candidate; a ref of any other shape, which a remote may hold, is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """One candidate. `title` and `proposer` are clean of control characters."""

    candidate: str
    """Its id; RUN/ID for a candidate of another run."""
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
    event_hash: str = ""
    """Hash of the event that proposed it, and its position in the log if the commit says it."""
    position: int | None = None
    text: str = field(default="", repr=False)
    """What the proposer wrote (hypothesis, axis, changes), each line quoted by "> "."""

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
    commit: str
    """The candidate's own commit: the last parent."""
    time: datetime
    event_hash: str = ""
    """Hash of the event that asked for it."""
    position: int | None = None
    """Position of that event in the log, if the commit says it."""


class LoggedCommit(NamedTuple):
    """A commit as `git log` with LOG_ARGUMENTS prints it."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    time: datetime
    candidates: tuple[str, ...]
    """The candidates that it is, by refs that point at it: ours, or else those of other runs as RUN/ID."""
    head: bool
    """The accepted history of a run, ours or another one, ends here."""
    message: str
    facts: dict[str, str]
    note: dict[str, Any] | None

    def acceptance(self) -> Acceptance | None:
        """The acceptance that this commit is, if it is one."""
        serial = _number(self.facts.get("Serial"))
        if serial is None or not self.parents:
            return None
        return Acceptance(
            serial=serial,
            candidate=self.facts.get("Candidate", ""),
            tree=self.tree,
            cycle=_number(self.facts.get("Cycle")) or 0,
            sha=self.sha,
            commit=self.parents[-1],
            time=self.time,
            event_hash=self.facts.get("Event", ""),
            position=_number(self.facts.get("Position")),
        )


def read_log(output: Iterable[bytes]) -> Iterator[LoggedCommit]:
    """The commits in the output of `git log` with LOG_ARGUMENTS, which comes in parts."""
    fields: list[bytes] = []
    for part in output:
        # What a part cut off goes on in the next one.
        cut, *more = part.split(b"\0")
        fields[-1:] = [(fields[-1] if fields else b"") + cut, *more]
        whole = (len(fields) - 1) // _FIELDS * _FIELDS
        yield from _commits(fields[:whole])
        del fields[:whole]
    yield from _commits(fields)


def _commits(fields: Sequence[bytes]) -> Iterator[LoggedCommit]:
    for at in range(0, len(fields) - _FIELDS + 1, _FIELDS):
        sha, tree, parents, seconds, refs, message, note = (
            field.decode("utf-8", "replace") for field in fields[at : at + _FIELDS]
        )
        yield LoggedCommit(
            sha=sha,
            tree=tree,
            parents=tuple(parents.split()),
            time=datetime.fromtimestamp(min(int(seconds), _LATEST), UTC),
            candidates=_names(refs),
            head=ACCEPTED in refs or any(map(_HEAD.fullmatch, refs.split(", "))) if refs else False,
            message=message,
            facts=trailers(message),
            note=_note(note),
        )


def _names(refs: str) -> tuple[str, ...]:
    if ", " not in refs and refs.startswith(CANDIDATES):  # the quick way for nearly all
        return (refs.removeprefix(CANDIDATES),)
    ours = tuple(ref.removeprefix(CANDIDATES) for ref in refs.split(", ") if ref.startswith(CANDIDATES))
    if ours or RUNS not in refs:
        return ours
    # Forks share commits: one name is enough.
    return tuple(sorted(f"{m[1]}/{m[2]}" for ref in refs.split(", ") if (m := FOREIGN.fullmatch(ref))))[:1]


def _note(text: str) -> dict[str, Any] | None:
    notes = parse_all(text)
    return union(notes) if len(notes) > 1 else notes[0] if notes else None


def accepted_history(git: CleanGit) -> list[Acceptance]:
    """The commits of the accepted history, h0 first."""
    if git.get(ACCEPTED) is None:
        return []
    out = git.run(*LOG_ARGUMENTS, "--no-notes", "--first-parent", ACCEPTED)
    found = (commit.acceptance() for commit in read_log([out]))
    return [acceptance for acceptance in found if acceptance is not None][::-1]


def _serials(commits: Sequence[LoggedCommit]) -> Iterator[Acceptance]:
    """The acceptances: commits of an accepted history, never others that say they are."""
    heads = [commit for commit in commits if commit.head]
    if not heads:
        return
    by_sha = {commit.sha: commit for commit in commits}
    seen: set[str] = set()
    for head in heads:
        commit: LoggedCommit | None = head
        while commit is not None and commit.sha not in seen:
            seen.add(commit.sha)
            acceptance = commit.acceptance()
            if acceptance is not None:
                yield acceptance
            commit = by_sha.get(commit.parents[0]) if commit.parents else None


def entries_of(
    commits: Sequence[LoggedCommit], names: Mapping[str, str] | None = None, accepted: Iterable[Acceptance] = ()
) -> list[LineageEntry]:
    """The candidates among `commits`, parents first, then by cycle, iteration and id.

    A commit is a candidate by its ref, never by what its message says.

    Args:
        commits: candidates, and acceptances of them.
        names: commit -> candidate, for parents that are not among `commits`.
        accepted: further acceptances.
    """
    names = {**(names or {}), **{commit.sha: commit.candidates[0] for commit in commits if commit.candidates}}
    serials: dict[str, set[int]] = {}
    for acceptance in (*accepted, *_serials(commits)):
        serials.setdefault(acceptance.commit, set()).add(acceptance.serial)
    return in_order(
        [
            LineageEntry(
                candidate=name,
                sha=commit.sha,
                tree=commit.tree,
                parents=tuple(names[parent] for parent in commit.parents if parent in names),
                title=title_of(commit.message),
                proposer=commit.facts.get("Proposer", ""),
                cycle=_number(commit.facts.get("Cycle")) or 0,
                iteration=_number(commit.facts.get("Iteration")) or 0,
                note=commit.note,
                serials=tuple(sorted(serials.get(commit.sha, ()))),
                time=commit.time,
                event_hash=commit.facts.get("Event", ""),
                position=_number(commit.facts.get("Position")),
                text=text_of(commit.message),
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
        return (by_id[name].cycle, by_id[name].iteration, *birth(name), name)

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


def birth(name: str) -> tuple[object, ...]:
    """A sort key for ids, the oldest first: by cycle, iteration and member; ids of another kind come first."""
    match = _PROPOSAL.fullmatch(name)
    return (1, int(match[1]), int(match[2]), int(match[3])) if match else (0, natural(name))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None
