"""The harness store of a run: a bare Git repository that plain git can read.

Every write composes its objects, stores them by one `git unpack-objects --strict`, and then moves refs in
one transaction of `git update-ref`, with the values that it saw. Killed at any point, a write has done nothing
that shows, or all of it; done again with the same facts, it gives the same commit.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from whale.harness_repo import creation, packing, sharing
from whale.harness_repo.cleanroom import CleanGit, GitObject, shown
from whale.harness_repo.creation import PENDING, TAGS
from whale.harness_repo.errors import RefConflict, RepoError
from whale.harness_repo.lineage import (
    ACCEPTED,
    CANDIDATES,
    Acceptance,
)
from whale.harness_repo.locks import clear_stale_locks
from whale.harness_repo.message import CommitFacts, check_candidate, compose
from whale.harness_repo.notes import NOTES, NotesTree, merge
from whale.harness_repo.objects import tree_objects
from whale.harness_repo.packing import StoreSize
from whale.harness_repo.reading import HarnessReader
from whale.harness_repo.sharing import Pulled, Pushed
from whale.harness_repo.transaction import ATTEMPTS, NOTHING, move_refs, store_commit, store_objects


class HarnessRepo(HarnessReader):
    """Proposals, scores and acceptances of one run. A context manager; see `HarnessReader` for names."""

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Make the store, complete or not at all. One that is there is opened, locks cleared.

        Raises:
            RepoError: something else is at `path`.
        """
        where = Path(path).absolute()
        if where.exists():
            return cls.open(where, exclusive=True)
        creation.create(where)
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

    def fork(
        self,
        path: str | os.PathLike[str],
        candidates: Iterable[str],
        acceptances: int,
        *,
        pending: Iterable[str] = (),
    ) -> None:
        """Make a new store with a part of this one: the same commits under the same ids, and no notes.

        Args:
            path: does not exist yet; the store is there complete or not at all.
            candidates: ids of the candidates to take. Commits of parents that are not among them come
                along without their refs.
            acceptances: how many of the accepted history, with their tags, h0 first.
            pending: trees that are proposed and not committed at this point (`propose` needs them).

        Raises:
            RepoError: `path` exists, or a candidate, an acceptance or a tree is not in this store.
        """
        creation.fork(self._git, Path(path).absolute(), candidates, acceptances, pending)

    def push(self, remote: str, *, run: str) -> Pushed:
        """Bring the whole store to a Git remote under the run's name there, all or nothing (`sharing`).

        Raises:
            NameTaken: the remote has another run of that name, or one that was continued elsewhere.
            RepoError: `run` cannot be a name there, or the remote cannot be reached or refuses.
        """
        return sharing.push(self._git, remote, sharing.check_run_name(run))

    def pull(self, remote: str, *, run: str) -> Pulled:
        """Fetch what the other runs have on a Git remote. Nothing of this run, called `run`, changes.

        Their candidates are RUN/ID in all names, and `lineage(runs=True)` shows them.

        Raises:
            NameTaken: the remote has another run that is called as this one is.
            RepoError: the remote cannot be reached, or a run there was rewritten.
        """
        return sharing.pull(self._git, remote, sharing.check_run_name(run))

    @property
    def shared_name(self) -> str:
        """What this run is called on remotes, once it has been said; else nothing."""
        _, out, _ = self._git.complete("config", "--get", "whale.name")
        return out.decode("utf-8", "replace").strip()

    @shared_name.setter
    def shared_name(self, name: str) -> None:
        if name != self.shared_name:
            self._git.run("config", "whale.name", name)

    def pack(self, *, expire: str = "1.hour.ago") -> StoreSize:
        """Pack objects and refs and return what they take now.

        Safe beside other writers: what nothing leads to is dropped only once it is older than `expire`.
        """
        packing.pack(self._git, expire=expire)
        return packing.size(self._git)

    def write_tree(self, files: Mapping[str, bytes]) -> str:
        """Store files (path -> content) and return the tree's id. Nothing shows until it is proposed.

        Raises:
            RepoError: a path or size is not allowed (`objects.check_files`).
        """
        tree, objects = tree_objects(files)
        store_objects(self._git, objects)
        move_refs(self._git, {PENDING + tree: (tree, None)})
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
        for _ in range(ATTEMPTS):
            present = self._git.get(ref)
            if present is not None:
                there = self._tree(present.id)
                if there != tree:
                    raise RepoError(f"{candidate} is already committed with the tree {there}, not {tree}")
                if self._git.get(PENDING + tree) is not None:  # written again after a crash
                    with contextlib.suppress(RefConflict):
                        move_refs(self._git, {PENDING + tree: (None, tree)})
                return present.id
            found = self._git.get(tree)
            if found is None or found.kind != "tree":
                raise RepoError(f"{candidate}: the tree {tree} is not in {shown(self.path)}: write it first")
            above = [self._commit_of(parent) for parent in dict.fromkeys(parents)]
            sha = store_commit(self._git, tree, above, facts.seconds, compose(candidate, facts))
            moves: dict[str, tuple[str | None, str | None]] = {ref: (sha, NOTHING)}
            if self._git.get(PENDING + tree) is not None:
                moves[PENDING + tree] = (None, tree)
            try:
                move_refs(self._git, moves)
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
        for _ in range(ATTEMPTS):
            old = self._git.get(NOTES)
            notes = NotesTree(self._git.get, self._tree(old.id) if old else None)
            merged = merge(notes.read(commits[0]), note)
            for commit in commits:
                notes.write(commit, merged)
            try:
                move_refs(self._git, self._notes_move(notes, old))
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
        listed = self._git.run("for-each-ref", "--format=%(objectname) %(refname)", CANDIDATES).decode()
        commits = {ref.removeprefix(CANDIDATES): sha for sha, ref in map(str.split, listed.splitlines())}
        for candidate, whole in merged.items():
            notes.write(commits.get(candidate) or self._commit_of(candidate), whole)
        for acceptance in self.accepted():
            if acceptance.candidate in merged:
                notes.write(acceptance.sha, merged[acceptance.candidate])
        move_refs(self._git, self._notes_move(notes, self._git.get(NOTES)))
        return len(merged)

    def accept(self, serial: int, candidate: str, tree: str, facts: CommitFacts, *, revert: bool = False) -> str:
        """Make a candidate the accepted harness and return the merge commit's id.

        Again with the same serial, it returns the commit that is there, and mends its tag. The tag is
        `accepted/c003` for cycle 3; a second acceptance in a cycle gets `accepted/c003-accept-<serial>`, and a
        revert `accepted/c003-revert-<serial>`.

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
            move_refs(self._git, self._tag_move(there.sha, serial, there.cycle, history, revert=revert))
            return there.sha
        if serial > len(history):
            raise RepoError(f"acceptance {serial} would leave a gap: there are {len(history)} so far")
        previous = history[-1].sha if history else None
        parents = [previous, commit] if previous else [commit]
        message = compose(candidate, facts, serial=serial)
        sha = store_commit(self._git, tree, parents, facts.seconds, message)
        moves: dict[str, tuple[str | None, str | None]] = {ACCEPTED: (sha, previous or NOTHING)}
        moves |= self._tag_move(sha, serial, facts.cycle, history, revert=revert)
        old = self._git.get(NOTES)
        notes = NotesTree(self._git.get, self._tree(old.id) if old else None)
        note = notes.read(commit)
        if note is not None:
            notes.write(sha, note)
            moves |= self._notes_move(notes, old)
        move_refs(self._git, moves)
        return sha

    def _notes_move(self, notes: NotesTree, old: GitObject | None) -> dict[str, tuple[str | None, str | None]]:
        """Store the notes; the move of their ref, or none if nothing changed.

        The notes' commit has no parent and a fixed date: `git log --all` shows it once, at the end.
        """
        tree, objects = notes.objects()
        if old is not None and self._tree(old.id) == tree:
            return {}
        message = "Scores, rebuilt from the event log at any time\n"
        sha = store_commit(self._git, tree, [], 0, message, objects)
        return {NOTES: (sha, old.id if old else NOTHING)}

    def _tag_move(
        self, sha: str, serial: int, cycle: int, history: Sequence[Acceptance], *, revert: bool
    ) -> dict[str, tuple[str | None, str | None]]:
        """The move that gives acceptance `serial` its tag, if it has none.

        A tag on a commit outside the history was left by an acceptance that a kill cut short.
        """
        plain = f"{TAGS}c{cycle:03d}"
        special = f"{plain}-{'revert' if revert else 'accept'}-{serial}"
        others = {a.sha for a in history if a.serial != serial}
        found = {name: self._git.get(name) for name in (plain, special)}
        if any(there is not None and there.id == sha for there in found.values()):
            return {}
        there = found[plain]
        name = special if revert or (there is not None and there.id in others) else plain
        there = found[name]
        return {name: (sha, there.id if there else NOTHING)}
