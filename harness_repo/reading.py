"""What can be asked of a harness store. Nothing here writes to it."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whale.harness_repo import packing, verification
from whale.harness_repo.blame import ARGUMENTS as BLAME_ARGUMENTS
from whale.harness_repo.blame import BlamedLine, ScoreChange, read_porcelain, score_change
from whale.harness_repo.cleanroom import CleanGit, GitObject, shown
from whale.harness_repo.creation import TAGS
from whale.harness_repo.errors import RepoError
from whale.harness_repo.lineage import (
    ACCEPTED,
    ALL_RUNS_ARGUMENTS,
    CANDIDATES,
    FOREIGN,
    LOG_ARGUMENTS,
    RUNS,
    SHARED_NOTES,
    Acceptance,
    LineageEntry,
    accepted_history,
    birth,
    entries_of,
    read_log,
)
from whale.harness_repo.message import CommitFacts, trailers
from whale.harness_repo.notes import NOTES, NotesTree
from whale.harness_repo.objects import TREE_MODE, read_tree
from whale.harness_repo.packing import StoreSize

DIFF_ARGUMENTS = (
    "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    "--find-renames", "--unified=3", "--diff-algorithm=histogram", f"-O{os.devnull}",
)  # fmt: skip


class HarnessReader:
    """The reading half of `HarnessRepo`. A context manager; `close()` ends its reader process.

    Names of harnesses ("rev" below): a candidate id, `accepted`, `accepted~1`, a cycle such as `c003` (what
    was accepted in it), a full ref, or a full or short commit id; and RUN/ID, RUN/accepted and RUN/c003 of
    another run, once pulled.
    """

    def __init__(self, path: Path, git: CleanGit) -> None:
        """Use `HarnessRepo.create` or `HarnessRepo.open`."""
        self.path = path
        self._git = git

    def close(self) -> None:
        """End the reader process."""
        self._git.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def resolve(self, name: str) -> str:
        """The id of the commit that a rev (see the class) names.

        Raises:
            RepoError: nothing has that name.
        """
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._/-]*)((?:[~^]\d*)*)", name)
        if match:
            for base in _readings(match[1]):
                found = self._git.get(f"{base}{match[2]}^{{commit}}")
                if found is not None:
                    return found.id
        raise RepoError(
            f"no harness is called {name!r} in {shown(self.path)}: name a candidate, accepted, accepted~1, "
            "a cycle such as c003 or a commit"
        )

    def tree_id(self, rev: str) -> str:
        """The id of the tree of a rev. A tree's own id is a rev here, and in `files`, `diff`, `export`."""
        if re.fullmatch(r"[0-9a-f]{40}", rev):
            found = self._git.get(f"{rev}^{{tree}}")
            if found is not None:
                return found.id
        return self._tree(self.resolve(rev))

    def files(self, rev: str) -> dict[str, bytes]:
        """All files of a rev: path -> content. Bytes of a foreign path that are not UTF-8 are escaped.

        Raises:
            RepoError: no such rev, or its tree holds a link or a submodule.
        """
        found: dict[str, bytes] = {}
        waiting = [("", self.tree_id(rev))]
        while waiting:
            folder, tree = waiting.pop()
            for name, (mode, id_) in read_tree(self._object(tree).data).items():
                path = folder + name.decode("utf-8", "surrogateescape")
                if mode == TREE_MODE:
                    waiting.append((path + "/", id_))
                elif mode.startswith("100"):
                    found[path] = self._object(id_).data
                else:
                    raise RepoError(f"{rev}: {shown(path)} is a link or a submodule, which no harness has")
        return dict(sorted(found.items()))

    def export(self, rev: str, folder: str | os.PathLike[str]) -> None:
        """Write the files of a rev into a folder that does not exist yet, complete or not at all.

        Raises:
            RepoError: no such rev, or the folder exists.
        """
        target = Path(folder).absolute()
        if target.exists():
            raise RepoError(f"{shown(target)} exists: name a new folder")
        files = self.files(rev)
        making = target.with_name(f"{target.name}.{os.getpid()}.exporting")
        shutil.rmtree(making, ignore_errors=True)
        for path, data in files.items():
            if path.startswith("/") or {"", ".", "..", ".git"} & set(path.split("/")):
                raise RepoError(f"{rev}: the path {shown(path)} leaves its folder")
            (making / path).parent.mkdir(parents=True, exist_ok=True)
            (making / path).write_bytes(data)
        making.rename(target)

    def diff(self, a: str, b: str) -> str:
        """The change from rev `a` to rev `b` as a unified diff, the same under every user's config.

        It holds harness text as it is: clean it (`visible`) before it reaches a terminal.
        """
        out = self._git.run("diff", *DIFF_ARGUMENTS, self.tree_id(a), self.tree_id(b), "--")
        return out.decode("utf-8", "replace")

    def lineage(self, *, runs: bool = False) -> list[LineageEntry]:
        """All candidates with their latest notes, parents first, by one git call.

        Args:
            runs: also what was pulled from other runs.
        """
        own = (f"--glob={CANDIDATES}*", "--branches=accepte[d]")
        if runs:
            everything = (f"--glob={RUNS}*/candidates/*", f"--glob={RUNS}*/accepted")
            return entries_of(list(read_log(self._git.stream(*ALL_RUNS_ARGUMENTS, *own, *everything))))
        entries = entries_of(list(read_log(self._git.stream(*LOG_ARGUMENTS, *own))))
        return [entry for entry in entries if "/" not in entry.candidate]  # a parent may be another run's

    def page(self, size: int, *, before: str | None = None) -> list[LineageEntry]:
        """The newest `size` candidates, or the newest before candidate `before`; parents first.

        It reads nothing but these, so it takes the same time in a store of any size. Newer means later in
        the order of ids: c003-i02-m1 comes after c003-i01-m4.

        Raises:
            RepoError: there is no candidate `before`.
        """
        listed = self._git.run("for-each-ref", "--format=%(objectname) %(refname)", CANDIDATES, RUNS).decode()
        names: dict[str, str] = {}
        called: dict[str, str] = {}
        for sha, ref in map(str.split, listed.splitlines()):
            name = _name_of(ref)
            if name and "/" not in name:
                names[name], called[sha] = sha, name
            elif name:
                called.setdefault(sha, name)
        order = sorted(names, key=birth)
        if before is not None:
            if before not in names:
                raise RepoError(f"there is no candidate {before!r} in {shown(self.path)}")
            order = order[: order.index(before)]
        chosen = {names[name] for name in order[max(len(order) - size, 0) :]}
        if not chosen:
            return []
        revs = "".join(f"{sha}\n" for sha in sorted(chosen))
        commits = list(read_log([self._git.run(*LOG_ARGUMENTS, "--no-walk", "--stdin", stdin=revs.encode())]))
        return entries_of(commits, called, self.accepted())

    def note(self, rev: str) -> dict[str, Any] | None:
        """The latest score of a rev, older ones under `earlier`; None if it has none.

        Raises:
            RepoError: no such rev, or it is not a candidate's.
        """
        candidate = self.candidate_of(rev)
        own = self._note(NOTES, self._commit_of(candidate))
        # Of another run, or our own that a fork has scored too: ours lead.
        return own if own is not None or "/" not in candidate else self._note(SHARED_NOTES, self._commit_of(candidate))

    def _note(self, ref: str, commit: str) -> dict[str, Any] | None:
        notes = self._git.get(ref)
        return NotesTree(self._git.get, self._tree(notes.id)).read(commit) if notes else None

    def blame(self, path: str, rev: str = "accepted") -> list[BlamedLine]:
        """Each line of a file of a rev, with the proposal that brought it.

        Raises:
            RepoError: no such rev, or it has no such file.
        """
        commit = self._commit_of(self.candidate_of(rev))
        there = self.files(rev)
        if path not in there:
            raise RepoError(f"{rev} has no file {path!r}; it has {', '.join(map(shown, there))}")
        lines = list(read_porcelain(self._git.run(*BLAME_ARGUMENTS, commit, "--", path)))
        facts = {sha: self._brought(sha) for sha in {sha for sha, _, _ in lines}}
        return [BlamedLine(number, text, *facts[sha]) for sha, number, text in lines]

    def _brought(self, sha: str) -> tuple[str, float | None, ScoreChange | None]:
        try:
            note = self.note(sha)
            name = self.candidate_of(sha)
        except RepoError:
            return sha, None, None
        parent = self._git.get(f"{sha}^1")
        try:
            above = self.note(parent.id) if parent else None
        except RepoError:
            above = None
        score = (note or {}).get("score")
        return name, float(score) if isinstance(score, int | float) else None, score_change(note, above)

    def patches(self, entries: Iterable[LineageEntry]) -> dict[str, str]:
        """Candidate -> its diff to its first parent (all of it for a root), by one git call."""
        by_sha = {entry.sha: entry.candidate for entry in entries}
        if not by_sha:
            return {}
        out = self._git.run(
            "log", "--no-walk", "--stdin", "--format=%x00%H", "--patch", "--first-parent", "-m", "--root",
            "--no-show-signature", "--no-notes", *DIFF_ARGUMENTS,
            stdin="".join(f"{sha}\n" for sha in by_sha).encode(),
        )  # fmt: skip
        # Each line of a file stands behind a sign: none can begin with the NUL that begins a commit.
        _, *parts = re.split(r"(?m)^\0([0-9a-f]{40})$", out.decode("utf-8", "replace"))
        return {by_sha[sha]: patch.strip("\n") + "\n" for sha, patch in zip(parts[::2], parts[1::2], strict=True)}

    def size(self) -> StoreSize:
        """What the store takes on disk."""
        return packing.size(self._git)

    def accepted(self) -> list[Acceptance]:
        """The accepted history, h0 first."""
        return accepted_history(self._git)

    def candidate_of(self, sha: str) -> str:
        """The candidate that a commit, its own or an acceptance, belongs to; RUN/ID for another run's.

        Raises:
            RepoError: it belongs to none.
        """
        commit = self._object(self.resolve(sha))
        head, _, message = commit.data.decode("utf-8", "replace").partition("\n\n")
        facts = trailers(message)
        parents = [line.removeprefix("parent ") for line in head.split("\n") if line.startswith("parent ")]
        own = parents[-1] if "Serial" in facts and parents else commit.id
        name = facts.get("Candidate", "")
        there = self._git.get(CANDIDATES + name) if name else None
        if there is not None and there.id == own:
            return name
        listed = self._git.run("for-each-ref", f"--points-at={own}", "--format=%(refname)", RUNS).decode()
        for foreign in filter(None, map(_name_of, listed.splitlines())):
            return foreign
        raise RepoError(f"{sha} is no candidate's commit in {shown(self.path)}")

    def candidates_with(self, tree: str) -> list[str]:
        """All candidates whose files are exactly this tree, whoever proposed them in whichever run."""
        listed = self._git.run("for-each-ref", "--format=%(tree) %(refname)", CANDIDATES, RUNS).decode()
        pairs = (line.partition(" ") for line in listed.splitlines())
        found = {name for there, _, ref in pairs if there == tree and (name := _name_of(ref))}
        return sorted(found, key=lambda name: ("/" in name, birth(name), name))

    def verify(
        self,
        facts: Iterable[tuple[str, str] | tuple[int, str, str]],
        *,
        commits: Iterable[tuple[str, CommitFacts]] = (),
        scores: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
    ) -> list[str]:
        """Compare the store with what the log says and return the problems in words, none if all is well.

        It changes nothing; notes that are wrong are written anew by `HarnessRepo.rebuild_notes`.

        Args:
            facts: (candidate, tree) for each committed candidate, (serial, candidate, tree) for each
                acceptance, in any order.
            commits: (candidate, its facts), to compare the trailers too.
            scores: (candidate, note) of all scores, to compare the notes too; None leaves notes alone.
        """
        return verification.verify(self._git, facts, commits, scores)

    def _object(self, name: str) -> GitObject:
        found = self._git.get(name)
        if found is None:
            raise RepoError(f"the object {name} is missing from {shown(self.path)}")
        return found

    def _tree(self, commit: str) -> str:
        return self._object(f"{commit}^{{tree}}").id

    def _commit_of(self, candidate: str) -> str:
        run, _, name = candidate.rpartition("/")
        found = self._git.get(f"{RUNS}{run}/candidates/{name}" if run else CANDIDATES + candidate)
        if found is None:
            raise RepoError(f"there is no candidate {candidate!r} in {shown(self.path)}")
        return found.id


def _name_of(ref: str) -> str:
    """The candidate that a ref is, RUN/ID for another run's; nothing for any other ref."""
    if ref.startswith(CANDIDATES):
        return ref.removeprefix(CANDIDATES)
    foreign = FOREIGN.fullmatch(ref)
    return f"{foreign[1]}/{foreign[2]}" if foreign else ""


def _readings(base: str) -> list[str]:
    """The names in git's syntax that a name may stand for, the likeliest first."""
    if base == "accepted":
        return [ACCEPTED]
    if base.startswith("refs/"):
        return [base]
    readings = [CANDIDATES + base]
    cycle = re.fullmatch(r"c(\d+)", base)
    if cycle:
        readings.append(f"{TAGS}c{int(cycle[1]):03d}")
    if base.startswith("accepted/"):
        readings.append("refs/tags/" + base)
    elif "/" in base:
        run, _, name = base.partition("/")
        cycle = re.fullmatch(r"c(\d+)", name)
        part = "accepted" if name == "accepted" else f"tags/c{int(cycle[1]):03d}" if cycle else f"candidates/{name}"
        readings.append(f"{RUNS}{run}/{part}")
    if re.fullmatch(r"[0-9a-f]{4,40}", base):
        readings.append(base)
    return readings
