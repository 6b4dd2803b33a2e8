"""The harness store of a run: a bare Git repository that plain git can read.

Every write composes its objects, stores them by one `git unpack-objects --strict`, and then moves refs by
one `git update-ref --stdin` with the values that it saw. Killed at any point, a write has done nothing that
shows, or all of it; done again with the same facts, it gives the same commit.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whale.harness_repo import verification
from whale.harness_repo.cleanroom import CleanGit, GitObject, shown
from whale.harness_repo.errors import RefConflict, RepoError
from whale.harness_repo.lineage import (
    ACCEPTED,
    CANDIDATES,
    LOG_ARGUMENTS,
    Acceptance,
    LineageEntry,
    accepted_history,
    entries_of,
    read_log,
)
from whale.harness_repo.locks import clear_stale_locks
from whale.harness_repo.message import CommitFacts, check_candidate, compose, trailers
from whale.harness_repo.notes import NotesTree, merge
from whale.harness_repo.objects import TREE_MODE, Kind, commit_bytes, object_id, pack, read_tree, tree_objects

TAGS = "refs/tags/accepted/"
NOTES = "refs/notes/whale"
PENDING = "refs/whale/pending/"
"""Trees that are written and not yet committed, so that `git gc --prune=now` leaves them alone."""

_NOTHING = "0" * 40
_ATTEMPTS = 8
"""Tries of a compare-and-swap that another writer may win."""

_STORE_CONFIG = """\
[notes]
\tdisplayRef = refs/notes/whale
[log]
\texcludeDecoration = refs/whale/
"""


class HarnessRepo:
    """Proposals, scores and acceptances of one run. A context manager; `close()` ends its reader process.

    Names of harnesses ("rev" below): a candidate id, `accepted`, `accepted~1`, a cycle such as `c003` (what
    was accepted in it), a full ref, or a full or short commit id.
    """

    def __init__(self, path: Path, git: CleanGit) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._git = git

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Make the store, complete or not at all. One that is there is opened, locks cleared.

        Raises:
            RepoError: something else is at `path`.
        """
        where = Path(path).absolute()
        if where.exists():
            return cls.open(where, exclusive=True)
        making = where.with_name(where.name + ".creating")
        shutil.rmtree(making, ignore_errors=True)
        CleanGit(making).run(
            "init", "--bare", "--quiet", "--template=", "--object-format=sha1", "--initial-branch=accepted"
        )
        with (making / "config").open("a") as config:
            config.write(_STORE_CONFIG)
        making.rename(where)
        return cls.open(where)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, exclusive: bool = False) -> Self:
        """Open a store. `exclusive` (the caller holds the run's lease) clears locks of a killed git.

        Raises:
            RepoError: there is no store, or a living process holds a lock in it.
            GitMissing: there is no usable git.
        """
        where = Path(path).absolute()
        if not ((where / "HEAD").is_file() and (where / "objects").is_dir() and (where / "refs").is_dir()):
            raise RepoError(f"{shown(where)} is not a harness store: name a run's harnesses.git")
        if exclusive:
            clear_stale_locks(where)
        return cls(where, CleanGit(where))

    def close(self) -> None:
        """End the reader process."""
        self._git.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing ---

    def write_tree(self, files: Mapping[str, bytes]) -> str:
        """Store files (path -> content) and return the tree's id. Nothing shows until it is proposed.

        Raises:
            RepoError: a path or size is not allowed (`objects.check_files`).
        """
        tree, objects = tree_objects(files)
        self._store(objects)
        self._move({PENDING + tree: (tree, None)})
        return tree

    def propose(self, candidate: str, tree: str, parents: Sequence[str], facts: CommitFacts) -> str:
        """Commit a candidate with its lineage and return the commit's id.

        Again with the same tree, it returns the commit that is there.

        Args:
            candidate: its id, and its ref under refs/whale/candidates/.
            tree: from `write_tree`, or any harness tree in the store.
            parents: candidate ids, none for the root, two for a crossover.
            facts: go into the message; `facts.when` is the commit's date.

        Raises:
            RepoError: the id is not one, is taken by another tree, or a parent or the tree is missing.
        """
        ref = CANDIDATES + check_candidate(candidate)
        for _ in range(_ATTEMPTS):
            present = self._git.get(ref)
            if present is not None:
                there = self._tree(present.id)
                if there != tree:
                    raise RepoError(f"{candidate} is already committed with the tree {there}, not {tree}")
                return present.id
            found = self._git.get(tree)
            if found is None or found.kind != "tree":
                raise RepoError(f"{candidate}: the tree {tree} is not in {shown(self.path)}: write it first")
            above = [self._commit_of(parent) for parent in dict.fromkeys(parents)]
            sha = self._commit(tree, above, facts, compose(candidate, facts))
            moves: dict[str, tuple[str | None, str | None]] = {ref: (sha, _NOTHING)}
            if self._git.get(PENDING + tree) is not None:
                moves[PENDING + tree] = (None, tree)
            try:
                self._move(moves)
            except RefConflict as error:
                conflict = error
                continue
            return sha
        raise conflict

    def record_score(self, candidate: str, note: Mapping[str, Any]) -> None:
        """Note a late fact on the candidate and on its acceptances, in place of one under the same weights.

        Args:
            candidate: its id.
            note: `score`, `low`, `high`, `n`, `weights`, `cycle`, `iteration` and whatever else goes into
                JSON; without `score`, its `reason` is shown.

        Raises:
            RepoError: no such candidate, or the note does not go into JSON.
        """
        commits = [self._commit_of(candidate)]
        commits += [a.sha for a in self.accepted() if a.candidate == candidate]
        for _ in range(_ATTEMPTS):
            old = self._git.get(NOTES)
            notes = NotesTree(self._git.get, self._tree(old.id) if old else None)
            merged = merge(notes.read(commits[0]), note)
            for commit in commits:
                notes.write(commit, merged)
            try:
                self._move(self._notes_move(notes, old))
            except RefConflict as error:
                conflict = error
                continue
            return
        raise conflict

    def rebuild_notes(self, scores: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
        """Write all notes anew from (candidate, note), and return how many candidates have one.

        Raises:
            RepoError: no such candidate, or a note does not go into JSON.
        """
        merged: dict[str, dict[str, Any]] = {}
        for candidate, note in scores:
            merged[candidate] = merge(merged.get(candidate), note)
        notes = NotesTree(self._git.get, None)
        for candidate, whole in merged.items():
            notes.write(self._commit_of(candidate), whole)
        for acceptance in self.accepted():
            if acceptance.candidate in merged:
                notes.write(acceptance.sha, merged[acceptance.candidate])
        self._move(self._notes_move(notes, self._git.get(NOTES)))
        return len(merged)

    def accept(
        self, serial: int, candidate: str, tree: str, facts: CommitFacts, *, revert: bool = False
    ) -> str:
        """Make a candidate the accepted harness and return the merge commit's id.

        Again with the same serial, it returns the commit that is there, and mends its tag. The tag is
        `accepted/c003` for cycle 3; a revert, or a second acceptance in a cycle, gets
        `accepted/c003-revert-<serial>`.

        Args:
            serial: counts h0, acceptances and reverts from 0, without gaps.
            candidate: its id; it was proposed before.
            tree: the candidate's tree.
            facts: go into the message.
            revert: this goes back to an earlier harness.

        Raises:
            RepoError: the serial is taken by another harness or leaves a gap, or the tree is not the
                candidate's.
        """
        history = self.accepted()
        commit = self._commit_of(candidate)
        if self._tree(commit) != tree:
            raise RepoError(f"accept {candidate}: its tree is {self._tree(commit)}, not {tree}")
        if serial < len(history):
            there = history[serial]
            if (there.candidate, there.tree) != (candidate, tree):
                raise RepoError(f"acceptance {serial} is {there.candidate} already, not {candidate}")
            self._move(self._tag_move(there.sha, serial, there.cycle, history, revert=revert))
            return there.sha
        if serial > len(history):
            raise RepoError(f"acceptance {serial} would leave a gap: there are {len(history)} so far")
        previous = history[-1].sha if history else None
        parents = [previous, commit] if previous else [commit]
        sha = self._commit(tree, parents, facts, compose(candidate, facts, serial=serial))
        moves: dict[str, tuple[str | None, str | None]] = {ACCEPTED: (sha, previous or _NOTHING)}
        moves |= self._tag_move(sha, serial, facts.cycle, history, revert=revert)
        old = self._git.get(NOTES)
        notes = NotesTree(self._git.get, self._tree(old.id) if old else None)
        note = notes.read(commit)
        if note is not None:
            notes.write(sha, note)
            moves |= self._notes_move(notes, old)
        self._move(moves)
        return sha

    # --- reading ---

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
        out = self._git.run(
            "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
            "--find-renames", "--unified=3", "--diff-algorithm=histogram", f"-O{os.devnull}",
            self.tree_id(a), self.tree_id(b), "--",
        )  # fmt: skip
        return out.decode("utf-8", "replace")

    def lineage(self) -> list[LineageEntry]:
        """All candidates with their latest notes, parents first, by one git call."""
        out = self._git.run(*LOG_ARGUMENTS, f"--glob={CANDIDATES}*", "--branches=accepte[d]")
        return entries_of(list(read_log(out)))

    def accepted(self) -> list[Acceptance]:
        """The accepted history, h0 first."""
        return accepted_history(self._git)

    def candidate_of(self, sha: str) -> str:
        """The candidate that a commit, its own or an acceptance, belongs to.

        Raises:
            RepoError: it belongs to none.
        """
        message = self._object(self.resolve(sha)).data.decode("utf-8", "replace").partition("\n\n")[2]
        candidate = trailers(message).get("Candidate", "")
        if not candidate or self._git.get(CANDIDATES + candidate) is None:
            raise RepoError(f"{sha} is no candidate's commit in {shown(self.path)}")
        return candidate

    def verify(self, facts: Iterable[tuple[str, str] | tuple[int, str, str]]) -> list[str]:
        """Compare the store with what the log says and return the problems in words, none if all is well.

        Args:
            facts: (candidate, tree) for each committed candidate, (serial, candidate, tree) for each
                acceptance, in any order.
        """
        return verification.verify(self._git, facts)

    # --- inside ---

    def _object(self, name: str) -> GitObject:
        found = self._git.get(name)
        if found is None:
            raise RepoError(f"the object {name} is missing from {shown(self.path)}")
        return found

    def _tree(self, commit: str) -> str:
        return self._object(f"{commit}^{{tree}}").id

    def _commit_of(self, candidate: str) -> str:
        found = self._git.get(CANDIDATES + candidate)
        if found is None:
            raise RepoError(f"there is no candidate {candidate!r} in {shown(self.path)}")
        return found.id

    def _commit(self, tree: str, parents: Sequence[str], facts: CommitFacts, message: str) -> str:
        data = commit_bytes(tree, parents, facts.seconds, message)
        self._store([("commit", data)])
        return object_id("commit", data)

    def _store(self, objects: Sequence[tuple[Kind, bytes]]) -> None:
        unique = dict.fromkeys(objects)
        self._git.run("unpack-objects", "-q", "--strict", stdin=pack(unique))

    def _move(self, moves: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Set refs: name -> (new or None to delete, expected old or None for any), all or none.

        Raises:
            RefConflict: a ref is not at the expected value.
        """
        if not moves:
            return
        lines = ["start"]
        for ref, (new, old) in moves.items():
            lines.append(" ".join(filter(None, ("update" if new else "delete", ref, new, old))))
        # Without the closing commit, input that a kill cut short is dropped as a whole.
        text = "\n".join([*lines, "prepare", "commit", ""])
        try:
            self._git.run("update-ref", "--stdin", stdin=text.encode())
        except RepoError as error:
            if "cannot lock ref" in str(error) and "File exists" not in str(error):
                raise RefConflict(str(error)) from error
            raise

    def _notes_move(
        self, notes: NotesTree, old: GitObject | None
    ) -> dict[str, tuple[str | None, str | None]]:
        """Store the notes; the move of their ref, or none if nothing changed.

        The notes' commit has no parent and a fixed date: `git log --all` shows it once, at the end.
        """
        tree, objects = notes.objects()
        if old is not None and self._tree(old.id) == tree:
            return {}
        data = commit_bytes(tree, [], 0, "Scores, rebuilt from the event log at any time\n")
        self._store([*objects, ("commit", data)])
        return {NOTES: (object_id("commit", data), old.id if old else _NOTHING)}

    def _tag_move(
        self, sha: str, serial: int, cycle: int, history: Sequence[Acceptance], *, revert: bool
    ) -> dict[str, tuple[str | None, str | None]]:
        """The move that gives acceptance `serial` its tag, if it has none.

        A tag on a commit outside the history was left by an acceptance that a kill cut short.
        """
        plain, special = f"{TAGS}c{cycle:03d}", f"{TAGS}c{cycle:03d}-revert-{serial}"
        others = {a.sha for a in history if a.serial != serial}
        found = {name: self._git.get(name) for name in (plain, special)}
        if any(there is not None and there.id == sha for there in found.values()):
            return {}
        there = found[plain]
        name = special if revert or (there is not None and there.id in others) else plain
        there = found[name]
        return {name: (sha, there.id if there else _NOTHING)}


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
    if re.fullmatch(r"[0-9a-f]{4,40}", base):
        readings.append(base)
    return readings
